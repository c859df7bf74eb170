// From values to colours. A scale covers the values that are seen, so that opening a box shows what
// is hot within it; the legend says from where to where.

import { scaleOrdinal, scaleSequential, scaleSequentialQuantile } from "d3-scale";
import { interpolateInferno, interpolateYlGnBu, interpolateYlOrRd } from "d3-scale-chromatic";

import type { Measure } from "../document";
import { asNumber } from "../format";
import type { Theme } from "../theme";

export type ScaleMode = "linear" | "quantile";
export type Value = number | string | null | undefined;

export interface LegendStop {
  /** Place on the bar, 0 to 1. */
  at: number;
  colour: string;
}

export interface MeasureScale {
  measure: Measure;
  mode: ScaleMode;
  /** Null for what was not measured. */
  colourOf(value: Value): string | null;
  /** Of the bar, from the lowest value to the highest. */
  stops: LegendStop[];
  /** Values below the bar. */
  ticks: { at: number; value: number }[];
  measured: number;
  unmeasured: number;
}

const BAR_STOPS = 24;

/** The scale of the `values` that are seen, and of those of `others` that are to be compared with them. */
export function measureScale(
  measure: Measure,
  values: readonly Value[],
  mode: ScaleMode,
  theme: Theme,
  others: readonly Value[] = [],
): MeasureScale {
  const worst = measure.largerIsWorse ? Infinity : -Infinity;
  const numberOf = (value: Value): number | null => (value === "NaN" ? worst : valueNumber(value));
  const numbers = values.map(numberOf);
  const known = numbers.filter((value): value is number => value !== null);
  const finite = [...known, ...others.map(valueNumber)]
    .filter((value): value is number => value !== null && Number.isFinite(value))
    .sort((a, b) => a - b);
  if (measure.key === "change") return changeScale(measure, numbers, finite, theme);
  const ramp = rampOf(measure, theme);
  // Times and sizes start at nothing; errors lie where they lie.
  const low = finite.length === 0 ? 0 : measure.kind === "float" ? finite[0]! : Math.min(0, finite[0]!);
  const high = finite[finite.length - 1] ?? 0;
  const place = mode === "linear" ? linear(low, high) : quantile(finite);
  const colour = (value: number): string => {
    const at = value === Infinity ? 1 : value === -Infinity ? 0 : place(value);
    return ramp(at);
  };
  return {
    measure,
    mode,
    colourOf: (value) => {
      const number = numberOf(value);
      return number === null ? null : colour(number);
    },
    stops: Array.from({ length: BAR_STOPS + 1 }, (_, index) => ({
      at: index / BAR_STOPS,
      colour: ramp(index / BAR_STOPS),
    })),
    ticks: ticksOf(finite, low, high, mode),
    measured: known.length,
    unmeasured: numbers.length - known.length,
  };
}

/** The same for a change in either direction: nothing is in the middle. */
function changeScale(
  measure: Measure,
  numbers: readonly (number | null)[],
  finite: readonly number[],
  theme: Theme,
): MeasureScale {
  const most = Math.max(...finite.map(Math.abs), 0);
  const ramp = changeRamp(theme);
  return {
    measure,
    mode: "linear",
    colourOf: (value) => {
      const number = valueNumber(value);
      return number === null ? null : ramp(most > 0 ? number / most : 0);
    },
    stops: Array.from({ length: BAR_STOPS + 1 }, (_, index) => ({
      at: index / BAR_STOPS,
      colour: ramp((2 * index) / BAR_STOPS - 1),
    })),
    ticks: finite.length === 0 ? [] : [-1, 0, 1].map((at) => ({ at: (at + 1) / 2, value: at * most })),
    measured: finite.length,
    unmeasured: numbers.filter((number) => number === null).length,
  };
}

function valueNumber(value: Value): number | null {
  const number = asNumber(value);
  return number === null || Number.isNaN(number) ? null : number;
}

function linear(low: number, high: number): (value: number) => number {
  if (high <= low) return () => (high > 0 ? 1 : 0);
  return (value) => Math.min(1, Math.max(0, (value - low) / (high - low)));
}

