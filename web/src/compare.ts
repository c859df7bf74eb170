// Two profiles side by side: rows joined by what they are called and where they come from.

import type { Cell, Column, Method, Run, TableDoc } from "./document";
import { asNumber, convertedTime, plainText } from "./format";
import { median, rowsIn } from "./tables";

export interface Side {
  run: Run;
  method: Method;
}

/** The statistic that is compared: a column of the rows. */
export const STATISTICS = ["avg", "p50", "p90", "min", "max", "first"] as const;
export type Statistic = (typeof STATISTICS)[number];

export interface Comparison {
  table: TableDoc;
  /** For each row: the row of each side, or null. */
  a: (number | null)[];
  b: (number | null)[];
}

/** Fewer runs than this say nothing of noise. */
export const LEAST_SAMPLES = 5;

type Pair = { a: number | null; b: number | null; depth: number };

/**
 * Rows of both methods with the difference of a statistic. Throws if their units cannot be compared.
 *
 * Rows are joined, each with one of the other side, first by event, module and source line, then by
 * event and line, by operators and line, and by event alone; rows of the same key in order of
 * execution. Events of a delegate are joined within their call.
 */
export function compare(a: Side, b: Side, statistic: Statistic): Comparison {
  const convert = converter(b.run.unit, a.run.unit);
  const pairs = joined(a.method.rows, b.method.rows);
  const unit = a.run.unit;
  const timesA = times(a.method, statistic, (value) => value);
  const timesB = times(b.method, statistic, convert);
  const noise = pairs.map((pair) => noiseOf(a.method, b.method, pair, convert));
  const cells = pairs.map((pair, at) => {
    const [one, other] = [timesA(pair.a), timesB(pair.b)];
    const difference = one !== null && other !== null ? other - one : null;
    return { one, other, difference, verdict: verdictOf(pair, difference, noise[at]!) };
  });
  const text = (name: string): Cell[] =>
    pairs.map(
      ({ a: one, b: other }) => cellOf(a.method.rows, name, one) ?? cellOf(b.method.rows, name, other),
    );
  const columns: [Column, Cell[]][] = [
    [column("event", "event", "text", null, 0), text("event")],
    [column("verdict", "verdict", "text", null, 0), cells.map((cell) => cell.verdict)],
    [column("a", `A ${statistic}`, "duration", unit, 0), cells.map((cell) => cell.one)],
    [column("b", `B ${statistic}`, "duration", unit, 0), cells.map((cell) => cell.other)],
    [column("difference", "B − A", "duration", unit, 0), cells.map((cell) => cell.difference)],
    [
      column("relative", "relative", "share", null, 0),
      cells.map(({ one, difference }) => (difference === null || !one ? null : difference / one)),
    ],
    [column("noise", "noise", "duration", unit, 1), noise],
    [column("module", "module", "path", null, 2), text("module")],
    [column("source", "source", "path", null, 1), text("source")],
    [column("op_types", "ops", "list", null, 3), text("op_types")],
    [column("row_a", "row A", "int", null, 9), pairs.map((pair) => pair.a)],
    [column("row_b", "row B", "int", null, 9), pairs.map((pair) => pair.b)],
  ];
  const breaks = pairs.findIndex((pair) => isTotal(a.method.rows, pair.a) || isTotal(b.method.rows, pair.b));
  return {
    table: {
      title: `${a.run.name} and ${b.run.name}`,
      columns: columns.map(([one]) => one),
      values: Object.fromEntries(columns.map(([one, values]) => [one.name, values])),
      notes: [],
      depth: pairs.map((pair) => pair.depth),
      breaks: breaks < 0 ? [] : [breaks],
    },
    a: pairs.map((pair) => pair.a),
    b: pairs.map((pair) => pair.b),
  };
}

/** How times of one side become times of the other. */
export function converter(from: string, to: string): (value: number) => number {
  if (convertedTime(0, from, to) === null) {
    throw new Error(`Times in ${from} and in ${to} cannot be compared: how long one lasts is in no file.`);
  }
  return (value) => convertedTime(value, from, to)!;
}

/** Scaled median absolute deviation: the standard deviation of normal samples, deaf to outliers. */
export function spread(samples: readonly (number | null)[] | null | undefined): number | null {
  const numbers = (samples ?? []).filter((one): one is number => one !== null);
  if (numbers.length < LEAST_SAMPLES) return null;
  const middle = median(numbers)!;
  return 1.4826 * median(numbers.map((one) => Math.abs(one - middle)))!;
}

