// The parts of a program's file as a tree of modules, those of each .ptd file in a tree of their own beside
// them, and where each is drawn: a part's area is its share of the bytes, whatever is around it.

import { hierarchy, treemap } from "d3-hierarchy";

import type { TableDoc } from "../../document";
import { asNumber } from "../../format";
import { rowsIn } from "../../tables";
import { childrenOf, pathTo } from "../modules/frames";
import type { TreeNode } from "../modules/frames";

/** A module, or what else the file holds; the first is the file. `total`: bytes, with those below. */
export interface WeightNode extends TreeNode {
  /** Rows of the table that are in this node and in no node below. */
  parts: number[];
}

/** A rectangle of the drawing, in pixels. */
export interface Box {
  node: number;
  bytes: number;
  x0: number;
  x1: number;
  y0: number;
  y1: number;
}

/** Parts of one module that are drawn as one: all of a small module, or its smallest ones. */
export interface Leaf extends Box {
  parts: number[];
  /** It stands for all of the node. */
  whole: boolean;
}

/** Modules and parts of fewer square pixels are drawn together with what is around them. */
const SMALLEST = 30;
const FILE = 0;

const trees = new WeakMap<TableDoc, WeightNode[]>();

/** Nodes in an order in which those around others stand before them. */
export function weightTree(table: TableDoc): WeightNode[] {
  let nodes = trees.get(table);
  if (!nodes) trees.set(table, (nodes = withoutChains(grown(table))));
  return nodes;
}

function grown(table: TableDoc): WeightNode[] {
  const files = table.values["file"] ?? [];
  const name = files.length > 0 ? "the files" : "the file";
  const nodes: WeightNode[] = [{ path: "", name, parent: null, total: 0, parts: [] }];
  const known = new Map<string, number>();
  const within = (around: number, path: string, name: string): number => {
    let found = known.get(path);
    if (found === undefined) {
      known.set(path, (found = nodes.length));
      nodes.push({ path, name, parent: around, total: 0, parts: [] });
    }
    return found;
  };
  for (let row = 0; row < rowsIn(table); row++) {
    const module = table.values["module"]?.[row] ?? null;
    const kind = String(table.values["kind"]?.[row]);
    const file = files[row] === files[0] ? null : String(files[row]);
    const prefix = file === null ? "" : `${file}/`;
    let at = file === null ? FILE : within(FILE, file, file);
    if (module === null) {
      const name = kind === "weights" ? "module not known" : kind;
      at = within(at, `${prefix}(${name})`, name);
    } else if (module !== "(root)") {
      let path = prefix;
      for (const name of String(module).split(".")) {
        path = path === prefix ? `${path}${name}` : `${path}.${name}`;
        at = within(at, path, name);
      }
    }
    nodes[at]!.parts.push(row);
    const size = asNumber(table.values["size"]?.[row]) ?? 0;
    for (const node of pathTo(nodes, at)) nodes[node]!.total += size;
  }
  return nodes;
}

/** "encoder" that holds nothing but "layer" is one node, "encoder.layer". */
function withoutChains(nodes: WeightNode[]): WeightNode[] {
  const below = childrenOf(nodes);
  const isLink = (node: number): boolean =>
    node !== FILE && nodes[node]!.parts.length === 0 && below.get(node)?.length === 1;
  const place = new Map<number | null, number | null>([[null, null]]);
  const kept: WeightNode[] = [];
  nodes.forEach((node, index) => {
    if (isLink(index)) return;
    let { name, parent } = node;
    for (; parent !== null && isLink(parent); parent = nodes[parent]!.parent) name = `${nodes[parent]!.name}.${name}`;
    place.set(index, kept.length);
    kept.push({ ...node, name, parent: place.get(parent)! });
  });
  return kept;
}

/** The node of each part. */
export function nodesOfParts(nodes: readonly WeightNode[]): Map<number, number> {
  return new Map(nodes.flatMap((node, index) => node.parts.map((part) => [part, index] as const)));
}

/** All parts of a node and of those below, in the order of the file. */
export function partsWithin(nodes: readonly WeightNode[], node: number): number[] {
  const inside = new Set([node]);
  const parts: number[] = [];
  for (let index = node; index < nodes.length; index++) {
    const { parent, parts: own } = nodes[index]!;
    if (parent !== null && inside.has(parent)) inside.add(index);
    if (inside.has(index)) parts.push(...own);
  }
  return parts.sort((a, b) => a - b);
}

interface Datum {
  node: number;
  bytes: number;
  parts: number[];
  whole: boolean;
  inside: Datum[];
}

/** What is in `focus` in so many pixels: its parts, and the modules around them, outer ones first. */
export function drawnBoxes(
  nodes: readonly WeightNode[],
  sizes: readonly number[],
  focus: number,
  width: number,
  height: number,
): { leaves: Leaf[]; modules: Box[] } {
  const below = childrenOf(nodes);
  const least = (SMALLEST * nodes[focus]!.total) / Math.max(1, width * height);
  const leaf = (node: number, parts: number[], whole: boolean): Datum => ({
    node,
    parts,
    whole,
    bytes: parts.reduce((sum, part) => sum + sizes[part]!, 0),
    inside: [],
  });
  const datum = (node: number): Datum => {
    const { parts } = nodes[node]!;
    const children = below.get(node) ?? [];
    if (children.length === 0 && parts.length < 2) return leaf(node, parts, true);
    const some = children.filter((child) => nodes[child]!.total < least);
    const few = parts.filter((part) => sizes[part]! < least);
    const inside = [
      ...children.filter((child) => nodes[child]!.total >= least).map(datum),
      ...parts.filter((part) => sizes[part]! >= least).map((part) => leaf(node, [part], false)),
    ];
    if (some.length + few.length > 1) {
      const together = [...few, ...some.flatMap((child) => partsWithin(nodes, child))];
      // A module of small things alone is one.
      if (inside.length === 0) return leaf(node, together, true);
      inside.push(leaf(node, together, false));
    } else {
      inside.push(...some.map((child) => leaf(child, partsWithin(nodes, child), true)));
      inside.push(...few.map((part) => leaf(node, [part], false)));
    }
    return { node, bytes: 0, parts: [], whole: true, inside };
  };
  const root = hierarchy(datum(focus), (one) => one.inside)
    .sum((one) => one.bytes)
    .sort((a, b) => b.value! - a.value!);
  const leaves: Leaf[] = [];
  const modules: Box[] = [];
  treemap<Datum>()
    .size([width, height])(root)
    .each(({ data, value, children, x0, x1, y0, y1 }) => {
      const box = { node: data.node, bytes: value!, x0, x1, y0, y1 };
      if (!children) leaves.push({ ...box, parts: data.parts, whole: data.whole });
      else if (data.node !== focus) modules.push(box);
    });
  return { leaves, modules };
}
