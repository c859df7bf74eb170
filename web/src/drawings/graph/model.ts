// A graph of the document as the drawing sees it: items with their words, and who reads whom.

import type { GraphDoc, GraphNode, GraphGroup } from "../../document";
import { plainText, visible } from "../../format";
import { boxTree } from "../layout/tree";
import type { BoxTree, GraphShape } from "../layout/tree";

export const NODE_HEIGHT = 38;
export const BOX_HEIGHT = 46;
const NARROWEST = 96;
const WIDEST = 240;
/** Sizes in steps: blocks whose names differ by a digit stay alike, and are laid out once. */
const STEP = 24;
const ROOM_FOR_NUMBER = 48;
const LONGEST_WORDS = 200;

export interface GraphModel {
  doc: GraphDoc;
  shape: GraphShape;
  tree: BoxTree;
  /** Two lines of words for each item. */
  title: string[];
  detail: string[];
  /** Edges by their ends: `edges[start[n] .. start[n + 1]]` of a node, as indices of edges. */
  into: EdgeIndex;
  out: EdgeIndex;
  /** Whether there is any weight to show. */
  hasWeights: boolean;
}

export interface EdgeIndex {
  start: Int32Array;
  edges: Int32Array;
}

const models = new WeakMap<GraphDoc, GraphModel>();

export function graphModel(doc: GraphDoc): GraphModel {
  let model = models.get(doc);
  if (model === undefined) models.set(doc, (model = makeModel(doc)));
  return model;
}

function makeModel(doc: GraphDoc): GraphModel {
  const nodeCount = doc.nodes.length;
  const groupCount = doc.groups.length;
  const title = [...doc.nodes.map(nodeTitle), ...doc.groups.map(groupTitle)].map(words);
  const edges = checkedEdges(doc);
  const shape: GraphShape = {
    nodeCount,
    groupCount,
    nodeGroup: Int32Array.from(doc.nodes, (node) => node.group ?? -1),
    groupParent: Int32Array.from(doc.groups, (group) => group.parent ?? -1),
    edges,
    width: new Float32Array(nodeCount + groupCount),
    height: new Float32Array(nodeCount + groupCount).fill(NODE_HEIGHT, 0, nodeCount),
    weight: Uint8Array.from(doc.nodes, (node) => (isWeight(node) ? 1 : 0)),
  };
  shape.height.fill(BOX_HEIGHT, nodeCount);
  const tree = boxTree(shape);
  const detail = [
    ...doc.nodes.map(nodeDetail),
    ...doc.groups.map((group, index) => groupDetail(group, tree.size[nodeCount + index]!)),
  ].map(words);
  const forNumber = doc.measures.length > 0 ? ROOM_FOR_NUMBER : 0;
  title.forEach((text, item) => {
    const room = Math.max(text.length * 7.4, detail[item]!.length * 5.6 + forNumber) + 24;
    const stepped = Math.ceil(room / STEP) * STEP;
    shape.width[item] = Math.min(WIDEST, Math.max(NARROWEST, stepped));
  });
  return {
    doc,
    shape,
    tree,
    title,
    detail,
    into: edgeIndex(edges, nodeCount, 1),
    out: edgeIndex(edges, nodeCount, 0),
    hasWeights: shape.weight.includes(1),
  };
}

/** Pairs of the document's triples; ends that are no nodes become an edge from 0 to 0, never drawn. */
function checkedEdges(doc: GraphDoc): Int32Array {
  const count = Math.floor(doc.edges.length / 3);
  const edges = new Int32Array(2 * count);
  for (let edge = 0; edge < count; edge++) {
    const from = doc.edges[3 * edge]!;
    const to = doc.edges[3 * edge + 1]!;
    if (doc.nodes[from] === undefined || doc.nodes[to] === undefined) continue;
    edges[2 * edge] = from;
    edges[2 * edge + 1] = to;
  }
  return edges;
}

