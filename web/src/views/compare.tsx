// Two profiles side by side: two runs, or two methods of one.

import { useMemo } from "preact/hooks";
import type { ComponentChildren } from "preact";
import {
  compare,
  LEAST_SAMPLES,
  spread,
  STATISTICS,
  type Comparison,
  type Side,
  type Statistic,
} from "../compare";
import type { Cell, ReportDocument } from "../document";
import { filterRows } from "../filter";
import { formatShare, visible } from "../format";
import { control, doc, indexControl, methodIndex, runIndex, select, showRun } from "../store";
import { bodyAndTotals, sortRows, tableFormats } from "../tables";
import { useGrid } from "../parts/grid";
import { Nothing } from "../parts/nothing";
import { Series } from "../parts/series";
import { useWidth } from "../parts/size";
import { DataTable } from "../parts/table";
import { ColumnChooser, CsvButton, FilterBox, Select, useFilter } from "../parts/toolbar";
import { sortKey } from "./events";

/** "run:method" of each side; "" until the reader chooses. */
const sideA = control("compare.a", "");
const sideB = control("compare.b", "");
const statistic = control("compare.of", "p50", STATISTICS);
const filter = control("compare.filter", "");
const chosen = indexControl("compare.row");

export function Compare() {
  const sides = sidesOf(doc.value);
  if (sides.length < 2) {
    return (
      <Nothing>
        {sides.length === 1
          ? "There is one profile in this report. Give a second dump to compare them"
          : "There is no profile in this report: it was made without a dump. Give two dumps to compare them"}
        : etscope report A.etdp B.etdp …
      </Nothing>
    );
  }
  const a = sides.find((one) => one.key === sideA.value) ?? sides[0]!;
  const b = sides.find((one) => one.key === sideB.value) ?? otherThan(sides, a);
  return <Sides sides={sides} a={a} b={b} />;
}

// The rows' numbers on both sides can be chosen, but say little.
const SHOWN = [
  "event",
  "verdict",
  "a",
  "b",
  "difference",
  "relative",
  "noise",
  "module",
  "source",
  "op_types",
];

interface Named extends Side {
  key: string;
  name: string;
  at: [run: number, method: number];
}

function sidesOf(report: ReportDocument): Named[] {
  return report.runs.flatMap((run, r) =>
    run.methods.map(
      (method, m): Named => ({
        key: `${r}:${m}`,
        name: visible(nameOf(report, run.name, method.name, run.methods.length)),
        run,
        method,
        at: [r, m],
      }),
    ),
  );
}

/** What tells the side from the others comes first. */
function nameOf(report: ReportDocument, run: string, method: string, methods: number): string {
  if (methods === 1) return run;
  return report.runs.length === 1 ? method : `${method} · ${run}`;
}

/** The same method of another run, else any other. */
function otherThan(sides: Named[], a: Named): Named {
  return (
    sides.find((one) => one.run !== a.run && one.method.name === a.method.name) ??
    sides.find((one) => one.key !== a.key)!
  );
}

function Sides({ sides, a, b }: { sides: Named[]; a: Named; b: Named }) {
  const options = sides.map((one) => [one.key, one.name] as const);
  const result = useMemo(() => {
    try {
      return compare(a, b, statistic.value);
    } catch (error) {
      return error as Error;
    }
  }, [a.method, b.method, statistic.value]);
  const controls = (
    <>
      <Select
        label="A"
        value={a.key}
        options={options}
        onChange={(key) => (sideA.value = key)}
        testId="side-a"
      />
      <button
        class="icon"
        title="Swap A and B"
        aria-label="Swap A and B"
        onClick={() => ([sideA.value, sideB.value] = [b.key, a.key])}
      >
        ⇄
      </button>
      <Select
        label="B"
        value={b.key}
        options={options}
        onChange={(key) => (sideB.value = key)}
        testId="side-b"
      />
      <Select
        label="of"
        value={statistic.value}
        options={STATISTICS.map((one) => [one, one] as const)}
        onChange={(key) => (statistic.value = key as Statistic)}
        testId="statistic"
      />
    </>
  );
  if (result instanceof Error) {
    return (
      <div class="view">
        <div class="toolbar">{controls}</div>
        <Nothing>{result.message}</Nothing>
      </div>
    );
  }
  return <Joined key={`${a.key}${b.key}`} a={a} b={b} result={result} controls={controls} />;
}

