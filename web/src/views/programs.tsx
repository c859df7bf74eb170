// The programs of two runs, as `etscope diff` compares them: its sentences, its tables, and both graphs.

import { useMemo } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { TableDoc } from "../document";
import { ProgramGraphs } from "../drawings/ProgramGraphs";
import { filterRows } from "../filter";
import { visible } from "../format";
import { useGrid } from "../parts/grid";
import { useWidth } from "../parts/size";
import { DataTable } from "../parts/table";
import { ColumnChooser, CsvButton, FilterBox, Select, useFilter } from "../parts/toolbar";
import { control, controlOfEach, doc } from "../store";
import { range, rowsIn, sortRows, tableFormats } from "../tables";
import { sortKey } from "./events";

const GRAPHS = "graphs";
/** The run whose program is compared with the first; "" until the reader chooses. */
const later = control("compare.program", "");
/** "graphs", or the name of a table. */
const shape = control("compare.table", GRAPHS);
const filterOf = controlOfEach("compare.filter");
/** Sentences that are seen at once. */
const AT_ONCE = 3;

/** choice: what else there is to compare. */
export function Programs({ choice }: { choice: ComponentChildren }) {
  const { programs, runs } = doc.value;
  const found = programs.find((one) => String(one.b) === later.value) ?? programs[0]!;
  const name = (run: number): string => visible(runs[run]!.name);
  const section = found.sections.find((one) => one.name === shape.value);
  return (
    <div class="view" data-testid="programs">
      <div class="toolbar">
        {choice}
        {programs.length > 1 ? (
          <Select
            label={`${name(found.a)} with`}
            value={String(found.b)}
            options={programs.map(({ b }) => [String(b), name(b)] as const)}
            onChange={(next) => (later.value = next)}
            testId="compare-program"
          />
        ) : (
          <span>
            A <b>{name(found.a)}</b> B <b>{name(found.b)}</b>
          </span>
        )}
        {!found.identical && (
          <Select
            label="Show"
            value={section?.name ?? GRAPHS}
            options={[
              [GRAPHS, "graphs side by side"],
              ...found.sections.map((one) => [one.name, visible(one.table.title)] as const),
            ]}
            onChange={(next) => (shape.value = next)}
            testId="compare-table-select"
          />
        )}
      </div>
      <Sentences key={found.b} texts={found.summary} />
      {section ? (
        <Differences key={section.name} name={section.name} table={section.table} />
      ) : (
        !found.identical && <ProgramGraphs key={found.b} found={found} />
      )}
    </div>
  );
}

function Sentences({ texts }: { texts: readonly string[] }) {
  const line = (text: string): ComponentChildren => <p key={text}>{visible(text)}</p>;
  return (
    <div class="answer compared-summary" data-testid="program-summary">
      {texts.slice(0, AT_ONCE).map(line)}
      {texts.length > AT_ONCE && (
        <details>
          <summary class="muted">{texts.length - AT_ONCE} more</summary>
          {texts.slice(AT_ONCE).map(line)}
        </details>
      )}
    </div>
  );
}

const NONE: ReadonlySet<number> = new Set();

function Differences({ name, table }: { name: string; table: TableDoc }) {
  const [place, width] = useWidth<HTMLDivElement>();
  const formats = useMemo(() => tableFormats(table), [table]);
  const grid = useGrid(`compare.${name}`, table, formats, width - 14);
  const filter = filterOf(name);
  const { test, problem } = useFilter(filter.value, table);
  const all = useMemo(() => range(0, rowsIn(table)), [table]);
  const kept = useMemo(() => filterRows(table, all, test), [table, all, test]);
  const rows = useMemo(() => sortRows(table, kept, grid.sorting), [table, kept, sortKey(grid.sorting)]);
  return (
    <>
      <div class="toolbar">
        <FilterBox text={filter.value} onText={(text) => (filter.value = text)} problem={problem} />
        <span class="spacer" />
        <span class="muted" data-testid="count">
          {kept.length === all.length ? all.length : `${kept.length} of ${all.length}`} rows
        </span>
        <ColumnChooser grid={grid} />
        <CsvButton table={table} rows={rows} grid={grid} name={name} />
      </div>
      <div class="fill" ref={place}>
        {width > 0 && (
          <DataTable
            grid={grid}
            formats={formats}
            rows={rows}
            totals={[]}
            selected={NONE}
            onSelect={() => undefined}
            label={visible(table.title)}
            testId="programs-table"
            empty="No row matches the filter."
          />
        )}
      </div>
      {table.notes.length > 0 && <p class="notes">{table.notes.map(visible).join(" ")}</p>}
    </>
  );
}
