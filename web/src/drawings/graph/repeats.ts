// The boxes around the repeated blocks of a graph. They open and close like any box; their measures are
// those of all blocks.

import type { GraphDoc, GraphGroup, Measure } from "../../document";
import { eachBlock, equalRuns, namedEnd, upTo } from "../repeats";
import type { EachBlock } from "../repeats";

/** Graphs with fewer nodes are read at a glance: their blocks stand apart until the reader wants else. */
export const LARGE = 100;

/** A box around equal blocks; `blocks` is how many. */
export interface Repeat extends GraphGroup {
  blocks: number;
}

export const isRepeat = (group: GraphGroup | undefined): group is Repeat =>
  group !== undefined && "blocks" in group;

const apart = new WeakMap<GraphDoc, GraphDoc>();

/** The graph with a box around each run of equal blocks; the same graph if there is none. */
export function withRepeats(doc: GraphDoc): GraphDoc {
  const runs = runsOf(doc);
  if (runs.length === 0) return doc;
  const runAt = new Map(runs.map((run) => [run[0]!, run]));
  const place: number[] = []; // of each group in the new order
  const boxOf = new Map<number, number>(); // the new box of each block
  let next = 0;
  doc.groups.forEach((_, group) => {
    const run = runAt.get(group);
    // A box stands before what it holds.
    if (run) {
      for (const block of run) boxOf.set(block, next);
      next++;
    }
    place.push(next++);
  });
  const groups: GraphGroup[] = [];
  const moved = (group: number | null): number | null => (group === null ? null : place[group]!);
  doc.groups.forEach((group, index) => {
    const run = runAt.get(index);
    if (run) groups.push(boxAround(doc, run, moved(group.parent)));
    groups.push({ ...group, parent: boxOf.get(index) ?? moved(group.parent) });
  });
  const measures = doc.measures.map((measure) => {
    const values: Measure["groups"] = [];
    measure.groups.forEach((value, index) => {
      const run = runAt.get(index);
      if (run) values.push(combined(measure, run.map((block) => measure.groups[block] ?? null)));
      values.push(value);
    });
    return { ...measure, groups: values };
  });
  return { ...doc, groups, measures, nodes: doc.nodes.map((node) => ({ ...node, group: moved(node.group) })) };
}

/** The graph with its repeated blocks apart. The boxes around them stay, empty: indices are the same. */
export function withoutRepeats(doc: GraphDoc): GraphDoc {
  let found = apart.get(doc);
  if (found) return found;
  const outside = (parent: number | null): number | null => {
    while (parent !== null && isRepeat(doc.groups[parent])) parent = doc.groups[parent]!.parent;
    return parent;
  };
  const groups = doc.groups.map((group) => ({ ...group, parent: outside(group.parent) }));
  apart.set(doc, (found = groups.some(isRepeat) ? { ...doc, groups } : doc));
  return found;
}

/** The least, median and greatest value of the blocks in a box; null for other boxes and no numbers. */
export function ofEachBlock(
  doc: GraphDoc,
  measure: Measure,
  group: number,
): EachBlock | null {
  if (!isRepeat(doc.groups[group])) return null;
  return eachBlock(
    measure.groups
      .filter((_, index) => doc.groups[index]!.parent === group)
      .filter((value) => typeof value === "number"),
  );
}

function boxAround(doc: GraphDoc, run: readonly number[], parent: number | null): Repeat {
  const first = doc.groups[run[0]!]!;
  const last = doc.groups[run.at(-1)!]!.name;
  const backends = new Set(run.map((block) => doc.groups[block]!.backend));
  const count = ` ×${run.length}`;
  return {
    ...first,
    name: upTo(/^\d+$/.test(first.name) ? namedEnd(first.label) : first.name, last) + count,
    label: upTo(first.label, last) + count,
    parent,
    backend: backends.size === 1 ? first.backend : null,
    blocks: run.length,
  };
}

/** As for other boxes: times and bytes add up, of "live" the largest counts, of errors the worst. */
function combined(measure: Measure, values: Measure["groups"]): number | string | null {
  if (values.includes("NaN")) return "NaN";
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length === 0) return values.find((value) => value !== null) ?? null;
  if (measure.key === "live") return Math.max(...numbers);
  if (measure.kind === "duration" || measure.kind === "bytes") return numbers.reduce((sum, one) => sum + one, 0);
  return measure.largerIsWorse ? Math.max(...numbers) : Math.min(...numbers);
}

/** The groups of each box. */
function runsOf(doc: GraphDoc): number[][] {
  const siblings = new Map<number | null, number[]>();
  doc.groups.forEach((group, index) => {
    if (group.kind === "module") siblings.set(group.parent, [...(siblings.get(group.parent) ?? []), index]);
  });
  let structure: ((group: number) => string) | undefined;
  return [...siblings.values()].flatMap((some) =>
    equalRuns(
      some,
      (group) => doc.groups[group]!.name,
      (group) => (structure ??= structures(doc))(group),
    ),
  );
}

/** What each group holds, as text: operators, boxes, and edges with their shapes; no names. */
function structures(doc: GraphDoc): (group: number) => string {
  const inside: number[][] = doc.groups.map(() => []);
  doc.nodes.forEach((node, index) => {
    for (let up = node.group; up !== null; up = doc.groups[up]!.parent) inside[up]!.push(index);
  });
  const into: [from: number, label: string][][] = doc.nodes.map(() => []);
  for (let at = 0; at + 2 < doc.edges.length; at += 3) {
    into[doc.edges[at + 1]!]?.push([doc.edges[at]!, doc.edgeLabels[doc.edges[at + 2]!] ?? ""]);
  }
  const known = new Map<number, string>();
  const describe = (group: number): string => {
    const place = new Map(inside[group]!.map((node, at) => [node, at]));
    const boxes = new Map<number | null, number>([[group, 0]]);
    const box = (one: number): number => {
      let found = boxes.get(one);
      if (found === undefined) boxes.set(one, (found = boxes.size));
      return found;
    };
    return JSON.stringify(
      inside[group]!.map((index) => {
        const node = doc.nodes[index]!;
        const around: unknown[] = [];
        for (let up = node.group!; up !== group; up = doc.groups[up]!.parent!) {
          around.push([box(up), doc.groups[up]!.kind, doc.groups[up]!.type]);
        }
        const shapes = node.outputs.filter((text) => text.includes("["));
        const reads = into[index]!.map(([from, label]) => [place.get(from) ?? -1, label]);
        // What is left of a delegate is named after its handle, another in each block.
        const op = node.kind === "rest" ? "" : node.op;
        return [node.kind, op, node.backend, shapes, around, reads];
      }),
    );
  };
  return (group) => {
    let text = known.get(group);
    if (text === undefined) known.set(group, (text = describe(group)));
    return text;
  };
}