function Joined({
  a,
  b,
  result,
  controls,
}: {
  a: Named;
  b: Named;
  result: Comparison;
  controls: ComponentChildren;
}) {
  const { table } = result;
  const [place, width] = useWidth<HTMLDivElement>();
  const formats = useMemo(() => {
    const made = tableFormats(table);
    for (const name of ["difference", "relative"]) made[name] = signed(made[name]!);
    return made;
  }, [table]);
  const grid = useGrid("compare", table, formats, width - 14, SHOWN);
  const { test, problem } = useFilter(filter.value, table);
  const { body, totals } = useMemo(() => bodyAndTotals(table), [table]);
  const kept = useMemo(() => filterRows(table, body, test), [table, body, test]);
  const rows = useMemo(() => sortRows(table, kept, grid.sorting), [table, kept, sortKey(grid.sorting)]);
  const selected = useMemo(() => new Set(chosen.value === null ? [] : [chosen.value]), [chosen.value]);
  const pick = (row: number): void => {
    chosen.value = row;
    selectEither(a, b, result, row);
  };
  const samples = Math.min(a.method.totals.length, b.method.totals.length);
  return (
    <div class="view">
      <div class="toolbar">
        {controls}
        <FilterBox text={filter.value} onText={(text) => (filter.value = text)} problem={problem} />
        <span class="spacer" />
        <span class="muted" data-testid="count">
          {kept.length === body.length ? body.length : `${kept.length} of ${body.length}`} rows
        </span>
        <ColumnChooser grid={grid} />
        <CsvButton table={table} rows={[...rows, ...totals]} grid={grid} name={`${a.name}-${b.name}`} />
      </div>
      <p class="notes">
        {samples < LEAST_SAMPLES
          ? `Fewer than ${LEAST_SAMPLES} runs on a side: nothing can be said of noise.`
          : "Noise is the spread of single runs on both sides (scaled median absolute deviation); a difference below it is called noise."}
      </p>
      <div class="fill" ref={place}>
        {width > 0 && (
          <DataTable
            grid={grid}
            formats={formats}
            rows={rows}
            totals={totals}
            selected={selected}
            onSelect={pick}
            label="Comparison"
            testId="compare-table"
            empty="No row matches the filter."
            cells={{
              verdict: (value, _, text) =>
                value ? (
                  <span class={`verdict verdict-${String(value).replaceAll(" ", "-")}`}>{text}</span>
                ) : (
                  ""
                ),
            }}
          />
        )}
      </div>
      {chosen.value !== null && <Pair a={a} b={b} result={result} row={chosen.value} />}
    </div>
  );
}

const signed =
  (format: (value: Cell) => string) =>
  (value: Cell): string => {
    const text = format(value);
    return typeof value === "number" && value > 0 && !text.startsWith("<") ? `+${text}` : text;
  };

/** Select the row in the run looked at, else in the side that has it. */
function selectEither(a: Named, b: Named, result: Comparison, row: number): void {
  const sides = [
    { side: a, row: result.a[row] ?? null },
    { side: b, row: result.b[row] ?? null },
  ].filter((one) => one.row !== null);
  const found =
    sides.find(({ side }) => side.at[0] === runIndex.value && side.at[1] === methodIndex.value) ??
    sides.find(({ side }) => side.at[0] === runIndex.value) ??
    sides[0];
  if (!found) return;
  showRun(found.side.at[0]);
  select({ kind: "row", method: found.side.at[1], row: found.row! });
}

/** The runs of both sides for one row. */
function Pair({ a, b, result, row }: { a: Named; b: Named; result: Comparison; row: number }) {
  const sides = [
    { side: a, letter: "A", row: result.a[row] ?? null },
    { side: b, letter: "B", row: result.b[row] ?? null },
  ];
  const bounds = a.run.unit === b.run.unit ? boundsOf(sides) : undefined;
  return (
    <div class="pair" data-testid="pair">
      {sides.map(({ side, letter, row: own }) => (
        <section key={letter}>
          <h3>
            {letter} <span class="muted">{side.name}</span>{" "}
            {own !== null && <small class="muted">{noise(side, own)}</small>}
          </h3>
          {own === null ? (
            <p class="muted">not in {letter}</p>
          ) : (
            <Series run={side.run} method={side.method} row={own} bounds={bounds} />
          )}
        </section>
      ))}
    </div>
  );
}

/** One scale for the charts of both sides. */
function boundsOf(sides: { side: Side; row: number | null }[]): [number, number] | undefined {
  let [least, most] = [Infinity, -Infinity];
  for (const { side, row } of sides) {
    for (const sample of (row === null ? null : side.method.samples[row]) ?? []) {
      if (sample === null) continue;
      least = Math.min(least, sample);
      most = Math.max(most, sample);
    }
  }
  return least <= most ? [least, most] : undefined;
}

function noise(side: Side, row: number): string {
  const found = spread(side.method.samples[row]);
  const middle = Number(side.method.rows.values["p50"]?.[row] ?? NaN);
  return found === null || !middle ? "" : `noise ± ${formatShare(found / middle)}`;
}
