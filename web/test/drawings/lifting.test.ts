// Edges of closed boxes: each edge of the graph is drawn from the visible item that holds its one end
// to the one that holds the other, in pieces that meet.

import { describe, expect, it } from "vitest";

import { LayoutEngine } from "../../src/drawings/layout/engine";
import type { Drawing } from "../../src/drawings/layout/engine";
import { MOST_PORTS } from "../../src/drawings/layout/local";
import {
  boxesAround,
  boxesToDepth,
  firstOpen,
  visibleItem,
} from "../../src/drawings/layout/tree";
import type { BoxTree } from "../../src/drawings/layout/tree";
import { blockGraph, faultsOf, randomNumbers, shapeOf } from "./graphs";
import type { PlainGraph } from "./graphs";

function randomGraph(seed: number): PlainGraph {
  const next = randomNumbers(seed);
  const below = (count: number): number => Math.floor(next() * count);
  const boxes = Array.from({ length: 12 }, (_, box) => below(box + 1) - 1);
  const nodes = Array.from({ length: 60 }, () => below(13) - 1);
  const edges = Array.from({ length: 110 }, (): [number, number] => [below(60), below(60)]);
  return { nodes, boxes, edges };
}

/** For each edge: the drawn items that its pieces run between. */
function endsByEdge(drawing: Drawing): Map<number, { from: number[]; to: number[]; pieces: number[] }> {
  const ends = new Map<number, { from: number[]; to: number[]; pieces: number[] }>();
  const { pieces } = drawing;
  for (let piece = 0; piece < pieces.box.length; piece++) {
    for (let at = pieces.edgeStart[piece]!; at < pieces.edgeStart[piece + 1]!; at++) {
      const edge = pieces.edges[at]!;
      const known = ends.get(edge) ?? { from: [], to: [], pieces: [] };
      ends.set(edge, known);
      known.pieces.push(piece);
      if (pieces.from[piece]! >= 0) known.from.push(pieces.from[piece]!);
      if (pieces.to[piece]! >= 0) known.to.push(pieces.to[piece]!);
    }
  }
  return ends;
}

describe.each([1, 2, 3, 4, 5, 6])("a random graph (%i)", (seed) => {
  const graph = randomGraph(seed);
  const engine = new LayoutEngine(shapeOf(graph));
  const { tree } = engine;
  const next = randomNumbers(seed + 100);

  it.each([0, 0.5, 1])("lifts its edges with %f of the boxes open", (part) => {
    const open = new Set<number>();
    for (let item = tree.nodeCount; item < tree.root; item++) if (next() < part) open.add(item);
    const drawing = engine.layout({ open, weights: true });
    expect(faultsOf(drawing, tree.parent)).toEqual([]);
    const drawn = new Set(drawing.items);
    const ends = endsByEdge(drawing);
    graph.edges.forEach(([from, to], edge) => {
      const high = visibleItem(tree, open, from);
      const low = visibleItem(tree, open, to);
      if (high === low) {
        // Inside of one closed box (or a loop): nothing of it is drawn.
        expect(ends.has(edge)).toBe(false);
        return;
      }
      expect(drawn.has(high) && drawn.has(low)).toBe(true);
      const found = ends.get(edge)!;
      expect(found.from).toContain(high);
      expect(found.to).toContain(low);
      expect(found.pieces.length).toBe(borders(tree, high, low) + 1);
    });
  });
});

/** Borders of boxes that an edge crosses on its way. */
function borders(tree: BoxTree, from: number, to: number): number {
  const out = boxesAround(tree, from);
  const into = boxesAround(tree, to);
  const common = out.filter((box) => into.includes(box)).length;
  return out.length + into.length - 2 * common;
}

describe("ports", () => {
  it("become one where too many edges cross a border", () => {
    const many = MOST_PORTS + 4;
    const nodes = [...new Array<number>(many).fill(-1), 0];
    const edges = Array.from({ length: many }, (_, node): [number, number] => [node, many]);
    const engine = new LayoutEngine(shapeOf({ nodes, boxes: [-1], edges }));
    const drawing = engine.layout({ open: new Set([many + 1]), weights: false });
    const inside = Array.from(drawing.pieces.box).filter((box) => box === many + 1);
    expect(inside.length).toBe(1);
    expect(drawing.pieces.edges.length).toBe(2 * many);
  });
});

describe("what is open at first", () => {
  it("is as much as there is room for, small boxes first", () => {
    const { tree } = new LayoutEngine(shapeOf(blockGraph(6, 2)));
    const drawn = (open: Set<number>): number => {
      let count = 0;
      for (let item = 0; item < tree.root; item++) {
        if (visibleItem(tree, open, item) === item) count++;
      }
      return count;
    };
    for (const room of [9, 40, 60, 1000]) {
      const open = firstOpen(tree, room);
      expect(drawn(open) - open.size).toBeLessThanOrEqual(room);
      for (const box of open) {
        const up = tree.parent[box]!;
        expect(up === tree.root || open.has(up)).toBe(true);
      }
    }
    expect(firstOpen(tree, 9).size).toBe(0);
    expect(firstOpen(tree, 1000)).toEqual(boxesToDepth(tree, 99));
  });
});

describe("boxes that a file puts into themselves", () => {
  it("stand at the top", () => {
    const engine = new LayoutEngine(shapeOf({ nodes: [0, 1], boxes: [1, 0], edges: [[0, 1]] }));
    expect([...engine.tree.parent]).toEqual([2, 3, 4, 2, -1]);
    const drawing = engine.layout({ open: new Set([2, 3]), weights: false });
    expect(drawing.items.length).toBe(4);
  });
});
