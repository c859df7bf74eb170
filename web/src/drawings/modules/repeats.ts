// The module tree with its repeated blocks in boxes: a closed box stands for all of its blocks, and so do
// the modules in it, each for those of its place in every block.

import type { ModuleNode } from "../../document";
import { equalRuns, namedEnd, upTo } from "../repeats";
import { childrenOf } from "./frames";

/** Trees of fewer modules are read at a glance: their blocks stand apart until the reader wants else. */
export const LARGE = 50;

/** A module, or several of equal structure, as the tree shows them. */
export interface ShownModule extends ModuleNode {
  /** Indices of the modules. */
  of: readonly number[];
  /** Of a box around repeated blocks. */
  isBox: boolean;
}

/** Each module on its own. */
export const apart = (modules: readonly ModuleNode[]): ShownModule[] =>
  modules.map((module, index) => ({ ...module, of: [index], isBox: false }));

/** The tree with boxes around repeated blocks, of which those of the paths in `open` show their blocks. */
export function folded(modules: readonly ModuleNode[], open: ReadonlySet<string>): ShownModule[] {
  const below = childrenOf(modules);
  const structureOf = structures(modules, below);
  const shown: ShownModule[] = [];
  const add = (of: readonly number[], parent: number | null, named: Partial<ModuleNode>, isBox: boolean): number => {
    const depth = parent === null ? 0 : shown[parent]!.depth + 1;
    return shown.push({ ...together(modules, of), depth, parent, ...named, of, isBox }) - 1;
  };
  /** The children of modules of equal structure, `all`. */
  const addBelow = (all: readonly number[], parent: number | null): void => {
    const siblings = below.get(all[0] ?? null) ?? [];
    const places = all.map((one) => placesIn(modules, below, one));
    const everywhere = (child: number): number[] =>
      all.length < 2 ? [child] : places.map((place) => place.get(modules[child]!.name)!);
    const runs = equalRuns(siblings, (one) => modules[one]!.name, structureOf);
    const around = parent === null ? "" : shown[parent]!.path;
    const pathOf = (one: number): string =>
      all.length < 2 ? modules[one]!.path : `${around}.${modules[one]!.name}`;
    for (const child of siblings) {
      const run = runs.find((one) => one.includes(child));
      if (!run) addBelow(everywhere(child), add(everywhere(child), parent, { path: pathOf(child) }, false));
      if (run?.[0] !== child) continue;
      const last = modules[run.at(-1)!]!.name;
      const path = upTo(pathOf(child), last);
      const name = `${upTo(namedEnd(modules[child]!.path), last)} ×${run.length}`;
      const blocks = run.flatMap(everywhere);
      const box = add(blocks, parent, { name, path }, true);
      if (!open.has(path)) addBelow(blocks, box);
      else for (const one of run) addBelow(everywhere(one), add(everywhere(one), box, { path: pathOf(one) }, false));
    }
  };
  addBelow([], null);
  return shown;
}

/** `open` and the boxes that hide a module. */
export function openTo(
  modules: readonly ModuleNode[],
  open: ReadonlySet<string>,
  module: number,
): ReadonlySet<string> {
  const next = new Set(open);
  for (;;) {
    const shown = folded(modules, next);
    if (placeOf(shown, module) >= 0) return next;
    const hides = shown.find(
      (one) => one.isBox && !next.has(one.path) && one.of.some((block) => isWithin(modules, module, block)),
    );
    if (!hides) return next;
    next.add(hides.path);
  }
}

/** The index of what is shown for one module alone; -1 where it is folded. */
export const placeOf = (shown: readonly ShownModule[], module: number | null): number =>
  shown.findIndex((one) => !one.isBox && one.of.length === 1 && one.of[0] === module);

function isWithin(modules: readonly ModuleNode[], module: number, around: number): boolean {
  let at: number | null = module;
  while (at !== null && at !== around) at = modules[at]!.parent;
  return at === around;
}

/** The first of the modules, with the times and rows of all. */
function together(modules: readonly ModuleNode[], of: readonly number[]): ModuleNode {
  const all = of.map((index) => modules[index]!);
  const sum = (of: (one: ModuleNode) => number): number => all.reduce((total, one) => total + of(one), 0);
  if (all.length === 1) return all[0]!;
  return {
    ...all[0]!,
    total: sum((one) => one.total),
    self: sum((one) => one.self),
    rows: all.flatMap(({ rows }) => rows),
  };
}

function placesIn(
  modules: readonly ModuleNode[],
  below: Map<number | null, number[]>,
  module: number,
): Map<string, number> {
  return new Map((below.get(module) ?? []).map((child) => [modules[child]!.name, child]));
}

/** What each module is and holds, as text: the names and types of what is below, in any order. */
function structures(
  modules: readonly ModuleNode[],
  below: Map<number | null, number[]>,
): (module: number) => string {
  const known = new Map<number, string>();
  const describe = (module: number): string => {
    let text = known.get(module);
    if (text === undefined) {
      const inside = (below.get(module) ?? []).map((child) => [modules[child]!.name, describe(child)]);
      known.set(module, (text = JSON.stringify([modules[module]!.type, inside.sort()])));
    }
    return text;
  };
  return describe;
}
