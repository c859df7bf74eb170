// Time and error by line of the user's Python.

import type { Method, Numerics, Run } from "./document";
import { errorsOf } from "./errors";
import { asNumber } from "./format";
import { bodyAndTotals, leavesOf } from "./tables";

export interface LineTimes {
  /** Time of what has this line alone as its innermost one. */
  self: number;
  /** Time of all that has the line anywhere in its stack, or among its innermost lines. */
  total: number;
  rows: number;
}

/** A part of the method's time, with the row whose lines it belongs to. */
export interface Part {
  row: number;
  time: number;
}

/** The method's time in parts, none counted twice. */
export function timeParts(method: Method): Part[] {
  const isLeaf = leavesOf(method.rows);
  return bodyAndTotals(method.rows)
    .body.filter((row) => isLeaf[row])
    .map((row) => ({ row, time: asNumber(method.rows.values["avg"]?.[row]) ?? 0 }));
}

export function lineTimes(method: Method): Map<number, LineTimes> {
  const times = new Map<number, LineTimes>();
  const at = (line: number): LineTimes => {
    let found = times.get(line);
    if (!found) times.set(line, (found = { self: 0, total: 0, rows: 0 }));
    return found;
  };
  for (const { row, time } of timeParts(method)) {
    const lines = method.links.lines[row] ?? [];
    for (const line of new Set([...(method.links.stack[row] ?? []), ...lines])) {
      const found = at(line);
      found.total += time;
      found.rows++;
    }
    if (lines.length === 1) at(lines[0]!).self += time;
  }
  return times;
}

/** The worst value of the metric at each line: index of its row in the numerics' table. */
export function lineErrors(numerics: Numerics | null): Map<number, number> {
  const worst = new Map<number, number>();
  if (!numerics) return worst;
  const values = errorsOf(numerics);
  numerics.lines.forEach((line, row) => {
    const value = values[row];
    if (line === null || value === null || value === undefined) return;
    const known = worst.get(line);
    const before = known === undefined ? null : values[known]!;
    // What is not a number is worse than any.
    if (
      before === null ||
      (!Number.isNaN(before) && !(numerics.largerIsWorse ? value <= before : value >= before))
    )
      worst.set(line, row);
  });
  return worst;
}

export interface FileLines {
  file: number;
  path: string;
  /** Time of what has all of its innermost lines here. */
  self: number;
  /** The part of it that several lines share. */
  shared: number;
  /** Functions in order of their first known line, each with its lines in order. */
  functions: { name: string; lines: number[] }[];
}

/** Files with known lines, the one with the longest time first. Installed ones without time are left out,
 * but for that of the path `chosen`. */
export function filesOf(run: Run, method: Method | undefined, chosen: string): FileLines[] {
  const self = new Map<number, number>();
  const shared = new Map<number, number>();
  for (const { row, time } of method ? timeParts(method) : []) {
    const lines = method!.links.lines[row] ?? [];
    const [file, ...others] = new Set(lines.map((line) => run.source.lines[line]!.file));
    if (file === undefined || others.length) continue;
    self.set(file, (self.get(file) ?? 0) + time);
    if (lines.length > 1) shared.set(file, (shared.get(file) ?? 0) + time);
  }
  const byFile = new Map<number, number[]>();
  run.source.lines.forEach((line, at) => {
    const list = byFile.get(line.file);
    if (list) list.push(at);
    else byFile.set(line.file, [at]);
  });
  const files = [...byFile].map(([file, lines]): FileLines => {
    const sorted = lines.sort((a, b) => run.source.lines[a]!.line - run.source.lines[b]!.line);
    const functions: FileLines["functions"] = [];
    for (const at of sorted) {
      const name = run.source.lines[at]!.function;
      const last = functions.at(-1);
      if (last?.name === name) last.lines.push(at);
      else functions.push({ name, lines: [at] });
    }
    const path = run.source.files[file] ?? "?";
    return { file, path, self: self.get(file) ?? 0, shared: shared.get(file) ?? 0, functions };
  });
  const own = files.filter((one) => one.self > 0 || one.path === chosen || !isLibrary(one.path));
  return (own.length ? own : files).sort(
    (a, b) =>
      b.self - a.self ||
      Number(isLibrary(a.path)) - Number(isLibrary(b.path)) ||
      a.path.localeCompare(b.path),
  );
}

/** Whether a file is installed rather than the user's own. */
const isLibrary = (path: string): boolean =>
  /[\\/](site-packages|dist-packages|python3\.\d+)[\\/]/.test(path);
