// Repeated blocks of a module tree: which are folded, and what stands for all of them.

import { describe, expect, it } from "vitest";

import type { ModuleNode } from "../../src/document";
import { apart, folded, openTo, placeOf } from "../../src/drawings/modules/repeats";
import { eachBlock, namedEnd } from "../../src/drawings/repeats";

/** A tree of paths with the time of each leaf. */
function tree(times: Record<string, number>, types: Record<string, string> = {}): ModuleNode[] {
  const modules: ModuleNode[] = [];
  const at = new Map<string, number>();
  const add = (path: string): number => {
    let found = at.get(path);
    if (found !== undefined) return found;
    const cut = path.lastIndexOf(".");
    const parent = path === "" ? null : add(cut < 0 ? "" : path.slice(0, cut));
    found = modules.push({
      path, name: path.slice(cut + 1), type: types[path] ?? null, parent,
      depth: parent === null ? 0 : modules[parent]!.depth + 1, total: 0, self: 0, rows: [],
    }) - 1;
    at.set(path, found);
    return found;
  };
  Object.entries(times).forEach(([path, time], row) => {
    const leaf = add(path);
    modules[leaf]!.self = time;
    modules[leaf]!.rows.push(row);
    for (let up: number | null = leaf; up !== null; up = modules[up]!.parent) modules[up]!.total += time;
  });
  return modules;
}

const layers = (count: number): Record<string, number> =>
  Object.fromEntries(
    Array.from({ length: count }, (_, n) => [[`net.layers.${n}.attention`, n + 1], [`net.layers.${n}.mlp.up`, 10]]).flat() as [
      string,
      number,
    ][],
  );
const DEEP = tree({ stem: 5, ...layers(12), head: 2 });
const CLOSED: ReadonlySet<string> = new Set();
const BOX = "net.layers.0–11";

describe("a folded module tree", () => {
  it("has one box for equal blocks, with the sum and each block's part in it", () => {
    const shown = folded(DEEP, CLOSED);
    const box = shown.find(({ isBox }) => isBox)!;
    expect([box.name, box.path, box.of.length]).toEqual(["layers.0–11 ×12", BOX, 12]);
    expect(box.total).toBe(78 + 120);
    expect(eachBlock(box.of.map((one) => DEEP[one]!.total))).toEqual({ least: 11, median: 16.5, greatest: 22 });
    const attention = shown.find(({ path }) => path === `${BOX}.attention`)!;
    expect([attention.total, attention.of.length, attention.rows.length]).toEqual([78, 12, 12]);
    expect(shown[attention.parent!]).toBe(box);
    expect(shown.map(({ path }) => path)).toContain(`${BOX}.mlp.up`);
  });

  it("adds up to the tree, closed and open", () => {
    for (const open of [CLOSED, new Set([BOX])]) {
      const shown = folded(DEEP, open);
      const self = shown.filter(({ isBox }) => !isBox || !open.size).reduce((sum, one) => sum + one.self, 0);
      expect(self).toBe(DEEP[0]!.total);
      expect(shown.flatMap(({ rows }, at) => (shown[at]!.isBox && open.size ? [] : rows)).sort((a, b) => a - b)).toEqual(
        DEEP.flatMap(({ rows }) => rows).sort((a, b) => a - b),
      );
      shown.forEach(({ parent, depth }, at) => {
        expect(parent === null ? -1 : shown[parent]!.depth).toBe(depth - 1);
        expect(parent ?? -1).toBeLessThan(at);
      });
    }
  });

  it("shows each block of an open box", () => {
    const shown = folded(DEEP, new Set([BOX]));
    const eleventh = shown.find(({ path }) => path === "net.layers.11")!;
    expect(eleventh.of).toEqual([DEEP.findIndex(({ path }) => path === "net.layers.11")]);
    expect(shown[eleventh.parent!]!.path).toBe(BOX);
  });

  it("opens what hides a module, nested boxes too", () => {
    const nested = tree(
      Object.fromEntries(
        Array.from({ length: 20 }, (_, n) => [`a.${Math.floor(n / 5)}.b.${n % 5}.c`, 1]),
      ),
    );
    const module = nested.findIndex(({ path }) => path === "a.2.b.3.c");
    expect(folded(nested, CLOSED).filter(({ isBox }) => isBox).map(({ name }) => name)).toEqual(["a.0–3 ×4", "b.0–4 ×5"]);
    const open = openTo(nested, CLOSED, module);
    expect([...open]).toEqual(["a.0–3", "a.2.b.0–4"]);
    expect(placeOf(folded(nested, CLOSED), module)).toBe(-1);
    expect(folded(nested, open)[placeOf(folded(nested, open), module)]!.path).toBe("a.2.b.3.c");
  });

  it("leaves alone what differs, is not numbered in a row, or is few", () => {
    const paths = (times: Record<string, number>, types = {}): string[] =>
      folded(tree(times, types), CLOSED).filter(({ isBox }) => isBox).map(({ name }) => name);
    expect(paths({ "a.0": 1, "a.1": 1, "a.2": 1 })).toEqual([]);
    expect(paths({ "a.0": 1, "a.1": 1, "a.3": 1, "a.4": 1 })).toEqual([]);
    expect(paths({ "a.0": 1, "a.1": 1, "a.2": 1, "a.3": 1 }, { "a.2": "Other" })).toEqual([]);
    expect(paths({ "a.0": 1, "a.1": 1, "a.2": 1, "a.3.inner": 1 })).toEqual([]);
    expect(apart(DEEP).map(({ path }) => path)).toEqual(DEEP.map(({ path }) => path));
  });
});

it("a box has the name of the last module that is not a number", () => {
  expect(namedEnd("encoder.layer.0")).toBe("layer.0");
  expect(namedEnd("a.b2.3.0")).toBe("b2.3.0");
  expect(namedEnd("0.1")).toBe("0.1");
  expect(namedEnd("block0")).toBe("block0");
});
