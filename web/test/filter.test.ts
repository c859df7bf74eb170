import { describe, expect, it, test } from "vitest";
import type { TableDoc } from "../src/document";
import { filterRows, FILTER_HELP, FilterError, parseFilter } from "../src/filter";

const table: TableDoc = {
  title: "",
  columns: [
    { name: "instruction", title: "#", kind: "int", unit: null, priority: 0 },
    { name: "event", title: "event", kind: "text", unit: null, priority: 0 },
    { name: "avg", title: "avg", kind: "duration", unit: "ms", priority: 0 },
    { name: "share", title: "share", kind: "share", unit: null, priority: 0 },
    { name: "op_types", title: "ops", kind: "list", unit: null, priority: 0 },
    { name: "module", title: "module", kind: "path", unit: null, priority: 0 },
    { name: "backend", title: "backend", kind: "text", unit: null, priority: 0 },
    { name: "bytes_read", title: "read", kind: "bytes", unit: null, priority: 0 },
    { name: "debug_handles", title: "debug handles", kind: "list", unit: null, priority: 0 },
    { name: "outputs", title: "outputs", kind: "list", unit: null, priority: 0 },
  ],
  values: {
    instruction: [0, 1, null, null, 2],
    event: ["Conv out", "DELEGATE_CALL", "Fully Connected #1", "Batch Norm", "add:x (y)"],
    avg: [0.5, 2, 1.5, null, 0.02],
    share: [0.2, 0.7, 0.5, 0, "Infinity"],
    op_types: [["aten.convolution.default"], ["delegate"], ["aten.linear.default"], [], ["aten::add.out"]],
    module: ["blocks.0.conv", "blocks.1", "blocks.1.fc", "blocks.10", "head"],
    backend: [null, "XnnpackBackend", "XnnpackBackend", null, null],
    bytes_read: [2048, 2 ** 21, null, null, 10],
    debug_handles: [[1, 2], [3, 4, 5], [4], [], [12]],
    outputs: [[], [], ["half[1, 64]"], [], []],
  },
  notes: [],
  depth: [0, 0, 1, 1, 0],
};

test("shapes and types are held against each tensor of a row, whole", () => {
  const tensors: TableDoc = {
    ...table,
    columns: [
      { name: "inputs", title: "inputs", kind: "list", unit: null, priority: 0 },
      { name: "outputs", title: "outputs", kind: "list", unit: null, priority: 0 },
    ],
    values: {
      inputs: [["float32[1, 64, 8]", "int8[8]"], [], ["float32[1, 640]"], ["int64[]"]],
      outputs: [["float32[<=1, 64]"], ["int8[1, 64]"], [], []],
    },
    depth: [0, 0, 0, 0],
  };
  const rows = (text: string): number[] => [0, 1, 2, 3].filter(parseFilter(text, tensors)!);

  expect(rows("shape:1x64")).toEqual([0, 1]);
  expect(rows("shape:1x64*")).toEqual([0, 1, 2]);
  expect(rows("shape:*x8")).toEqual([0]);
  expect(rows("shape:scalar")).toEqual([3]);
  expect(rows("dtype:int8")).toEqual([0, 1]);
  expect(rows("dtype:int*")).toEqual([0, 1, 3]);
  expect(rows("dtype:float32 and not shape:1x640")).toEqual([0]);
  expect(() => parseFilter("shape:", tensors)).toThrow(FilterError);
});

const matching = (text: string): number[] => {
  const filter = parseFilter(text, table);
  return [0, 1, 2, 3, 4].filter((row) => filter?.(row) ?? true);
};

test.each([
  ["", [0, 1, 2, 3, 4]],
  ["   ", [0, 1, 2, 3, 4]],
  ["conv", [0]],
  ["CONNECTED fully", [2]],
  ['"batch norm"', [3]],
  ['"norm batch"', []],
  ["op:conv*", [0]],
  ["op:add", [4]],
  ["op:linear", [2]],
  ["op:a?d", [4]],
  ["module:blocks.1", [1, 2]],
  ["module:blocks.*", [0, 1, 2, 3]],
  ["delegate:*", [1, 2]],
  ["backend:xnn", [1, 2]],
  ["handle:4", [1, 2]],
  ["handle:2-3", [0, 1]],
  ["id:1-2", [1, 4]],
  ["avg>1", [1, 2]],
  ["avg>=2", [1]],
  ["avg<20us", []],
  ["avg<=20us", [4]],
  ["avg>1000us avg<2", [2]],
  ["share>=50%", [1, 2, 4]],
  ["share=inf", [4]],
  ["read>1MiB", [1]],
  ["read>1kb", [0, 1]],
  ["backend=XnnpackBackend", [1, 2]],
  ["backend!=xnnpackbackend", [0, 3, 4]],
  ["not delegate:*", [0, 3, 4]],
  ["-backend:xnn -conv", [3, 4]],
  ["conv or norm", [0, 3]],
  ["conv or connected and avg>1", [0, 2]],
  ["(conv or connected) avg>1", [2]],
  ["not (conv or norm)", [1, 2, 4]],
  ['"add:x (y)"', [4]],
] as [string, number[]][])("%s", (text, rows) => {
  expect(matching(text)).toEqual(rows);
});

test.each([
  ["colour:red", /no column "colour": there are instruction, event/],
  ["speed>3", /no column "speed"/],
  ["event>3", /event holds text/],
  ["avg>fast", /"fast" is not a number/],
  ["avg>3kg", /avg is not in kg but in ms/],
  ["share>3ms", /share is not in ms/],
  ["handle:x", /handle: is a number/],
  ["(conv", /"\)" is missing/],
  ["conv)", /stands where nothing is expected/],
  ['"conv', /a quote is not closed/],
  ["conv or", /missing at the end/],
  ["not", /missing at the end/],
  ["op:", /what should "op" be/],
])("%s is wrong", (text, message) => {
  expect(() => parseFilter(text, table)).toThrow(FilterError);
  expect(() => parseFilter(text, table)).toThrow(message);
});

describe("rows with levels", () => {
  const kept = (text: string): number[] => filterRows(table, [0, 1, 2, 3, 4], parseFilter(text, table));
  it("a row that matches brings all below it", () => expect(kept("DELEGATE_CALL")).toEqual([1, 2, 3]));
  it("a row below brings the one it hangs from", () => expect(kept("norm")).toEqual([1, 3]));
  it("keeps everything without a filter", () => expect(kept("")).toEqual([0, 1, 2, 3, 4]));
});

test("the help's examples are understood", () => {
  for (const [examples] of FILTER_HELP) {
    for (const example of examples.split(/ {2,}/)) expect(() => parseFilter(example, table)).not.toThrow();
  }
});

test("100,000 rows are filtered at once", () => {
  const count = 100_000;
  const long: TableDoc = {
    ...table,
    values: Object.fromEntries(
      table.columns.map(({ name }) => [
        name,
        Array.from({ length: count }, (_, row) => table.values[name]![row % 5]!),
      ]),
    ),
    depth: Array.from({ length: count }, (_, row) => table.depth![row % 5]!),
  };
  const start = performance.now();
  const rows = filterRows(long, [...long.values["avg"]!.keys()], parseFilter("conv avg>0.1", long));
  expect(rows).toHaveLength(count / 5);
  expect(performance.now() - start).toBeLessThan(1500);
});
