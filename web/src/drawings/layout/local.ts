// Edges as each box sees them: between the items directly inside of it, and to the ports on its border.
//
// An edge of the graph runs up from its node to the box that holds both ends, across, and down again.
// Each box on the way keeps one piece of it. A piece depends on the tree alone, not on what is open,
// so that a box's layout stays good while boxes beside it open and close.

import { commonBox } from "./tree";
import type { BoxTree, GraphShape } from "./tree";

/** Pieces of edges in one box. Ends are local: items of the box, or ports. */
export interface LocalGraph {
  /** The items drawn in the box. */
  items: number[];
  /** Ports at the top and the bottom border, named by the item that is at the far end. */
  inPorts: number[];
  outPorts: number[];
  pieces: Piece[];
}

export interface Piece {
  /** Index into items; -1 - p is in-port p. */
  from: number;
  /** Index into items; -1 - p is out-port p. */
  to: number;
  /** Edges of the graph that run here. */
  edges: number[];
}

/** More ports than these on one side of a box become one. */
export const MOST_PORTS = 8;
const ONE_PORT = -2;

interface Builder {
  index: Map<number, number>;
  items: number[];
  inPorts: Map<number, number>;
  outPorts: Map<number, number>;
  /** [from item or port's far item, to …, edges], by both ends. */
  crossing: RawPiece[];
  byEnds: Map<string, RawPiece>;
}

interface RawPiece {
  from: number;
  to: number;
  kind: "inner" | "in" | "out";
  edges: number[];
}

/** The local graph of every box and of the root, by item. */
export function localGraphs(
  shape: GraphShape,
  tree: BoxTree,
  withWeights: boolean,
): Map<number, LocalGraph> {
  const builders = new Map<number, Builder>();
  for (let item = tree.nodeCount; item < tree.itemCount; item++) {
    builders.set(item, newBuilder(tree, item, withWeights));
  }
  for (let edge = 0; edge * 2 < shape.edges.length; edge++) {
    const from = shape.edges[edge * 2]!;
    const to = shape.edges[edge * 2 + 1]!;
    if (from === to || (!withWeights && (shape.weight[from] || shape.weight[to]))) continue;
    addEdge(builders, tree, edge, from, to);
  }
  const graphs = new Map<number, LocalGraph>();
  for (const [item, builder] of builders) graphs.set(item, finished(builder));
  return graphs;
}

function newBuilder(tree: BoxTree, box: number, withWeights: boolean): Builder {
  // Boxes with nothing to draw in them are left out.
  const size = withWeights ? tree.sizeWithWeights : tree.size;
  const items = tree.children[box]!.filter((item) => size[item]! > 0);
  return {
    index: new Map(items.map((item, index) => [item, index])),
    items,
    inPorts: new Map(),
    outPorts: new Map(),
    crossing: [],
    byEnds: new Map(),
  };
}

function addEdge(
  builders: Map<number, Builder>,
  tree: BoxTree,
  edge: number,
  from: number,
  to: number,
): void {
  const box = commonBox(tree.parent, tree.depth, tree.parent[from]!, tree.parent[to]!);
  let high = from;
  while (tree.parent[high] !== box) high = tree.parent[high]!;
  let low = to;
  while (tree.parent[low] !== box) low = tree.parent[low]!;
  addPiece(builders.get(box)!, "inner", high, low, edge);
  for (let item = from; item !== high; item = tree.parent[item]!) {
    addPiece(builders.get(tree.parent[item]!)!, "out", item, low, edge);
  }
  for (let item = to; item !== low; item = tree.parent[item]!) {
    addPiece(builders.get(tree.parent[item]!)!, "in", high, item, edge);
  }
}

function addPiece(
  builder: Builder,
  kind: RawPiece["kind"],
  from: number,
  to: number,
  edge: number,
): void {
  const key = `${kind} ${from} ${to}`;
  const known = builder.byEnds.get(key);
  if (known !== undefined) {
    known.edges.push(edge);
    return;
  }
  const piece: RawPiece = { from, to, kind, edges: [edge] };
  builder.byEnds.set(key, piece);
  builder.crossing.push(piece);
  if (kind === "in" && !builder.inPorts.has(from)) {
    builder.inPorts.set(from, builder.inPorts.size);
  }
  if (kind === "out" && !builder.outPorts.has(to)) {
    builder.outPorts.set(to, builder.outPorts.size);
  }
}

function finished(builder: Builder): LocalGraph {
  const oneIn = builder.inPorts.size > MOST_PORTS;
  const oneOut = builder.outPorts.size > MOST_PORTS;
  const pieces: Piece[] = [];
  const byEnds = new Map<string, Piece>();
  for (const raw of builder.crossing) {
    const from =
      raw.kind === "in"
        ? -1 - (oneIn ? 0 : builder.inPorts.get(raw.from)!)
        : builder.index.get(raw.from)!;
    const to =
      raw.kind === "out"
        ? -1 - (oneOut ? 0 : builder.outPorts.get(raw.to)!)
        : builder.index.get(raw.to)!;
    const key = `${raw.kind} ${from} ${to}`;
    const known = byEnds.get(key);
    if (known !== undefined) {
      known.edges.push(...raw.edges);
      continue;
    }
    const piece = { from, to, edges: raw.edges };
    byEnds.set(key, piece);
    pieces.push(piece);
  }
  return {
    items: builder.items,
    inPorts: oneIn ? [ONE_PORT] : [...builder.inPorts.keys()],
    outPorts: oneOut ? [ONE_PORT] : [...builder.outPorts.keys()],
    pieces,
  };
}

/** The port of a box that a piece outside of it, to or from `far`, meets; -1 when there is none. */
export function portFor(ports: number[], far: number): number {
  if (ports.length === 1 && ports[0] === ONE_PORT) return 0;
  return ports.indexOf(far);
}
