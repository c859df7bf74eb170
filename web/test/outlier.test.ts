// Averages that one run makes.

import { expect, test } from "vitest";
import type { Method } from "../src/document";
import { outlierOf } from "../src/parts/outlier";
import { fixture } from "./fixture";
import { mean } from "./fixture_parts";

/** The fixture's method with these samples of row 0. */
function withSamples(samples: number[], known = true): Method {
  const found = fixture({ blocks: 1, events: 5, samples: samples.length }).runs[0]!.methods[0]!;
  found.runIndex = samples.map((_, at) => at + 10);
  found.rows.values["avg"]![0] = mean(samples);
  found.rows.values["max"]![0] = Math.max(...samples);
  found.samples[0] = known ? samples : null;
  return found;
}

test("one run of 50 makes the average", () => {
  const samples = Array.from({ length: 50 }, (_, at) => (at === 7 ? 40.9 : 0.017));
  expect(outlierOf(withSamples(samples), 0)).toEqual({
    run: 17,
    most: 40.9,
    others: expect.closeTo(0.017, 9),
  });
  expect(outlierOf(withSamples(samples, false), 0)!.run).toBeNull();
});

test("a slow first run, or two runs, are no such thing", () => {
  expect(outlierOf(withSamples([5, 1, 1, 1, 1, 1, 1, 1]), 0)).toBeNull();
  expect(outlierOf(withSamples([1, 100]), 0)).toBeNull();
  expect(outlierOf(withSamples([1, 1, 1]), 0)).toBeNull();
  expect(outlierOf(withSamples([0, 0, 0]), 0)).toBeNull();
});

test("twice the others' average is the limit", () => {
  // 4 runs: the average is the double of the others' when one takes 5 times as long.
  expect(outlierOf(withSamples([1, 1, 1, 5]), 0)).toBeNull();
  expect(outlierOf(withSamples([1, 1, 1, 5.1]), 0)).not.toBeNull();
});
