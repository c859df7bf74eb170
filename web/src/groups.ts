// Rows of a table gathered by op, type, module, source line or delegate, with their sums.

import type { TableDoc } from "./document";
import { asNumber, plainText } from "./format";
import { leavesOf, sumOf, type Sorting } from "./tables";

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
interface GroupingColumn extends Grouping {
  columns: readonly string[];
  none: string;
}

const GROUPINGS: readonly GroupingColumn[] = [
  { key: "op", title: "op", columns: ["event", "event_name"], none: "(no name)" },
  { key: "op_type", title: "op type", columns: ["op_types"], none: "(no op type)" },
  { key: "type", title: "kind", columns: ["kind"], none: "(no kind)" },
  {
    key: "module",
    title: "module",
    columns: ["module", "module_hierarchy"],
    none: "(no module)",
  },
  {
    key: "module_type",
    title: "module type",
    columns: ["module_type"],
    none: "(no module type)",
  },
  {
    key: "source",
    title: "source line",
    columns: ["source", "stack_traces"],
    none: "(no source line)",
  },
  {
    key: "delegate",
    title: "delegate",
    columns: ["backend", "delegate_backend_name"],
    none: "(not delegated)",
  },
];

// Columns whose sum over rows means something. Percentiles, extremes and deviations do not add up.
const ADDITIVE = new Set([
  ...["avg", "share", "kernel", "calls", "first", "bytes_read", "bytes_written", "size"],
  ...["saved_by_float16", "saved_by_int8", "saved_by_sharing"],
]);

export const isAdditive = (name: string): boolean => ADDITIVE.has(name);

/** The groupings that `table` has a column for. */
export function groupingsOf(table: TableDoc): Grouping[] {
  return GROUPINGS.filter((one) => columnOf(table, one.columns) !== undefined).map(({ key, title }) => ({
    key,
    title,
  }));
}

/**
 * The rows in groups, largest time first or as `sorting` says. Only leaves are counted; what hangs below
 * an undivided row is in the group's `rows` as well.
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
  const isLeaf = leavesOf(table);
  const gathered = new Map<string, Group>();
  let ofHead: Group | undefined;
  for (const row of rows) {
    const isHead = !table.depth?.[row];
    if (isHead) ofHead = undefined;
    if (!isLeaf[row]) {
      ofHead?.rows.push(row);
      continue;
    }
    const label = labelOf(table, column, row) || grouping.none;
    let group = gathered.get(label);
    if (!group) gathered.set(label, (group = { label, rows: [], sums: {} }));
    group.rows.push(row);
    if (isHead) ofHead = group;
  }
  for (const group of gathered.values()) {
    group.sums = { ...sumsOf(table, group.rows), "#": group.rows.filter((row) => isLeaf[row]).length };
  }
  return [...gathered.values()].sort(groupOrder(sorting));
}

/** Sums of all columns that add up, over the leaves among `rows`. */
export function sumsOf(table: TableDoc, rows: readonly number[]): Record<string, number | null> {
  const isLeaf = leavesOf(table);
  const counted = rows.filter((row) => isLeaf[row]);
  const sums: Record<string, number | null> = {};
  for (const { name } of table.columns) {
    if (isAdditive(name)) sums[name] = sumOf(table.values[name]!, counted);
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

function labelOf(table: TableDoc, column: string, row: number): string {
  const value = table.values[column]![row];
  if (column === "module" && value === "") return "(root)";
  const text = asNumber(value) === null ? plainText(value) : String(value);
  // A delegate numbers the kernels of one name: "Convolution (NHWC, F32) IGEMM #3".
  const isDelegated =
    table.values["kind"]?.[row] === "delegated" || table.values["is_delegated_op"]?.[row] === true;
  return isDelegated && column.startsWith("event") ? text.replace(/ #\d+$/, "") : text;
}
