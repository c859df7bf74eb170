// The state of a table's columns: which are shown, how wide, sorted by which. TanStack Table keeps widths
// and sorting; the address has the sorting and the columns that the reader chose. The rows themselves stay
// columns of the document and are put in order by `tables.ts`.

import {
  columnSizingFeature,
  constructTable,
  rowSortingFeature,
  tableFeatures,
  type Table,
} from "@tanstack/table-core";
import { storeReactivityBindings } from "@tanstack/table-core/store-reactivity-bindings";
import { useEffect, useMemo, useReducer } from "preact/hooks";
import type { Cell, Column, TableDoc } from "../document";
import { plainText, visible } from "../format";
import { isAdditive } from "../groups";
import { controlOfEach } from "../store";
import { hasValues, isNumeric, range, rowsIn, sumOf, type Formats, type Sorting } from "../tables";

const features = tableFeatures({
  coreReactivityFeature: storeReactivityBindings(),
  columnSizingFeature,
  rowSortingFeature,
});

export type GridTable = Table<typeof features, never>;

export interface Grid {
  table: GridTable;
  doc: TableDoc;
  sorting: Sorting[];
  /** Shown columns, in order, with their widths in pixels. */
  columns: { column: Column; width: number }[];
  /** Whether the reader chose columns: then they no longer follow the width of the page. */
  chosen: boolean;
  toggle(name: string, shown: boolean): void;
  reset(): void;
  sort(by: readonly Sorting[]): void;
}

interface Kept {
  table: GridTable;
  doc: TableDoc;
}

// Widths last while the page is open, whatever tab is looked at.
const kept = new Map<string, Kept>();
/** By table: "-avg,event" sorts by `avg`, descending, then by `event`. */
const sortOf = controlOfEach("sort");
/** By table: names of the columns that the reader chose, with commas; "" for those that fit. */
const columnsOf = controlOfEach("columns");

/**
 * The columns of `doc` in so many pixels. `key` names the table for what is kept; `columns` the ones
 * shown at first (all that fit, if undefined); `sorting` the order without a choice, as in the address.
 */
export function useGrid(
  key: string,
  doc: TableDoc,
  formats: Formats,
  available: number,
  { columns, sorting: first = "" }: { columns?: readonly string[]; sorting?: string } = {},
): Grid {
  const [, again] = useReducer((count: number) => count + 1, 0);
  const widths = useMemo(() => naturalWidths(doc, formats), [doc, formats]);
  const state = useMemo(() => stateOf(key, doc, widths), [key, doc]);
  const order = sortOf(key);
  const sorting = useMemo(() => sortingOf(order.value || first), [order.value, first]);
  const keep = (by: readonly { id: string; desc: boolean }[]): void => {
    const text = textOf(by);
    order.value = text === first ? "" : text;
  };
  useEffect(() => {
    state.table.setSorting(sorting.map(({ column, descending }) => ({ id: column, desc: descending })));
  }, [state, sorting]);
  useEffect(() => {
    const subscription = state.table.store.subscribe(() => {
      keep(state.table.store.state.sorting);
      again(0);
    });
    return () => subscription.unsubscribe();
  }, [state]);
  const fit = useMemo(
    () => fitting(doc, widths, available, columns),
    [doc, widths, available, columns?.join()],
  );
  const choice = columnsOf(key);
  const chosen = choice.value === "" ? null : new Set(choice.value.split(","));
  const names = doc.columns
    .map(({ name }) => name)
    .filter((name) => (chosen === null ? fit[name] !== false : chosen.has(name)));
  const shown = doc.columns
    .filter(({ name }) => names.includes(name))
    .map((column) => ({ column, width: state.table.getColumn(column.name)?.getSize() ?? 100 }));
  return {
    table: state.table,
    doc,
    sorting,
    columns: fitted(shown, available, new Set(Object.keys(state.table.store.state.columnSizing))),
    chosen: chosen !== null,
    toggle(name, on) {
      choice.value = (on ? [...names, name] : names.filter((one) => one !== name)).join();
    },
    sort(by) {
      keep(by.map(({ column, descending }) => ({ id: column, desc: descending })));
    },
    reset() {
      choice.value = "";
    },
  };
}

const textOf = (sorting: readonly { id: string; desc: boolean }[]): string =>
  sorting.map(({ id, desc }) => (desc ? `-${id}` : id)).join();

const sortingOf = (text: string): Sorting[] =>
  text === ""
    ? []
    : text.split(",").map((one) => ({ column: one.replace(/^-/, ""), descending: one.startsWith("-") }));

function stateOf(key: string, doc: TableDoc, widths: Record<string, number>): Kept {
  const known = kept.get(key);
  const names = doc.columns.map((column) => column.name).join();
  if (known && known.doc.columns.map((column) => column.name).join() === names) return known;
  const table = constructTable({
    features,
    data: [] as never[],
    columns: doc.columns.map((column) => ({
      id: column.name,
      accessorFn: () => null,
      size: widths[column.name]!,
      minSize: 44,
      maxSize: 1200,
      sortDescFirst: isNumeric(column.kind) && column.kind !== "int",
    })),
    enableSortingRemoval: true,
    isMultiSortEvent: (event) => (event as MouseEvent).shiftKey,
  }) as unknown as GridTable;
  const made = { table, doc };
  kept.set(key, made);
  return made;
}

