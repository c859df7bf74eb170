// Layout of a small box by dagre, with ports held at the borders.

import { Graph, layout } from "@dagrejs/dagre";

import { EDGE_GAP, NODE_GAP, PORT_RISE, PORT_WIDTH, RANK_GAP, gridOf, gridWidth, vertexCount } from "./placed";
import type { FlatGraph, FlatLayout } from "./placed";
import { reversed, turnRings } from "./rings";

const TOP = "top";
const BOTTOM = "bottom";

interface Point {
  x: number;
  y: number;
}

export function dagreLayout(graph: FlatGraph): FlatLayout {
  const turned = turnRings(graph);
  const end = (edge: number, first: boolean): number =>
    (turned[edge] === 1) === first ? graph.to[edge]! : graph.from[edge]!;
  const downward: FlatGraph = {
    ...graph,
    from: graph.from.map((_, edge) => end(edge, true)),
    to: graph.to.map((_, edge) => end(edge, false)),
  };
  const placed = ringless(downward);
  return {
    ...placed,
    routes: placed.routes.map((route, edge) => (turned[edge] ? reversed(route) : route)),
  };
}

function ringless(graph: FlatGraph): FlatLayout {
  const count = vertexCount(graph);
  const sheet = new Graph({ multigraph: true });
  sheet.setGraph({ rankdir: "TB", nodesep: NODE_GAP, edgesep: EDGE_GAP, ranksep: RANK_GAP });
  sheet.setDefaultEdgeLabel(() => ({}));
  const touched = new Uint8Array(count);
  for (let edge = 0; edge < graph.from.length; edge++) {
    touched[graph.from[edge]!] = touched[graph.to[edge]!] = 1;
  }
  const loose: number[] = [];
  for (let vertex = 0; vertex < count; vertex++) {
    const isItem = vertex < graph.itemCount;
    if (isItem && !touched[vertex]) loose.push(vertex);
    else {
      sheet.setNode(`${vertex}`, {
        width: isItem ? graph.width[vertex]! : PORT_WIDTH,
        height: isItem ? graph.height[vertex]! : 1,
      });
    }
  }
  for (let edge = 0; edge < graph.from.length; edge++) {
    const ends = [`${graph.from[edge]!}`, `${graph.to[edge]!}`] as const;
    sheet.setEdge(ends[0], ends[1], { weight: 1, minlen: 1 }, `${edge}`);
  }
  holdPorts(graph, sheet, loose);
  layout(sheet);
  return read(graph, sheet, loose);
}

/** Ports to the outermost ranks: tied short to one vertex, below which all else stands. */
function holdPorts(graph: FlatGraph, sheet: Graph, loose: number[]): void {
  const apart = new Set(loose);
  const hasIn = new Uint8Array(graph.itemCount);
  const hasOut = new Uint8Array(graph.itemCount);
  for (let edge = 0; edge < graph.from.length; edge++) {
    if (graph.to[edge]! < graph.itemCount) hasIn[graph.to[edge]!] = 1;
    if (graph.from[edge]! < graph.itemCount) hasOut[graph.from[edge]!] = 1;
  }
  const tie = (end: string, firstPort: number, ports: number, has: Uint8Array, up: boolean): void => {
    if (ports === 0) return;
    sheet.setNode(end, { width: 1, height: 0 });
    const join = (vertex: number, weight: number, minlen: number): void => {
      if (up) sheet.setEdge(end, `${vertex}`, { weight, minlen }, end);
      else sheet.setEdge(`${vertex}`, end, { weight, minlen }, end);
    };
    for (let port = firstPort; port < firstPort + ports; port++) join(port, 50, 1);
    for (let item = 0; item < graph.itemCount; item++) {
      if (!has[item] && !apart.has(item)) join(item, 0, 2);
    }
  };
  tie(TOP, graph.itemCount, graph.inPorts, hasIn, true);
  tie(BOTTOM, graph.itemCount + graph.inPorts, graph.outPorts, hasOut, false);
}

