// Two profiles side by side, as `etscope diff` compares them: its headline, its rows, and their sums by
// module, operator, kind and line. The page adds no statistics of its own. Or their programs.

import { useMemo } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Cell, ComparisonDoc, Method, ReportDocument, Run, TableDoc } from "../document";
import { DifferenceIcicle } from "../drawings/DifferenceIcicle";
import { filterRows } from "../filter";
import { visible } from "../format";
import { control, doc, indexControl, methodIndex, runIndex, select, showRun } from "../store";
import { bodyAndTotals, hasValues, sortRows, tableFormats } from "../tables";
import { useGrid } from "../parts/grid";
import { Nothing } from "../parts/nothing";
import { Series } from "../parts/series";
import { useWidth } from "../parts/size";
import { DataTable } from "../parts/table";
import { ColumnChooser, CsvButton, FilterBox, Segments, Select, useFilter } from "../parts/toolbar";
import { sortKey } from "./events";
import { Programs } from "./programs";

const SHAPES = ["rows", "module", "op", "type", "source", "delegate", "icicle"] as const;

const what = control("compare.what", "times", ["times", "programs"]);
/** "run:method" of each side; "" until the reader chooses. */
const sideA = control("compare.a", "");
const sideB = control("compare.b", "");
const shape = control("compare.by", "rows", SHAPES);
const filter = control("compare.filter", "");
const chosen = indexControl("compare.row");

interface Side {
  key: string;
  name: string;
  run: Run;
  method: Method;
  at: [run: number, method: number];
}

export function Compare() {
  const { comparisons, programs } = doc.value;
  const both = programs.length > 0 && comparisons.length > 0;
  const choice = both && (
    <Segments
      label="Compared"
      value={what.value}
      options={[
        ["times", "times"],
        ["programs", "programs"],
      ]}
      onChange={(next) => (what.value = next)}
      testId="compare-what"
    />
  );
  if (programs.length > 0 && (!both || what.value === "programs")) return <Programs choice={choice} />;
  return <Times choice={choice} />;
}

function Times({ choice }: { choice: ComponentChildren }) {
  const { runs, comparisons } = doc.value;
  const sides = sidesOf(doc.value);
  if (comparisons.length === 0) {
    const why = [
      "There is no profile in this report: it was made without a dump. Give two dumps to compare them",
      "There is one profile in this report. Give a second dump to compare them",
      "The profiles in this report are of different methods or phases. Give two dumps of one method to compare them",
    ][Math.min(sides.length, 2)]!;
    return <Nothing>{why}: etscope report A.etdp B.etdp …</Nothing>;
  }
  const key = (at: readonly number[]): string => at.join(":");
  const of = comparisons.filter((one) => key(one.a) === sideA.value);
  const fromA = of.length ? of : comparisons.filter((one) => key(one.a) === key(comparisons[0]!.a));
  const found = fromA.find((one) => key(one.b) === sideB.value) ?? fromA[0]!;
  const nameOf = (at: string): string => sides.find((one) => one.key === at)?.name ?? "";
  const options = (keys: string[]) => [...new Set(keys)].map((one) => [one, nameOf(one)] as const);
  const [a, b] = [found.a, found.b].map((at) => sides.find((one) => one.key === key(at))!) as [Side, Side];
  const controls = (
    <>
      <Select
        label="A"
        value={a.key}
        options={options(comparisons.map((one) => key(one.a)))}
        onChange={(next) => (sideA.value = next)}
        testId="side-a"
      />
      <Select
        label="B"
        value={b.key}
        options={options(fromA.map((one) => key(one.b)))}
        onChange={(next) => (sideB.value = next)}
        testId="side-b"
      />
      <button
        class="button"
        disabled={!comparisons.some((one) => key(one.a) === b.key && key(one.b) === a.key)}
        title="A in place of B, and B in place of A"
        data-testid="swap-sides"
        onClick={() => {
          sideA.value = b.key;
          sideB.value = a.key;
          chosen.value = null; // the other way round, rows have other numbers
        }}
      >
        Swap
      </button>
    </>
  );
  const table = found.table && tableOf(found, shape.value);
  return (
    <div class="view">
      <div class="toolbar">
        {choice}
        {controls}
        {table && (
          <Segments
            label="Changes by"
            value={shape.value}
            options={[
              ["rows", "row"],
              ["module", "module"],
              ["op", "operator"],
              ["type", "kind"],
              ["source", "line"],
              ["delegate", "backend"],
              ["icicle", "icicle"],
            ]}
            onChange={(next) => (shape.value = next)}
            testId="compare-by"
          />
        )}
      </div>
      <Headline found={found} />
      {found.table && shape.value === "icicle" ? (
        <DifferenceIcicle table={found.sums[0]!} unit={runs[a.at[0]]!.unit} />
      ) : (
        table && <Changes key={`${a.key}${b.key}${shape.value}`} a={a} b={b} table={table} />
      )}
    </div>
  );
}

/** The table of rows, or of sums: the first column of sums names what they are by. */
function tableOf(found: ComparisonDoc, by: string): TableDoc | null {
  return found.sums.find((one) => one.columns[0]!.name === by) ?? found.table;
}

