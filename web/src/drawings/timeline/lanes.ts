// The spans of a timeline by lane: one for each level of each track, in order of time.

import type { Timeline } from "../../document";

export interface Lane {
  track: number;
  level: number;
  /** Indices of the spans, by start. */
  spans: Int32Array;
  /** Their starts, and the latest end up to each: for searches. */
  starts: Float64Array;
  reach: Float64Array;
}

export interface Lanes {
  lanes: Lane[];
  /** Tracks in the order they are shown in, with their first lane and how many they have. */
  tracks: { track: number; depth: number; first: number; count: number }[];
  /** From the first start to the last end. */
  from: number;
  to: number;
}

const made = new WeakMap<Timeline, Lanes>();

export function lanesOf(timeline: Timeline): Lanes {
  let lanes = made.get(timeline);
  if (lanes === undefined) made.set(timeline, (lanes = makeLanes(timeline)));
  return lanes;
}

function makeLanes(timeline: Timeline): Lanes {
  const byLane = new Map<string, number[]>();
  const levels = new Map<number, Set<number>>();
  let from = Infinity;
  let to = -Infinity;
  for (let span = 0; span < timeline.start.length; span++) {
    const track = timeline.track[span]!;
    const level = timeline.level[span]!;
    const start = timeline.start[span]!;
    const key = `${track} ${level}`;
    const list = byLane.get(key);
    if (list) list.push(span);
    else byLane.set(key, [span]);
    const known = levels.get(track);
    if (known) known.add(level);
    else levels.set(track, new Set([level]));
    from = Math.min(from, start);
    to = Math.max(to, start + timeline.duration[span]!);
  }
  const lanes: Lane[] = [];
  const tracks = trackOrder(timeline).map(({ track, depth }) => {
    const first = lanes.length;
    for (const level of [...(levels.get(track) ?? [])].sort((a, b) => a - b)) {
      lanes.push(makeLane(timeline, track, level, byLane.get(`${track} ${level}`)!));
    }
    return { track, depth, first, count: lanes.length - first };
  });
  return from > to ? { lanes, tracks, from: 0, to: 1 } : { lanes, tracks, from, to: to > from ? to : from + 1 };
}

function makeLane(timeline: Timeline, track: number, level: number, list: number[]): Lane {
  const spans = Int32Array.from(list).sort((a, b) => timeline.start[a]! - timeline.start[b]! || a - b);
  const starts = Float64Array.from(spans, (span) => timeline.start[span]!);
  const reach = new Float64Array(spans.length);
  let latest = -Infinity;
  spans.forEach((span, index) => {
    latest = Math.max(latest, timeline.start[span]! + timeline.duration[span]!);
    reach[index] = latest;
  });
  return { track, level, spans, starts, reach };
}

/** Each track above those that hang below it. */
function trackOrder(timeline: Timeline): { track: number; depth: number }[] {
  const below = new Map<number | null, number[]>();
  timeline.tracks.forEach((track, index) => {
    // A track hangs below one before it, or stands at the top.
    const parent = track.parent !== null && track.parent < index ? track.parent : null;
    below.set(parent, [...(below.get(parent) ?? []), index]);
  });
  const order: { track: number; depth: number }[] = [];
  const stack = (below.get(null) ?? []).map((track) => ({ track, depth: 0 })).reverse();
  while (stack.length > 0) {
    const next = stack.pop()!;
    order.push(next);
    for (const track of (below.get(next.track) ?? []).reverse()) stack.push({ track, depth: next.depth + 1 });
  }
  return order;
}

/** What to draw of a lane: spans as they are, and runs of spans too small to tell apart. */
export interface Stroke {
  /** Index into the lane's spans of the first one, and how many are drawn as one. */
  at: number;
  count: number;
  left: number;
  right: number;
}

/** Narrower spans are drawn together with their neighbours, in pixels. */
const NARROW = 1;

/** The strokes of a lane between two times over `width` pixels: never more than there are pixels. */
export function strokes(
  timeline: Timeline,
  lane: Lane,
  from: number,
  to: number,
  width: number,
): Stroke[] {
  const scale = width / (to - from);
  const drawn: Stroke[] = [];
  // The first span that reaches into the view: before it all end earlier.
  let at = firstWhere(lane.reach, (reach) => reach > from);
  while (at < lane.spans.length && lane.starts[at]! < to) {
    const span = lane.spans[at]!;
    const left = (timeline.start[span]! - from) * scale;
    const right = left + timeline.duration[span]! * scale;
    if (right < 0) {
      // One of those below a span that reaches far: they do not overlap in good files.
      at++;
      continue;
    }
    if (right - left >= NARROW) {
      drawn.push({ at, count: 1, left: Math.max(left, -2), right: Math.min(right, width + 2) });
      at++;
      continue;
    }
    // All that start within this pixel become one.
    const pixel = Math.floor(left);
    const edge = from + (pixel + 1) / scale;
    let next = Math.max(at + 1, firstWhere(lane.starts, (start) => start >= edge, at + 1));
    // A wide one among them is drawn by itself.
    for (let inside = at + 1; inside < next && inside < at + 64; inside++) {
      if (timeline.duration[lane.spans[inside]!]! * scale >= NARROW) {
        next = inside;
        break;
      }
    }
    drawn.push({ at, count: next - at, left: pixel, right: pixel + 1 });
    at = next;
  }
  return drawn;
}

/** The span of a lane at a time, or the nearest within `slack`; -1 for none. */
export function spanAt(timeline: Timeline, lane: Lane, time: number, slack: number): number {
  let best = -1;
  let nearest = slack;
  const first = firstWhere(lane.reach, (reach) => reach >= time - slack);
  for (let at = first; at < lane.spans.length && lane.starts[at]! <= time + slack; at++) {
    const span = lane.spans[at]!;
    const start = timeline.start[span]!;
    const end = start + timeline.duration[span]!;
    if (start <= time && time <= end) return span;
    const far = time < start ? start - time : time - end;
    if (far <= nearest) [best, nearest] = [span, far];
  }
  return best;
}

/** First index from `low` on whose value passes; the values pass from some index on. */
export function firstWhere(values: Float64Array, passes: (value: number) => boolean, low = 0): number {
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (passes(values[middle]!)) high = middle;
    else low = middle + 1;
  }
  return low;
}
