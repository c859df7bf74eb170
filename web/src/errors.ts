// The errors of values, in order of execution.

import type { Cell, Numerics } from "./document";
import { asNumber } from "./format";

/** The metric of each row of the numerics' table: NaN where it is not a number. */
export const errorsOf = (numerics: Numerics): (number | null)[] =>
  errorCells(numerics).map((cell) => (cell === "NaN" ? NaN : asNumber(cell)));

/** The same as the document has it. */
export function errorCells(numerics: Numerics): Cell[] {
  const { values, columns } = numerics.table;
  const name = ["total", numerics.metric, "error"].find((one) =>
    columns.some((column) => column.name === one),
  );
  return name === undefined ? [] : values[name]!;
}

const SERIES = [
  ["total", "accent"],
  ["local", "hot"],
  ["noise", "muted"],
] as const;

export const WRONG = "wrong";
const NAN = "not a number";

export const isMark = (name: string): boolean => name === WRONG || name === NAN;

export interface ErrorLine {
  name: string;
  tone: string;
  /** What is drawn of each row. */
  values: (number | null)[];
}

/**
 * The lines of the chart, and whether they span magnitudes. A wrong value, or one that is not a number,
 * is marked at the worst number drawn if it has none of its own.
 */
export function errorLines(numerics: Numerics): { lines: ErrorLine[]; log: boolean } {
  const { values } = numerics.table;
  const column = (name: string): (number | null)[] =>
    values[name]?.map((value) => (typeof value === "number" ? value : null)) ?? [];
  const named = SERIES.filter(([name]) => column(name).some((value) => value !== null));
  const lines: ErrorLine[] = named.length
    ? named.map(([name, tone]) => ({ name, tone, values: column(name) }))
    : [{ name: numerics.metric, tone: "accent", values: errorsOf(numerics) }];
  const positive = lines
    .flatMap((one) => one.values)
    .filter((one): one is number => one !== null && Number.isFinite(one) && one > 0);
  // Errors span magnitudes; a ratio in dB is a logarithm already.
  const log =
    numerics.largerIsWorse && positive.length > 1 && Math.max(...positive) / Math.min(...positive) > 100;
  for (const line of lines)
    line.values = line.values.map((value) =>
      value === null || !Number.isFinite(value) || (log && value <= 0) ? null : value,
    );
  const drawn = lines.flatMap((one) => one.values).filter((one) => one !== null);
  const edge = drawn.length ? (numerics.largerIsWorse ? Math.max(...drawn) : Math.min(...drawn)) : 1;
  const own = (lines.find((one) => one.name === "local") ?? lines[0]!).values;
  const verdicts = values["verdict"] ?? [];
  const marks: ErrorLine[] = [
    { name: NAN, tone: "bad", values: own.map((_, at) => (isNan(numerics, at) ? edge : null)) },
    {
      name: WRONG,
      tone: "bad",
      values: own.map((value, at) => (verdicts[at] === WRONG ? (value ?? edge) : null)),
    },
  ];
  return { lines: [...lines, ...marks.filter((one) => one.values.some((value) => value !== null))], log };
}

/** Whether an error of the row is not a number. */
const isNan = ({ table, metric }: Numerics, row: number): boolean =>
  ["total", "local", metric, "error"].some((name) => table.values[name]?.[row] === "NaN");