function sidesOf(report: ReportDocument): Side[] {
  return report.runs.flatMap((run, r) =>
    run.methods.map(
      (method, m): Side => ({
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

function Headline({ found }: { found: ComparisonDoc }) {
  const [first, ...others] = found.headline;
  return (
    <div class="answer" data-testid="headline">
      <p>
        {found.verdict && <Verdict text={found.verdict} />} <b>{visible(first ?? "")}</b>
      </p>
      {others.map((text) => (
        <p key={text}>{visible(text)}</p>
      ))}
      {found.notes.length > 0 && (
        <details>
          <summary class="muted">How it was compared</summary>
          {found.notes.map((text) => (
            <p key={text} class="muted">
              {visible(text)}
            </p>
          ))}
        </details>
      )}
    </div>
  );
}

function Verdict({ text }: { text: string }) {
  return <span class={`verdict verdict-${text.replaceAll(" ", "-")}`}>{visible(text)}</span>;
}

function Changes({ a, b, table }: { a: Side; b: Side; table: TableDoc }) {
  const [place, width] = useWidth<HTMLDivElement>();
  const formats = useMemo(() => {
    const made = tableFormats(table);
    for (const name of ["change", "relative"]) made[name] = signed(made[name]!);
    return made;
  }, [table]);
  const by = table.columns[0]!.name;
  const isRows = by === "event";
  const grid = useGrid(isRows ? "compare" : `compare.${by}`, table, formats, width - 14, {
    columns: shownIn(table),
  });
  const { test, problem } = useFilter(filter.value, table);
  const { body, totals } = useMemo(() => bodyAndTotals(table), [table]);
  const kept = useMemo(() => filterRows(table, body, test), [table, body, test]);
  const rows = useMemo(() => sortRows(table, kept, grid.sorting), [table, kept, sortKey(grid.sorting)]);
  const row = isRows ? chosen.value : null;
  const selected = useMemo(() => new Set(row === null ? [] : [row]), [row]);
  const pick = (next: number): void => {
    if (!isRows) return;
    chosen.value = next;
    selectEither(a, b, table, next);
  };
  const cell = (value: Cell): ComponentChildren =>
    value && value !== "same" ? <Verdict text={String(value)} /> : "";
  return (
    <>
      <div class="toolbar">
        <FilterBox text={filter.value} onText={(text) => (filter.value = text)} problem={problem} />
        <span class="spacer" />
        <span class="muted" data-testid="count">
          {kept.length === body.length ? body.length : `${kept.length} of ${body.length}`} rows
        </span>
        <ColumnChooser grid={grid} />
        <CsvButton table={table} rows={[...rows, ...totals]} grid={grid} name={`${a.name}-${b.name}`} />
      </div>
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
            cells={{ verdict: cell, status: cell }}
          />
        )}
      </div>
      {row !== null && <Pair a={a} b={b} table={table} row={row} />}
    </>
  );
}

// The rows' numbers on both sides can be chosen, but say little.
const SHOWN = [
  "verdict",
  "status",
  "before",
  "after",
  "change",
  "of_change",
  "relative",
  "interval",
  "module",
  "source",
];

/** The group or event, and the columns that say something. */
function shownIn(table: TableDoc): string[] {
  const says = (name: string): boolean =>
    hasValues(table.values[name]?.map((value) => (value === "same" ? null : value)));
  return [table.columns[0]!.name, ...SHOWN.filter(says)];
}

const signed =
  (format: (value: Cell) => string) =>
  (value: Cell): string => {
    const text = format(value);
    return typeof value === "number" && value > 0 && !text.startsWith("<") ? `+${text}` : text;
  };

/** The row of each side, or null. */
function rowsOf(table: TableDoc, row: number): [number | null, number | null] {
  const of = (name: string): number | null => (table.values[name]?.[row] as number | null) ?? null;
  return [of("row_a"), of("row_b")];
}

/** Select the row in the run looked at, else in the side that has it. */
function selectEither(a: Side, b: Side, table: TableDoc, row: number): void {
  const [one, other] = rowsOf(table, row);
  const sides = [
    { side: a, row: one },
    { side: b, row: other },
  ].filter((each) => each.row !== null);
  const found =
    sides.find(({ side }) => side.at[0] === runIndex.value && side.at[1] === methodIndex.value) ??
    sides.find(({ side }) => side.at[0] === runIndex.value) ??
    sides[0];
  if (!found) return;
  showRun(found.side.at[0]);
  select({ kind: "row", method: found.side.at[1], row: found.row! });
}

/** The runs of both sides for one row. */
function Pair({ a, b, table, row }: { a: Side; b: Side; table: TableDoc; row: number }) {
  const [one, other] = rowsOf(table, row);
  const sides = [
    { side: a, letter: "A", row: one },
    { side: b, letter: "B", row: other },
  ];
  const reason = table.values["reason"]?.[row];
  const bounds = boundsOf(sides);
  return (
    <>
      {typeof reason === "string" && (
        <p class="notes" data-testid="reason">
          Cannot tell: {visible(reason)}.
        </p>
      )}
      <div class="pair" data-testid="pair">
        {sides.map(({ side, letter, row: own }) => (
          <section key={letter}>
            <h3>
              {letter} <span class="muted">{side.name}</span>
            </h3>
            {own === null ? (
              <p class="muted">not in {letter}</p>
            ) : (
              <Series run={side.run} method={side.method} row={own} bounds={bounds} />
            )}
          </section>
        ))}
      </div>
    </>
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
