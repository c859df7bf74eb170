// A table of any length: only the rows in view are in the page.

import { useEffect, useMemo, useRef } from "preact/hooks";
import type { ComponentChildren, VNode } from "preact";
import type { Cell, Column } from "../document";
import { visible } from "../format";
import { isAdditive, type Group } from "../groups";
import { takeKeys } from "../keys";
import { controlOfEach } from "../store";
import { isNumeric, type Formats } from "../tables";
import { meaningOf } from "../words";
import { headOf, type Grid } from "./grid";
import { firstSelected, groupItems, moved, rowItems, type Item } from "./items";
import { ROW, useVirtual } from "./virtual";

/** A row that sums others up: what is shown, what is not. */
export interface SumRow {
  label: string;
  sums: Record<string, number | null>;
  testId: string;
}

export interface DataTableProps {
  grid: Grid;
  formats: Formats;
  /** Body rows, filtered and in order. */
  rows: readonly number[];
  /** The same rows in groups, in place of `rows`. */
  groups?: readonly Group[] | null;
  /** Rows of the table that stay at the bottom. */
  totals?: readonly number[];
  sums?: readonly SumRow[];
  selected: ReadonlySet<number>;
  onSelect(row: number): void;
  label: string;
  testId: string;
  /** Own look of a column's cells, in place of the formatted text. */
  cells?: Record<string, (value: Cell, row: number, text: string) => ComponentChildren>;
  empty?: string;
  /** Values that depend on the order shown, in place of the table's. */
  values?: Record<string, Cell[]>;
}

/** By table: the rows that were closed, by number, and the groups that were opened, by label (JSON). */
const foldsOf = controlOfEach("folds");

function turnedOf(text: string): ReadonlySet<number | string> {
  try {
    const found: unknown = JSON.parse(text || "[]");
    return new Set(Array.isArray(found) ? found : []);
  } catch {
    return new Set(); // an address that was cut off
  }
}

export function DataTable(props: DataTableProps) {
  const { grid, rows, groups, selected, onSelect } = props;
  const folds = foldsOf(props.testId);
  const turned = useMemo(() => turnedOf(folds.value), [folds.value]);
  const items = useMemo(
    () => (groups ? groupItems(groups, turned) : rowItems(rows, grid.doc.depth, turned)),
    [rows, groups, turned, grid.doc],
  );
  const body = useRef<HTMLDivElement>(null);
  const head = 30;
  const foot = ((props.sums?.length ?? 0) + (props.totals?.length ?? 0)) * ROW;
  const virtual = useVirtual(body, items.length, head, foot);
  const own = useRef(false);

  const choose = (row: number): void => {
    own.current = true;
    onSelect(row);
  };
  const toggle = (key: number | string): void => {
    const next = new Set(turned);
    if (!next.delete(key)) next.add(key);
    folds.value = next.size ? JSON.stringify([...next]) : "";
  };

  // A selection made elsewhere is brought into view; one made here is there already.
  const first = firstSelected(items, selected);
  useEffect(() => {
    if (!own.current && first >= 0) virtual.scrollToIndex(first, { align: "auto" });
    own.current = false;
  }, [selected]);

  useEffect(() =>
    takeKeys({
      move(by) {
        const next = moved(items, firstSelected(items, selected), by);
        if (next < 0) return;
        virtual.scrollToIndex(next, { align: "auto" });
        const item = items[next]!;
        if ("row" in item) choose(item.row);
      },
    }),
  );

  const width = grid.columns.reduce((sum, column) => sum + column.width, 0);
  const template = grid.columns.map((column) => `${column.width}px`).join(" ");
  const style = { gridTemplateColumns: template, width: `${width}px` };
  const drawn = useDrawn();
  const twisty =
    grid.columns.find(({ column }) => column.name === "event" || column.name === "event_name") ??
    grid.columns.find(({ column }) => !isNumeric(column.kind));
  const draw = (item: Item, at: { index: number; start: number }) => {
    const place = { ...style, transform: `translateY(${at.start - head}px)` };
    return "group" in item ? (
      <GroupRow
        key={`g${item.group.label}`}
        {...props}
        group={item.group}
        style={place}
        open={turned.has(item.group.label)}
        toggle={() => toggle(item.group.label)}
      />
    ) : (
      <Row
        key={item.row}
        {...props}
        row={item.row}
        depth={item.depth}
        index={at.index}
        style={place}
        twisty={twisty?.column.name}
        open={item.children ? !turned.has(item.row) : null}
        toggle={() => toggle(item.row)}
        chosen={selected.has(item.row)}
        choose={choose}
      />
    );
  };
  return (
    <div
      class="table"
      role="table"
      aria-label={props.label}
      aria-rowcount={items.length}
      data-testid={props.testId}
      ref={body}
      tabIndex={0}
    >
      <Head grid={grid} style={style} />
      <div
        class="table-body"
        role="rowgroup"
        style={{ height: `${virtual.getTotalSize()}px`, width: `${width}px` }}
      >
        {virtual.getVirtualItems().map((at) => {
          const item = items[at.index];
          if (!item) return null;
          const deps = [
            grid.doc,
            template,
            item,
            at.start,
            props.formats,
            "row" in item && selected.has(item.row),
            turned,
            props.values,
          ];
          return drawn(at.index, deps, () => draw(item, at));
        })}
        {!items.length && <p class="table-empty">{props.empty ?? "No rows."}</p>}
      </div>
      {foot > 0 && (
        <div class="table-foot" role="rowgroup" style={{ width: `${width}px` }}>
          {props.sums?.map((sum) => (
            <Sums key={sum.testId} {...props} sum={sum} style={style} labelled={twisty?.column.name} />
          ))}
          {props.totals?.map((row) => (
            <Row
              key={row}
              {...props}
              row={row}
              depth={0}
              index={-1}
              style={style}
              twisty={twisty?.column.name}
              open={null}
              toggle={() => undefined}
              chosen={selected.has(row)}
              choose={choose}
            />
          ))}
        </div>
      )}
    </div>
  );
}