function edgeIndex(edges: Int32Array, nodeCount: number, end: 0 | 1): EdgeIndex {
  const start = new Int32Array(nodeCount + 1);
  for (let at = end; at < edges.length; at += 2) start[edges[at]! + 1]!++;
  for (let node = 0; node < nodeCount; node++) start[node + 1]! += start[node]!;
  const next = start.slice();
  const list = new Int32Array(edges.length / 2);
  for (let at = end; at < edges.length; at += 2) list[next[edges[at]!]!++] = at >> 1;
  return { start, edges: list };
}

/** The nodes at the other end of a node's edges, each once. */
export function neighbours(model: GraphModel, node: number, side: "into" | "out"): number[] {
  const { start, edges } = model[side];
  const far = side === "into" ? 0 : 1;
  const found = new Set<number>();
  for (let at = start[node]!; at < start[node + 1]!; at++) {
    const other = model.shape.edges[2 * edges[at]! + far]!;
    if (other !== node) found.add(other);
  }
  return [...found];
}

export function edgeLabel(model: GraphModel, edge: number): string {
  const label = model.doc.edges[3 * edge + 2] ?? -1;
  return label < 0 ? "" : visible(model.doc.edgeLabels[label] ?? "");
}

function isWeight(node: GraphNode): boolean {
  return node.kind === "get_attr" || (node.kind === "placeholder" && node.weight !== null);
}

function nodeTitle(node: GraphNode): string {
  if (node.kind === "placeholder" || node.kind === "output") return node.weight ?? node.name;
  return shortOp(node.op);
}

function nodeDetail(node: GraphNode): string {
  if (node.kind === "placeholder" || node.kind === "get_attr") return plainText(node.outputs);
  return node.kind === "output" ? "" : node.name;
}

function groupTitle(group: GraphGroup): string {
  return group.kind === "module" ? group.name || group.label : group.label;
}

function groupDetail(group: GraphGroup, nodes: number): string {
  const count = `${nodes} ${nodes === 1 ? "node" : "nodes"}`;
  const kind = group.kind === "module" ? group.type : group.kind === "delegate" ? group.name : null;
  return kind ? `${kind} · ${count}` : count;
}

/** "aten.convolution.default" is "convolution": the name space and a default overload say nothing. */
export function shortOp(op: string): string {
  return op.replace(/^(torch\.ops\.)?aten\./, "").replace(/\.default$/, "");
}

function words(text: string): string {
  const seen = visible(text.slice(0, LONGEST_WORDS));
  return text.length > LONGEST_WORDS ? `${seen}…` : seen;
}

/** Items whose name, op, label, weight or "#handle" holds the text: nodes, boxes, weights. */
export function searchItems(model: GraphModel, text: string, most = 2000): number[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return [];
  const { doc } = model;
  const found: number[] = [];
  const weights: number[] = [];
  const holds = (...texts: (string | null)[]): boolean =>
    texts.some((one) => one !== null && one.toLowerCase().includes(wanted));
  doc.nodes.forEach((node, index) => {
    const handle = node.handle === null ? null : `#${node.handle}`;
    if (holds(node.name, node.op, node.weight) || handle === wanted) {
      (model.shape.weight[index] ? weights : found).push(index);
    }
  });
  doc.groups.forEach((group, index) => {
    if (holds(group.label, group.type, group.name)) found.push(doc.nodes.length + index);
  });
  return [...found, ...weights].slice(0, most);
}

/** "encoder.layer.0 › self › add_12", for lists and descriptions. */
export function pathOf(model: GraphModel, item: number): string {
  const { tree } = model;
  const parts = [fullName(model, item)];
  for (let up = tree.parent[item]!; up >= tree.nodeCount && up !== tree.root; up = tree.parent[up]!) {
    parts.push(model.title[up]!);
  }
  return parts.reverse().join(" › ");
}

export function fullName(model: GraphModel, item: number): string {
  return item < model.tree.nodeCount ? words(model.doc.nodes[item]!.name) : model.title[item]!;
}
