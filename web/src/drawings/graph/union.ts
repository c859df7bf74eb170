// Two graphs as one: a pair of nodes is one node, and what only one side has stands between. It is laid out
// once, so that what belongs together is at the same place of both drawings.

import type { GraphDoc, GraphGroup, GraphNode, GraphPairDoc, NodeStatus } from "../../document";
import { withoutRepeats } from "./repeats";

export interface Union {
  doc: GraphDoc;
  pair: GraphPairDoc;
  /** For each node and box: the index on each side, -1 where it is missing. */
  nodes: readonly [Int32Array, Int32Array];
  groups: readonly [Int32Array, Int32Array];
  /** For each edge: on which sides it is, 1 the first, 2 the second, 3 both. */
  edgeSides: Uint8Array;
  /** Of each node. */
  status: NodeStatus[];
  /** Nodes that differ, without the weights: their readers tell. */
  changes: number[];
}

type Sides<T> = readonly [T, T];
type Nodes = readonly (number | null)[];

/** The graphs of a pair as one; `only`: the nodes that differ, and those next to them. */
export function unionOf(pair: GraphPairDoc, docs: Sides<GraphDoc>, only: boolean): Union {
  const sides: Sides<GraphDoc> = [withoutRepeats(docs[0]), withoutRepeats(docs[1])];
  const kept = only ? nearChanges(pair, sides) : pair.status.map((_, at) => at);
  const of: Sides<Nodes> = [kept.map((at) => pair.a[at] ?? null), kept.map((at) => pair.b[at] ?? null)];
  const status = kept.map((at) => pair.status[at]!);
  const boxes = unionGroups(sides, of);
  const node = (at: number): GraphNode => {
    const [a, b] = [of[0][at] ?? null, of[1][at] ?? null];
    const shown = b === null ? sides[0].nodes[a!]! : sides[1].nodes[b]!;
    const place = b === null ? boxes.place[0] : boxes.place[1];
    return { ...shown, group: shown.group === null ? null : place[shown.group]! };
  };
  const nodes = kept.map((_, at) => node(at));
  const edges = unionEdges(sides, of);
  const doc: GraphDoc = {
    ...sides[1],
    key: `compared/${pair.key}${only ? "/changes" : ""}`,
    nodes,
    groups: boxes.groups,
    edges: edges.triples,
    edgeLabels: edges.labels,
    measures: [],
  };
  doc.measures = [
    {
      key: "status",
      title: "compared",
      unit: null,
      kind: "text",
      largerIsWorse: false,
      nodes: status,
      groups: statusOfGroups(doc, status),
      shared: [],
    },
  ];
  const isWeight = ({ kind, weight }: GraphNode): boolean => kind === "get_attr" || weight !== null;
  return {
    doc,
    pair,
    nodes: [Int32Array.from(of[0], (one) => one ?? -1), Int32Array.from(of[1], (one) => one ?? -1)],
    groups: boxes.of,
    edgeSides: edges.on,
    status,
    changes: status.flatMap((one, at) => (one === "same" || isWeight(nodes[at]!) ? [] : [at])),
  };
}

/** Pairs that differ, and the next nodes before and behind them. */
function nearChanges(pair: GraphPairDoc, docs: Sides<GraphDoc>): number[] {
  const kept = new Set(pair.status.flatMap((status, at) => (status === "same" ? [] : [at])));
  const changed = new Set(kept);
  [pair.a, pair.b].forEach((nodes, side) => {
    const at = placesOf(nodes, docs[side]!.nodes.length);
    const { edges } = docs[side]!;
    for (let edge = 0; edge + 2 < edges.length; edge += 3) {
      const [from, to] = [at[edges[edge]!] ?? -1, at[edges[edge + 1]!] ?? -1];
      if (from < 0 || to < 0) continue;
      if (changed.has(from)) kept.add(to);
      if (changed.has(to)) kept.add(from);
    }
  });
  return [...kept].sort((one, other) => one - other);
}

/** For each node of a side: its place in the list; -1 for one that is not in it. */
function placesOf(nodes: Nodes, count: number): Int32Array {
  const at = new Int32Array(count).fill(-1);
  nodes.forEach((node, index) => {
    if (node !== null && node < count) at[node] = index;
  });
  return at;
}

function unionEdges(docs: Sides<GraphDoc>, of: Sides<Nodes>) {
  const triples: number[] = [];
  const labels: string[] = [];
  const known = new Map<string, number>();
  const labelAt = new Map<string, number>();
  const on: number[] = [];
  // The later side first: where both have an edge, its label is shown.
  for (const side of [1, 0] as const) {
    const { nodes, edges, edgeLabels } = docs[side];
    const at = placesOf(of[side], nodes.length);
    for (let edge = 0; edge + 2 < edges.length; edge += 3) {
      const [from, to] = [at[edges[edge]!] ?? -1, at[edges[edge + 1]!] ?? -1];
      if (from < 0 || to < 0) continue;
      const key = `${from} ${to}`;
      let number = known.get(key);
      if (number === undefined) {
        const text = edgeLabels[edges[edge + 2]!];
        if (text !== undefined && !labelAt.has(text)) labelAt.set(text, labels.push(text) - 1);
        known.set(key, (number = on.push(0) - 1));
        triples.push(from, to, text === undefined ? -1 : labelAt.get(text)!);
      }
      on[number]! |= 1 << side;
    }
  }
  return { triples, labels, on: Uint8Array.from(on) };
}

