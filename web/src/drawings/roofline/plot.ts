// Where the dots and ceilings of a roofline stand: both axes are logarithmic.

import { scaleLog } from "d3-scale";
import type { RooflineCeilings } from "../../document";
import { gbpsOf, gflopsOf, intensityOf, MOVES, type Dot } from "./dots";

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
  /** Dots with a place that are not drawn, for their number. */
  left: number;
}

const MOST_DOTS = 3000;
const MOST_DECADES = 7; // of the height; what is lower stands at the lower end
const LARGEST = 15; // pixels of a radius
const SMALLEST = 3;

export function pictureOf(
  dots: readonly Dot[],
  ceilings: RooflineCeilings | null,
  width: number,
  height: number,
): Picture {
  const box = { left: 52, top: 10, right: Math.max(120, width - 14), bottom: Math.max(80, height - 36) };
  const compute = ceilings?.compute.map(([, rate]) => rate) ?? [];
  const memory = ceilings?.memory.map(([, rate]) => rate) ?? [];
  const roof = Math.max(0, ...compute);
  const intensities = dots.map(intensityOf).filter((one) => one !== null);
  const knees = roof > 0 ? memory.map((rate) => roof / rate) : [];
  const [low, high] = decades([...intensities, ...knees], 1);
  const moving = dots.flatMap((dot) => (dot.place === MOVES ? (gbpsOf(dot) ?? 0) * low || [] : []));
  const heights = [...dots.map(gflopsOf).filter((one) => one !== null), ...compute, ...moving];
  const [least, most] = decades(heights, 1);
  const floor = Math.max(least, most / 10 ** MOST_DECADES);
  const x = scaleLog().domain([low, high]).range([box.left, box.right]);
  const y = scaleLog().domain([floor, most]).range([box.bottom, box.top]);

  const placed: Placed[] = [];
  const longest = Math.max(...dots.filter((dot) => gbpsOf(dot) !== null).map(({ ns }) => ns), 1e-9);
  dots.forEach((dot, at) => {
    const moves = dot.place === MOVES;
    const across = moves ? low : intensityOf(dot);
    const up = moves ? (gbpsOf(dot) ?? 0) * low : gflopsOf(dot);
    if (across === null || !up) return;
    placed.push({
      dot,
      at,
      x: x(across),
      y: y(Math.max(up, floor)),
      radius: Math.max(SMALLEST, LARGEST * Math.sqrt(dot.ns / longest)),
      moves,
    });
  });
  placed.sort((one, other) => other.dot.ns - one.dot.ns);
  const used = new Set(dots.map(({ dtype }) => dtype));
  return {
    dots: placed.slice(0, MOST_DOTS),
    lines: ceilings ? linesOf(ceilings, { low, high, floor, x, y, used }) : [],
    across: ticksOf(low, high, x, 46),
    up: ticksOf(floor, most, y, 16),
    box,
    left: Math.max(0, placed.length - MOST_DOTS),
  };
}

interface Axes {
  low: number;
  high: number;
  floor: number;
  x(value: number): number;
  y(value: number): number;
  used: ReadonlySet<string | null>;
}

function linesOf({ compute, memory }: RooflineCeilings, { low, high, floor, x, y, used }: Axes): Line[] {
  const roof = compute.length ? Math.max(...compute.map(([, rate]) => rate)) : Infinity;
  const widest = memory.length ? Math.max(...memory.map(([, rate]) => rate)) : Infinity;
  return [
    ...memory.map(([name, rate], number): Line => {
      const start = Math.max(low, floor / rate);
      const knee = Math.min(high, roof / rate);
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
    ...compute.map(([name, rate], number): Line => {
      const start = Math.max(low, rate / widest);
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

/** A tick for each decade, of many for some of them. */
function ticksOf(low: number, high: number, place: (value: number) => number, room: number): Tick[] {
  const [first, last] = [Math.round(Math.log10(low)), Math.round(Math.log10(high))];
  const each = Math.abs(place(high) - place(low)) / (last - first);
  const step = Math.max(1, Math.ceil(room / each));
  const found: Tick[] = [];
  for (let power = first; power <= last; power += step) {
    const value = 10 ** power;
    found.push({
      at: place(value),
      text: power < -3 || power > 4 ? `1e${power}` : String(Number(value.toPrecision(1))),
    });
  }
  return found;
}

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
