// What the graph view knows of a graph: words, colours, marks, ways.

import { describe, expect, it } from "vitest";

import type { GraphDoc, GraphNode, Measure } from "../../src/document";
import { colouring, hottest, measureText, seenValues } from "../../src/drawings/graph/look";
import { countShown, nodesOfItem, piecesAt, shownAt } from "../../src/drawings/graph/marks";
import { edgeLabel, graphModel, neighbours, pathOf, searchItems } from "../../src/drawings/graph/model";
import { SvgPen } from "../../src/drawings/graph/picture";
import { walk } from "../../src/drawings/graph/walk";
import { LayoutEngine } from "../../src/drawings/layout/engine";
import { fixture, HOSTILE } from "../fixture";

const node = (name: string, group: number | null, extra: Partial<GraphNode> = {}): GraphNode => ({
  name, group, kind: "call_function", op: `aten.${name}.default`, handle: null, line: null, stack: [],
  outputs: ["float32[1, 8]"], args: [], backend: null, instructions: [], weight: null, ...extra,
});
const measure = (nodes: Measure["nodes"], groups: Measure["groups"], extra: Partial<Measure> = {}): Measure => ({
  key: "avg", title: "avg", unit: "ms", kind: "duration", largerIsWorse: true, nodes, groups, shared: [], ...extra,
});
const group = (label: string, parent: number | null, backend: string | null = null): GraphDoc["groups"][number] => ({
  kind: backend ? "delegate" : "module", name: label, label, type: null, parent, backend,
});

function makeDoc(extra: Partial<GraphDoc> = {}): GraphDoc {
  return {
    key: "edge/forward", title: "Edge", dialect: "edge", method: "forward",
    nodes: [
      node("x", null, { kind: "placeholder", op: "x" }),
      node("w", null, { kind: "placeholder", op: "w", weight: "block.weight" }),
      node("conv", 0, { handle: 7 }),
      node("relu", 1, { backend: "XnnpackBackend" }),
      node("output", null, { kind: "output", op: "output" }),
    ],
    edges: [0, 2, 0, 1, 2, 1, 2, 3, 0, 3, 4, -1],
    edgeLabels: ["float32[1, 8]", "float32[8, 8]"],
    groups: [group("block", null), group("xnnpack", 0, "XnnpackBackend")],
    measures: [measure([null, null, 3, 1, null], [4, 1])],
    ...extra,
  };
}

const drawn = (doc: GraphDoc, open: number[]) => {
  const model = graphModel(doc);
  const drawing = new LayoutEngine(model.shape).layout({ open: new Set(open), weights: false });
  return { model, drawing, shown: shownAt(model, drawing) };
};

describe("the time of a delegate's call", () => {
  // The box of group 0: the call, which takes 10, and two operators in it.
  const doc = (inner: Measure["nodes"]): GraphDoc =>
    makeDoc({
      nodes: [node("call", 0), node("conv", 0), node("relu", 0)],
      edges: [],
      groups: [group("xnnpack", null, "XnnpackBackend")],
      measures: [measure([10, ...inner], [10])],
    });

  it("does not hide which of its operators is slow", () => {
    const { model, drawing } = drawn(doc([4, 1]), [3]);
    const { look, legend } = colouring(model, drawing, "avg", "linear", "light");

    expect(seenValues(model, drawing, "avg")).toEqual([4, 1]);
    expect(look.colour(1)).toBe(legend.scale!.stops.at(-1)!.colour);
    expect(look.colour(0)).toBeNull();
    expect(look.number(0)).toBe("");
    expect(hottest(model, "avg")).toBe(1);
  });

  it("has a colour while the box is closed, or holds nothing else that was measured", () => {
    const closed = drawn(doc([4, 1]), []);
    expect(seenValues(closed.model, closed.drawing, "avg")).toEqual([10]);
    const alone = drawn(doc([null, null]), [3]);
    const { look } = colouring(alone.model, alone.drawing, "avg", "linear", "light");
    expect(look.colour(0)).not.toBeNull();
  });

  it("is not hidden by a closed box of many blocks", () => {
    const blocks = { ...group("layers.0–11 ×12", null), blocks: 12 };
    const { model, drawing } = drawn(
      makeDoc({
        nodes: [node("conv", 0), node("stem", null), node("head", null)],
        edges: [],
        groups: [blocks],
        measures: [measure([90, 4, 1], [90])],
      }),
      [],
    );
    expect(seenValues(model, drawing, "avg")).toEqual([4, 1]);
    const alone = drawn(
      makeDoc({ nodes: [node("conv", 0)], edges: [], groups: [blocks], measures: [measure([90], [90])] }),
      [],
    );
    expect(seenValues(alone.model, alone.drawing, "avg")).toEqual([90]);
  });

  it("has one scale with the graph beside", () => {
    const { model, drawing } = drawn(doc([4, 1]), [3]);
    const { look, legend } = colouring(model, drawing, "avg", "linear", "light", [8]);

    expect(legend.scale!.ticks.map((tick) => tick.value)).toEqual([0, 4, 8]);
    expect(look.colour(1)).toBe(legend.scale!.stops[12]!.colour);
    expect([legend.scale!.measured, legend.scale!.unmeasured]).toEqual([2, 0]);
  });
});

