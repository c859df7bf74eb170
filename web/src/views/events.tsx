// All performance data as a table: the instructions with totals that add up, or every event.

import { useMemo } from "preact/hooks";
import type { Cell, Method, TableDoc } from "../document";
import { formatShare } from "../format";
import { filterRows } from "../filter";
import { groupingsOf, groupRows, sumsOf } from "../groups";
import { parseRowKey, rowsOf } from "../links";
import { control, method, methodIndex, run, select, selection, selectRow } from "../store";
import { bodyAndTotals, cumulated, leavesOf, sortRows, tableFormats } from "../tables";
import { ColumnChooser, CsvButton, FilterBox, Segments, Select, useFilter } from "../parts/toolbar";
import { useGrid } from "../parts/grid";
import { useWidth } from "../parts/size";
import { OUTLIER, OutlierMark, outlierOf } from "../parts/outlier";
import { DataTable, type SumRow } from "../parts/table";
import { Nothing } from "../parts/nothing";
import { Prose } from "../parts/prose";

const what = control("events.show", "rows", ["rows", "events"]);
const filter = control("events.filter", "");
const grouping = control("events.group", "");

export function Events() {
  const of = method.value;
  if (!of) return <Nothing>There is no dump in this run: nothing was measured.</Nothing>;
  const table = what.value === "rows" ? of.rows : of.events;
  return <EventTable key={`${what.value}${run.value.id}${of.name}`} of={of} table={table} />;
}

function EventTable({ of, table }: { of: Method; table: TableDoc }) {
  const instructions = what.value === "rows";
  const [place, width] = useWidth<HTMLDivElement>();
  const formats = useMemo(() => tableFormats(table), [table]);
  const grid = useGrid(what.value, table, formats, width - 14, { sorting: "-avg" });
  const { test, problem } = useFilter(filter.value, table);
  const { body, totals } = useMemo(() => bodyAndTotals(table), [table]);
  const kept = useMemo(() => filterRows(table, body, test), [table, body, test]);
  const rows = useMemo(() => sortRows(table, kept, grid.sorting), [table, kept, sortKey(grid.sorting)]);
  const values = useMemo(
    () => inOrder(table, rows, grid.sorting.length > 0 || kept.length < body.length),
    [table, rows],
  );
  const groupings = groupingsOf(table);
  const by = groupings.some(({ key }) => key === grouping.value) ? grouping.value : "";
  const groups = useMemo(
    () => (by ? groupRows(table, kept, by, grid.sorting[0]) : null),
    [table, kept, by, sortKey(grid.sorting)],
  );
  const notes = useMemo(
    () => (instructions && body.some((row) => outlierOf(of, row)) ? [OUTLIER, ...table.notes] : table.notes),
    [of, table, body],
  );
  const selected = useSelected(of, instructions);
  const sums = useMemo(() => sumRows(table, body, kept, instructions), [table, body, kept]);
  const choose = (row: number): void => {
    if (instructions) selectRow(row);
    else if (of.eventRow[row] !== null) selectRow(of.eventRow[row]!);
    else select(null);
  };
  return (
    <div class="view">
      <div class="toolbar">
        <Segments
          label="What is shown"
          value={what.value}
          options={[
            ["rows", "Instructions"],
            ["events", "All events"],
          ]}
          onChange={(key) => (what.value = key)}
          testId="what"
        />
        <FilterBox text={filter.value} onText={(text) => (filter.value = text)} problem={problem} />
        {instructions && (
          <Segments
            label="Order"
            value={sortKey(grid.sorting)}
            options={[
              ["avg-", "By time"],
              ["instruction+", "As run"],
            ]}
            onChange={(key) => grid.sort([{ column: key.slice(0, -1), descending: key.endsWith("-") }])}
            testId="events-order"
          />
        )}
        <Select
          label="Group by"
          value={by}
          options={[["", "nothing"], ...groupings.map(({ key, title }) => [key, title] as const)]}
          onChange={(key) => (grouping.value = key)}
          testId="group-by"
        />
        <span class="spacer" />
        <Count table={table} body={body} kept={kept} groups={groups?.length ?? null} />
        <ColumnChooser grid={grid} />
        <CsvButton
          table={values ? { ...table, values: { ...table.values, ...values } } : table}
          rows={groups ? groups.flatMap((group) => group.rows) : rows}
          grid={grid}
          name={`${run.value.name}-${of.name}-${what.value}`}
        />
      </div>
      <div class="fill" ref={place}>
        {width > 0 && (
          <DataTable
            grid={grid}
            formats={formats}
            rows={rows}
            groups={groups}
            totals={totals}
            sums={sums}
            {...(values ? { values } : {})}
            selected={selected}
            onSelect={choose}
            label={instructions ? "Instructions" : "Events"}
            testId={instructions ? "instructions-table" : "events-table"}
            cells={
              instructions
                ? {
                    avg: (_, row, text) => (
                      <>
                        {<OutlierMark run={run.value} method={of} row={row} />}
                        {text}
                      </>
                    ),
                  }
                : {}
            }
            empty={test ? "No row matches the filter." : "No rows."}
          />
        )}
      </div>
      {notes.length > 0 && (
        <div class="notes">
          {notes.map((note) => (
            <p key={note}>
              <Prose text={note} terms />
            </p>
          ))}
        </div>
      )}
    </div>
  );
}