function Head({ grid, style }: { grid: Grid; style: Record<string, string> }) {
  return (
    <div class="table-head" role="rowgroup" style={{ width: style["width"] }}>
      <div role="row" class="row" style={style}>
        {grid.columns.map(({ column, width }) => (
          <HeadCell key={column.name} grid={grid} column={column} width={width} />
        ))}
      </div>
    </div>
  );
}

function HeadCell({ grid, column, width }: { grid: Grid; column: Column; width: number }) {
  const state = grid.table.getColumn(column.name);
  const sorted = grid.sorting.find((one) => one.column === column.name);
  const order = sorted ? (sorted.descending ? "descending" : "ascending") : "none";
  const meaning = meaningOf(column.name);
  const name = headOf(column);
  return (
    <div
      role="columnheader"
      class={isNumeric(column.kind) ? "cell number" : "cell"}
      aria-sort={order}
      data-col={column.name}
    >
      <button
        class="head"
        title={`${name}${meaning ? `: ${meaning}` : ""}\nClick to sort, Shift-click to sort by it as well`}
        onClick={(event) => state?.getToggleSortingHandler()?.(event)}
      >
        <span class="text">
          {visible(column.title)}
          {column.unit && column.kind !== "bytes" && <small> {visible(column.unit)}</small>}
        </span>
        {sorted && (
          <span class="order" aria-hidden="true">
            {sorted.descending ? "▾" : "▴"}
          </span>
        )}
      </button>
      <span
        class="resizer"
        title="Drag to change the width"
        onPointerDown={(event) => resize(grid, column.name, width, event)}
        onDblClick={() => state?.resetSize()}
      />
    </div>
  );
}

function resize(grid: Grid, name: string, width: number, event: PointerEvent): void {
  event.preventDefault();
  const target = event.currentTarget as HTMLElement;
  target.setPointerCapture(event.pointerId);
  const move = (now: PointerEvent): void =>
    grid.table.setColumnSizing((old) => ({
      ...old,
      [name]: Math.max(44, width + now.clientX - event.clientX),
    }));
  target.addEventListener("pointermove", move);
  target.addEventListener("pointerup", () => target.removeEventListener("pointermove", move), { once: true });
}

interface RowProps extends DataTableProps {
  row: number;
  depth: number;
  index: number;
  style: Record<string, string>;
  twisty: string | undefined;
  open: boolean | null;
  toggle(): void;
  chosen: boolean;
  choose(row: number): void;
}

