// Where the device's values leave the reference's.

import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import type { Numerics as NumericsDoc, Run } from "../document";
import { filterRows } from "../filter";
import { formatFloat, plainText, visible } from "../format";
import { errorLines, isMark, WRONG, type ErrorLine } from "../errors";
import { linesOf, nodesOf, parseRowKey, rowsOf } from "../links";
import { control, run, select, selection, type Selection } from "../store";
import { hasValues, range, rowsIn, sortRows, tableFormats, type Sorting } from "../tables";
import { Chart, colour } from "../parts/chart";
import { useGrid } from "../parts/grid";
import { Nothing } from "../parts/nothing";
import { Prose } from "../parts/prose";
import { SimpleTable } from "../parts/simple";
import { useWidth } from "../parts/size";
import { DataTable } from "../parts/table";
import { TermLink } from "../parts/term";
import { SelectLink } from "../parts/links";
import { ValuesMark } from "../parts/values";
import { ColumnChooser, CsvButton, FilterBox, Popover, Segments, useFilter } from "../parts/toolbar";
import { sortKey } from "./events";

const filter = control("numerics.filter", "");

export function Numerics() {
  const now = run.value;
  if (!now.numerics) {
    return (
      <Nothing>
        <Prose text={now.numericsNote ?? "No logged values to compare."} />
      </Nothing>
    );
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
  const seen = useMemo(() => new Set(numerics.values?.map((one) => one.row)), [numerics]);
  const notes = now.numericsNote === null ? numerics.notes : [...numerics.notes, now.numericsNote];
  const sel = selection.value;
  const selected = useMemo(() => selectedRows(now, numerics, sel), [now, numerics, sel]);
  const pick = (row: number): void => select(selectionOf(now, numerics, row));
  return (
    <div class="view">
      <div class="toolbar">
        <Verdict numerics={numerics} />
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
          {numerics.metric === "sqnr" ? <TermLink of="sqnr">sqnr</TermLink> : visible(numerics.metric)}:{" "}
          {numerics.largerIsWorse ? "larger is worse" : "smaller is worse"}
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
            <Finding key={note} now={now} numerics={numerics} text={note} />
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
            cells={{
              instruction: (_, row, text) => (
                <>
                  {seen.has(row) && <ValuesMark />}
                  {text}
                </>
              ),
              verdict: (value, _, text) => <span class={verdictClass(value)}>{text}</span>,
            }}
          />
        )}
      </div>
    </div>
  );
}

export function Verdict({ numerics }: { numerics: NumericsDoc }) {
  return (
    <span class={numerics.fine ? "badge good" : "badge bad"} data-testid="numerics-verdict">
      {numerics.fine ? "fine" : "not fine"}
    </span>
  );
}

/** A sentence of the diagnosis: the values that it names are links to their rows. */
export function Finding({ now, numerics, text }: { now: Run; numerics: NumericsDoc; text: string }) {
  const parts: { text: string; row: number | null }[] = [{ text, row: null }];
  for (const { row, text: words } of numerics.named ?? []) {
    const at = parts.findIndex((part) => part.row === null && part.text.includes(words));
    if (at < 0) continue;
    const [before, ...after] = parts[at]!.text.split(words);
    const rest = { text: after.join(words), row: null };
    parts.splice(at, 1, { text: before!, row: null }, { text: words, row }, rest);
  }
  return (
    <p>
      {parts.map((part, at) =>
        part.row === null ? (
          <Prose key={at} text={part.text} terms />
        ) : (
          <SelectLink key={at} to={selectionOf(now, numerics, part.row)} text={part.text} show="numerics" />
        ),
      )}
    </p>
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

/** The error in order of execution, of the whole run and of each operator alone. */
function ErrorChart({ numerics, selected, onPick }: ErrorChartProps) {
  const chart = useMemo(() => {
    const { lines, log } = errorLines(numerics);
    const count = rowsIn(numerics.table);
    const data: uPlot.AlignedData = [range(0, count), ...lines.map((one) => one.values)];
    return { data, options: options(numerics, lines, log, count) };
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
  lines: readonly ErrorLine[],
  log: boolean,
  count: number,
): Omit<uPlot.Options, "width" | "height"> {
  const { values } = numerics.table;
  const names = values["op"] ?? values["event"] ?? [];
  // As the sentences and the table count.
  const instruction = (row: number): string => plainText(values["instruction"]?.[row] ?? null);
  return {
    scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
    cursor: { y: false, points: { size: 7 } },
    axes: [
      {
        size: 26,
        incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000],
        values: (_, splits) => splits.map(instruction),
      },
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
      {
        label: "instruction",
        value: (_, at) => (at === null ? "–" : `${instruction(at)} ${visible(String(names[at] ?? ""))}`),
      },
      ...lines.map(
        ({ name, tone }): uPlot.Series => ({
          label: name,
          stroke: () => colour(tone),
          width: name === "noise" ? 1 : 1.5,
          ...(name === "noise" ? { dash: [4, 4] } : {}),
          ...(isMark(name) ? { paths: () => null } : {}),
          points: isMark(name)
            ? { show: true, size: name === WRONG ? 10 : 6, width: 2, fill: () => colour(tone) }
            : { show: count <= 300 && name !== "noise", size: 5 },
          value: (_, value) => (value === null ? "–" : isMark(name) ? "yes" : formatFloat(value)),
        }),
      ),
    ],
  };
}
