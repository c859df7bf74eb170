// What Ctrl-K finds, in which order, and where it leads.

import { beforeEach, expect, test } from "vitest";
import { fixture } from "./fixture";
import { isRepeat } from "../src/drawings/graph/repeats";
import { checked } from "../src/load";
import { find, thingsOf, type Thing } from "../src/find";
import { control, doc, goTo, hashOf, run, selection, tab } from "../src/store";

beforeEach(() => {
  doc.value = fixture({ blocks: 3, events: 5, samples: 2 });
  goTo("#run0/summary/0");
});

const search = (text: string): readonly Thing[] => find(thingsOf(doc.value.runs, 0), text, 50).things;

const first = (text: string, kind: string): Thing => {
  const thing = search(text).find((one) => one.kind === kind);
  expect(thing, `${kind} for ${text}`).toBeDefined();
  return thing!;
};

test("the whole name stands before its beginning, a word, a part of one, and its letters", () => {
  const thing = (text: string): Thing => ({ ...things[0]!, text, names: [text, ""] });
  const things = thingsOf(doc.value.runs, 0);
  const made = ["xaddx", "a_d_d_", "my add", "addmm", "add"].map(thing);

  expect(find(made, "ADD", 9).things.map((one) => one.text)).toEqual([
    "add",
    "addmm",
    "my add",
    "xaddx",
    "a_d_d_",
  ]);
});

test("several words are looked for in all that a thing is called", () => {
  const found = search("gelu blocks.1");

  expect(found.map((one) => one.kind)).toContain("event");
  expect(found.every((one) => `${one.text} ${one.detail}`.toLowerCase().includes("gelu"))).toBe(true);
});

test.each([
  ["layer_norm", "operator", "events", null],
  ["blocks.1.attention", "module", "modules", "module"],
  ["softmax", "event", "events", "row"],
  ["#12", "handle", "events", null],
  ["1x", "shape", "events", null],
  ["value", "tensor", "memory", null],
])("%s leads to the %s in its view", (text, kind, view, selected) => {
  goTo(hashOf(first(text, kind).place));

  expect(tab.value).toBe(view);
  expect(selection.value?.kind ?? null).toBe(selected);
});

test("boxes around repeated blocks are no modules", () => {
  const deep = fixture({ blocks: 5, events: 5, samples: 2 });
  const runs = deep.runs.map((one) => ({ ...one, methods: [] }));
  doc.value = checked(JSON.stringify({ ...deep, runs }), "the test");
  goTo("#run0/summary/0");
  const boxes = run.value.graphs.flatMap(({ groups }) => groups.filter(isRepeat));
  const modules = search("blocks").filter(({ kind }) => kind === "module");

  expect(boxes.length).toBeGreaterThan(0);
  expect(modules.length).toBeGreaterThan(0);
  expect(modules.filter(({ text }) => text.includes("×"))).toEqual([]);
});

test("a line is found by file and number, and by its text", () => {
  const line = run.value.source.lines[3]!;
  const name = `${run.value.source.files[line.file]!.split("/").at(-1)}:${line.line}`;

  goTo(hashOf(first(name, "line").place));

  expect(selection.value).toEqual({ kind: "line", line: 3 });
  expect(search(line.text.trim()).some((one) => one.kind === "line" && one.text === name)).toBe(true);
});

test("a node is shown in the graph that it is of, whatever graph was looked at", () => {
  goTo("#run0/graph/0?graph.left=edge%2Fforward");
  const node = run.value.graphs[2]!.nodes.findIndex((one) => one.kind === "call_function");
  const thing = search(run.value.graphs[2]!.nodes[node]!.name).find(
    (one) => one.kind === "node" && one.where === run.value.graphs[2]!.title,
  )!;

  goTo(hashOf(thing.place));

  expect(selection.value).toEqual({ kind: "node", graph: "executed/forward", node });
  expect(control("graph.left", "").value).toBe("executed/forward");
});

test("a filter that would hide what is gone to is set back, other controls stay", () => {
  goTo("#run0/events/0?events.filter=nothing&graph.colour=memory");

  goTo(hashOf(first("softmax", "event").place));

  expect(control("events.filter", "").value).toBe("");
  expect(control("graph.colour", "").value).toBe("memory");
});

test("sizes are found however they are written", () => {
  const shape = search("1x").find((one) => one.kind === "shape")!;
  const sizes = shape.text.split("x");

  for (const text of [sizes.join("x"), sizes.join(", "), sizes.join(",")]) {
    expect(search(text).some((one) => one.kind === "shape" && one.text === shape.text)).toBe(true);
  }
});

test("other runs are found by name", () => {
  goTo(hashOf(first("timing-after", "run").place));

  expect(run.value.id).toBe("run1");
});

test("what is nowhere is not found", () => {
  expect(search("zzzqqq")).toEqual([]);
  expect(search("  ")).toEqual([]);
});
