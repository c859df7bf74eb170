// Repeated blocks in one box: which are equal, and what the box says.

import { describe, expect, it } from "vitest";

import type { GraphDoc, GraphNode } from "../../src/document";
import { graphModel } from "../../src/drawings/graph/model";
import { isRepeat, ofEachBlock, withRepeats, withoutRepeats } from "../../src/drawings/graph/repeats";
import { LayoutEngine } from "../../src/drawings/layout/engine";
import { boxesToDepth } from "../../src/drawings/layout/tree";

const node = (name: string, group: number | null, op: string): GraphNode => ({
  name, group, op, kind: "call_function", handle: null, line: null, stack: [], outputs: ["float32[1, 8]"],
  args: [], backend: null, instructions: [], weight: null,
});

/** Blocks "layers.0" …, each a module `inner` of the given operators in a chain. */
function blocks(...ops: string[][]): GraphDoc {
  const nodes = [node("x", null, "x")];
  const groups: GraphDoc["groups"] = [];
  const edges: number[] = [];
  const perNode: (number | null)[] = [null];
  const perGroup: (number | null)[] = [];
  ops.forEach((list, index) => {
    const name = `layers.${index}`;
    const outer = groups.push({ kind: "module", name, label: name, type: "Block", parent: null, backend: null }) - 1;
    groups.push({ kind: "module", name: "inner", label: `${name}.inner`, type: "I", parent: outer, backend: null });
    for (const op of list) {
      edges.push(nodes.length - 1, nodes.length, 0);
      nodes.push(node(`${op}_${index}`, outer + 1, op));
      perNode.push(index + 1);
    }
    perGroup.push((index + 1) * list.length, (index + 1) * list.length);
  });
  return {
    key: "edge/forward", title: "Edge", dialect: "edge", method: "forward", nodes, groups, edges,
    edgeLabels: ["float32[1, 8]"],
    measures: [{
      key: "avg", title: "avg", unit: "ms", kind: "duration", largerIsWorse: true, nodes: perNode,
      groups: perGroup, shared: [],
    }],
  };
}

const names = (doc: GraphDoc): string[] => doc.groups.filter(isRepeat).map((one) => one.name);
const same = (count: number): string[][] => Array.from({ length: count }, () => ["mul", "add"]);

describe("repeated blocks", () => {
  it("stand in one box, with the sum of their times", () => {
    const doc = withRepeats(blocks(...same(4)));
    expect(names(doc)).toEqual(["layers.0–3 ×4"]);
    expect(doc.measures[0]!.groups[0]).toBe(2 + 4 + 6 + 8);
    expect(ofEachBlock(doc, doc.measures[0]!, 0)).toEqual({ least: 2, median: 5, greatest: 8 });
    expect(ofEachBlock(doc, doc.measures[0]!, 1)).toBeNull();
    expect(doc.groups[doc.groups[doc.nodes[1]!.group!]!.parent!]!.name).toBe("layers.0");
  });

  it("are at least four", () => {
    const doc = blocks(...same(3));
    expect(withRepeats(doc)).toBe(doc);
  });

  it("end at a block that differs", () => {
    expect(names(withRepeats(blocks(["mul", "add", "relu"], ...same(4))))).toEqual(["layers.1–4 ×4"]);
    expect(names(withRepeats(blocks(...same(4), ["sub"], ...same(5))))).toEqual([
      "layers.0–3 ×4",
      "layers.5–9 ×5",
    ]);
    expect(names(withRepeats(blocks(...same(2), ["sub"], ...same(2))))).toEqual([]);
  });

  it("have the same shapes, and the same edges inside", () => {
    const shapes = blocks(...same(4));
    shapes.nodes[3]!.outputs = ["float32[1, 16]"];
    expect(names(withRepeats(shapes))).toEqual([]);
    const edges = blocks(...same(4));
    edges.edges[3] = 0; // the second operator of the first block reads the input
    expect(names(withRepeats(edges))).toEqual([]);
  });

  it("are found inside of blocks that differ", () => {
    const doc = blocks(...same(4));
    const outer = { kind: "module", name: "0", label: "0", type: null, parent: null, backend: null } as const;
    doc.groups = [outer, ...doc.groups.map((one) => ({ ...one, parent: one.parent === null ? 0 : one.parent + 1 }))];
    doc.nodes.forEach((one) => (one.group = one.group === null ? null : one.group + 1));
    doc.measures[0]!.groups.unshift(20);
    const folded = withRepeats(doc);
    expect(folded.groups[1]).toMatchObject({ name: "layers.0–3 ×4", parent: 0 });
    expect(folded.measures[0]!.groups.slice(0, 2)).toEqual([20, 20]);
  });

  it("draw as one closed box, without an edge to itself, and apart without it", () => {
    const doc = withRepeats(blocks(...same(4)));
    const layout = (one: GraphDoc, levels: number) => {
      const model = graphModel(one);
      const open = boxesToDepth(model.tree, levels);
      return { model, drawing: new LayoutEngine(model.shape).layout({ open, weights: false }) };
    };
    const closed = layout(doc, 0);
    expect([...closed.drawing.items].map((item) => closed.model.title[item])).toEqual(["x", "layers.0–3 ×4"]);
    expect(closed.drawing.pieces.from).toHaveLength(1);
    const apart = layout(withoutRepeats(doc), 99);
    const drawn = [...apart.drawing.items].map((item) => apart.model.title[item]);
    expect(drawn.filter((title) => title!.startsWith("layers"))).toEqual([0, 1, 2, 3].map((at) => `layers.${at}`));
  });
});