const PADDING = 18; // pixels around a cell's text
const MOST = { text: 300, path: 260, list: 240 } as Record<string, number>;
const SAMPLE = 500; // rows looked at

/** Pixels that each column wants: its longest text, or its head. Numbers are never cut. */
function naturalWidths(doc: TableDoc, formats: Formats): Record<string, number> {
  const count = rowsIn(doc);
  return Object.fromEntries(
    doc.columns.map((column) => {
      const values = doc.values[column.name]!;
      const numeric = isNumeric(column.kind);
      const written = numeric ? formats[column.name]! : plainText;
      const step = Math.max(1, Math.ceil(count / SAMPLE));
      let longest = "";
      const look = (row: number): void => {
        const text = written(values[row] ?? null);
        if (text.length > longest.length) longest = text;
      };
      for (let row = 0; row < count; row += step) look(row);
      if (numeric) extremes(values).forEach(look);
      if (isAdditive(column.name)) {
        const sum = written(sumOf(values, range(0, count))); // of groups and of what is shown
        if (sum.length > longest.length) longest = sum;
      }
      const deepest = numeric ? 0 : (doc.depth?.reduce((a, b) => Math.max(a, b), 0) ?? 0);
      const wanted = Math.min(MOST[column.kind] ?? Infinity, textWidth(longest) + 16 * deepest + PADDING);
      const head = Math.min(150, textWidth(headOf(column), 600) + PADDING + 14);
      return [column.name, Math.ceil(Math.max(wanted, head, 48))];
    }),
  );
}

/** The rows of the least and the greatest number: the widest, as all have the same decimals. */
function extremes(values: readonly Cell[]): number[] {
  let [least, most] = [-1, -1];
  values.forEach((value, row) => {
    if (typeof value !== "number") return;
    if (least < 0 || value < (values[least] as number)) least = row;
    if (most < 0 || value > (values[most] as number)) most = row;
  });
  return [least, most].filter((row) => row >= 0);
}

let context: CanvasRenderingContext2D | null | undefined;

/** Pixels of `text` in the table's font. */
function textWidth(text: string, weight = 400): number {
  context ??= document.createElement("canvas").getContext("2d");
  if (!context) return text.length * 8;
  context.font = `${weight} 13px ${getComputedStyle(document.body).fontFamily}`;
  return context.measureText(text.slice(0, 200)).width;
}

/** The column's title with its unit. */
export const headOf = (column: Column): string =>
  visible(column.unit && column.kind !== "bytes" ? `${column.title} (${column.unit})` : column.title);

/** Columns of this priority are shown only if the reader chooses them. */
const CHOSEN = 10;

/** Which columns are shown in so many pixels: those of the highest priority number go first. */
function fitting(
  doc: TableDoc,
  widths: Record<string, number>,
  available: number,
  columns: readonly string[] | undefined,
): Record<string, boolean> {
  const wanted = doc.columns.filter(
    (column) =>
      (columns === undefined
        ? column.priority < CHOSEN && hasValues(doc.values[column.name])
        : columns.includes(column.name)) && !isConstantMethod(doc, column),
  );
  const order = wanted
    .map((column, at) => ({ column, at }))
    .sort((a, b) => a.column.priority - b.column.priority || a.at - b.at);
  const shown: Record<string, boolean> = Object.fromEntries(doc.columns.map((c) => [c.name, false]));
  let room = available;
  for (const { column } of order) {
    const width = isText(column) ? Math.min(widths[column.name]!, comfortOf(column)) : widths[column.name]!;
    if (column.priority > 0 && width > room) continue;
    shown[column.name] = true;
    room -= width;
  }
  return shown;
}

/** The page has a selector of methods: a column of one name says nothing. */
const isConstantMethod = (doc: TableDoc, column: Column): boolean =>
  column.name === "method" && new Set(doc.values["method"]).size <= 1;

/** Texts take what room is left, or give way down to a width at which they still say something; what
 * the reader made wider or narrower stays so. */
function fitted<T extends { column: Column; width: number }>(
  columns: T[],
  available: number,
  own: ReadonlySet<string>,
): T[] {
  const room = available - columns.reduce((sum, { width }) => sum + width, 0);
  const texts = columns.filter(({ column }) => isText(column) && !own.has(column.name));
  if (!texts.length || available <= 0) return columns;
  if (room >= 0) {
    const each = Math.floor(room / texts.length);
    return columns.map((one) => (texts.includes(one) ? { ...one, width: one.width + each } : one));
  }
  const spareOf = ({ column, width }: T): number => Math.max(0, width - comfortOf(column));
  const spare = texts.reduce((sum, one) => sum + spareOf(one), 0);
  const part = spare > 0 ? Math.min(1, -room / spare) : 0;
  return columns.map((one) =>
    texts.includes(one) ? { ...one, width: one.width - Math.ceil(part * spareOf(one)) } : one,
  );
}

/** Pixels at which a text still says something: names most, as they tell rows apart. */
function comfortOf(column: Column): number {
  if (/^(event|event_name|tensor)$/.test(column.name)) return 230;
  return column.kind === "path" ? 190 : 150;
}

const isText = (column: Column): boolean => !isNumeric(column.kind) && column.kind !== "bool";
