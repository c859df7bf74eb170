import { describe, expect, it } from "vitest";

import type { Measure } from "../../src/document";
import { inkOn, measureScale, nameColours, shareRamp } from "../../src/drawings/scale";

const measure = (extra: Partial<Measure> = {}): Measure => ({
  key: "avg",
  title: "avg",
  unit: "ms",
  kind: "duration",
  largerIsWorse: true,
  nodes: [],
  groups: [],
  shared: [],
  ...extra,
});

describe("a scale of a measure", () => {
  it("begins at nothing for times, and is linear", () => {
    const scale = measureScale(measure(), [2, 4, null], "linear", "light");
    expect(scale.ticks).toEqual([
      { at: 0, value: 0 },
      { at: 0.5, value: 2 },
      { at: 1, value: 4 },
    ]);
    expect(scale.colourOf(4)).toBe(scale.stops[scale.stops.length - 1]!.colour);
    expect(scale.colourOf(2)).toBe(scale.stops[12]!.colour);
    expect([scale.measured, scale.unmeasured]).toEqual([2, 1]);
  });

  it("has no colour for what was not measured, nor for what is no number", () => {
    const scale = measureScale(measure(), [1], "linear", "light");
    expect([null, undefined, "", NaN].map((value) => scale.colourOf(value))).toEqual([
      null,
      null,
      null,
      null,
    ]);
  });

  it("has the worst colour for an error that is not a number", () => {
    const sqnr = measureScale(
      measure({ kind: "float", largerIsWorse: false }),
      [20, 40, "NaN"],
      "linear",
      "light",
    );
    expect(sqnr.colourOf("NaN")).toBe(sqnr.colourOf(20));
    expect(sqnr.measured).toBe(3);
    const mse = measureScale(measure({ kind: "float" }), [20, 40], "linear", "light");
    expect(mse.colourOf("NaN")).toBe(mse.colourOf(40));
  });

  it("by rank gives as many colours to many small values as to a few large ones", () => {
    const values = [1, 2, 3, 4, 1000];
    const linear = measureScale(measure(), values, "linear", "light");
    const rank = measureScale(measure(), values, "quantile", "light");
    expect(linear.colourOf(1)).toBe(linear.colourOf(1.0001));
    expect(new Set(values.map((value) => rank.colourOf(value))).size).toBe(5);
    expect(rank.ticks.map((tick) => tick.value)).toEqual([1, 3, 1000]);
    expect(rank.colourOf(3)).toBe(rank.stops[12]!.colour);
  });

  it("puts infinities at the ends and does not stretch for them", () => {
    const scale = measureScale(measure({ kind: "float" }), [1, 3, "Infinity", "-Infinity"], "linear", "dark");
    expect(scale.ticks.map((tick) => tick.value)).toEqual([1, 2, 3]);
    expect(scale.colourOf("Infinity")).toBe(scale.colourOf(3));
    expect(scale.colourOf("-Infinity")).toBe(scale.colourOf(1));
  });

  it("turns round where more is better", () => {
    const worse = measureScale(measure({ kind: "float" }), [0, 100], "linear", "light");
    const better = measureScale(
      measure({ kind: "float", largerIsWorse: false }),
      [0, 100],
      "linear",
      "light",
    );
    expect(better.colourOf(100)).toBe(worse.colourOf(0));
    expect(better.colourOf(0)).toBe(worse.colourOf(100));
  });

  it("holds for one value, for none, and for all alike", () => {
    for (const mode of ["linear", "quantile"] as const) {
      expect(measureScale(measure(), [], mode, "light").ticks).toEqual([]);
      expect(measureScale(measure(), [5], mode, "light").colourOf(5)).toMatch(/^rgb|^#/);
      expect(measureScale(measure(), [0, 0], mode, "light").colourOf(0)).toMatch(/^rgb|^#/);
    }
  });
});

it("writes dark on light and light on dark", () => {
  expect(inkOn("rgb(255, 255, 200)")).toBe("#000000");
  expect(inkOn("#320a5e")).toBe("#ffffff");
  for (const theme of ["light", "dark"] as const) {
    expect(inkOn(shareRamp(theme)(0))).not.toBe(undefined);
    expect(shareRamp(theme)(1)).toMatch(/^rgb\(\d+, \d+, \d+\)$/);
  }
});

it("writes with a contrast of 4.5 at least, whatever the colour", () => {
  const channel = (value: number): number =>
    value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = (r: number, g: number, b: number): number =>
    0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const steps = Array.from({ length: 18 }, (_, at) => at * 15);
  for (const r of steps)
    for (const g of steps)
      for (const b of steps) {
        const ground = luminance(r, g, b);
        const ink = inkOn(`rgb(${r}, ${g}, ${b})`) === "#000000" ? 0 : 1;
        const contrast = (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
        expect(contrast).toBeGreaterThan(4.5);
      }
});

it("keeps the colour of a name for as long as the names are the same", () => {
  const names = ["a", "b", "c"];
  const one = nameColours(names, "light");
  const other = nameColours(names, "light");
  expect(names.map((name) => one(name))).toEqual(
    [...names]
      .reverse()
      .map((name) => other(name))
      .reverse(),
  );
});

it("a change has two colours, with nothing in the middle", () => {
  const scale = measureScale({ ...measure(), key: "change" }, [-4, 1, 0, null], "linear", "light");
  const colours = [-4, 0, 4].map((value) => scale.colourOf(value));
  expect(colours).toEqual([scale.stops[0]!.colour, scale.stops[12]!.colour, scale.stops[24]!.colour]);
  expect(new Set(colours).size).toBe(3);
  expect(scale.ticks.map(({ value }) => value)).toEqual([-4, 0, 4]);
  expect([scale.measured, scale.unmeasured, scale.colourOf(null)]).toEqual([3, 1, null]);
});
