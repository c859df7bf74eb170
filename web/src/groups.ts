// Rows of a table gathered by op, type, module, source line or delegate, with their sums.

import type { Cell, TableDoc } from "./document";
import { asNumber, plainText } from "./format";
import { sumOf, type Sorting } from "./tables";

export interface Grouping {
  key: string;
  title: string;
}

export interface Group {
  /** What the rows have in common. */
  label: string;
  rows: number[];
  /** Sum of each column that adds up, by name. */
  sums: Record<string, number | null>;
}

// The column behind each grouping, in instructions and in the table of all events. As `inspect --by`:
// "op" is what the event is called, "type" its kind.
const GROUPINGS: readonly (Grouping & { columns: readonly string[]; none: string })[] = [
  { key: "op", title: "op", columns: ["event", "event_name"], none: "(no name)" },
  { key: "op_type", title: "op type", columns: ["op_types"], none: "(no op type)" },
  { key: "type", title: "kind", columns: ["kind"], none: "(no kind)" },
  { key: "module", title: "module", columns: ["module", "module_hierarchy"], none: "(no module)" },
  { key: "module_type", title: "module type", columns: ["module_type"], none: "(no module type)" },
  { key: "source", title: "source line", columns: ["source", "stack_traces"], none: "(no source line)" },
  {
    key: "delegate",
    title: "delegate",
    columns: ["backend", "delegate_backend_name"],
    none: "(not delegated)",
  },
];

// Columns whose sum over rows means something. Percentiles, extremes and deviations do not add up.
const ADDITIVE = new Set(["avg", "share", "kernel", "calls", "first", "bytes_read", "bytes_written"]);

export const isAdditive = (name: string): boolean => ADDITIVE.has(name);

/** The groupings that `table` has a column for. */
export function groupingsOf(table: TableDoc): Grouping[] {
  return GROUPINGS.filter((one) => columnOf(table, one.columns) !== undefined).map(({ key, title }) => ({
    key,
    title,
  }));
}

/**
 * The rows in groups, largest time first or as `sorting` says. Only undivided rows are counted (what
 * hangs below a row is part of its time); `rows` of a group holds what hangs below as well.
 */
export function groupRows(
  table: TableDoc,
  rows: readonly number[],
  by: string,
  sorting: Sorting | undefined,
): Group[] {
  const grouping = GROUPINGS.find((one) => one.key === by);
  const column = grouping && columnOf(table, grouping.columns);
  if (!grouping || column === undefined) return [];
  const values = table.values[column]!;
  const gathered = new Map<string, { heads: number[]; rows: number[] }>();
  let current: { heads: number[]; rows: number[] } | undefined;
  for (const row of rows) {
    if (table.depth?.[row]) {
      current?.rows.push(row);
      continue;
    }
    const label = labelOf(values[row]) || grouping.none;
    current = gathered.get(label);
    if (!current) gathered.set(label, (current = { heads: [], rows: [] }));
    current.heads.push(row);
    current.rows.push(row);
  }
  const groups = [...gathered].map(
    ([label, { heads, rows }]): Group => ({
      label,
      rows,
      sums: { ...sumsOf(table, heads), "#": heads.length },
    }),
  );
  return groups.sort(groupOrder(sorting));
}

/** Sums of all columns that add up, over undivided rows. */
export function sumsOf(table: TableDoc, rows: readonly number[]): Record<string, number | null> {
  const heads = table.depth ? rows.filter((row) => !table.depth![row]) : rows;
  const sums: Record<string, number | null> = {};
  for (const { name } of table.columns) {
    if (isAdditive(name)) sums[name] = sumOf(table.values[name]!, heads);
  }
  return sums;
}

function groupOrder(sorting: Sorting | undefined): (one: Group, other: Group) => number {
  const by = sorting && isAdditive(sorting.column) ? sorting : { column: "avg", descending: true };
  const sign = by.descending ? -1 : 1;
  return (one, other) => {
    const [a, b] = [one.sums[by.column] ?? -Infinity, other.sums[by.column] ?? -Infinity];
    return a === b ? one.label.localeCompare(other.label) : sign * (a < b ? -1 : 1);
  };
}

function columnOf(table: TableDoc, names: readonly string[]): string | undefined {
  return names.find((name) => table.columns.some((column) => column.name === name));
}

const labelOf = (value: Cell | undefined): string =>
  asNumber(value) === null ? plainText(value) : String(value);
