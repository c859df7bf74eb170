// Where the dots and ceilings of a roofline stand: both axes are logarithmic.

import { scaleLog } from "d3-scale";
import type { RooflineCeilings } from "../../document";
import { gbpsOf, gflopsOf, intensityOf, MOVES, type Dot } from "./dots";
import { inside, type View } from "./zoom";

export interface Placed {
  dot: Dot;
  /** Index in the list of dots. */
  at: number;
  x: number;
  y: number;
  radius: number;
  /** Only moves data: at the left border, where the height of a bandwidth is that of the ceilings. */
  moves: boolean;
}

export interface Line {
  name: string;
  text: string;
  from: [number, number];
  to: [number, number];
  /** Of the name. */
  at: [number, number];
  memory: boolean;
  /** The run computes in this type. */
  used: boolean;
}

export interface Tick {
  at: number;
  text: string;
}

export interface Picture {
  dots: Placed[];
  lines: Line[];
  across: Tick[];
  up: Tick[];
  box: { left: number; top: number; right: number; bottom: number };
  /** What is seen, of all that there is. */
  view: View;
  whole: View;
  /** Dots with a place that are not drawn, for their number. */
  left: number;
}

const MOST_DOTS = 3000;
const MOST_DECADES = 7; // of the height; what is lower stands at the lower end
const LARGEST = 15; // pixels of a radius
const SMALLEST = 3;

/** seen: the part to draw; null for the whole. */
export function pictureOf(
  dots: readonly Dot[],
  ceilings: RooflineCeilings | null,
  width: number,
  height: number,
  seen: View | null = null,
): Picture {
  const box = { left: 52, top: 10, right: Math.max(120, width - 14), bottom: Math.max(80, height - 36) };
  const compute = ceilings?.compute.map(([, rate]) => rate) ?? [];
  const memory = ceilings?.memory.map(([, rate]) => rate) ?? [];
  const roof = Math.max(0, ...compute);
  const intensities = dots.map(intensityOf).filter((one) => one !== null);
  const knees = roof > 0 ? memory.map((rate) => roof / rate) : [];
  const [leftmost, rightmost] = decades([...intensities, ...knees], 1);
  const moving = dots.flatMap((dot) => (dot.place === MOVES ? (gbpsOf(dot) ?? 0) * leftmost || [] : []));
  const heights = [...dots.map(gflopsOf).filter((one) => one !== null), ...compute, ...moving];
  const [least, highest] = decades(heights, 1);
  const lowest = Math.max(least, highest / 10 ** MOST_DECADES);
  const whole = {
    across: [Math.log10(leftmost), Math.log10(rightmost)],
    up: [Math.log10(lowest), Math.log10(highest)],
  } as const;
  const view = seen === null ? whole : inside(seen, whole);
  const [low, high, floor, most] = [...view.across, ...view.up].map((power) => 10 ** power) as [
    number,
    number,
    number,
    number,
  ];
  const x = scaleLog().domain([low, high]).range([box.left, box.right]);
  const y = scaleLog().domain([floor, most]).range([box.bottom, box.top]);

  const placed: Placed[] = [];
  const longest = Math.max(...dots.filter((dot) => gbpsOf(dot) !== null).map(({ ns }) => ns), 1e-9);
  dots.forEach((dot, at) => {
    const moves = dot.place === MOVES;
    const across = moves ? low : intensityOf(dot);
    const up = moves ? (gbpsOf(dot) ?? 0) * low : gflopsOf(dot);
    if (across === null || !up) return;
    const [left, top] = [x(across), y(Math.max(up, lowest))];
    if (left < box.left - 1e-6 || left > box.right + 1e-6) return;
    if (top < box.top - 1e-6 || top > box.bottom + 1e-6) return;
    placed.push({
      dot,
      at,
      x: left,
      y: top,
      radius: Math.max(SMALLEST, LARGEST * Math.sqrt(dot.ns / longest)),
      moves,
    });
  });
  placed.sort((one, other) => other.dot.ns - one.dot.ns);
  const used = new Set(dots.map(({ dtype }) => dtype));
  return {
    dots: placed.slice(0, MOST_DOTS),
    lines: ceilings ? linesOf(ceilings, { low, high, floor, most, x, y, used }) : [],
    across: ticksOf(low, high, x, 46),
    up: ticksOf(floor, most, y, 16),
    box,
    view,
    whole,
    left: Math.max(0, placed.length - MOST_DOTS),
  };
}

