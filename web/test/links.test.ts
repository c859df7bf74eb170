import { describe, expect, it, test } from "vitest";
import { lineErrors, lineTimes, filesOf, timeParts } from "../src/lines";
import { linesOf, moduleOf, nodesInGroup, nodesOf, rowKey, rowsOf, stackOf } from "../src/links";
import {
  doc,
  goTo,
  hash,
  hashOfSelection,
  methodIndex,
  run,
  select,
  selection,
  selectionOfHash,
  showRun,
  tab,
  type Selection,
} from "../src/store";
import { sumsOf } from "../src/groups";
import { bodyAndTotals } from "../src/tables";
import type { GraphDoc } from "../src/document";
import { fixture } from "./fixture";

const report = fixture({ blocks: 2, events: 40 });
const now = report.runs[0]!;
const method = now.methods[0]!;
const CALL = 2; // DELEGATE_CALL of the first block; 3 to 6 are its events
const names = (graph: string, nodes: Iterable<number>): string[] => {
  const found = now.graphs.find((one) => one.key === graph)!;
  return [...nodes].map((node) => found.nodes[node]!.name);
};

describe("a row", () => {
  const sel: Selection = { kind: "row", method: 0, row: CALL };
  it("is itself", () => expect(rowsOf(now, sel)).toEqual(new Set([rowKey(0, CALL)])));
  it("has its nodes in every dialect", () => {
    expect(names("edge/forward", nodesOf(now, sel, "edge/forward"))).toHaveLength(4);
    expect(nodesOf(now, sel, "no such graph")).toEqual(new Set());
  });
  it("has a line, a stack and a module", () => {
    expect(linesOf(now, sel)).toEqual(new Set([2]));
    expect(stackOf(now, sel)).toEqual([11, 10, 2]);
    expect(method.modules[moduleOf(now, sel)!.module]!.path).toBe("blocks.0.attention");
  });
});

describe("a node", () => {
  const exported = now.graphs[0]!;
  const node = exported.nodes.findIndex((one) => one.handle === 3);
  const sel: Selection = { kind: "node", graph: exported.key, node };
  it("belongs to its event and the call around it", () => {
    expect(rowsOf(now, sel)).toEqual(new Set([rowKey(0, 3), rowKey(0, CALL)]));
  });
  it("is the node of the same handle in another dialect", () => {
    expect(names("edge/forward", nodesOf(now, sel, "edge/forward"))).toEqual(["aten_linear_default_3"]);
    expect(nodesOf(now, sel, exported.key)).toEqual(new Set([node]));
  });
  it("without a handle on the other side is found by its rows", () => {
    const bare = structuredClone(now);
    for (const one of bare.graphs[1]!.nodes) one.handle = null;
    const found = nodesOf(bare, sel, "edge/forward");
    expect(found.size).toBe(4); // all that the call computes
  });
});

describe("a node of a graph that names the edge graph's nodes", () => {
  // As in the record of a delegated model: nodes of the exported program have no handle.
  const linked = structuredClone(now);
  const [exported, edge, executed] = linked.graphs as [GraphDoc, GraphDoc, GraphDoc];
  const behind = (graph: GraphDoc): number[][] =>
    graph.nodes.map((one) =>
      one.handle === null ? [] : edge.nodes.flatMap((other, at) => (other.handle === one.handle ? [at] : [])),
    );
  exported.edgeNodes = behind(exported);
  executed.edgeNodes = behind(executed);
  for (const one of exported.nodes) one.handle = null;
  const node = exported.edgeNodes.findIndex(
    ([first]) => first !== undefined && edge.nodes[first]!.handle === 3,
  );
  const name = (graph: GraphDoc, nodes: Set<number>): string[] =>
    [...nodes].map((at) => graph.nodes[at]!.name);

  it("is one node in each, in a delegate too", () => {
    for (const [from, sel] of [
      [exported, { kind: "node", graph: exported.key, node }],
      [edge, { kind: "node", graph: edge.key, node: exported.edgeNodes![node]![0]! }],
    ] as const) {
      expect(name(exported, nodesOf(linked, sel, exported.key)), from.key).toEqual(["aten_linear_default_3"]);
      expect(name(edge, nodesOf(linked, sel, edge.key)), from.key).toEqual(["aten_linear_default_3"]);
      expect(name(executed, nodesOf(linked, sel, executed.key)), from.key).toEqual(["aten_linear_default_3"]);
    }
  });
});

