// Errors that are not a number: worse than any, and marked.

import { expect, test } from "vitest";
import type { Numerics } from "../src/document";
import { errorLines } from "../src/errors";
import { lineErrors } from "../src/lines";

import { fixture } from "./fixture";

/** Four values of SQNR: two that are fine, one that is wrong with NaN, and what inherits them. */
function numerics(): Numerics {
  const found = fixture({ blocks: 1, events: 5, samples: 1 }).runs[0]!.numerics!;
  const column = (name: string) => ({ name, title: name, kind: "float" as const, unit: "dB", priority: 0 });
  return {
    ...found,
    metric: "sqnr",
    largerIsWorse: false,
    table: {
      title: "",
      columns: [column("total"), column("local")],
      values: {
        total: [140, 120, "NaN", "NaN"],
        local: ["Infinity", 130, "NaN", "Infinity"],
        verdict: ["fine", "fine", "wrong", "inherited"],
      },
      notes: [],
    },
    lines: [0, 0, 0, 1],
  };
}

test("what is not a number is marked at the worst number drawn", () => {
  const { lines } = errorLines(numerics());
  const values = Object.fromEntries(lines.map((line) => [line.name, line.values]));

  expect(values["total"]).toEqual([140, 120, null, null]);
  expect(values["local"]).toEqual([null, 130, null, null]);
  expect(values["not a number"]).toEqual([null, null, 120, 120]);
  expect(values["wrong"]).toEqual([null, null, 120, null]);
});

test("without NaN there is no mark of it", () => {
  const found = numerics();
  found.table.values["total"] = [140, 120, 100, 90];
  found.table.values["local"] = [140, 120, 50, 90];
  const { lines } = errorLines(found);

  expect(lines.map((line) => line.name)).toEqual(["total", "local", "wrong"]);
  expect(lines.at(-1)!.values).toEqual([null, null, 50, null]);
});

test("the worst error of a line is the one that is not a number", () => {
  expect(lineErrors(numerics())).toEqual(
    new Map([
      [0, 2],
      [1, 3],
    ]),
  );
  const found = numerics();
  found.table.values["total"] = ["NaN", 120, 130, 140];
  expect(lineErrors(found)).toEqual(
    new Map([
      [0, 0],
      [1, 3],
    ]),
  );
});
