// A whole generation as a timeline: a lane for each method, one for the choice of tokens and one for the
// host, which is what is left between calls.

import type { GenerationDoc, Timeline } from "../../document";

export interface Whole {
  timeline: Timeline;
  /** What each span is, in words. */
  names: string[];
  generations: number[];
}

interface Span {
  track: number;
  start: number;
  end: number;
  name: string;
  text: string;
}

/** The generation of that number: without tracing where that is known, else as the dump has it. */
export function wholeOf(doc: GenerationDoc, generation: number): Whole {
  const { untraced } = doc;
  const from = untraced ?? doc.calls;
  const [phases, methods] = untraced ? [untraced.phases, untraced.methods] : [doc.phases, doc.methods];
  const mine = from.generation.flatMap((one, at) => (one === generation ? [at] : []));
  mine.sort((one, other) => from.start[one]! - from.start[other]!);
  const endOf = (at: number): number =>
    untraced ? untraced.end[at]! : doc.calls.start[at]! + doc.calls.time[at]!;
  const used = [...new Set(mine.map((at) => from.method[at]!))];
  const tracks = used.map((method) => ({ name: methods[method] ?? "method", parent: null, note: null }));
  const spans: Span[] = [];
  const origin = mine.length ? from.start[mine[0]!]! : 0;
  let reached = origin;
  for (const at of mine) {
    const start = from.start[at]!;
    const phase = phases[from.phase[at]!] ?? "?";
    const [position, joined] = [from.position[at]!, from.joined[at]!];
    const sampling = untraced && joined === 1 ? untraced.sampling[at]! : 0;
    const host = used.length + (untraced ? 1 : 0);
    if (start > reached) {
      spans.push({ track: host, start: reached, end: start, name: untraced ? "host" : "between", text: "" });
    }
    const where = position >= 0 ? `, position ${position}` : "";
    const many = joined > 1 ? `, ${joined} calls` : "";
    const text = `${phase}${where}${many}`;
    const end = endOf(at);
    spans.push({ track: used.indexOf(from.method[at]!), start, end, name: phase, text });
    if (sampling > 0) {
      spans.push({
        track: used.length,
        start: end,
        end: end + sampling,
        name: "sampling",
        text: `sampling after ${text}`,
      });
    }
    reached = Math.max(reached, end + sampling);
  }
  if (untraced) tracks.push({ name: "sampling", parent: null, note: null });
  tracks.push({ name: untraced ? "host" : "between calls", parent: null, note: null });
  spans.sort((one, other) => one.track - other.track || one.start - other.start);
  const names = [...new Set(spans.map(({ name }) => name))];
  return {
    timeline: {
      note: null,
      tracks,
      names,
      track: spans.map(({ track }) => track),
      start: spans.map(({ start }) => start - origin),
      duration: spans.map(({ start, end }) => Math.max(0, end - start)),
      name: spans.map(({ name }) => names.indexOf(name)),
      level: spans.map(() => 0),
      row: spans.map(() => null),
    },
    names: spans.map(({ name, text }) => text || name),
    generations: [...new Set(from.generation)].sort((one, other) => one - other),
  };
}