describe("the words of a graph", () => {
  const model = graphModel(makeDoc());

  it("are short where the long form says no more", () => {
    expect(model.title).toEqual(["x", "block.weight", "conv", "relu", "output", "block", "xnnpack"]);
    expect(pathOf(model, 3)).toBe("block › xnnpack › relu");
    expect(edgeLabel(model, 1)).toBe("float32[8, 8]");
    expect(edgeLabel(model, 3)).toBe("");
  });

  it("show what would do harm, and cut what is too long", () => {
    const doc = makeDoc();
    doc.nodes[2]!.op = HOSTILE + "y".repeat(5000);
    doc.groups[0]!.name = doc.groups[0]!.label = HOSTILE;
    const hostile = graphModel(doc);
    expect(hostile.title[2]!.length).toBeLessThan(300);
    expect(hostile.title[5]).toContain("\\u202e");
    expect(hostile.title.join("")).not.toMatch(/[\u0000-\u001f\u202e]/);
    expect(Math.max(...hostile.shape.width)).toBeLessThanOrEqual(240);
  });

  it("are found by name, op, weight and handle", () => {
    expect(searchItems(model, "RELU")).toEqual([3]);
    expect(searchItems(model, "block")).toEqual([5, 1]);
    expect(searchItems(model, "#7")).toEqual([2]);
    expect(searchItems(model, "  ")).toEqual([]);
    expect(searchItems(model, "nothing")).toEqual([]);
  });

  it("survive edges to nodes that are not there", () => {
    const broken = drawn(makeDoc({ edges: [0, 99, 0, -3, 2, 0, 2, 3, 0] }), [5, 6]);
    expect([...broken.drawing.pieces.edges]).toContain(2);
    expect(neighbours(broken.model, 0, "out")).toEqual([]);
  });
});

describe("marks", () => {
  it("stand at the closed box that holds a node", () => {
    const { drawing, shown } = drawn(makeDoc(), []);
    const box = drawing.items.indexOf(5);
    expect(countShown(shown, [2, 3])).toEqual(new Map([[box, 2]]));
    expect(countShown(shown, [1])).toEqual(new Map([[box, 1]]));
  });

  it("leave out weights that are not drawn in an open box", () => {
    const { shown } = drawn(makeDoc(), [5, 6]);
    expect(shown[1]).toBe(-1);
  });

  it("name the edges at a node, and those that lead in and out of a box", () => {
    const { model, drawing } = drawn(makeDoc(), []);
    expect(piecesAt(model, drawing, nodesOfItem(model, 5), true).size).toBe(2);
    expect(piecesAt(model, drawing, new Set([0]), false).size).toBe(1);
    expect(piecesAt(model, drawing, new Set(), false).size).toBe(0);
  });
});

describe("the arrow keys", () => {
  const { model, drawing, shown } = drawn(makeDoc(), [5, 6]);
  const at = (item: number): number => drawing.items.indexOf(item);

  it("follow edges, through the borders of boxes", () => {
    expect(walk(model, drawing, shown, at(0), "down")).toBe(at(2));
    expect(walk(model, drawing, shown, at(2), "down")).toBe(at(3));
    expect(walk(model, drawing, shown, at(4), "up")).toBe(at(3));
    expect(walk(model, drawing, shown, at(0), "up")).toBeNull();
    expect(walk(model, drawing, shown, at(0), "left")).toBeNull();
  });

  it("begin at the top", () => {
    expect(walk(model, drawing, shown, -1, "down")).toBe(at(0));
  });
});

describe("colours by measure", () => {
  it("cover what is drawn: closed boxes while they are closed, then what they hold", () => {
    const closed = drawn(makeDoc(), []);
    const far = colouring(closed.model, closed.drawing, "avg", "linear", "light");
    expect(far.legend.scale!.ticks.map((tick) => tick.value)).toEqual([0, 2, 4]);
    expect(far.legend.scale!.unmeasured).toBe(2);
    const open = drawn(makeDoc(), [5, 6]);
    const near = colouring(open.model, open.drawing, "avg", "linear", "light");
    expect(near.legend.scale!.ticks.map((tick) => tick.value)).toEqual([0, 1.5, 3]);
    expect(near.look.colour(2)).toBe(far.look.colour(5));
    expect(near.look.colour(0)).toBeNull();
  });

  it("write numbers with the same decimals, and their unit", () => {
    const text = measureText(makeDoc().measures[0]!);
    expect([text(3), text(null)]).toEqual(["3.0000 ms", ""]);
    expect(measureText(measure([2048], [], { kind: "bytes", unit: null }))(2048)).toBe("2.00 KiB");
  });

  it("by backend: boxes are what all of their nodes are", () => {
    const { model, drawing } = drawn(makeDoc(), [5]);
    const { look, legend } = colouring(model, drawing, "backend", "linear", "dark");
    expect(legend.names.map((one) => one.name)).toEqual(["XnnpackBackend"]);
    expect(look.colour(6)).toBe(look.colour(3));
    expect([look.colour(2), look.colour(5)]).toEqual([null, null]);
  });

  it("are none where a graph does not have the measure", () => {
    const { model, drawing } = drawn(makeDoc({ measures: [] }), []);
    const { look, legend } = colouring(model, drawing, "avg", "linear", "light");
    expect([look.colour(5), legend.scale]).toEqual([null, null]);
  });
});

describe("the SVG pen", () => {
  it("writes texts as texts", () => {
    const pen = new SvgPen();
    pen.font = "600 12px sans-serif";
    pen.fillText('<script>"&', 1, 2);
    expect(pen.parts[0]).toContain("&#60;script&#62;&#34;&#38;</text>");
    expect(pen.parts[0]).toContain('font-weight="600"');
  });
});

it("draws all graphs of the page's own fixture", () => {
  for (const doc of fixture({ blocks: 2 }).runs[0]!.graphs) {
    const { model, drawing } = drawn(doc, []);
    expect(drawing.items.length).toBeGreaterThan(0);
    expect(model.tree.nodeCount).toBe(doc.nodes.length);
  }
});