function noiseOf(a: Method, b: Method, pair: Pair, convert: (value: number) => number): number | null {
  if (pair.a === null || pair.b === null) return null;
  const one = spread(a.samples[pair.a]);
  const other = spread(b.samples[pair.b]);
  return one === null || other === null ? null : Math.hypot(one, convert(other));
}

function verdictOf(pair: Pair, difference: number | null, noise: number | null): string | null {
  if (pair.a === null) return "only in B";
  if (pair.b === null) return "only in A";
  if (difference === null || noise === null) return null;
  if (Math.abs(difference) <= noise) return "within noise";
  return difference > 0 ? "slower" : "faster";
}

function times(
  method: Method,
  statistic: Statistic,
  convert: (value: number) => number,
): (row: number | null) => number | null {
  const values = method.rows.values[statistic] ?? [];
  return (row) => {
    const value = row === null ? null : asNumber(values[row]);
    return value === null ? null : convert(value);
  };
}

function cellOf(table: TableDoc, name: string, row: number | null): Cell {
  return row === null ? null : (table.values[name]?.[row] ?? null);
}

const column = (
  name: string,
  title: string,
  kind: Column["kind"],
  unit: string | null,
  priority: number,
): Column => ({
  name,
  title,
  kind,
  unit,
  priority,
});

const isTotal = (table: TableDoc, row: number | null): boolean =>
  row !== null && (table.breaks?.length ?? 0) > 0 && row >= Math.min(...table.breaks!);

interface Node {
  row: number;
  below: number[];
}

function joined(a: TableDoc, b: TableDoc): Pair[] {
  const [treeA, treeB] = [tree(a), tree(b)];
  const [heldA, heldB] = [treeA, treeB].map((nodes) => new Map(nodes.map((n) => [n.row, n.below]))) as [
    Map<number, number[]>,
    Map<number, number[]>,
  ];
  const pairs: Pair[] = [];
  for (const [one, other] of matched(
    a,
    treeA.map((n) => n.row),
    b,
    treeB.map((n) => n.row),
  )) {
    pairs.push({ a: one, b: other, depth: 0 });
    const belowA = (one === null ? undefined : heldA.get(one)) ?? [];
    const belowB = (other === null ? undefined : heldB.get(other)) ?? [];
    for (const [low, high] of matched(a, belowA, b, belowB)) pairs.push({ a: low, b: high, depth: 1 });
  }
  // What has only the second side stands after the rest, but before the totals.
  const closes = (pair: Pair): boolean => isTotal(a, pair.a) || isTotal(b, pair.b);
  return [...pairs.filter((pair) => !closes(pair)), ...pairs.filter(closes)];
}

/** Undivided rows with all that hangs below each. */
function tree(table: TableDoc): Node[] {
  const nodes: Node[] = [];
  for (let row = 0; row < rowsIn(table); row++) {
    if (table.depth?.[row] && nodes.length) nodes.at(-1)!.below.push(row);
    else nodes.push({ row, below: [] });
  }
  return nodes;
}

const KEYS: readonly (readonly string[])[] = [
  ["kind", "event", "module", "source"],
  ["event", "source"],
  ["op_types", "module", "source"],
  ["event"],
];

type Match = [number | null, number | null];

function matched(a: TableDoc, rowsA: number[], b: TableDoc, rowsB: number[]): Match[] {
  const partner = new Map<number, number>();
  const taken = new Set<number>();
  for (const names of KEYS) {
    const waiting = new Map<string, number[]>();
    for (const row of rowsB) {
      if (taken.has(row)) continue;
      const key = keyOf(b, names, row);
      if (key === null) continue;
      const list = waiting.get(key);
      if (list) list.push(row);
      else waiting.set(key, [row]);
    }
    for (const row of rowsA) {
      if (partner.has(row)) continue;
      const key = keyOf(a, names, row);
      const other = key === null ? undefined : waiting.get(key)?.shift();
      if (other === undefined) continue;
      partner.set(row, other);
      taken.add(other);
    }
  }
  return [
    ...rowsA.map((row): Match => [row, partner.get(row) ?? null]),
    ...rowsB.filter((row) => !taken.has(row)).map((row): Match => [null, row]),
  ];
}

function keyOf(table: TableDoc, names: readonly string[], row: number): string | null {
  const parts = names.map((name) => plainText(table.values[name]?.[row]));
  // Rows are not the same because nothing is known of both: all but the kind and module must be there.
  if (names.some((name, at) => (name === "event" || name === "op_types") && parts[at] === "")) return null;
  if (names[0] === "op_types" && parts[2] === "") return null;
  return parts.join("\u0000");
}
