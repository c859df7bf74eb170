// Work on tables by columns: order of rows, sums, widths. Pure functions.

import type { Cell, Column, Kind, TableDoc } from "./document";
import { asNumber, cellFormat, durationDecimals, plainText } from "./format";

export interface Sorting {
  column: string;
  descending: boolean;
}

export const isNumeric = (kind: Kind): boolean =>
  kind !== "text" && kind !== "path" && kind !== "list" && kind !== "bool";

export function rowsIn(table: TableDoc): number {
  const first = table.columns[0];
  return first ? (table.values[first.name]?.length ?? 0) : 0;
}

/** The rows of `table` up to its totals, and its totals. */
export function bodyAndTotals(table: TableDoc): { body: number[]; totals: number[] } {
  const count = rowsIn(table);
  const from = table.breaks?.length ? Math.min(...table.breaks) : count;
  return { body: range(0, from), totals: range(from, count) };
}

export const range = (from: number, to: number): number[] =>
  Array.from({ length: Math.max(0, to - from) }, (_, at) => from + at);

/** The rows whose times are added up, in every view; of a table without the column `leaf` all. */
export const leavesOf = (table: TableDoc): readonly Cell[] =>
  table.values["leaf"] ?? new Array<Cell>(rowsIn(table)).fill(true);

/** `rows` in the wanted order. Rows stay below the one they hang from; no value comes last. */
export function sortRows(table: TableDoc, rows: readonly number[], sorting: readonly Sorting[]): number[] {
  const orders = sorting.flatMap((one) => {
    const column = table.columns.find((column) => column.name === one.column);
    return column ? [comparer(column, table.values[column.name]!, one.descending)] : [];
  });
  if (!orders.length) return [...rows];
  const compare = (one: number, other: number): number => {
    for (const order of orders) {
      const by = order(one, other);
      if (by) return by;
    }
    return one - other;
  };
  if (!table.depth) return [...rows].sort(compare);
  return sortTree(rows, table.depth, compare);
}

function sortTree(
  rows: readonly number[],
  depth: readonly number[],
  compare: (one: number, other: number) => number,
): number[] {
  const below = new Map<number, number[]>();
  const open: number[] = [];
  const top: number[] = [];
  for (const row of rows) {
    while (open.length && depth[open.at(-1)!]! >= depth[row]!) open.pop();
    const parent = open.at(-1);
    if (parent === undefined) top.push(row);
    else below.set(parent, [...(below.get(parent) ?? []), row]);
    open.push(row);
  }
  const sorted: number[] = [];
  const add = (level: number[]): void => {
    for (const row of level.sort(compare)) {
      sorted.push(row);
      const children = below.get(row);
      if (children) add(children);
    }
  };
  add(top);
  return sorted;
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function comparer(
  column: Column,
  values: readonly Cell[],
  descending: boolean,
): (one: number, other: number) => number {
  const sign = descending ? -1 : 1;
  if (isNumeric(column.kind)) {
    const numbers = Float64Array.from(values, (value) => asNumber(value) ?? NaN);
    return (one, other) => {
      const [a, b] = [numbers[one]!, numbers[other]!];
      if (a !== a || b !== b) return Number(a !== a) - Number(b !== b);
      return a === b ? 0 : a < b ? -sign : sign;
    };
  }
  // Texts are compared once each: their ranks are.
  const texts = values.map(plainText);
  const order = [...new Set(texts)].sort(collator.compare);
  const rank = new Map(order.map((text, at) => [text, at]));
  const ranks = Int32Array.from(texts, (text) => (text === "" ? -1 : rank.get(text)!));
  return (one, other) => {
    const [a, b] = [ranks[one]!, ranks[other]!];
    if (a < 0 || b < 0) return Number(a < 0) - Number(b < 0);
    return sign * (a - b);
  };
}

export type Formats = Record<string, (value: Cell) => string>;

/** How each column's cells are written: times of one unit have equal decimals, as in the terminal. */
export function tableFormats(table: TableDoc): Formats {
  const largest = new Map<string, number>();
  for (const column of table.columns) {
    if (column.kind !== "duration") continue;
    const unit = column.unit ?? "ns";
    let most = largest.get(unit) ?? 0;
    for (const value of table.values[column.name]!) {
      const number = asNumber(value);
      if (number !== null && Number.isFinite(number)) most = Math.max(most, Math.abs(number));
    }
    largest.set(unit, most);
  }
  const formats: Formats = {};
  for (const column of table.columns) {
    const decimals =
      column.kind === "duration"
        ? durationDecimals([largest.get(column.unit ?? "ns")!], column.unit ?? "ns")
        : undefined;
    formats[column.name] = cellFormat(column, table.values[column.name]!, decimals);
  }
  return formats;
}

/** The sum of a column over `rows`; null if there is no number among them. */
export function sumOf(values: readonly Cell[], rows: readonly number[]): number | null {
  let sum = 0;
  let any = false;
  for (const row of rows) {
    const number = asNumber(values[row]);
    if (number === null || Number.isNaN(number)) continue;
    sum += number;
    any = true;
  }
  return any ? sum : null;
}

/** The shares added up in the order of `rows`: null for rows that hang below others. */
export function cumulated(table: TableDoc, rows: readonly number[]): Cell[] {
  const shares = table.values["share"] ?? [];
  const found: Cell[] = [...(table.values["cumulative"] ?? [])];
  let sum = 0;
  for (const row of rows) {
    const share = asNumber(shares[row]);
    if (share === null || table.depth?.[row]) found[row] = null;
    else found[row] = sum += share;
  }
  return found;
}

export const hasValues = (values: readonly Cell[] | undefined): boolean =>
  values?.some((value) => value !== null && value !== "" && !(Array.isArray(value) && !value.length)) ??
  false;

export function median(numbers: readonly number[]): number | null {
  if (!numbers.length) return null;
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
