// Where the device's values leave the reference's.

import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import type { Numerics as NumericsDoc, Run } from "../document";
import { filterRows } from "../filter";
import { formatFloat, visible } from "../format";
import { errorsOf } from "../lines";
import { linesOf, nodesOf, parseRowKey, rowsOf } from "../links";
import { control, run, select, selection, type Selection } from "../store";
import { hasValues, range, rowsIn, sortRows, tableFormats, type Sorting } from "../tables";
import { Chart, colour } from "../parts/chart";
import { useGrid } from "../parts/grid";
import { Nothing } from "../parts/nothing";
import { SimpleTable } from "../parts/simple";
import { useWidth } from "../parts/size";
import { DataTable } from "../parts/table";
import { ColumnChooser, CsvButton, FilterBox, Popover, Segments, useFilter } from "../parts/toolbar";
import { sortKey } from "./events";

const filter = control("numerics.filter", "");

export function Numerics() {
  const now = run.value;
  if (!now.numerics) {
    return <Nothing>{now.numericsNote ?? "There are no logged values to compare."}</Nothing>;
  }
  return <Shown now={now} numerics={now.numerics} />;
}

function Shown({ now, numerics }: { now: Run; numerics: NumericsDoc }) {
  const { table } = numerics;
  const [place, width] = useWidth<HTMLDivElement>();
  const formats = useMemo(() => tableFormats(table), [table]);
  const grid = useGrid("numerics", table, formats, width - 14);
  const { test, problem } = useFilter(filter.value, table);
  const rows = useMemo(
    () => sortRows(table, filterRows(table, range(0, rowsIn(table)), test), grid.sorting),
    [table, test, sortKey(grid.sorting)],
  );
  const worst = worstFirst(numerics);
  const notes = now.numericsNote === null ? numerics.notes : [...numerics.notes, now.numericsNote];
  const sel = selection.value;
  const selected = useMemo(() => selectedRows(now, numerics, sel), [now, numerics, sel]);
  const pick = (row: number): void => select(selectionOf(now, numerics, row));
  return (
    <div class="view">
      <div class="toolbar">
        <span class={numerics.fine ? "badge good" : "badge bad"} data-testid="numerics-verdict">
          {numerics.fine ? "fine" : "not fine"}
        </span>
        <Segments
          label="Order"
          value={grid.sorting.length === 0 ? "run" : sameOrder(grid.sorting, worst) ? "worst" : ""}
          options={[
            ["run", "In order"],
            ["worst", "Worst first"],
          ]}
          onChange={(key) => grid.sort(key === "worst" ? worst : [])}
          testId="numerics-order"
        />
        <FilterBox text={filter.value} onText={(text) => (filter.value = text)} problem={problem} />
        <span class="muted">
          {visible(numerics.metric)}: {numerics.largerIsWorse ? "larger is worse" : "smaller is worse"}
        </span>
        <span class="spacer" />
        <Popover label="What was compared" button="Coverage" testId="coverage">
          <SimpleTable table={numerics.coverage} />
        </Popover>
        <ColumnChooser grid={grid} />
        <CsvButton table={table} rows={rows} grid={grid} name={`${now.name}-numerics`} />
      </div>
      {notes.length > 0 && (
        <div class={numerics.fine ? "notes" : "notes warning"} data-testid="numerics-notes">
          {notes.map((note) => (
            <p key={note}>{visible(note)}</p>
          ))}
        </div>
      )}
      <ErrorChart numerics={numerics} selected={selected} onPick={pick} />
      <div class="fill" ref={place}>
        {width > 0 && (
          <DataTable
            grid={grid}
            formats={formats}
            rows={rows}
            selected={selected}
            onSelect={pick}
            label="Numeric errors"
            testId="numerics-table"
            empty="No row matches the filter."
            cells={{ verdict: (value, _, text) => <span class={verdictClass(value)}>{text}</span> }}
          />
        )}
      </div>
    </div>
  );
}

/** By how far a value is beyond its limit, or by the metric where there is no limit. */
function worstFirst({ table, largerIsWorse, metric }: NumericsDoc): Sorting[] {
  const name = ["excess", "total", metric, "error"].find((one) => hasValues(table.values[one]));
  return name === undefined ? [] : [{ column: name, descending: name === "excess" || largerIsWorse }];
}

const sameOrder = (one: readonly Sorting[], other: readonly Sorting[]): boolean =>
  sortKey(one) === sortKey(other);

const verdictClass = (value: unknown): string =>
  value === null || value === "" || value === "ok" || value === "fine"
    ? "muted"
    : `verdict verdict-${String(value).replace(/\W+/g, "-")}`;

function selectedRows(now: Run, numerics: NumericsDoc, sel: Selection): ReadonlySet<number> {
  const found = new Set<number>();
  if (sel === null) return found;
  const index = now.methods.findIndex((one) => one.name === numerics.method);
  const rows = new Set(
    [...rowsOf(now, sel)]
      .map(parseRowKey)
      .filter(([at]) => at === index)
      .map(([, row]) => row),
  );
  numerics.rows.forEach((row, at) => {
    if (row !== null && rows.has(row)) found.add(at);
  });
  if (sel.kind === "node" || sel.kind === "group") {
    const nodes = nodesOf(now, sel, sel.graph);
    const exact = (numerics.nodes[sel.graph] ?? []).flatMap((node, at) =>
      node !== null && nodes.has(node) ? [at] : [],
    );
    if (exact.length) return new Set(exact);
  }
  if (!found.size) {
    const lines = linesOf(now, sel);
    numerics.lines.forEach((line, at) => {
      if (line !== null && lines.has(line)) found.add(at);
    });
  }
  return found;
}

