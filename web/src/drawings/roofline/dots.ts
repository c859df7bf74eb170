// A roofline's operators, or groups of them, as dots: what they compute and move in what time. Pure
// functions of the document.

import type { Method, RooflineDoc, RooflinePoints, TableDoc } from "../../document";
import { plainText } from "../../format";
import type { Selection } from "../../store";

export type By = "each" | "op" | "module" | "source";

export interface Dot {
  name: string;
  place: string;
  /** Of `Method.rows`; those with most time first. */
  rows: number[];
  ns: number;
  share: number;
  flops: number | null;
  bytes: number | null;
  /** The least time by the ceilings, ns; null where it is not known. */
  roof: number | null;
  bound: string | null;
  dtype: string | null;
  level: string | null;
  /** Some operators are not known: the FLOPs are a lower bound. */
  partial: boolean;
  reason: string | null;
  backend: string;
  module: string;
  source: string;
  /** What a click selects. */
  to: Selection;
}

export const COMPUTES = "computes";
export const MOVES = "moves data";

export const intensityOf = ({ place, flops, bytes }: Dot): number | null =>
  place === COMPUTES && flops && bytes ? flops / bytes : null;
/** FLOPs a nanosecond are GFLOP/s. */
export const gflopsOf = ({ place, flops, ns }: Dot): number | null =>
  place === COMPUTES && flops && ns > 0 ? flops / ns : null;
export const gbpsOf = ({ bytes, ns }: Dot): number | null => (bytes && ns > 0 ? bytes / ns : null);
export const peakOf = ({ roof, ns }: Dot): number | null => (roof !== null && ns > 0 ? roof / ns : null);

/** The dots of a method, those with most time first. */
export function dotsOf(doc: RooflineDoc, index: number, method: Method, by: By): Dot[] {
  const points = doc.methods[index];
  if (!points) return [];
  const each = points.ns.map((_, at) => dotOf(doc, points, at, index, method));
  return by === "each" ? each : grouped(each, by, index, method);
}

function dotOf(doc: RooflineDoc, points: RooflinePoints, at: number, index: number, method: Method): Dot {
  const rows = points.rows[at]!;
  const named = points.name[at] ?? null; // of time outside the operators
  const first = named === null ? rows[0] : undefined;
  const cell = (name: string): string =>
    first === undefined ? "" : plainText(method.rows.values[name]?.[first]);
  const bound = points.bound[at];
  return {
    name: named ?? cell("event"),
    place: doc.places[points.place[at]!]!,
    rows,
    ns: points.ns[at]!,
    share: points.share[at]!,
    flops: points.flops[at]!,
    bytes: points.bytes[at]!,
    roof: points.roof[at]!,
    bound: bound === null || bound === undefined ? null : doc.bounds[bound]!,
    dtype: points.dtype[at]!,
    level: points.level[at]!,
    partial: points.partial.includes(at),
    reason: points.reason[at]!,
    backend: cell("backend"),
    module: cell("module"),
    source: cell("source"),
    to: first === undefined ? null : { kind: "row", method: index, row: first },
  };
}

/** Dots of one name and place together. Where a group computes, what it moves without FLOPs is a part of
 * that, as in `etscope inspect --roofline --by`. */
function grouped(dots: Dot[], by: Exclude<By, "each">, index: number, method: Method): Dot[] {
  const labels = dots.map((dot) => labelOf(dot, by));
  const computing = new Set(labels.filter((_, at) => dots[at]!.place === COMPUTES));
  const groups = new Map<string, Dot[]>();
  dots.forEach((dot, at) => {
    const label = labels[at]!;
    const place = dot.place === MOVES && computing.has(label) ? COMPUTES : dot.place;
    const key = JSON.stringify([label, place]);
    const known = groups.get(key);
    if (known) known.push(dot);
    else groups.set(key, [dot]);
  });
  return [...groups]
    .map(([key, members]) => {
      const [name, place] = JSON.parse(key) as [string, string];
      return together(name, place, members, selectionOf(members, by, index, method));
    })
    .sort((one, other) => other.ns - one.ns);
}

