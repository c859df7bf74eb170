// Layout of a whole graph from the layouts of its open boxes, inside first.
//
// A box's own layout is kept for as long as what is open inside of it stays the same, so that opening
// one box lays out that box and those around it, and nothing else.

import { dagreLayout } from "./dagre";
import { layeredLayout } from "./layered";
import { localGraphs, portFor } from "./local";
import type { LocalGraph } from "./local";
import { boxTree } from "./tree";
import type { BoxTree, GraphShape } from "./tree";
import { PORT_RISE, vertexCount } from "./placed";
import type { FlatGraph, FlatLayout } from "./placed";

/** Space in an open box: beside and below its content, and above it for its name. */
export const BOX_PAD = 14;
export const BOX_HEAD = 30;

/** dagre lays out boxes up to here; what is larger, or has many long edges, has a faster way. */
export const DAGRE_ITEMS = 160;
const DAGRE_BENDS = 150;
const DAGRE_FAN = 3;

/** What is to be seen. */
export interface LayoutWish {
  /** Open boxes, as items. */
  open: ReadonlySet<number>;
  weights: boolean;
}

/** All that is drawn. Boxes stand before what they hold; sizes in drawing units from the top left. */
export interface Drawing {
  width: number;
  height: number;
  items: Int32Array;
  x: Float32Array;
  y: Float32Array;
  w: Float32Array;
  h: Float32Array;
  isOpen: Uint8Array;
  pieces: DrawnPieces;
}

/** Pieces of edges, parallel arrays; `start` arrays have one element more than there are pieces. */
export interface DrawnPieces {
  /** The box each runs in. */
  box: Int32Array;
  /** Items at the ends, -1 where the piece ends at the border of its box. */
  from: Int32Array;
  to: Int32Array;
  pointStart: Int32Array;
  points: Float32Array;
  edgeStart: Int32Array;
  edges: Int32Array;
}

interface BoxLayout {
  /** The open boxes inside, in order: what the layout was made for. */
  made: string;
  flat: FlatLayout;
  width: number;
  height: number;
}

export class LayoutEngine {
  readonly tree: BoxTree;
  private readonly locals = new Map<boolean, Map<number, LocalGraph>>();
  private readonly kept = new Map<string, BoxLayout>();
  /** By shape: the blocks of a model repeat. */
  private readonly alike = new Map<string, FlatLayout>();
  /** Boxes laid out by the last call: what a test of the keeping looks at. */
  laidOut: number[] = [];

  constructor(readonly shape: GraphShape) {
    this.tree = boxTree(shape);
  }

  layout(wish: LayoutWish): Drawing {
    this.laidOut = [];
    const locals = this.localsFor(wish.weights);
    const openBelow = this.openBoxes(wish.open);
    const boxes = new Map<number, BoxLayout>();
    // Pre-order backwards: what is inside of a box comes before it.
    for (let at = openBelow.order.length - 1; at >= 0; at--) {
      const box = openBelow.order[at]!;
      boxes.set(box, this.boxLayout(box, wish, locals, openBelow.made.get(box)!, boxes));
    }
    return assemble(this.tree, this.shape, locals, boxes);
  }

  private localsFor(weights: boolean): Map<number, LocalGraph> {
    let locals = this.locals.get(weights);
    if (locals === undefined) {
      locals = localGraphs(this.shape, this.tree, weights);
      this.locals.set(weights, locals);
    }
    return locals;
  }

  /** Open boxes all of whose boxes around are open, in pre-order, and for each what is open in it. */
  private openBoxes(open: ReadonlySet<number>): { order: number[]; made: Map<number, string> } {
    const { tree } = this;
    const order: number[] = [];
    const shown = new Uint8Array(tree.itemCount);
    for (const item of tree.preOrder) {
      if (item < tree.nodeCount) continue;
      if (item === tree.root || (open.has(item) && shown[tree.parent[item]!])) {
        shown[item] = 1;
        order.push(item);
      }
    }
    const inside = new Map<number, number[]>();
    for (let at = order.length - 1; at >= 0; at--) {
      const box = order[at]!;
      const own = inside.get(box) ?? [];
      inside.set(box, own);
      if (box === tree.root) continue;
      const around = inside.get(tree.parent[box]!) ?? [];
      inside.set(tree.parent[box]!, around);
      around.push(box, ...own);
    }
    return {
      order,
      made: new Map([...inside].map(([box, list]) => [box, list.sort((a, b) => a - b).join()])),
    };
  }

