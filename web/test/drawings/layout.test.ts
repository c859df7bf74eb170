import { describe, expect, it } from "vitest";

import { LayoutEngine } from "../../src/drawings/layout/engine";
import type { Drawing } from "../../src/drawings/layout/engine";
import { dagreLayout } from "../../src/drawings/layout/dagre";
import { layeredLayout } from "../../src/drawings/layout/layered";
import { boxesToDepth } from "../../src/drawings/layout/tree";
import { blockGraph, faultsOf, flatRandomGraph, shapeOf } from "./graphs";

const all = (engine: LayoutEngine): Set<number> => boxesToDepth(engine.tree, 99);
const cpu = (work: () => void): number => {
  const before = process.cpuUsage();
  work();
  return process.cpuUsage(before).user / 1000;
};

describe("the layout of nested boxes", () => {
  it.each([
    ["nothing open", 0],
    ["the outer boxes open", 1],
    ["all open", 9],
  ])("keeps siblings apart and children inside with %s", (_, depth) => {
    const engine = new LayoutEngine(shapeOf(blockGraph(3, 2)));
    const drawing = engine.layout({ open: boxesToDepth(engine.tree, depth), weights: false });
    expect(faultsOf(drawing, engine.tree.parent)).toEqual([]);
    expect(drawing.items.length).toBe(depth === 0 ? 6 : depth === 1 ? 6 + 3 * 4 : 6 + 3 * 4 + 60 - 6);
  });

  it("gives the same drawing each time, and after boxes were opened and closed", () => {
    const shape = shapeOf(blockGraph(3, 2));
    const one = new LayoutEngine(shape);
    const first = one.layout({ open: new Set(), weights: false });
    one.layout({ open: all(one), weights: false });
    const again = one.layout({ open: new Set(), weights: false });
    expect(again).toEqual(first);
    const other = new LayoutEngine(shape);
    expect(other.layout({ open: all(other), weights: false })).toEqual(
      one.layout({ open: all(one), weights: false }),
    );
  });

  it("lays out only the box that opens and those around it", () => {
    const graph = blockGraph(3, 2);
    const engine = new LayoutEngine(shapeOf(graph));
    const open = all(engine);
    const inner = graph.nodes.length + graph.boxes.length - 1;
    const outer = engine.tree.parent[inner]!;
    open.delete(inner);
    engine.layout({ open, weights: false });
    engine.layout({ open: new Set([...open, inner]), weights: false });
    expect(engine.laidOut).toEqual([inner, outer, engine.tree.root]);
  });

  it("leaves what stands in a closed box out, even when boxes within are open", () => {
    const graph = blockGraph(2, 2);
    const engine = new LayoutEngine(shapeOf(graph));
    const inner = graph.nodes.length + 1;
    const drawing = engine.layout({ open: new Set([inner]), weights: false });
    expect([...drawing.items]).not.toContain(inner);
    expect(drawing.isOpen.some((open) => open === 1)).toBe(false);
  });
});

it("keeps items without edges inside of a box that edges cross", () => {
  const graph = { nodes: [-1, 0, 0, 0, -1], boxes: [-1], edges: [[0, 1], [1, 4]] as [number, number][] };
  const engine = new LayoutEngine(shapeOf(graph));
  const drawing = engine.layout({ open: all(engine), weights: false });
  expect(drawing.items.length).toBe(6);
  expect(faultsOf(drawing, engine.tree.parent)).toEqual([]);
});

describe("edges at the boxes' borders", () => {
  const engine = new LayoutEngine(shapeOf({ nodes: [0, 0, 1, -1], boxes: [-1, -1], edges: [[0, 1], [1, 2], [2, 3]] }));

  it("run on through the border of an open box", () => {
    const drawing = engine.layout({ open: new Set([4]), weights: false });
    const { from, to, box } = drawing.pieces;
    const ends = Array.from(from, (one, index) => [box[index], one, to[index]]);
    expect(ends).toContainEqual([4, 1, -1]);
    expect(ends).toContainEqual([6, 4, 5]);
    expect(meets(drawing, 4, 5)).toBe(true);
  });

  it("reach an open box at its ports, which stand where its layout has them", () => {
    const wide = new LayoutEngine(
      shapeOf({ nodes: [-1, -1, 0, 0, 0, 0], boxes: [-1], edges: [[0, 2], [1, 3], [2, 4], [3, 5]] }),
    );
    const { pieces } = wide.layout({ open: new Set([6]), weights: false });
    for (const source of [0, 1]) {
      const outside = pieces.from.indexOf(source);
      const port = Array.from(pieces.edges).flatMap((edge, at) => (edge === source ? [at] : []));
      const inside = port
        .map((at) => lastAtOrBefore(pieces.edgeStart, at))
        .find((piece) => pieces.box[piece] === 6 && pieces.from[piece] === -1)!;
      const end = pieces.pointStart[outside + 1]! - 2;
      const start = pieces.pointStart[inside]!;
      expect(pieces.points[end]).toBeCloseTo(pieces.points[start]!, 1);
      expect(pieces.points[end + 1]).toBeCloseTo(pieces.points[start + 1]!, 1);
      // The last step is level with nothing: it comes from above.
      expect(pieces.points[end - 1]).toBeLessThan(pieces.points[end + 1]! - 5);
    }
  });

  it("carry the edges of the graph that they stand for", () => {
    const drawing = engine.layout({ open: new Set(), weights: false });
    expect([...drawing.pieces.edges].sort()).toEqual([1, 2]);
  });
});

