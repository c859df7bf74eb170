// Draws the lanes of a timeline.

import { scaleLinear } from "d3-scale";

import type { Timeline } from "../../document";
import { visible } from "../../format";
import { SANS, TextFitter } from "../canvas";
import type { Palette } from "../canvas";
import { inkOn } from "../scale";
import { strokes } from "./lanes";
import type { Lanes } from "./lanes";

export const LANE_HEIGHT = 22;
const TRACK_GAP = 12;
export const RULER = 26;

/** The part of time that is seen, and how far the lanes are scrolled. */
export interface Window {
  from: number;
  to: number;
  scroll: number;
  width: number;
  height: number;
}

export interface TimelineScene {
  timeline: Timeline;
  lanes: Lanes;
  /** Top of each lane, below the ruler. */
  tops: number[];
  palette: Palette;
  unit: string;
  /** Colour of a span's name, by its index. */
  colours: string[];
  /** The words in a span. */
  label: (span: number) => string;
  /** 1 for the spans that are selected. */
  chosen: Uint8Array;
  someChosen: boolean;
  hovered: number;
  /** The part of time that is summed up. */
  marked: { from: number; to: number } | null;
}

const fitter = new TextFitter();
const WORDS_FROM = 26;
const LONGEST = 200;

/** Where lanes and tracks stand; a track is at least as high as its name and note. */
export function laneTops(
  timeline: Timeline,
  lanes: Lanes,
): { tops: number[]; tracks: { top: number; height: number }[]; height: number } {
  const tops: number[] = [];
  let top = 0;
  const tracks = lanes.tracks.map(({ track, count }) => {
    for (let lane = 0; lane < count; lane++) tops.push(top + lane * LANE_HEIGHT);
    const words = timeline.tracks[track]!.note === null ? 1 : 2.3;
    const place = { top, height: Math.max(count, words) * LANE_HEIGHT };
    top += place.height + TRACK_GAP;
    return place;
  });
  return { tops, tracks, height: top };
}

export function paintTimeline(
  pen: CanvasRenderingContext2D,
  scene: TimelineScene,
  view: Window,
  ratio: number,
): void {
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, view.width, view.height);
  paintRuler(pen, scene, view);
  pen.save();
  pen.beginPath();
  pen.rect(0, RULER, view.width, view.height - RULER);
  pen.clip();
  scene.lanes.lanes.forEach((_, lane) => {
    const top = RULER + scene.tops[lane]! - view.scroll;
    if (top + LANE_HEIGHT > RULER && top < view.height) paintLane(pen, scene, view, lane, top);
  });
  pen.restore();
  if (scene.marked) paintMarked(pen, scene.palette, scene.marked, view);
}

function paintMarked(
  pen: CanvasRenderingContext2D,
  palette: Palette,
  { from, to }: { from: number; to: number },
  view: Window,
): void {
  const scale = view.width / (view.to - view.from);
  const left = Math.max(-2, (from - view.from) * scale);
  const right = Math.min(view.width + 2, (to - view.from) * scale);
  if (right < 0 || left > view.width) return;
  pen.fillStyle = palette.accent;
  pen.globalAlpha = 0.13;
  pen.fillRect(left, 0, right - left, view.height);
  pen.globalAlpha = 1;
  for (const x of [left, right]) pen.fillRect(Math.round(x) - 1, 0, 2, view.height);
}

function paintRuler(pen: CanvasRenderingContext2D, { palette, unit }: TimelineScene, view: Window): void {
  const scale = scaleLinear().domain([view.from, view.to]).range([0, view.width]);
  const count = Math.max(2, Math.floor(view.width / 110));
  const format = scale.tickFormat(count);
  pen.font = `11px ${SANS}`;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  pen.lineWidth = 1;
  for (const tick of scale.ticks(count)) {
    const x = Math.round(scale(tick)) + 0.5;
    pen.strokeStyle = palette.box[2]!;
    pen.beginPath();
    pen.moveTo(x, RULER - 6);
    pen.lineTo(x, view.height);
    pen.stroke();
    pen.fillStyle = palette.faint;
    pen.fillText(`${format(tick)} ${unit}`, x + 3, RULER / 2 - 2);
  }
}

function paintLane(
  pen: CanvasRenderingContext2D,
  scene: TimelineScene,
  view: Window,
  index: number,
  top: number,
): void {
  const { timeline, palette, chosen, colours } = scene;
  const lane = scene.lanes.lanes[index]!;
  const drawn = strokes(timeline, lane, view.from, view.to, view.width);
  const height = LANE_HEIGHT - 3;
  pen.globalAlpha = scene.someChosen ? 0.5 : 1;
  for (const { at, left, right } of drawn) {
    const span = lane.spans[at]!;
    pen.fillStyle = colours[timeline.name[span]!] ?? palette.plain;
    pen.fillRect(left, top, Math.max(1, right - left - (right - left > 4 ? 1 : 0)), height);
  }
  pen.globalAlpha = 1;
  if (scene.someChosen) paintChosen(pen, scene, view, index, top);
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  pen.font = `11px ${SANS}`;
  for (const { at, count, left, right } of drawn) {
    if (count > 1 || right - left < WORDS_FROM) continue;
    const span = lane.spans[at]!;
    const start = Math.max(left, 0) + 4;
    const text = visible(scene.label(span).slice(0, LONGEST));
    const faded = scene.someChosen && !chosen[span];
    pen.fillStyle = faded ? palette.faint : inkOn(colours[timeline.name[span]!] ?? palette.plain);
    pen.fillText(fitter.fit(pen, text, Math.min(right, view.width) - start - 4), start, top + height / 2 + 0.5);
  }
  const hovered = scene.hovered;
  if (hovered >= 0 && timeline.track[hovered] === lane.track && timeline.level[hovered] === lane.level) {
    outline(pen, scene, view, hovered, top, palette.ink, 1.5);
  }
}

/** The selected spans over the others, never narrower than can be seen. */
function paintChosen(
  pen: CanvasRenderingContext2D,
  scene: TimelineScene,
  view: Window,
  index: number,
  top: number,
): void {
  const { timeline, chosen, colours, palette } = scene;
  const lane = scene.lanes.lanes[index]!;
  const scale = view.width / (view.to - view.from);
  let last = -Infinity;
  for (let at = 0; at < lane.spans.length; at++) {
    const span = lane.spans[at]!;
    if (!chosen[span]) continue;
    const left = (timeline.start[span]! - view.from) * scale;
    const right = left + Math.max(2, timeline.duration[span]! * scale);
    if (right < 0 || left > view.width || right - last < 1) continue;
    last = right;
    pen.fillStyle = colours[timeline.name[span]!] ?? palette.plain;
    const seen = Math.max(left, -2);
    pen.fillRect(seen, top, Math.min(right, view.width + 2) - seen, LANE_HEIGHT - 3);
    outline(pen, scene, view, span, top, palette.accent, 2);
  }
}

function outline(
  pen: CanvasRenderingContext2D,
  { timeline }: TimelineScene,
  view: Window,
  span: number,
  top: number,
  colour: string,
  width: number,
): void {
  const scale = view.width / (view.to - view.from);
  const left = Math.max(-4, (timeline.start[span]! - view.from) * scale);
  const end = (timeline.start[span]! + timeline.duration[span]! - view.from) * scale;
  const right = Math.min(view.width + 4, Math.max(end, left + 2));
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.strokeRect(left + width / 2 - 0.5, top + 0.5, Math.max(1, right - left - width + 0.5), LANE_HEIGHT - 4);
}
