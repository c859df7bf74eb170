// What the time of each call is made of, as series to be drawn: a panel for decode, one for what comes
// before it.

import type { GenerationDoc } from "../../document";
import { median } from "../../tables";

export type Over = "position" | "call";

export interface StackChoice {
  /** Key of `GenerationDoc.groups`. */
  by: string;
  over: Over;
  /** One of the generations, null for the mean of all. */
  generation: number | null;
  /** One of the methods, null for the sum of all. */
  method: number | null;
}

/** A point: calls that are drawn together, and what is said of them. */
export interface Point {
  x: number;
  phase: number;
  step: number;
  position: number;
  tokens: number;
  /** Indices in `GenerationDoc.calls`. */
  calls: number[];
  time: number;
  /** Without tracing; null where it is not known. */
  untraced: number | null;
}

export interface Panel {
  decode: boolean;
  points: Point[];
  /** Group by group, a time for each point. */
  times: number[][];
}

/** The panels, those with calls alone. Over positions the calls of several methods add up, and those of
 * several generations are their mean. */
export function panelsOf(doc: GenerationDoc, choice: StackChoice): Panel[] {
  const groups = doc.groups[choice.by]!;
  const before = untracedTimes(doc, choice);
  return [false, true]
    .map((decode) => {
      const points = pointsOf(doc, choice, (phase) => (doc.phases[phase] === "decode") === decode, before);
      const times = groups.times.map((series) =>
        points.map((point) => meanOf(doc, point, (at) => series[at]!)),
      );
      return { decode, points, times };
    })
    .filter(({ points }) => points.length > 0);
}

function pointsOf(
  doc: GenerationDoc,
  { over, generation, method }: StackChoice,
  wanted: (phase: number) => boolean,
  untraced: (point: Point) => number | null,
): Point[] {
  const { calls } = doc;
  const found = new Map<string, Point>();
  calls.number.forEach((number, at) => {
    const [phase, step, position] = [calls.phase[at]!, calls.step[at]!, calls.position[at]!];
    if (!wanted(phase) || (generation !== null && calls.generation[at] !== generation)) return;
    if (method !== null && calls.method[at] !== method) return;
    const place = position >= 0 ? position : step;
    const key = over === "call" ? String(number) : `${phase} ${place}`;
    const known = found.get(key);
    if (known) {
      known.calls.push(at);
      known.tokens = Math.max(known.tokens, calls.tokens[at]!);
      return;
    }
    const tokens = calls.tokens[at]!;
    const x = over === "call" ? number : place;
    found.set(key, { x, phase, step, position, tokens, calls: [at], time: 0, untraced: null });
  });
  const points = [...found.values()].sort((one, other) => one.phase - other.phase || one.x - other.x);
  for (const point of points) {
    point.time = meanOf(doc, point, (at) => calls.time[at]!);
    point.untraced = untraced(point);
  }
  return points;
}

/** The sum over the methods of a point, the mean of its generations. */
function meanOf(doc: GenerationDoc, { calls }: Point, value: (call: number) => number): number {
  let sum = 0;
  const generations = new Set<number>();
  for (const at of calls) {
    sum += value(at);
    generations.add(doc.calls.generation[at]!);
  }
  return sum / generations.size;
}

/** Of a point, the time around the runtime's `execute` without tracing. */
function untracedTimes(doc: GenerationDoc, { over, method }: StackChoice): (point: Point) => number | null {
  const { untraced } = doc;
  if (untraced === null || over === "call") return () => null;
  const sums = new Map<string, { sum: number; generations: Set<number> }>();
  untraced.position.forEach((position, at) => {
    const name = untraced.methods[untraced.method[at]!]!;
    if (position < 0 || (method !== null && name !== doc.methods[method])) return;
    const key = `${untraced.phases[untraced.phase[at]!]} ${position}`;
    let one = sums.get(key);
    if (!one) sums.set(key, (one = { sum: 0, generations: new Set() }));
    one.sum += untraced.execute[at]!;
    one.generations.add(untraced.generation[at]!);
  });
  return ({ phase, position }) => {
    const found = sums.get(`${doc.phases[phase]} ${position}`);
    return found ? found.sum / found.generations.size : null;
  };
}

/** Of neighbouring calls the one with the median time: calls that were interrupted hide what the others
 * have in common. At most `most` remain; the time without tracing is the median of theirs. */
export function typicalOf(panel: Panel, most: number): Panel {
  const count = panel.points.length;
  if (count <= most) return panel;
  const chosen: number[] = [];
  const points: Point[] = [];
  for (let part = 0; part < most; part++) {
    const from = Math.floor((part * count) / most);
    const members = panel.points.slice(from, Math.floor(((part + 1) * count) / most));
    const order = members.map((_, at) => at).sort((one, other) => members[one]!.time - members[other]!.time);
    const middle = order[(order.length - 1) >> 1]!;
    const untraced = members.flatMap((point) => (point.untraced === null ? [] : [point.untraced]));
    chosen.push(from + middle);
    points.push({ ...members[middle]!, untraced: median(untraced) });
  }
  return { ...panel, points, times: panel.times.map((series) => chosen.map((at) => series[at]!)) };
}

/** The series of a stack from its top: each is the sum of a group and those below it. */
export function stacked(times: number[][]): number[][] {
  const sums: number[][] = [];
  times.forEach((series, at) => {
    const below = sums[at - 1];
    sums.push(below ? series.map((value, point) => value + below[point]!) : series);
  });
  return sums;
}

/** "decode 17 · position 42 · 1 token". */
export function nameOfPoint(doc: GenerationDoc, point: Point): string {
  const parts = [`${doc.phases[point.phase] ?? "?"} ${point.step}`];
  const last = point.position + point.tokens - 1;
  if (point.position >= 0) {
    parts.push(point.tokens > 1 ? `positions ${point.position} to ${last}` : `position ${point.position}`);
  }
  if (point.tokens > 0) parts.push(point.tokens === 1 ? "1 token" : `${point.tokens} tokens`);
  const many = point.calls.reduce((sum, at) => sum + doc.calls.joined[at]!, 0);
  parts.push(many === 1 ? `call ${doc.calls.number[point.calls[0]!]}` : `${many} calls`);
  return parts.join(" · ");
}

/** The share of each group in each panel. */
export function sharesOf(panel: Panel): number[] {
  const whole = panel.points.reduce((sum, { time }) => sum + time, 0);
  return panel.times.map((series) => (whole > 0 ? series.reduce((sum, one) => sum + one, 0) / whole : 0));
}