function read(graph: FlatGraph, sheet: Graph, loose: number[]): FlatLayout {
  const count = vertexCount(graph);
  const x = new Float64Array(count);
  const y = new Float64Array(count);
  const apart = new Set(loose);
  const box = { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
  const cover = (atX: number, atY: number, halfX: number, halfY: number): void => {
    box.left = Math.min(box.left, atX - halfX);
    box.right = Math.max(box.right, atX + halfX);
    box.top = Math.min(box.top, atY - halfY);
    box.bottom = Math.max(box.bottom, atY + halfY);
  };
  for (let vertex = 0; vertex < count; vertex++) {
    if (apart.has(vertex)) continue;
    const at = sheet.node(`${vertex}`) as Point & { width: number; height: number };
    x[vertex] = at.x;
    y[vertex] = at.y;
    cover(at.x, at.y, at.width / 2, at.height / 2);
  }
  const ranks = rankHeights(graph, y, apart);
  const routes = graph.from.map((from, edge) => {
    const label = sheet.edge(`${from}`, `${graph.to[edge]!}`, `${edge}`) as { points: Point[] };
    for (const point of label.points) cover(point.x, point.y, 0, 0);
    return throughRanks(graph, edge, x, y, label.points.slice(1, -1), ranks);
  });
  if (box.left > box.right) box.left = box.right = box.top = box.bottom = 0;
  for (let vertex = 0; vertex < count; vertex++) {
    x[vertex]! -= box.left;
    y[vertex]! -= box.top;
  }
  for (const route of routes) {
    for (let index = 0; index < route.length; index += 2) {
      route[index]! -= box.left;
      route[index + 1]! -= box.top;
    }
  }
  const size = { width: box.right - box.left, height: box.bottom - box.top };
  if (loose.length > 0) addLoose(graph, loose, x, y, size);
  return { ...size, x, y, routes: routes.map((route, edge) => toBorders(graph, x, y, route, edge)) };
}

/** Half the height of each rank, by the middle that its vertices share. */
function rankHeights(graph: FlatGraph, y: Float64Array, apart: Set<number>): Map<number, number> {
  const halves = new Map<number, number>();
  for (let vertex = 0; vertex < vertexCount(graph); vertex++) {
    if (apart.has(vertex)) continue;
    const middle = Math.round(y[vertex]! * 10);
    const half = vertex < graph.itemCount ? graph.height[vertex]! / 2 : 0;
    halves.set(middle, Math.max(halves.get(middle) ?? 0, half));
  }
  return halves;
}

/** Upright past the vertices of each rank; edges bend between ranks only. */
function throughRanks(
  graph: FlatGraph,
  edge: number,
  x: Float64Array,
  y: Float64Array,
  points: Point[],
  ranks: Map<number, number>,
): number[] {
  const halfAt = (middle: number): number | undefined => ranks.get(Math.round(middle * 10));
  const from = graph.from[edge]!;
  const to = graph.to[edge]!;
  const route = [x[from]!, y[from]! + (halfAt(y[from]!) ?? 0)];
  for (const point of points) {
    const half = halfAt(point.y);
    if (half !== undefined) route.push(point.x, point.y - half, point.x, point.y + half);
  }
  route.push(x[to]!, y[to]! - (halfAt(y[to]!) ?? 0));
  return route;
}

function addLoose(
  graph: FlatGraph,
  loose: number[],
  x: Float64Array,
  y: Float64Array,
  size: { width: number; height: number },
): void {
  const row = Math.max(size.width, gridWidth(loose, graph.width, graph.height));
  const grid = gridOf(loose, graph.width, graph.height, row);
  const below = size.height > 0 ? size.height + RANK_GAP : 0;
  const shift = Math.max(0, (size.width - grid.width) / 2);
  loose.forEach((item, index) => {
    x[item] = shift + grid.x[index]!;
    y[item] = below + grid.y[index]!;
  });
  size.width = Math.max(size.width, grid.width);
  size.height = below + grid.height + (graph.outPorts > 0 ? PORT_RISE : 0);
}

/** Ends in the middle of the lower border of one and the upper border of the other. */
function toBorders(
  graph: FlatGraph,
  x: Float64Array,
  y: Float64Array,
  route: number[],
  edge: number,
): number[] {
  const from = graph.from[edge]!;
  const to = graph.to[edge]!;
  const half = (vertex: number): number =>
    vertex < graph.itemCount ? graph.height[vertex]! / 2 : 0;
  return [x[from]!, y[from]! + half(from), ...route, x[to]!, y[to]! - half(to)];
}
