// What a table shows, from top to bottom: rows, those below others unless they are closed, and groups.

import type { Group } from "../groups";

export type Item = { row: number; depth: number; children: boolean } | { group: Group };

export function rowItems(
  rows: readonly number[],
  depth: readonly number[] | undefined,
  closed: ReadonlySet<number | string>,
): Item[] {
  if (!depth) return rows.map((row) => ({ row, depth: 0, children: false }));
  const items: Item[] = [];
  let hiddenBelow = Infinity;
  rows.forEach((row, at) => {
    const level = depth[row] ?? 0;
    if (level > hiddenBelow) return;
    const next = rows[at + 1];
    const children = next !== undefined && (depth[next] ?? 0) > level;
    hiddenBelow = children && closed.has(row) ? level : Infinity;
    items.push({ row, depth: level, children });
  });
  return items;
}

export function groupItems(groups: readonly Group[], opened: ReadonlySet<number | string>): Item[] {
  return groups.flatMap((group): Item[] => [
    { group },
    ...(opened.has(group.label) ? group.rows.map((row) => ({ row, depth: 1, children: false })) : []),
  ]);
}

export function firstSelected(items: readonly Item[], selected: ReadonlySet<number>): number {
  return selected.size ? items.findIndex((item) => "row" in item && selected.has(item.row)) : -1;
}

/** The next item that is a row, `by` rows from `from`. */
export function moved(items: readonly Item[], from: number, by: number): number {
  if (!Number.isFinite(by)) {
    const ends = items.map((item, at) => ("row" in item ? at : -1)).filter((at) => at >= 0);
    return (by < 0 ? ends[0] : ends.at(-1)) ?? -1;
  }
  const step = Math.sign(by);
  let at = from < 0 && step < 0 ? items.length : from;
  do at += step;
  while (items[at] && !("row" in items[at]!));
  return items[at] ? at : -1;
}