function labelOf(dot: Dot, by: Exclude<By, "each">): string {
  if (dot.to === null) return dot.name; // time outside the operators
  // A delegate numbers the kernels of one name: "Convolution (NHWC, F32) IGEMM #3".
  if (by === "op") return dot.name.replace(/ #\d+$/, "");
  return by === "module" ? dot.module || "(no module)" : dot.source || "(no source line)";
}

function together(name: string, place: string, members: Dot[], to: Selection): Dot {
  const first = members[0]!;
  return {
    ...first,
    name,
    place,
    rows: members.flatMap(({ rows }) => rows),
    ns: sum(members.map(({ ns }) => ns))!,
    share: sum(members.map(({ share }) => share))!,
    flops: sum(members.map(({ flops }) => flops)),
    bytes: sum(members.map(({ bytes }) => bytes)),
    roof: sum(members.map(({ roof }) => roof)),
    bound: longest(members, ({ bound }) => bound),
    dtype: longest(members, ({ dtype }) => dtype),
    level: longest(members, ({ level }) => level),
    backend: longest(members, ({ backend }) => backend) ?? "",
    module: same(members.map(({ module }) => module)),
    source: same(members.map(({ source }) => source)),
    partial: members.some(({ partial }) => partial),
    reason: [...new Set(members.flatMap(({ reason }) => reason ?? []))].join("; ") || null,
    to,
  };
}

const sum = (values: (number | null)[]): number | null => {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((one, other) => one + other, 0) : null;
};

/** What most of the time has. */
function longest(members: Dot[], of: (dot: Dot) => string | null): string | null {
  const times = new Map<string, number>();
  for (const dot of members) {
    const value = of(dot);
    if (value !== null) times.set(value, (times.get(value) ?? 0) + dot.ns);
  }
  return [...times].sort(([, one], [, other]) => other - one)[0]?.[0] ?? null;
}

const same = (texts: string[]): string => (texts.every((one) => one === texts[0]) ? texts[0]! : "");

/** The module or the line that all have, else the longest of them. */
function selectionOf(members: Dot[], by: By, index: number, method: Method): Selection {
  const row = members[0]!.rows[0];
  if (members[0]!.to === null || row === undefined) return null;
  const module = method.links.module[row];
  if (by === "module" && module !== null && module !== undefined && members[0]!.module) {
    return { kind: "module", method: index, module };
  }
  const line = method.links.lines[row]?.[0];
  if (by === "source" && line !== undefined && members[0]!.source) return { kind: "line", line };
  return members[0]!.to;
}

/** The dots as a table, in their order. */
export function dotTable(dots: readonly Dot[], unit: string, perNs: number, by: By): TableDoc {
  const column = (
    name: string,
    title: string,
    kind: TableDoc["columns"][number]["kind"],
    priority: number,
    unit: string | null = null,
  ) => ({ name, title, kind, unit, priority });
  const name = { each: "event", op: "op", module: "module", source: "source" }[by];
  const places = (
    [
      ["module", 1],
      ["source", 2],
    ] as const
  ).filter(([one]) => one !== name);
  return {
    title: "Operators",
    columns: [
      column(name, name, by === "each" || by === "op" ? "text" : "path", 0),
      column("avg", "avg", "duration", 0, unit),
      column("share", "share", "share", 0),
      column("intensity", "FLOP/B", "float", 0),
      column("gflops", "GFLOP/s", "float", 0),
      column("gbps", "GB/s", "float", 1),
      column("peak", "peak", "share", 0),
      column("bound", "bound", "text", 1),
      column("memory_level", "level", "text", 4),
      column("dtype", "dtype", "text", 4),
      column("place", "place", "text", 3),
      ...places.map(([one, priority]) => column(one, one, "path", priority)),
      column("flops", "FLOPs", "count", 6),
      column("bytes", "bytes", "bytes", 5),
      column("backend", "backend", "text", 7),
      column("reason", "reason", "text", 8),
    ],
    values: {
      module: dots.map((dot) => dot.module || null),
      source: dots.map((dot) => dot.source || null),
      [name]: dots.map((dot) => dot.name),
      avg: dots.map(({ ns }) => ns * perNs),
      share: dots.map(({ share }) => share),
      intensity: dots.map(intensityOf),
      gflops: dots.map(gflopsOf),
      gbps: dots.map(gbpsOf),
      peak: dots.map(peakOf),
      bound: dots.map(({ bound }) => bound),
      memory_level: dots.map(({ level }) => level),
      dtype: dots.map(({ dtype }) => dtype),
      place: dots.map(({ place }) => place),
      flops: dots.map(({ flops }) => flops),
      bytes: dots.map(({ bytes }) => bytes),
      backend: dots.map(({ backend }) => backend || null),
      reason: dots.map(({ reason }) => reason),
    },
    notes: [],
  };
}
