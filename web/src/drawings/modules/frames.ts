// Where each module stands in the icicle: as wide as its share of the time.

import type { ModuleNode } from "../../document";

/** A node of a tree in a flat list: the node around it stands before it. */
export interface TreeNode {
  path: string;
  name: string;
  /** Index of the node around, null for roots. */
  parent: number | null;
  /** Time or bytes, with what is below. */
  total: number;
}

export interface Frame {
  module: number;
  /** Row: 0 is the outermost shown. */
  row: number;
  /** Left and right edge, 0 to 1. */
  left: number;
  right: number;
  /** Stands around what is zoomed into. */
  around: boolean;
}

/** Time of the whole tree: of all modules that have none around them. */
export function wholeTime(modules: readonly ModuleNode[]): number {
  return modules.reduce((sum, module) => (module.parent === null ? sum + positive(module.total) : sum), 0);
}

/** The frames wider than `narrowest`, with `focus` and what is in it over the full width. */
export function frames(
  modules: readonly ModuleNode[],
  focus: number | null,
  narrowest: number,
): Frame[] {
  const shown: Frame[] = pathTo(modules, focus)
    .slice(0, -1)
    .map((module, row) => ({ module, row, left: 0, right: 1, around: true }));
  const below = childrenOf(modules);
  const place = (siblings: number[], row: number, left: number, right: number, whole: number): void => {
    if (whole <= 0) return;
    let at = left;
    for (const module of siblings) {
      const end = at + ((right - left) * positive(modules[module]!.total)) / whole;
      if (end - at >= narrowest) {
        shown.push({ module, row, left: at, right: end, around: false });
        waiting.push([module, row + 1, at, end]);
      }
      at = end;
    }
  };
  const waiting: [module: number, row: number, left: number, right: number][] = [];
  if (focus === null) {
    const roots = below.get(null) ?? [];
    place(roots, 0, 0, 1, sum(modules, roots));
  } else {
    // Shown even where it took no time: it was asked for.
    shown.push({ module: focus, row: shown.length, left: 0, right: 1, around: false });
    waiting.push([focus, shown.length, 0, 1]);
  }
  for (let head = 0; head < waiting.length; head++) {
    const [module, row, left, right] = waiting[head]!;
    const inside = below.get(module) ?? [];
    // Parts that are more than the whole (times that several share) are drawn no wider than it.
    place(inside, row, left, right, Math.max(modules[module]!.total, sum(modules, inside)));
  }
  return shown;
}

/** What to zoom into to see `module`: what is around it, or itself where it is too narrow in that. */
export function sightOf(modules: readonly ModuleNode[], module: number, narrowest: number): number | null {
  const around = modules[module]!.parent;
  return frames(modules, around, narrowest).some((frame) => frame.module === module) ? around : module;
}

/** The module and those around it, outermost first. */
export function pathTo(modules: readonly TreeNode[], module: number | null): number[] {
  const path: number[] = [];
  for (let at = module; at !== null; ) {
    path.push(at);
    const up: number | null = modules[at]?.parent ?? null;
    at = up !== null && up < at ? up : null;
  }
  return path.reverse();
}

export function childrenOf(modules: readonly TreeNode[]): Map<number | null, number[]> {
  const children = new Map<number | null, number[]>();
  modules.forEach((module, index) => {
    const list = children.get(module.parent);
    if (list) list.push(index);
    else children.set(module.parent, [index]);
  });
  return children;
}

/** Where an arrow key leads; null where there is nothing, undefined for other keys. */
export function step(
  modules: readonly TreeNode[],
  below: Map<number | null, number[]>,
  from: number,
  key: string,
  flame: boolean,
): number | null | undefined {
  const out = flame ? "ArrowDown" : "ArrowUp";
  const into = flame ? "ArrowUp" : "ArrowDown";
  if (key === out) return modules[from]?.parent ?? null;
  if (key === into) {
    const inside = below.get(from) ?? [];
    // Into the largest part.
    return inside.length === 0 ? null : inside.reduce((a, b) => (modules[b]!.total > modules[a]!.total ? b : a));
  }
  if (key !== "ArrowLeft" && key !== "ArrowRight") return undefined;
  const siblings = below.get(modules[from]?.parent ?? null) ?? [];
  return siblings[siblings.indexOf(from) + (key === "ArrowLeft" ? -1 : 1)] ?? null;
}

/** Modules whose path or type holds the text, and their time with what lies in several counted once. */
export function searchModules(
  modules: readonly ModuleNode[],
  text: string,
): { found: number[]; time: number } {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return { found: [], time: 0 };
  const found: number[] = [];
  const counted = new Set<number>();
  let time = 0;
  modules.forEach((module, index) => {
    const holds = [module.path, module.type ?? ""].some((one) => one.toLowerCase().includes(wanted));
    const within = module.parent !== null && counted.has(module.parent);
    if (holds) found.push(index);
    if (holds && !within) time += positive(module.total);
    if (holds || within) counted.add(index);
  });
  return { found, time };
}

const sum = (modules: readonly ModuleNode[], some: number[]): number =>
  some.reduce((total, index) => total + positive(modules[index]!.total), 0);

const positive = (value: number): number => (value > 0 ? value : 0);