/** What a value of the table is: its row if it ran, else a node, else a line. */
function selectionOf(now: Run, numerics: NumericsDoc, at: number): Selection {
  const method = now.methods.findIndex((one) => one.name === numerics.method);
  const row = numerics.rows[at];
  if (method >= 0 && row !== null && row !== undefined) return { kind: "row", method, row };
  for (const [graph, nodes] of Object.entries(numerics.nodes)) {
    const node = nodes[at];
    if (node !== null && node !== undefined) return { kind: "node", graph, node };
  }
  const line = numerics.lines[at];
  return line === null || line === undefined ? null : { kind: "line", line };
}

interface ErrorChartProps {
  numerics: NumericsDoc;
  selected: ReadonlySet<number>;
  onPick(row: number): void;
}

const SERIES = [
  ["total", "accent"],
  ["local", "hot"],
  ["noise", "muted"],
] as const;

const WRONG = "wrong";

/** The errors of the values that are wrong by themselves. */
function wrongValues({ table }: NumericsDoc, shown: { values: (number | null)[] }): (number | null)[] {
  const verdicts = table.values["verdict"] ?? [];
  return shown.values.map((value, at) => (verdicts[at] === WRONG ? value : null));
}

/** The error in order of execution, of the whole run and of each operator alone. */
function ErrorChart({ numerics, selected, onPick }: ErrorChartProps) {
  const chart = useMemo(() => {
    const { values } = numerics.table;
    const named = SERIES.filter(([name]) => values[name]?.some((value) => typeof value === "number"));
    const found: { name: string; tone: string; values: (number | null)[] }[] = named.length
      ? named.map(([name, tone]) => ({
          name,
          tone,
          values: values[name]!.map((value) => (typeof value === "number" ? value : null)),
        }))
      : [{ name: numerics.metric, tone: "accent" as const, values: errorsOf(numerics) }];
    const wrong = wrongValues(numerics, found.find((one) => one.name === "local") ?? found[0]!);
    if (wrong.some((value) => value !== null)) found.push({ name: WRONG, tone: "bad", values: wrong });
    const numbers = found
      .flatMap((one) => one.values)
      .filter((one): one is number => one !== null && Number.isFinite(one));
    const positive = numbers.filter((one) => one > 0);
    // Errors span magnitudes; a ratio in dB is a logarithm already.
    const log =
      numerics.largerIsWorse && positive.length > 1 && Math.max(...positive) / Math.min(...positive) > 100;
    const drawn = (value: number | null): number | null =>
      value === null || !Number.isFinite(value) || (log && value <= 0) ? null : value;
    const count = rowsIn(numerics.table);
    const data: uPlot.AlignedData = [range(0, count), ...found.map((one) => one.values.map(drawn))];
    return { data, options: options(numerics, found, log, count) };
  }, [numerics]);
  const marked = useMemo(() => {
    const rows = [...selected];
    return {
      ...chart.options,
      hooks: {
        draw: [
          (plot: uPlot) => {
            plot.ctx.save();
            plot.ctx.fillStyle = colour("chosen-line");
            for (const row of rows)
              plot.ctx.fillRect(plot.valToPos(row, "x", true) - 1, plot.bbox.top, 2, plot.bbox.height);
            plot.ctx.restore();
          },
        ],
      },
    };
  }, [chart, selected]);
  if (rowsIn(numerics.table) < 2) return null;
  return (
    <Chart
      data={chart.data}
      options={marked}
      height={180}
      label={`${numerics.metric} in order of execution`}
      testId="error-chart"
      onPick={onPick}
    />
  );
}

// Powers of ten alone are lines.
const LOG_AXIS: uPlot.Axis = {
  filter: (_, splits) =>
    splits.map((one) => (Math.abs(Math.log10(one) - Math.round(Math.log10(one))) < 1e-9 ? one : null)),
};

function options(
  numerics: NumericsDoc,
  series: { name: string; tone: string }[],
  log: boolean,
  count: number,
): Omit<uPlot.Options, "width" | "height"> {
  const names = numerics.table.values["op"] ?? numerics.table.values["event"] ?? [];
  return {
    scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
    cursor: { y: false, points: { size: 7 } },
    axes: [
      { size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
      {
        size: 64,
        ...(log ? LOG_AXIS : {}),
        values: (_, splits) =>
          splits.map((one) =>
            one === null ? "" : log ? one.toExponential(0) : String(Number(one.toPrecision(6))),
          ),
      },
    ],
    series: [
      { label: "value", value: (_, at) => (at === null ? "–" : `${at} ${visible(String(names[at] ?? ""))}`) },
      ...series.map(
        ({ name, tone }): uPlot.Series => ({
          label: name,
          stroke: () => colour(tone),
          width: name === "noise" ? 1 : 1.5,
          ...(name === "noise" ? { dash: [4, 4] } : {}),
          ...(name === WRONG ? { paths: () => null } : {}),
          points:
            name === WRONG
              ? { show: true, size: 10, width: 2, fill: () => colour(tone) }
              : { show: count <= 300 && name !== "noise", size: 5 },
          value: (_, value) => (value === null ? "–" : formatFloat(value)),
        }),
      ),
    ],
  };
}
