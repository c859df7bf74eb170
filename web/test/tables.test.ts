import { describe, expect, it, test } from "vitest";
import type { Cell, TableDoc } from "../src/document";
import { keyOf, toCsv } from "../src/csv";
import { filterRows, parseFilter } from "../src/filter";
import { groupingsOf, groupRows, sumsOf } from "../src/groups";
import { bodyAndTotals, cumulated, sortRows, tableFormats } from "../src/tables";
import { fixture } from "./fixture";

const method = fixture({ blocks: 2, events: 60 }).runs[0]!.methods[0]!;
const { rows } = method;

const small = (
  values: Record<string, Cell[]>,
  kinds: Record<string, "text" | "float" | "duration" | "list" | "bool"> = {},
): TableDoc => ({
  title: "",
  columns: Object.keys(values).map((name) => ({
    name,
    title: name,
    kind: kinds[name] ?? "text",
    unit: kinds[name] === "duration" ? "ms" : null,
    priority: 0,
  })),
  values,
  notes: [],
});

describe("sorting", () => {
  const table = small({ n: [3, null, "Infinity", -1], t: ["b10", "b9", "", "A"] }, { n: "float" });
  it("numbers, no value last in both orders", () => {
    expect(sortRows(table, [0, 1, 2, 3], [{ column: "n", descending: false }])).toEqual([3, 0, 2, 1]);
    expect(sortRows(table, [0, 1, 2, 3], [{ column: "n", descending: true }])).toEqual([2, 0, 3, 1]);
  });
  it("texts by their numbers, no text last", () => {
    expect(sortRows(table, [0, 1, 2, 3], [{ column: "t", descending: false }])).toEqual([3, 1, 0, 2]);
    expect(sortRows(table, [0, 1, 2, 3], [{ column: "t", descending: true }])).toEqual([0, 1, 3, 2]);
  });
  it("by several columns", () => {
    const two = small({ a: ["x", "y", "x"], n: [1, 2, 3] }, { n: "float" });
    const by = [
      { column: "a", descending: false },
      { column: "n", descending: true },
    ];
    expect(sortRows(two, [0, 1, 2], by)).toEqual([2, 0, 1]);
  });
  it("keeps rows below the one they hang from", () => {
    const { body } = bodyAndTotals(rows);
    const sorted = sortRows(rows, body, [{ column: "avg", descending: true }]);
    expect([...sorted].sort((a, b) => a - b)).toEqual(body);
    let above = -1;
    for (const row of sorted) {
      if (!rows.depth![row]) above = row;
      else expect(row > above && row <= above + 4).toBe(true);
    }
    expect(rows.values["event"]![sorted[0]!]).toBe("DELEGATE_CALL");
  });
  it("leaves an unknown column alone", () => {
    expect(sortRows(rows, [2, 1], [{ column: "nothing", descending: true }])).toEqual([2, 1]);
  });
});

describe("totals", () => {
  const { body, totals } = bodyAndTotals(rows);
  const avg = rows.values["avg"] as number[];
  it("are what stands after the break", () => {
    expect(totals.map((row) => rows.values["kind"]![row])).toEqual(["unaccounted", "total"]);
  });
  it("the sum of undivided rows and the unaccounted is the total", () => {
    const sum = sumsOf(rows, body)["avg"]! + avg[totals[0]!]!;
    expect(sum).toBeCloseTo(avg[totals[1]!]!, 9);
  });
});

test("shares add up in the order shown", () => {
  const { body, totals } = bodyAndTotals(rows);
  const inRunOrder = cumulated(rows, body);
  body.forEach((row) => {
    const given = rows.values["cumulative"]![row]!;
    if (given === null) expect(inRunOrder[row]).toBeNull();
    else expect(inRunOrder[row]).toBeCloseTo(given as number, 9);
  });
  const sorted = sortRows(rows, body, [{ column: "avg", descending: true }]);
  const found = cumulated(rows, sorted);
  expect(found[sorted[0]!]).toBe(rows.values["share"]![sorted[0]!]);
  expect(found[totals[1]!]).toBe(1);
});