function quantile(sorted: number[]): (value: number) => number {
  if (sorted.length < 2) return () => 1;
  const scale = scaleSequentialQuantile((at: number) => at).domain(sorted);
  return (value) => scale(value) ?? 0;
}

function ticksOf(
  sorted: number[],
  low: number,
  high: number,
  mode: ScaleMode,
): { at: number; value: number }[] {
  if (sorted.length === 0) return [];
  if (mode === "linear") {
    const middle = { at: 0.5, value: (low + high) / 2 };
    return high > low ? [{ at: 0, value: low }, middle, { at: 1, value: high }] : [{ at: 1, value: high }];
  }
  const rank = (at: number): number => sorted[Math.round(at * (sorted.length - 1))]!;
  return [0, 0.5, 1].map((at) => ({ at, value: rank(at) }));
}

/** Light to dark on light, dark to light on dark: what matters stands out of the page. */
function rampOf(measure: Measure, theme: Theme): (at: number) => string {
  const turn = measure.largerIsWorse ? (at: number): number => at : (at: number): number => 1 - at;
  const ramp =
    theme === "dark" ? interpolateInferno : measure.kind === "bytes" ? interpolateYlGnBu : interpolateYlOrRd;
  const [from, to] = theme === "dark" ? [0.18, 0.93] : [0.06, 0.92];
  const scale = scaleSequential(ramp).domain([-from / (to - from), (1 - from) / (to - from)]);
  return (at) => scale(turn(at));
}

/** From 0 (nothing) to 1 (all of the time). */
export function shareRamp(theme: Theme): (share: number) => string {
  const [ramp, from, to] =
    theme === "dark" ? [interpolateInferno, 0.2, 0.78] : [interpolateYlOrRd, 0.06, 0.62];
  // By the root: small shares differ too.
  return (share) => rgb(ramp(from + (to - from) * Math.sqrt(share)));
}

/** From -1 (green: less) over 0 (no colour) to 1 (red: more). */
export function changeRamp(theme: Theme): (change: number) => string {
  const [none, less, more] =
    theme === "dark" ? ["#3a3f47", "#2f9e54", "#d9534f"] : ["#eceff3", "#2c9a4b", "#d2453d"];
  const [from, ...ends] = [none, less, more].map((one) => channels(one!));
  return (change) => {
    const end = ends[change > 0 ? 1 : 0]!;
    // By the root: small changes differ too.
    const at = Math.sqrt(Math.min(1, Math.abs(change)));
    return `rgb(${from!.map((one, channel) => Math.round(one + at * (end[channel]! - one))).join(", ")})`;
  };
}

/** d3's ramps give "rgb(…)" or "#…": one form for all. */
function rgb(colour: string): string {
  return `rgb(${channels(colour).join(", ")})`;
}

const CATEGORIES = {
  light: [
    "#8ab8e6",
    "#f4b183",
    "#9fd3a0",
    "#d7a6d9",
    "#f1d36b",
    "#8fd3cf",
    "#e69aa5",
    "#bcb6f0",
    "#c9b79c",
    "#a8c686",
    "#f5a6d0",
    "#9db4c0",
  ],
  dark: [
    "#2f6da8",
    "#a8622b",
    "#3c8047",
    "#854a8a",
    "#8a7420",
    "#2c7f7b",
    "#9b4453",
    "#5f58ad",
    "#7a6a50",
    "#5f7d3a",
    "#a04a80",
    "#54707e",
  ],
};

/** A colour for each name, in the order of the names. */
export function nameColours(names: string[], theme: Theme): (name: string) => string {
  return scaleOrdinal<string, string>(CATEGORIES[theme]).domain(names);
}

/** Black or white, whichever is read better on the colour ("#rrggbb" or "rgb(r, g, b)"): the contrast by
 * WCAG is never below 4.5. */
export function inkOn(colour: string): string {
  const [red, green, blue] = channels(colour).map((one) => {
    const part = one / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
  return (luminance + 0.05) ** 2 > 1.05 * 0.05 ? "#000000" : "#ffffff";
}

function channels(colour: string): [number, number, number] {
  const found = /rgb\((\d+), (\d+), (\d+)\)/.exec(colour);
  if (found) return [Number(found[1]), Number(found[2]), Number(found[3])];
  const number = Number.parseInt(colour.slice(1, 7), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}
