import { describe, expect, it } from "vitest";

import type { Timeline } from "../../src/document";
import { lanesOf, spanAt, strokes } from "../../src/drawings/timeline/lanes";
import { laneTops } from "../../src/drawings/timeline/paint";
import { nextSpan } from "../../src/drawings/timeline/walk";
import { randomNumbers } from "./graphs";

type Span = [track: number, level: number, start: number, duration: number];

function timelineOf(spans: Span[], tracks = 2): Timeline {
  return {
    note: null,
    tracks: Array.from({ length: tracks }, (_, track) => ({ name: `track ${track}`, parent: track ? 0 : null, note: track ? "own clock" : null })),
    names: ["one"],
    track: spans.map(([track]) => track),
    level: spans.map(([, level]) => level),
    start: spans.map(([, , start]) => start),
    duration: spans.map(([, , , duration]) => duration),
    name: spans.map(() => 0),
    row: spans.map(() => null),
  };
}

const NESTED = timelineOf([[0, 0, 0, 10], [0, 1, 1, 2], [0, 1, 4, 3], [1, 0, 1.5, 1], [0, 2, 4.5, 0.5]]);

describe("lanes", () => {
  it("are one for each level of each track, in the order of the tree", () => {
    const lanes = lanesOf(NESTED);
    expect(lanes.lanes.map((lane) => [lane.track, lane.level, [...lane.spans]])).toEqual([
      [0, 0, [0]], [0, 1, [1, 2]], [0, 2, [4]], [1, 0, [3]],
    ]);
    expect([lanes.from, lanes.to]).toEqual([0, 10]);
    const { tops, tracks } = laneTops(NESTED, lanes);
    expect(tops).toEqual([...tops].sort((a, b) => a - b));
    expect(tracks[1]!.top).toBeGreaterThanOrEqual(tracks[0]!.top + tracks[0]!.height);
  });

  it("hold for a timeline of one moment, and for tracks in a ring", () => {
    const lanes = lanesOf(timelineOf([[0, 0, 5, 0]]));
    expect(lanes.to).toBeGreaterThan(lanes.from);
    const ring = timelineOf([[0, 0, 0, 1], [1, 0, 0, 1]]);
    ring.tracks[0]!.parent = 1;
    ring.tracks[1]!.parent = 0;
    expect(lanesOf(ring).tracks.length).toBe(2);
  });
});

describe("strokes", () => {
  const next = randomNumbers(9);
  const spans: Span[] = [];
  let clock = 0;
  for (let span = 0; span < 100_000; span++) {
    const duration = next() < 0.001 ? 40 : next() * 0.05;
    spans.push([0, 0, clock, duration]);
    clock += duration + next() * 0.02;
  }
  const timeline = timelineOf(spans, 1);
  const lane = lanesOf(timeline).lanes[0]!;

  it("of 100,000 spans are no more than the pixels, and stand for every span", () => {
    const drawn = strokes(timeline, lane, 0, clock, 1000);
    expect(drawn.length).toBeLessThan(1200);
    expect(drawn.reduce((sum, stroke) => sum + stroke.count, 0)).toBe(100_000);
    for (let index = 1; index < drawn.length; index++) {
      expect(drawn[index]!.at).toBe(drawn[index - 1]!.at + drawn[index - 1]!.count);
    }
  });

  it("show each span by itself from near, and only what is in view", () => {
    const start = spans[50_000]![2];
    const end = spans[50_020]![2];
    const drawn = strokes(timeline, lane, start, end, 5000);
    expect(drawn.every((stroke) => stroke.left <= 5002 && stroke.right >= 0)).toBe(true);
    expect(drawn.reduce((sum, stroke) => sum + stroke.count, 0)).toBeLessThan(30);
  });

  it("keep a long span that began before the view", () => {
    const long = timelineOf([[0, 0, 0, 1000], [0, 0, 1, 0.5], [0, 0, 2, 0.5]], 1);
    const drawn = strokes(long, lanesOf(long).lanes[0]!, 500, 600, 100);
    expect(drawn.map((stroke) => stroke.at)).toEqual([0]);
    expect(drawn[0]).toMatchObject({ left: -2, right: 102 });
  });

  it("are made in no time", () => {
    const before = process.cpuUsage();
    for (let frame = 0; frame < 60; frame++) strokes(timeline, lane, frame, clock - frame, 1400);
    expect(process.cpuUsage(before).user / 1000 / 60).toBeLessThan(8);
  });
});

describe("the span under the pointer", () => {
  const lanes = lanesOf(NESTED);

  it("is the one there, else the nearest within reach", () => {
    expect(spanAt(NESTED, lanes.lanes[1]!, 2, 0)).toBe(1);
    expect(spanAt(NESTED, lanes.lanes[1]!, 3.4, 0.5)).toBe(1);
    expect(spanAt(NESTED, lanes.lanes[1]!, 3.5, 0.1)).toBe(-1);
    expect(spanAt(NESTED, lanes.lanes[1]!, 3.9, 0.2)).toBe(2);
  });

  it("leads on by the arrow keys", () => {
    expect(nextSpan(NESTED, lanes, -1, "ArrowRight")).toBe(0);
    expect(nextSpan(NESTED, lanes, 1, "ArrowRight")).toBe(2);
    expect(nextSpan(NESTED, lanes, 2, "ArrowRight")).toBeNull();
    expect(nextSpan(NESTED, lanes, 2, "ArrowUp")).toBe(0);
    expect(nextSpan(NESTED, lanes, 2, "ArrowDown")).toBe(4);
  });
});