  private boxLayout(
    box: number,
    wish: LayoutWish,
    locals: Map<number, LocalGraph>,
    made: string,
    boxes: Map<number, BoxLayout>,
  ): BoxLayout {
    const key = `${box} ${wish.weights}`;
    const known = this.kept.get(key);
    if (known !== undefined && known.made === made) return known;
    this.laidOut.push(box);
    const local = locals.get(box)!;
    const flat = this.flatOf(flatGraph(local, this.shape, boxes));
    const atTop = box === this.tree.root;
    const layout = {
      made,
      flat,
      width: atTop ? flat.width : Math.max(flat.width, this.shape.width[box]!) + 2 * BOX_PAD,
      height: atTop ? flat.height : headOf(local) + flat.height + footOf(local),
    };
    this.kept.set(key, layout);
    return layout;
  }

  private flatOf(graph: FlatGraph): FlatLayout {
    if (graph.itemCount > DAGRE_ITEMS) return layeredLayout(graph);
    const parts = [[graph.inPorts, graph.outPorts], graph.width, graph.height, graph.from, graph.to];
    const key = parts.map((part) => part.join()).join(";");
    let flat = this.alike.get(key);
    if (flat === undefined) {
      flat = flatLayout(graph);
      this.alike.set(key, flat);
    }
    return flat;
  }
}

function flatGraph(
  local: LocalGraph,
  shape: GraphShape,
  boxes: Map<number, BoxLayout>,
): FlatGraph {
  const count = local.items.length;
  const width = new Float64Array(count);
  const height = new Float64Array(count);
  local.items.forEach((item, index) => {
    width[index] = boxes.get(item)?.width ?? shape.width[item]!;
    height[index] = boxes.get(item)?.height ?? shape.height[item]!;
  });
  const inPorts = local.inPorts.length;
  return {
    itemCount: count,
    inPorts,
    outPorts: local.outPorts.length,
    width,
    height,
    from: local.pieces.map((piece) => (piece.from < 0 ? count - 1 - piece.from : piece.from)),
    to: local.pieces.map((piece) => (piece.to < 0 ? count + inPorts - 1 - piece.to : piece.to)),
  };
}

const headOf = (local: LocalGraph): number => BOX_HEAD - (local.inPorts.length > 0 ? PORT_RISE : 0);
const footOf = (local: LocalGraph): number => BOX_PAD - (local.outPorts.length > 0 ? PORT_RISE : 0);

/** dagre where it is quick, else the layered way; it also lets the edges of one source run together. */
export function flatLayout(graph: FlatGraph): FlatLayout {
  const { bends, widestFan } = longEdges(graph);
  const small = graph.itemCount <= DAGRE_ITEMS && bends <= DAGRE_BENDS && widestFan <= DAGRE_FAN;
  return small ? dagreLayout(graph) : layeredLayout(graph);
}

/** Bends that long edges would take and the most long edges of one source, by longest paths. */
function longEdges(graph: FlatGraph): { bends: number; widestFan: number } {
  const rank = new Int32Array(vertexCount(graph));
  const fan = new Int32Array(vertexCount(graph));
  // Nodes come in order of execution, ports first: one pass is near enough.
  const place = (vertex: number): number => (vertex < graph.itemCount ? vertex : -1);
  const order = graph.from.map((_, edge) => edge);
  order.sort((a, b) => place(graph.from[a]!) - place(graph.from[b]!));
  for (const edge of order) {
    const low = graph.to[edge]!;
    rank[low] = Math.max(rank[low]!, rank[graph.from[edge]!]! + 1);
  }
  let bends = 0;
  for (const edge of order) {
    const span = Math.abs(rank[graph.to[edge]!]! - rank[graph.from[edge]!]!);
    bends += Math.max(0, span - 1);
    if (span > 1) fan[graph.from[edge]!]!++;
  }
  return { bends, widestFan: fan.reduce((most, one) => Math.max(most, one), 0) };
}