/** What depends on which rows are shown in what order: the shares added up. */
function inOrder(table: TableDoc, rows: number[], changed: boolean): Record<string, Cell[]> | undefined {
  return changed && table.values["cumulative"] ? { cumulative: cumulated(table, rows) } : undefined;
}

/** The rows of the table that belong to what is selected. */
function useSelected(of: Method, instructions: boolean): ReadonlySet<number> {
  const now = run.value;
  const sel = selection.value;
  const at = methodIndex.value;
  return useMemo(() => {
    const rows = new Set<number>();
    for (const key of rowsOf(now, sel)) {
      const [inMethod, row] = parseRowKey(key);
      if (inMethod === at) rows.add(row);
    }
    if (instructions || !rows.size) return rows;
    const events = new Set<number>();
    of.eventRow.forEach((row, event) => {
      if (row !== null && rows.has(row)) events.add(event);
    });
    return events;
  }, [now, sel, at, of, instructions]);
}

/** What is shown and what is not: together with the rows below they make the total. */
function sumRows(table: TableDoc, body: number[], kept: number[], instructions: boolean): SumRow[] {
  if (!instructions || kept.length === body.length) return [];
  const isLeaf = leavesOf(table);
  const shown = kept.filter((row) => isLeaf[row]);
  const there = new Set(shown);
  const hidden = body.filter((row) => isLeaf[row] && !there.has(row));
  return [
    { label: `shown: ${shown.length}`, sums: sumsOf(table, shown), testId: "sum-shown" },
    { label: `not shown: ${hidden.length}`, sums: sumsOf(table, hidden), testId: "sum-hidden" },
  ];
}

function Count({
  table,
  body,
  kept,
  groups,
}: {
  table: TableDoc;
  body: number[];
  kept: number[];
  groups: number | null;
}) {
  const share = table.values["share"] ? (sumsOf(table, kept)["share"] ?? null) : null;
  const number = (value: number): string => value.toLocaleString("en");
  return (
    <span class="muted" data-testid="count">
      {groups !== null && `${number(groups)} groups · `}
      {kept.length === body.length
        ? number(body.length)
        : `${number(kept.length)} of ${number(body.length)}`}{" "}
      rows
      {share !== null && ` · ${formatShare(share)} of the time`}
    </span>
  );
}

export const sortKey = (sorting: readonly { column: string; descending: boolean }[]): string =>
  sorting.map(({ column, descending }) => `${column}${descending ? "-" : "+"}`).join();
