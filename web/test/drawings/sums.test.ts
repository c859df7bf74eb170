// What lies in a part of the timeline adds up to Method::execute, row by row.

import { expect, test } from "vitest";

import { fixture } from "../fixture";
import { groupRows } from "../../src/groups";
import { spanSums } from "../../src/drawings/timeline/sums";
import { bodyAndTotals, leavesOf } from "../../src/tables";

const run = fixture({ blocks: 2, events: 3, samples: 3 }).runs[0]!;
const timeline = run.timeline!;
const { body, totals } = bodyAndTotals(run.methods[0]!.rows);
const [unaccounted, whole] = totals as [number, number];
const sum = (values: readonly (number | null | undefined)[]): number =>
  values.reduce<number>((all, value) => all + (value ?? 0), 0);

test("all of the timeline is all of its runs", () => {
  const [found] = spanSums(run, timeline, -1, 1e9);

  const executes = timeline.duration.filter((_, span) => timeline.row[span]?.[1] === whole);
  expect(found!.total).toBeCloseTo(sum(executes), 9);
  const isLeaf = leavesOf(run.methods[0]!.rows);
  const leaves = body.filter((row) => isLeaf[row]);
  expect(sum([...leaves, unaccounted].map((row) => found!.times[row]))).toBeCloseTo(found!.total, 9);
});

test("each row has what its spans have", () => {
  const [found] = spanSums(run, timeline, -1, 1e9);
  const row = body.find((one) => run.methods[0]!.rows.values["kind"]![one] === "kernel")!;

  const own = timeline.duration.filter((_, span) => timeline.row[span]?.[1] === row);
  expect(own.length).toBe(3);
  expect(found!.times[row]).toBeCloseTo(sum(own), 9);
});

test("of a span that reaches beyond, the part within counts, and parts add up to the whole", () => {
  const [from, to] = [0.3, 2.9];
  const middle = 1.1;
  const parts = [
    [from, middle],
    [middle, to],
  ].map(([start, end]) => spanSums(run, timeline, start!, end!)[0]!);
  const [all] = spanSums(run, timeline, from, to);

  expect(sum(parts.map((one) => one.total))).toBeCloseTo(all!.total, 9);
  for (const row of body) {
    if (all!.times[row] === null) continue;
    expect(sum(parts.map((one) => one.times[row]))).toBeCloseTo(all!.times[row]!, 6);
  }
});

test("a call and the kernel within are counted once", () => {
  const nested = {
    ...timeline,
    track: [0, 0, 0],
    level: [0, 1, 2],
    start: [0, 1, 1.5],
    duration: [10, 4, 3],
    name: [0, 1, 1],
    row: [[0, whole], [0, 0], [0, 0]] as [number, number][],
  };
  const [found] = spanSums(run, nested, 0, 20);

  expect([found!.total, found!.times[0], found!.times[unaccounted], found!.runs]).toEqual([10, 4, 6, 1]);
});

test("nothing lies in an empty part", () => {
  expect(spanSums(run, timeline, 1e6, 1e7)).toEqual([]);
});

test("groups of the rows add up to the same", () => {
  const { rows } = run.methods[0]!;
  const [found] = spanSums(run, timeline, 0.2, 3);
  const table = { ...rows, values: { ...rows.values, avg: found!.times } };
  for (const by of ["op", "module", "type", "source"]) {
    const groups = groupRows(
      table,
      body.filter((row) => found!.times[row] !== null),
      by,
      undefined,
    );
    const all = sum(groups.map((group) => group.sums["avg"])) + found!.times[unaccounted]!;
    expect(all).toBeCloseTo(found!.total, 6);
  }
});