/** The boxes of both sides: those that hold partners are one, as far as the boxes around them are. */
function unionGroups(docs: Sides<GraphDoc>, of: Sides<Nodes>) {
  const votes = groupVotes(docs, of);
  const groups: GraphGroup[] = [];
  const place: Sides<Int32Array> = [
    new Int32Array(docs[0].groups.length).fill(-1),
    new Int32Array(docs[1].groups.length).fill(-1),
  ];
  const indices: [number[], number[]] = [[], []];
  const parentOf = (side: 0 | 1, group: GraphGroup): number | null =>
    group.parent === null ? null : place[side][group.parent]!;
  docs[1].groups.forEach((group, index) => {
    place[1][index] = groups.push({ ...group, parent: parentOf(1, group) }) - 1;
    indices[0].push(-1);
    indices[1].push(index);
  });
  // Parents stand before what they hold, here too.
  docs[0].groups.forEach((group, index) => {
    const parent = parentOf(0, group);
    const alike = (votes.get(index) ?? []).find(
      (other) =>
        indices[0][other] === -1 && groups[other]!.parent === parent && groups[other]!.kind === group.kind,
    );
    if (alike !== undefined) {
      place[0][index] = alike;
      indices[0][alike] = index;
      return;
    }
    place[0][index] = groups.push({ ...group, parent }) - 1;
    indices[0].push(index);
    indices[1].push(-1);
  });
  return { groups, place, of: [Int32Array.from(indices[0]), Int32Array.from(indices[1])] as const };
}

/** For boxes of the first side, those of the second that hold partners of their nodes, most first; then
 * those of the same name. */
function groupVotes(docs: Sides<GraphDoc>, of: Sides<Nodes>): Map<number, number[]> {
  const counts = new Map<number, Map<number, number>>();
  const around = (side: 0 | 1, node: number): number[] => {
    const found: number[] = [];
    for (let up = docs[side].nodes[node]!.group; up !== null; up = docs[side].groups[up]!.parent)
      found.push(up);
    return found.reverse();
  };
  of[0].forEach((a, at) => {
    const b = of[1][at] ?? null;
    if (a === null || b === null) return;
    const others = around(1, b);
    around(0, a).forEach((group, depth) => {
      const other = others[depth];
      if (other === undefined) return;
      const found = counts.get(group) ?? new Map<number, number>();
      counts.set(group, found.set(other, (found.get(other) ?? 0) + 1));
    });
  });
  const named = new Map<string, number[]>();
  const nameOf = (group: GraphGroup): string => `${group.kind} ${group.label} ${group.name}`;
  docs[1].groups.forEach((group, index) => {
    named.set(nameOf(group), [...(named.get(nameOf(group)) ?? []), index]);
  });
  return new Map(
    docs[0].groups.map((group, index) => {
      const voted = [...(counts.get(index) ?? [])].sort((one, other) => other[1] - one[1]);
      return [index, [...voted.map(([other]) => other), ...(named.get(nameOf(group)) ?? [])]];
    }),
  );
}

/** Of each box: "same" if all nodes in it are, "added" or "removed" if all are; else how many differ. */
function statusOfGroups(doc: GraphDoc, status: readonly NodeStatus[]): (string | null)[] {
  const counts = doc.groups.map(() => new Map<NodeStatus, number>());
  doc.nodes.forEach((node, at) => {
    if (node.weight !== null) return;
    for (let up = node.group; up !== null; up = doc.groups[up]!.parent) {
      const found = counts[up]!;
      found.set(status[at]!, (found.get(status[at]!) ?? 0) + 1);
    }
  });
  return counts.map((found) => {
    if (found.size <= 1) return [...found.keys()][0] ?? null;
    const all = [...found.values()].reduce((sum, one) => sum + one, 0);
    return `${all - (found.get("same") ?? 0)} differ`;
  });
}

/** The status that an item is coloured by: of a box with several, "changed". */
export function statusOf({ doc }: Union, item: number): NodeStatus {
  const { nodes, groups } = doc.measures[0]!;
  const text = item < nodes.length ? nodes[item] : groups[item - nodes.length];
  return STATUSES.find((one) => one === text) ?? (text === null ? "same" : "changed");
}

export const STATUSES: readonly NodeStatus[] = ["changed", "moved", "removed", "added", "same"];

/** The item that is the node or box of a side; null if it is not among what is drawn. */
export function itemOf(union: Union, side: 0 | 1, kind: "node" | "group", index: number): number | null {
  const at = (kind === "node" ? union.nodes : union.groups)[side].indexOf(index);
  return at < 0 ? null : kind === "node" ? at : union.doc.nodes.length + at;
}

/** Whether a side has the item. */
export function isOn(union: Union, side: 0 | 1, item: number): boolean {
  const count = union.doc.nodes.length;
  return (item < count ? union.nodes[side][item]! : (union.groups[side][item - count] ?? 0)) >= 0;
}