describe("groups", () => {
  const { body } = bodyAndTotals(rows);
  it.each(groupingsOf(rows).map(({ key }) => key))("by %s add up to all", (by) => {
    const groups = groupRows(rows, body, by, undefined);
    const sum = groups.reduce((total, group) => total + group.sums["avg"]!, 0);
    expect(sum).toBeCloseTo(sumsOf(rows, body)["avg"]!, 9);
    expect(groups.flatMap((group) => group.rows).sort((a, b) => a - b)).toEqual(body);
    const times = groups.map((group) => group.sums["avg"]!);
    expect(times).toEqual([...times].sort((a, b) => b - a));
  });
  it("a call counts once, with its events below it", () => {
    const delegates = groupRows(rows, body, "op", undefined).find(
      (group) => group.label === "DELEGATE_CALL",
    )!;
    expect(delegates.sums["#"]).toBe(2);
    expect(delegates.rows).toHaveLength(10);
  });
  it("a call whose rest is known counts by its events and its rest", () => {
    const call: TableDoc = {
      ...small(
        {
          event: ["XnnpackBackend", "GEMM #1", "GEMM #2", "(rest of the delegate call)", "add"],
          kind: ["delegate", "delegated", "delegated", "unaccounted", "kernel"],
          module: ["", "a", "b", "", "b"],
          op_types: [["linear"], ["linear"], ["linear"], [], ["add"]],
          leaf: [false, true, true, true, true],
          avg: [10, 4, 3, 3, 1],
        },
        { avg: "duration", op_types: "list" },
      ),
      depth: [0, 1, 1, 1, 0],
    };
    const all = [0, 1, 2, 3, 4];
    const told = (by: string, rows = all) =>
      groupRows(call, rows, by, undefined).map(({ label, sums }) => [label, sums["avg"], sums["#"]]);
    expect(told("op")).toEqual([
      ["GEMM", 7, 2],
      ["(rest of the delegate call)", 3, 1],
      ["add", 1, 1],
    ]);
    expect(told("module")).toEqual([
      ["a", 4, 1],
      ["b", 4, 2],
      ["(root)", 3, 1],
    ]);
    expect(sumsOf(call, all)["avg"]).toBe(11);
    const kept = filterRows(call, all, parseFilter("module:b", call));
    expect(kept).toEqual([0, 2, 4]);
    expect(sumsOf(call, kept)["avg"]).toBe(4);
    expect(filterRows(call, all, parseFilter("kind:delegate", call))).toEqual([0, 1, 2, 3]);
    expect(filterRows(call, all, parseFilter("kind:delegate?", call))).toEqual([0, 1, 2]);
  });
  it("events of the dump have groupings too", () => {
    expect(groupingsOf(method.events).map(({ key }) => key)).toEqual([
      "op",
      "op_type",
      "module",
      "source",
      "delegate",
    ]);
    expect(groupRows(method.events, [0, 1, 2], "delegate", undefined).map((group) => group.label)).toContain(
      "(not delegated)",
    );
  });
  it("an unknown grouping has no groups", () =>
    expect(groupRows(rows, body, "colour", undefined)).toEqual([]));
});

describe("CSV", () => {
  const table = small(
    {
      name: ["=1+1", "plain", 'a "b", c', "line\nbreak", "-x", "@y", "+z", "\tw"],
      avg: [1.5, null, -2, "-Infinity", 0.1 + 0.2, 1e-9, 0, 1],
      ops: [["a", 1], [], null, ["=b"], [], [], [], []],
      yes: [true, false, null, null, null, null, null, null],
    },
    { avg: "duration", ops: "list", yes: "bool" },
  );
  const lines = toCsv(table, [0, 1, 2, 3, 4, 5, 6, 7]).split("\r\n");
  it("names carry their unit", () => expect(lines[0]).toBe("name,avg_ms,ops,yes"));
  it("texts that a spreadsheet would run are inert", () => {
    expect(lines[1]).toBe(`'=1+1,1.5,"[""a"",1]",true`);
    expect(lines.slice(5, 8).map((line) => line.split(",")[0])).toEqual(["'-x", "'@y", "'+z"]);
    expect(lines[8]!.startsWith("'\tw,")).toBe(true);
  });
  it("no value is an empty field", () => expect(lines[2]).toBe("plain,,[],false"));
  it("quotes and commas are quoted, numbers are exact and stay numbers", () => {
    expect(lines[3]).toBe(`"a ""b"", c",-2,,`);
    expect(lines[4]).toBe(`"line\nbreak",-Infinity,"[""=b""]",`);
    expect(lines[5]!.split(",")[1]).toBe("0.30000000000000004");
  });
  it("ends every line, and takes the named columns", () => {
    expect(toCsv(table, [1], ["avg", "name"])).toBe("name,avg_ms\r\nplain,\r\n");
  });
  it("a unit is not said twice", () => {
    expect(keyOf({ name: "dur_ms", title: "", kind: "duration", unit: "ms", priority: 0 })).toBe("dur_ms");
  });
});

test("times of a table have the decimals that its longest needs", () => {
  const table = small({ a: [1234.5, 0.001], b: [0.5, null] }, { a: "duration", b: "duration" });
  const formats = tableFormats(table);
  expect(formats["a"]!(1234.5)).toBe("1,234.500");
  expect(formats["b"]!(0.5)).toBe("0.500");
});