describe("a group, a module and a line", () => {
  const graph = now.graphs[0]!;
  const group = graph.groups.findIndex((one) => one.label === "blocks.1");
  it("a group covers what is within, at any depth", () => {
    const inside = nodesInGroup(graph, group);
    expect(inside.size).toBe(7); // the call itself is no node of this dialect
    expect(rowsOf(now, { kind: "group", graph: graph.key, group }).size).toBe(8);
  });
  it("a module covers the modules below, and no other whose name begins like it", () => {
    const module = method.modules.findIndex((one) => one.path === "blocks.0");
    const rows = rowsOf(now, { kind: "module", method: 0, module });
    expect(rows).toEqual(new Set([1, 2, 3, 4, 5, 6, 7, 8].map((row) => rowKey(0, row))));
    const nodes = nodesOf(now, { kind: "module", method: 0, module }, graph.key);
    expect(nodes.size).toBe(7);
  });
  it("a line covers all rows with it in their stack", () => {
    const inner = rowsOf(now, { kind: "line", line: 3 });
    expect(inner).toEqual(new Set([rowKey(0, 3), rowKey(0, 11)]));
    expect(rowsOf(now, { kind: "line", line: 11 }).size).toBe(16);
    expect(nodesOf(now, { kind: "line", line: 3 }, graph.key).size).toBe(2);
  });
  it("nothing covers nothing", () => {
    expect(rowsOf(now, null).size + nodesOf(now, null, graph.key).size + linesOf(now, null).size).toBe(0);
    expect(moduleOf(now, null)).toBeNull();
  });
});

describe("the address", () => {
  const all: Selection[] = [
    { kind: "row", method: 0, row: 3 },
    { kind: "module", method: 0, module: 2 },
    { kind: "line", line: 4 },
    { kind: "node", graph: "edge/forward", node: 1 },
    { kind: "group", graph: "executed/forward", group: 0 },
  ];
  it.each(all.map((sel) => [hashOfSelection(sel), sel] as const))("%s is read back", (text, sel) => {
    expect(selectionOfHash(text, now)).toEqual(sel);
    expect(text).not.toContain("/");
  });
  it.each([
    "row-0-999",
    "row-7-0",
    "row-0",
    "module-0-999",
    "line-99",
    "node-1-none",
    "node-999-edge%2Fforward",
    "x",
    "node-1-%E0%A4",
  ])("%s names nothing", (text) => expect(selectionOfHash(text, now)).toBeNull());
  it("leads to a run, a tab and a selection", () => {
    doc.value = report;
    goTo("#run1/events/0/row-0-4");
    expect([run.value.id, tab.value, methodIndex.value, selection.value]).toEqual([
      "run1",
      "events",
      0,
      { kind: "row", method: 0, row: 4 },
    ]);
    expect(hash.value).toBe("#run1/events/0/row-0-4");
    goTo("#nothing/graph");
    expect(tab.value).toBe("events");
    goTo("#run0/nothing/5/row-0-4");
    expect([run.value.id, tab.value, methodIndex.value]).toEqual(["run0", "events", 0]);
    select({ kind: "line", line: 1 });
    expect(hash.value).toBe("#run0/events/0/line-1");
    showRun(1);
    expect(selection.value).toBeNull();
  });
});

describe("time by line", () => {
  const total = sumsOf(method.rows, bodyAndTotals(method.rows).body)["avg"]!;
  it("the parts make the whole", () => {
    const parts = timeParts(method);
    expect(parts.reduce((sum, part) => sum + part.time, 0)).toBeCloseTo(total, 9);
  });
  it("no line has more than all", () => {
    const times = lineTimes(method);
    for (const time of times.values()) {
      expect(time.total).toBeLessThanOrEqual(total + 1e-9);
      expect(time.self).toBeLessThanOrEqual(time.total + 1e-9);
    }
    const self = [...times.values()].reduce((sum, time) => sum + time.self, 0);
    expect(self).toBeCloseTo(total, 9); // each row of the fixture has one line
  });
  it("a file has the time that several of its lines share", () => {
    const row = timeParts(method).find((part) => part.time > 0)!.row;
    const [line] = method.links.lines[row]!;
    const other = now.source.lines.findIndex(
      (one, at) => at !== line && one.file === now.source.lines[line!]!.file,
    );
    const lines = method.links.lines.map((one, at) => (at === row ? [line!, other] : one));
    const two = { ...method, links: { ...method.links, lines } };
    const [file] = filesOf(now, two, "");
    const time = timeParts(two)
      .filter((part) => part.row === row)
      .reduce((sum, part) => sum + part.time, 0);
    expect(filesOf(now, method, "")[0]!.shared).toBe(0);
    expect(file!.shared).toBeCloseTo(time, 9);
    expect(file!.self).toBeCloseTo(total, 9);
  });
  it("files stand by their time, lines in order", () => {
    const [own, installed] = now.source.files as [string, string];
    expect(filesOf(now, method, own).map((file) => file.path)).toEqual([own]);
    const files = filesOf(now, method, installed);
    expect(files.map((file) => file.path)).toEqual([own, installed]);
    expect(files[0]!.self).toBeCloseTo(total, 9);
    const lines = files[0]!.functions.flatMap((one) => one.lines).map((line) => now.source.lines[line]!.line);
    expect(lines).toEqual([...lines].sort((a, b) => a - b));
  });
});

test("the worst error of a line, by either kind of metric", () => {
  const numerics = structuredClone(now.numerics!);
  const last = numerics.lines.lastIndexOf(3);
  expect(lineErrors(numerics).get(3)).toBe(last); // errors grow along the run
  numerics.largerIsWorse = false;
  expect(lineErrors(numerics).get(3)).toBe(numerics.lines.indexOf(3));
});