/** Whether the piece that leaves through the border of box 4 ends where the one outside starts. */
function meets(drawing: Drawing, high: number, low: number): boolean {
  const { from, to, pointStart, points } = drawing.pieces;
  const inside = from.findIndex((_, index) => from[index] === 1 && to[index] === -1);
  const outside = from.findIndex((_, index) => from[index] === high && to[index] === low);
  const end = pointStart[inside + 1]! - 2;
  const start = pointStart[outside]!;
  return (
    Math.abs(points[end]! - points[start]!) < 0.5 &&
    Math.abs(points[end + 1]! - points[start + 1]!) < 0.5
  );
}

describe("weights", () => {
  const graph = { nodes: [-1, -1, 0, 0], boxes: [-1], edges: [[0, 2], [1, 3], [2, 3]] as [number, number][], weights: [0, 1] };

  it("are left out unless asked for", () => {
    const engine = new LayoutEngine(shapeOf(graph));
    const items = engine.layout({ open: all(engine), weights: false }).items;
    expect([...items].sort()).toEqual([2, 3, 4]);
  });

  it("stand in the box of what reads them", () => {
    const engine = new LayoutEngine(shapeOf(graph));
    const drawing = engine.layout({ open: all(engine), weights: true });
    expect(engine.tree.parent[0]).toBe(4);
    expect([...drawing.items].sort()).toEqual([0, 1, 2, 3, 4]);
    expect(faultsOf(drawing, engine.tree.parent)).toEqual([]);
  });
});

describe("one flat box", () => {
  const sizes = (count: number) => ({
    width: Float64Array.from({ length: count }, (_, item) => 60 + (item % 7) * 20),
    height: new Float64Array(count).fill(36),
  });
  const flat = (count: number) => {
    const { edges } = flatRandomGraph(count);
    return {
      itemCount: count, inPorts: 1, outPorts: 1, ...sizes(count),
      from: [count, ...edges.map(([from]) => from), count - 1],
      to: [0, ...edges.map(([, to]) => to), count + 1],
    };
  };

  it.each([["dagre", dagreLayout], ["layered", layeredLayout]] as const)(
    "has its ports outermost by %s", (_, layout) => {
      const graph = flat(60);
      const placed = layout(graph);
      for (let item = 0; item < 60; item++) {
        expect(placed.y[60]!).toBeLessThan(placed.y[item]! - 18 + 0.01);
        expect(placed.y[61]!).toBeGreaterThan(placed.y[item]! + 18 - 0.01);
      }
      for (const route of placed.routes) for (const value of route) expect(value).not.toBeNaN();
    },
  );

  it.each([["dagre", dagreLayout], ["layered", layeredLayout]] as const)(
    "may hold rings, loops of two and items with no edges by %s", (_, layout) => {
      const placed = layout({ itemCount: 5, inPorts: 0, outPorts: 0, ...sizes(5), from: [0, 1, 2, 1], to: [1, 2, 0, 0] });
      const spots = Array.from({ length: 5 }, (_, item) => `${placed.x[item]} ${placed.y[item]}`);
      expect(new Set(spots).size).toBe(5);
      expect(placed.width).toBeGreaterThan(0);
    },
  );

  it("draws most edges downwards and few across", () => {
    const graph = flat(300);
    const placed = layeredLayout(graph);
    for (let edge = 0; edge < graph.from.length; edge++) {
      expect(placed.y[graph.from[edge]!]!).toBeLessThan(placed.y[graph.to[edge]!]!);
    }
  });
});

describe("speed", () => {
  it("lays out 5,000 flat nodes within two seconds of CPU", () => {
    const engine = new LayoutEngine(shapeOf(flatRandomGraph(5000)));
    let drawing: Drawing | undefined;
    const took = cpu(() => (drawing = engine.layout({ open: new Set(), weights: false })));
    expect(drawing!.items.length).toBe(5000);
    expect(faultsOf(drawing!, engine.tree.parent)).toEqual([]);
    expect(took).toBeLessThan(2000);
  });

  it("lays out 5,000 nodes in nested boxes, all open, and opens one more at once", () => {
    const engine = new LayoutEngine(shapeOf(blockGraph(100, 5)));
    expect(engine.tree.nodeCount).toBeGreaterThan(4500);
    const open = all(engine);
    const took = cpu(() => engine.layout({ open, weights: false }));
    expect(took).toBeLessThan(4000);
    open.delete(engine.tree.root - 1);
    const next = cpu(() => engine.layout({ open, weights: false }));
    expect(next).toBeLessThan(600);
  });

  it("survives a fan of thousands and a chain of thousands", () => {
    const fan = { nodes: new Array<number>(4000).fill(-1), boxes: [], edges: Array.from({ length: 3999 }, (_, node): [number, number] => [0, node + 1]) };
    const chain = { nodes: new Array<number>(6000).fill(-1), boxes: [], edges: Array.from({ length: 5999 }, (_, node): [number, number] => [node, node + 1]) };
    for (const graph of [fan, chain]) {
      const engine = new LayoutEngine(shapeOf(graph));
      const drawing = engine.layout({ open: new Set(), weights: false });
      expect(faultsOf(drawing, engine.tree.parent)).toEqual([]);
    }
  });
});

function lastAtOrBefore(starts: Int32Array, at: number): number {
  let last = 0;
  starts.forEach((start, index) => {
    if (start <= at && index < starts.length - 1) last = index;
  });
  return last;
}
