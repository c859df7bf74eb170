// Graphs for tests of the drawings, made by rule: the same every time.

import type { GraphShape } from "../../src/drawings/layout/tree";
import type { Drawing } from "../../src/drawings/layout/engine";

export interface PlainGraph {
  /** Box of each node (-1: the top). */
  nodes: number[];
  /** Box around each box. */
  boxes: number[];
  edges: [number, number][];
  weights?: number[];
}

export function shapeOf(graph: PlainGraph): GraphShape {
  const items = graph.nodes.length + graph.boxes.length;
  const weight = new Uint8Array(graph.nodes.length);
  for (const node of graph.weights ?? []) weight[node] = 1;
  return {
    nodeCount: graph.nodes.length,
    groupCount: graph.boxes.length,
    nodeGroup: Int32Array.from(graph.nodes),
    groupParent: Int32Array.from(graph.boxes),
    edges: Int32Array.from(graph.edges.flat()),
    width: Float32Array.from({ length: items }, (_, item) => 90 + (item % 5) * 20),
    height: new Float32Array(items).fill(36),
    weight,
  };
}

export function randomNumbers(seed: number): () => number {
  return () => {
    seed = (seed * 1103515245 + 12345) & 0x7fffffff;
    return seed / 0x7fffffff;
  };
}

/** Blocks of a transformer's kind, each with parts of ten nodes, residuals and one mask for all. */
export function blockGraph(blocks: number, parts: number): PlainGraph {
  const graph: PlainGraph = { nodes: [-1, -1], boxes: [], edges: [] };
  let last = 0;
  const add = (box: number, ...inputs: number[]): number => {
    const node = graph.nodes.push(box) - 1;
    for (const input of inputs) graph.edges.push([input, node]);
    return node;
  };
  for (let block = 0; block < blocks; block++) {
    const outer = graph.boxes.push(-1) - 1;
    for (let part = 0; part < parts; part++) {
      const inner = graph.boxes.push(outer) - 1;
      const entry = add(inner, last);
      const left = add(inner, add(inner, entry));
      const right = add(inner, add(inner, entry), 1);
      const both = add(inner, left, right);
      let chain = both;
      for (let step = 0; step < 3; step++) chain = add(inner, chain);
      last = add(outer, chain, entry);
    }
  }
  graph.nodes.push(-1);
  graph.edges.push([last, graph.nodes.length - 1]);
  return graph;
}

/** One flat box of layers, each node reading a few of the layers just above. */
export function flatRandomGraph(count: number, seed = 5): PlainGraph {
  const next = randomNumbers(seed);
  const edges: [number, number][] = [];
  for (let node = 1; node < count; node++) {
    edges.push([Math.max(0, node - 1 - Math.floor(next() * 12)), node]);
    if (next() < 0.3) edges.push([Math.floor(next() * node), node]);
  }
  return { nodes: new Array<number>(count).fill(-1), boxes: [], edges };
}

/** What breaks the rules of a drawing: siblings that overlap, items outside of their box, … */
export function faultsOf(drawing: Drawing, parent: Int32Array): string[] {
  const faults: string[] = [];
  const at = new Map<number, number>();
  drawing.items.forEach((item, index) => at.set(item, index));
  const siblings = new Map<number, number[]>();
  const near = 0.01;
  drawing.items.forEach((item, index) => {
    const up = parent[item]!;
    siblings.set(up, [...(siblings.get(up) ?? []), index]);
    const box = at.get(up);
    const [left, top, right, bottom] =
      box === undefined
        ? [0, 0, drawing.width, drawing.height]
        : edgesOf(drawing, box);
    const [l, t, r, b] = edgesOf(drawing, index);
    if (l < left - near || t < top - near || r > right + near || b > bottom + near) {
      faults.push(`item ${item} stands outside of ${up}`);
    }
    if (![l, t, r, b].every(Number.isFinite)) faults.push(`item ${item} stands nowhere`);
  });
  for (const group of siblings.values()) {
    group.sort((a, b) => drawing.y[a]! - drawing.y[b]!);
    for (let i = 0; i < group.length; i++) {
      const [l, , r, b] = edgesOf(drawing, group[i]!);
      for (let j = i + 1; j < group.length && drawing.y[group[j]!]! < b - near; j++) {
        const [l2, , r2] = edgesOf(drawing, group[j]!);
        if (l2 < r - near && l < r2 - near) {
          faults.push(`items ${drawing.items[group[i]!]} and ${drawing.items[group[j]!]} overlap`);
        }
      }
    }
  }
  return faults;
}

function edgesOf(drawing: Drawing, index: number): [number, number, number, number] {
  const x = drawing.x[index]!;
  const y = drawing.y[index]!;
  return [x, y, x + drawing.w[index]!, y + drawing.h[index]!];
}
