import { describe, expect, it, test } from "vitest";
import { compare, spread, converter, type Side } from "../src/compare";
import { asNumber } from "../src/format";
import { fixture } from "./fixture";

const report = fixture({ blocks: 2, events: 10 });
const side = (at: number): Side => ({ run: report.runs[at]!, method: report.runs[at]!.methods[0]! });
const clone = (one: Side): Side => structuredClone(one);

describe("two runs of one program", () => {
  const { table, a, b } = compare(side(0), side(1), "p50");
  it("rows are joined one to one, in order", () => {
    expect(a).toEqual(b);
    expect(a).toEqual(a.map((_, row) => row));
    expect(table.depth).toEqual(side(0).method.rows.depth);
    expect(table.breaks).toEqual(side(0).method.rows.breaks);
  });
  it("differences are absolute and relative", () => {
    for (let row = 0; row < a.length; row++) {
      const one = asNumber(side(0).method.rows.values["p50"]![row])!;
      const other = asNumber(side(1).method.rows.values["p50"]![row])!;
      expect(table.values["difference"]![row]).toBe(other - one);
      expect(table.values["relative"]![row]).toBe((other - one) / one);
    }
  });
  it("the second run is slower beyond the noise", () => {
    expect(table.values["verdict"]!.slice(0, -2).every((verdict) => verdict === "slower")).toBe(true);
  });
  it("a run is within the noise of itself", () => {
    const same = compare(side(0), side(0), "avg").table.values["verdict"]!;
    expect(new Set(same)).toEqual(new Set(["within noise"]));
  });
});

describe("programs that differ", () => {
  const other = clone(side(1));
  const { values } = other.method.rows;
  values["event"]![1] = "something else";
  values["op_types"]![1] = ["aten.other"];
  it("what has no partner is said", () => {
    const { table, a, b } = compare(side(0), other, "avg");
    const verdicts = table.values["verdict"]!;
    const alone = verdicts.indexOf("only in B");
    expect([verdicts[1], a[1], b[1]]).toEqual(["only in A", 1, null]);
    expect([a[alone], b[alone]]).toEqual([null, 1]);
    expect(table.values["difference"]![1]).toBeNull();
    expect(table.values["event"]![alone]).toBe("something else");
    // Before the totals, which stay the last.
    expect(alone).toBe(table.breaks![0]! - 1);
    expect(table.values["event"]!.at(-1)).toBe("Method::execute");
  });
  it("events of a delegate are joined within their call", () => {
    const swapped = clone(side(1));
    const events = swapped.method.rows.values["event"]!;
    [events[3], events[4]] = [events[4]!, events[3]!];
    const lines = swapped.method.rows.values["source"]!;
    [lines[3], lines[4]] = [lines[4]!, lines[3]!];
    const { a, b } = compare(side(0), swapped, "avg");
    expect([a[3], b[3], a[4], b[4]]).toEqual([3, 4, 4, 3]);
  });
});

describe("noise", () => {
  it("needs samples", () => {
    const few = clone(side(0));
    few.method.samples = few.method.samples.map((samples) => samples!.slice(0, 4));
    const { table } = compare(few, side(1), "avg");
    expect(table.values["noise"]!.every((noise) => noise === null)).toBe(true);
    expect(table.values["verdict"]!.every((verdict) => verdict === null)).toBe(true);
    expect(spread(null)).toBeNull();
    expect(spread([1, null, 2, null, 3, 4])).toBeNull();
  });
  it("is deaf to one outlier", () => {
    expect(spread([1, 1.1, 0.9, 1, 1.1, 0.9, 50])).toBeCloseTo(0.14826, 5);
  });
});

test("units", () => {
  const other = clone(side(1));
  other.run.unit = "us";
  const { table } = compare(side(0), other, "avg");
  expect(table.columns.find((column) => column.name === "b")!.unit).toBe("ms");
  expect(table.values["b"]![0]).toBe(asNumber(other.method.rows.values["avg"]![0])! / 1000);
  expect(converter("s", "ms")(2)).toBe(2000);
  other.run.unit = "cycles";
  expect(() => compare(side(0), other, "avg")).toThrow(/cycles and in ms cannot be compared/);
});