function Row({
  values,
  grid,
  formats,
  cells,
  row,
  depth,
  index,
  style,
  twisty,
  open,
  toggle,
  chosen,
  choose,
}: RowProps) {
  return (
    <div
      role="row"
      class={chosen ? "row chosen" : "row"}
      aria-selected={chosen}
      aria-rowindex={index < 0 ? undefined : index + 1}
      data-row={row}
      data-depth={depth}
      style={style}
      onClick={() => choose(row)}
    >
      {grid.columns.map(({ column }) => {
        const value = (values?.[column.name] ?? grid.doc.values[column.name]!)[row] ?? null;
        const text = formats[column.name]!(value);
        const lead = column.name === twisty;
        return (
          <DataCell key={column.name} column={column} value={value} text={text} indent={lead ? depth : 0}>
            {lead && open !== null && (
              <button
                class="twisty"
                aria-expanded={open}
                aria-label={open ? "Close" : "Open"}
                onClick={(event) => {
                  event.stopPropagation();
                  toggle();
                }}
              >
                {open ? "▾" : "▸"}
              </button>
            )}
            {cells?.[column.name]?.(value, row, text) ?? text}
          </DataCell>
        );
      })}
    </div>
  );
}

interface CellProps {
  column: Column;
  value: Cell;
  text: string;
  indent: number;
  children: ComponentChildren;
}

function DataCell({ column, value, text, indent, children }: CellProps) {
  const share = column.name === "share" && typeof value === "number" ? Math.min(1, Math.max(0, value)) : null;
  const exact = value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  const numeric = isNumeric(column.kind);
  return (
    <div
      role="cell"
      class={numeric ? "cell number" : "cell"}
      data-col={column.name}
      data-value={exact}
      title={numeric ? visible(exact) : text}
      style={{
        ...(indent ? { paddingLeft: `${8 + indent * 16}px` } : {}),
        ...(share === null ? {} : { "--share": `${(share * 100).toFixed(2)}%` }),
      }}
    >
      <span class={column.kind === "path" ? "text text-end" : "text"}>
        <bdi dir="ltr">{children}</bdi>
      </span>
    </div>
  );
}

function GroupRow({
  grid,
  formats,
  group,
  style,
  open,
  toggle,
}: DataTableProps & { group: Group; style: Record<string, string>; open: boolean; toggle(): void }) {
  const label = grid.columns.find(({ column }) => !isNumeric(column.kind))?.column.name;
  const count = group.sums["#"] ?? 0;
  return (
    <div role="row" class="row group" data-group={group.label} style={style} onClick={toggle}>
      {grid.columns.map(({ column }) => {
        if (column.name !== label)
          return <SumCell key={column.name} column={column} sums={group.sums} formats={formats} />;
        const text = visible(group.label);
        return (
          <div role="cell" class="cell spread" key={column.name} title={text} data-col={column.name}>
            <button class="twisty" aria-expanded={open} aria-label={open ? "Close" : "Open"}>
              {open ? "▾" : "▸"}
            </button>
            <bdi dir="ltr">{text}</bdi> <small>{count === 1 ? "1 row" : `${count} rows`}</small>
          </div>
        );
      })}
    </div>
  );
}

function Sums({
  grid,
  formats,
  sum,
  style,
  labelled,
}: DataTableProps & { sum: SumRow; style: Record<string, string>; labelled: string | undefined }) {
  return (
    <div role="row" class="row sum" style={style} data-testid={sum.testId}>
      {grid.columns.map(({ column }) =>
        column.name === labelled ? (
          <div role="cell" class="cell spread" key={column.name} title={sum.label}>
            {sum.label}
          </div>
        ) : (
          <SumCell key={column.name} column={column} sums={sum.sums} formats={formats} />
        ),
      )}
    </div>
  );
}

function SumCell({
  column,
  sums,
  formats,
}: {
  column: Column;
  sums: Record<string, number | null>;
  formats: Formats;
}) {
  const value = isAdditive(column.name) ? (sums[column.name] ?? null) : null;
  if (value === null) return <div role="cell" class="cell" />;
  return (
    <DataCell column={column} value={value} text="" indent={0}>
      {formats[column.name]!(value)}
    </DataCell>
  );
}

/** What was drawn for an item, as long as nothing changed that it is made of: scrolling makes new
 * rows alone. */
function useDrawn(): (key: number, deps: unknown[], make: () => VNode) => VNode {
  const last = useRef(new Map<number, { deps: unknown[]; made: VNode }>());
  const next = new Map<number, { deps: unknown[]; made: VNode }>();
  const before = last.current;
  last.current = next;
  return (key, deps, make) => {
    const known = before.get(key);
    const same = known?.deps.every((dep, at) => dep === deps[at]) ?? false;
    const entry = known && same ? known : { deps, made: make() };
    next.set(key, entry);
    return entry.made;
  };
}