function assemble(
  tree: BoxTree,
  shape: GraphShape,
  locals: Map<number, LocalGraph>,
  boxes: Map<number, BoxLayout>,
): Drawing {
  const items: number[] = [];
  const frames: number[] = [];
  const isOpen: number[] = [];
  const pieces = new PieceList();
  const draw = (box: number, left: number, top: number, width: number): void => {
    const { flat } = boxes.get(box)!;
    const local = locals.get(box)!;
    const inner = left + (box === tree.root ? 0 : (width - flat.width) / 2);
    const under = top + (box === tree.root ? 0 : headOf(local));
    pieces.add(box, local, flat, boxes, locals, { left: inner, top: under, boxTop: top });
    local.items.forEach((item, index) => {
      const opened = boxes.get(item);
      const w = opened?.width ?? shape.width[item]!;
      const h = opened?.height ?? shape.height[item]!;
      const x = inner + flat.x[index]! - w / 2;
      const y = under + flat.y[index]! - h / 2;
      items.push(item);
      frames.push(x, y, w, h);
      isOpen.push(opened === undefined ? 0 : 1);
      if (opened !== undefined) draw(item, x, y, w);
    });
  };
  const all = boxes.get(tree.root)!;
  draw(tree.root, 0, 0, all.width);
  const column = (at: number): Float32Array =>
    Float32Array.from({ length: items.length }, (_, index) => frames[index * 4 + at]!);
  return {
    width: all.width,
    height: all.height,
    items: Int32Array.from(items),
    x: column(0),
    y: column(1),
    w: column(2),
    h: column(3),
    isOpen: Uint8Array.from(isOpen),
    pieces: pieces.done(),
  };
}

class PieceList {
  private readonly box: number[] = [];
  private readonly from: number[] = [];
  private readonly to: number[] = [];
  private readonly pointStart = [0];
  private readonly points: number[] = [];
  private readonly edgeStart = [0];
  private readonly edges: number[] = [];

  add(
    box: number,
    local: LocalGraph,
    flat: FlatLayout,
    boxes: Map<number, BoxLayout>,
    locals: Map<number, LocalGraph>,
    at: { left: number; top: number; boxTop: number },
  ): void {
    const boxBottom = at.boxTop + boxes.get(box)!.height;
    local.pieces.forEach((piece, index) => {
      const from = piece.from < 0 ? -1 : local.items[piece.from]!;
      const to = piece.to < 0 ? -1 : local.items[piece.to]!;
      const route = flat.routes[index]!.map((value, axis) =>
        axis % 2 === 0 ? value + at.left : value + at.top,
      );
      if (from < 0) route[1] = at.boxTop;
      else if (boxes.has(from)) {
        const far = to < 0 ? local.outPorts[-1 - piece.to]! : to;
        const offset = portOffset(boxes.get(from)!, locals.get(from)!, "out", far);
        if (offset !== null) {
          // With the point below it, where the rank ends.
          route[0]! += offset;
          route[2]! += offset;
        }
      }
      const end = route.length - 2;
      if (to < 0) route[end + 1] = boxBottom;
      else if (boxes.has(to)) {
        const far = from < 0 ? local.inPorts[-1 - piece.from]! : from;
        const offset = portOffset(boxes.get(to)!, locals.get(to)!, "in", far);
        if (offset !== null) {
          route[end]! += offset;
          route[end - 2]! += offset;
        }
      }
      this.box.push(box);
      this.from.push(from);
      this.to.push(to);
      pushStraightened(this.points, route);
      this.pointStart.push(this.points.length);
      this.edges.push(...piece.edges);
      this.edgeStart.push(this.edges.length);
    });
  }

  done(): DrawnPieces {
    return {
      box: Int32Array.from(this.box),
      from: Int32Array.from(this.from),
      to: Int32Array.from(this.to),
      pointStart: Int32Array.from(this.pointStart),
      points: Float32Array.from(this.points),
      edgeStart: Int32Array.from(this.edgeStart),
      edges: Int32Array.from(this.edges),
    };
  }
}

/** Without the points in the middle of what is straight: long edges have one at each rank. */
function pushStraightened(points: number[], route: number[]): void {
  for (let at = 0; at < route.length; at += 2) {
    const inside = at > 0 && at < route.length - 2;
    const x = route[at]!;
    if (inside && Math.abs(route[at - 2]! - x) < 0.5 && Math.abs(route[at + 2]! - x) < 0.5) continue;
    if (inside && Math.abs(route[at + 2]! - x) + Math.abs(route[at + 3]! - route[at + 1]!) < 1) continue;
    points.push(x, route[at + 1]!);
  }
}

/** How far from its middle an open box's port stands; null when there is no such port. */
function portOffset(
  layout: BoxLayout,
  local: LocalGraph,
  side: "in" | "out",
  far: number,
): number | null {
  const ports = side === "in" ? local.inPorts : local.outPorts;
  const port = portFor(ports, far);
  if (port < 0) return null;
  const vertex = local.items.length + (side === "in" ? 0 : local.inPorts.length) + port;
  return layout.flat.x[vertex]! - layout.flat.width / 2;
}