interface Axes {
  low: number;
  high: number;
  floor: number;
  most: number;
  x(value: number): number;
  y(value: number): number;
  used: ReadonlySet<string | null>;
}

function linesOf(
  { compute, memory }: RooflineCeilings,
  { low, high, floor, most, x, y, used }: Axes,
): Line[] {
  const roof = compute.length ? Math.max(...compute.map(([, rate]) => rate)) : Infinity;
  const widest = memory.length ? Math.max(...memory.map(([, rate]) => rate)) : Infinity;
  return [
    ...memory.flatMap(([name, rate], number): Line | [] => {
      const start = Math.max(low, floor / rate);
      const knee = Math.min(high, roof / rate, most / rate);
      if (start >= knee) return []; // beside what is seen
      const at = start * (knee / start) ** (0.84 - 0.2 * (number % 4)); // each at another place
      return {
        name,
        text: `${name} ${rounded(rate)} GB/s`,
        from: [x(start), y(start * rate)],
        to: [x(knee), y(knee * rate)],
        at: [x(at), y(at * rate)],
        memory: true,
        used: true,
      };
    }),
    ...compute.flatMap(([name, rate], number): Line | [] => {
      const start = Math.max(low, rate / widest);
      if (start >= high || rate < floor || rate > most) return [];
      return {
        name,
        text: `${name} ${rounded(rate)} GFLOP/s`,
        from: [x(start), y(rate)],
        to: [x(high), y(rate)],
        // Side by side from the right: rates may be close to each other.
        at: [Math.max(x(start) + 50, x(high) - 76 - 128 * number), y(rate)],
        memory: false,
        used: used.has(name),
      };
    }),
  ];
}

const rounded = (value: number): string => String(Number(value.toPrecision(3)));

/** Whole decades around values. */
function decades(values: readonly number[], otherwise: number): [number, number] {
  const known = values.filter((value) => value > 0 && Number.isFinite(value));
  if (!known.length) known.push(otherwise);
  const low = Math.floor(Math.log10(known.reduce((one, other) => Math.min(one, other)) * 0.8));
  const high = Math.ceil(Math.log10(known.reduce((one, other) => Math.max(one, other)) * 1.5));
  return [10 ** low, 10 ** Math.max(high, low + 2)];
}

/** A tick for each decade, of many for some of them, of few for numbers between them. */
function ticksOf(low: number, high: number, place: (value: number) => number, room: number): Tick[] {
  const [from, to] = [Math.log10(low), Math.log10(high)];
  const [first, last] = [Math.ceil(from - 1e-9), Math.floor(to + 1e-9)];
  const each = Math.abs(place(high) - place(low)) / (to - from);
  const step = Math.max(1, Math.ceil(room / each));
  // Between decades where fewer than two are seen, as far as the numbers have room.
  const parts = (last - first >= 2 ? [1] : null) ?? (each * Math.log10(10 / 9) > room ? NINE : THREE);
  const found: Tick[] = [];
  for (let power = first - (parts.length > 1 ? 1 : 0); power <= last; power += step) {
    for (const part of parts) {
      const value = part * 10 ** power;
      if (value < low * (1 - 1e-9) || value > high * (1 + 1e-9)) continue;
      const plain = String(Number(value.toPrecision(1)));
      found.push({ at: place(value), text: power < -3 || power > 4 ? `${part}e${power}` : plain });
    }
  }
  return found;
}

const THREE = [1, 2, 5];
const NINE = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/** The dot under a place, or the nearest one; null if none is near. */
export function dotAt(picture: Picture, x: number, y: number, near = 14): Placed | null {
  let found: Placed | null = null;
  let best = near;
  for (const one of picture.dots) {
    // Of several that hold the place, the one whose middle is nearest, small ones before large ones.
    const distance = Math.hypot(one.x - x, one.y - y);
    const beyond = Math.max(0, distance - one.radius) + distance / 100;
    if (beyond < best) [found, best] = [one, beyond];
  }
  return found;
}
