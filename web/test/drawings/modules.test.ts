import { describe, expect, it } from "vitest";

import type { ModuleNode } from "../../src/document";
import { frames, pathTo, searchModules, sightOf, wholeTime } from "../../src/drawings/modules/frames";
import { fixture } from "../fixture";

const module = (path: string, parent: number | null, total: number, self = 0): ModuleNode => ({
  path, name: path.split(".").at(-1)!, type: null, parent, depth: 0, total, self, rows: [],
});
const MODULES = [
  module("", null, 90, 10),
  module("a", 0, 60, 0),
  module("a.x", 1, 45, 45),
  module("a.y", 1, 15, 15),
  module("b", 0, 20, 20),
  module("(no module)", null, 10, 10),
];

describe("frames", () => {
  it("are as wide as their share, one below the other", () => {
    const shown = frames(MODULES, null, 0);
    const at = (index: number) => shown.find((frame) => frame.module === index)!;
    expect(wholeTime(MODULES)).toBe(100);
    expect([at(0).left, at(0).right]).toEqual([0, 0.9]);
    expect([at(1).left, at(1).right]).toEqual([0, 0.9 * (60 / 90)]);
    expect(at(4).left).toBe(at(1).right);
    expect(at(5).right).toBeCloseTo(1);
    expect([at(0).row, at(1).row, at(2).row]).toEqual([0, 1, 2]);
  });

  it("leave a gap for what a module takes itself", () => {
    const shown = frames(MODULES, null, 0);
    const root = shown.find((frame) => frame.module === 0)!;
    const last = shown.find((frame) => frame.module === 4)!;
    expect((root.right - last.right) / (root.right - root.left)).toBeCloseTo(10 / 90);
  });

  it("of what is zoomed into are as wide as the view, those around above it", () => {
    const shown = frames(MODULES, 1, 0);
    expect(shown.map(({ module: at, around }) => [at, around])).toEqual([
      [0, true], [1, false], [2, false], [3, false],
    ]);
    expect(shown[1]).toMatchObject({ left: 0, right: 1, row: 1 });
    expect(shown[2]!.right).toBeCloseTo(0.75);
  });

  it("that are too narrow are left out, with all below", () => {
    expect(frames(MODULES, null, 0.21).map((frame) => frame.module)).toEqual([0, 1, 2]);
  });

  it("of what is zoomed into are shown even where it took no time", () => {
    const modules = [module("", null, 10), module("a", 0, 10), module("b", 0, 0)];
    expect(frames(modules, 2, 0.1).map((frame) => frame.module)).toEqual([0, 2]);
  });

  it("are brought into sight by zooming into what is around, or themselves", () => {
    expect(sightOf(MODULES, 3, 0.2)).toBe(1);
    expect(sightOf(MODULES, 3, 0.3)).toBe(3);
  });

  it("never stand out of what holds them, whatever a file says", () => {
    const odd = [module("", null, 10), module("a", 0, 9), module("b", 0, 9), module("c", 0, -4), module("z", null, 0)];
    for (const frame of frames(odd, null, 0)) {
      expect(frame.left).toBeGreaterThanOrEqual(0);
      expect(frame.right).toBeLessThanOrEqual(1.0000001);
    }
    expect(frames([module("", null, 0)], null, 0)).toEqual([]);
    expect(pathTo([{ ...module("a", 0, 1) }], 0)).toEqual([0]);
  });
});

describe("the search", () => {
  it("counts what lies in several found ones once", () => {
    expect(searchModules(MODULES, "a")).toEqual({ found: [1, 2, 3], time: 60 });
    expect(searchModules(MODULES, "y")).toEqual({ found: [3], time: 15 });
    expect(searchModules(MODULES, "")).toEqual({ found: [], time: 0 });
  });
});

it("shows the page's own fixture with totals that add up", () => {
  const modules = fixture({ blocks: 3 }).runs[0]!.methods[0]!.modules;
  const shown = frames(modules, null, 0);
  expect(shown.length).toBe(modules.length);
});
