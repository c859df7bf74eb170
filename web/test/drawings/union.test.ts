// Two graphs as one: what each side has of it, its boxes, and the nodes that changes leave.

import { describe, expect, it } from "vitest";

import type { GraphDoc, GraphGroup, GraphNode, GraphPairDoc } from "../../src/document";
import { isOn, itemOf, statusOf, unionOf } from "../../src/drawings/graph/union";

const node = (name: string, group: number | null = null, weight: string | null = null): GraphNode => ({
  name, group, op: name, kind: weight === null ? "call_function" : "placeholder", handle: null, line: null,
  stack: [], outputs: ["float32[1]"], args: [], backend: null, instructions: [], weight,
});
const box = (label: string, parent: number | null = null, kind: GraphGroup["kind"] = "module"): GraphGroup => ({
  kind, name: label, label, type: null, parent, backend: null,
});
const graph = (nodes: GraphNode[], groups: GraphGroup[], edges: number[]): GraphDoc => ({
  key: "executed/forward", title: "executed", dialect: "EXECUTORCH", method: "forward", nodes, groups, edges,
  edgeLabels: ["float32[1]"], measures: [],
});

// x -> conv -> relu -> head on one side; x -> conv -> sigmoid -> head on the other. A far end hangs below.
const before = graph(
  [node("x"), node("w", null, "conv.w"), node("conv", 0), node("relu", 1), node("head", 2), node("far"), node("end")],
  [box("stem"), box("gate"), box("head")],
  [0, 2, 0, 1, 2, 0, 2, 3, 0, 3, 4, 0, 4, 5, 0, 5, 6, -1],
);
const after = graph(
  [node("x"), node("w", null, "conv.w"), node("conv", 0), node("sigmoid", 1), node("head", 2), node("far"), node("end")],
  [box("stem"), box("gate"), box("head")],
  [0, 2, 0, 1, 2, 0, 2, 3, 0, 3, 4, 0, 4, 5, 0, 5, 6, -1],
);
const pair: GraphPairDoc = {
  key: "executed/forward",
  title: "executed",
  a: [0, 1, 2, 3, null, 4, 5, 6],
  b: [0, 1, 2, null, 3, 4, 5, 6],
  status: ["same", "changed", "changed", "removed", "added", "same", "same", "same"],
  what: [[], ["weight"], ["weight"], [], [], [], [], []],
};

describe("two graphs", () => {
  const union = unionOf(pair, [before, after], false);
  const named = (name: string): number => union.doc.nodes.findIndex((one) => one.name === name);

  it("have each pair once, and what only one side has", () => {
    expect(union.doc.nodes.map((one) => one.name)).toEqual(["x", "w", "conv", "relu", "sigmoid", "head", "far", "end"]);
    expect([0, 1].map((side) => isOn(union, side as 0 | 1, named("relu")))).toEqual([true, false]);
    expect([0, 1].map((side) => isOn(union, side as 0 | 1, named("sigmoid")))).toEqual([false, true]);
    expect(itemOf(union, 0, "node", 4)).toBe(named("head"));
    expect(itemOf(union, 1, "node", 4)).toBe(named("head"));
  });

  it("share boxes that hold partners, or have one name", () => {
    expect(union.doc.groups.map((one) => one.label)).toEqual(["stem", "gate", "head"]);
    expect(itemOf(union, 0, "group", 1)).toBe(union.doc.nodes.length + 1);
    expect(statusOf(union, union.doc.nodes.length + 1)).toBe("changed");
    expect(union.doc.measures[0]!.groups).toEqual(["changed", "2 differ", "same"]);
  });

  it("know which side has an edge", () => {
    const sides = new Map(
      Array.from({ length: union.edgeSides.length }, (_, at) => [
        `${union.doc.nodes[union.doc.edges[3 * at]!]!.name} ${union.doc.nodes[union.doc.edges[3 * at + 1]!]!.name}`,
        union.edgeSides[at],
      ]),
    );
    expect(sides.get("x conv")).toBe(3);
    expect(sides.get("conv relu")).toBe(1);
    expect(sides.get("conv sigmoid")).toBe(2);
  });

  it("go from change to change without the weights", () => {
    expect(union.changes).toEqual([named("conv"), named("relu"), named("sigmoid")]);
  });
});

it("with changes only have the nodes next to them, and no others", () => {
  const { doc } = unionOf(pair, [before, after], true);
  expect(doc.nodes.map((one) => one.name)).toEqual(["x", "w", "conv", "relu", "sigmoid", "head"]);
  expect(doc.key).not.toBe(unionOf(pair, [before, after], false).doc.key);
});

it("keep boxes apart that only one side has", () => {
  const other = { ...after, groups: [box("stem"), box("gate"), box("XnnpackBackend", null, "delegate")] };
  const { doc, groups } = unionOf(pair, [before, other], false);
  expect(doc.groups.map((one) => one.label)).toEqual(["stem", "gate", "XnnpackBackend", "head"]);
  expect([...groups[0]]).toEqual([0, 1, -1, 2]);
  expect([...groups[1]]).toEqual([0, 1, 2, -1]);
});
