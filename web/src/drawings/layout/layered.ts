// Layered layout in near-linear time, for boxes that hold too much for dagre.
//
// Sugiyama's steps: ring edges turned round, ranks by longest path, an ordering by barycentres, and x by
// least squares with the order kept (isotonic regression, layer by layer).

import { EDGE_GAP, NODE_GAP, PORT_RISE, PORT_WIDTH, RANK_GAP, gridOf, gridWidth, vertexCount } from "./placed";
import type { FlatGraph, FlatLayout } from "./placed";
import { reversed, turnRings } from "./rings";

/** Bends that long edges may take, over all; longer edges than fit run straight. */
const MOST_BENDS = 30_000;
const ORDER_SWEEPS = 8;
const PLACE_SWEEPS = 6;

interface Ranked {
  rank: Int32Array;
  ranks: number;
  /** Edges that were turned round. */
  turned: Uint8Array;
}

/** Vertices with the bends of long edges among them, in layers. */
interface Layers {
  width: number[];
  isBend: boolean[];
  up: number[][];
  down: number[][];
  layers: number[][];
  /** Bends of each edge from the upper to the lower end. */
  bends: number[][];
}

export function layeredLayout(graph: FlatGraph): FlatLayout {
  const count = vertexCount(graph);
  const touched = new Uint8Array(count);
  for (let edge = 0; edge < graph.from.length; edge++) {
    touched[graph.from[edge]!] = 1;
    touched[graph.to[edge]!] = 1;
  }
  const loose: number[] = [];
  for (let item = 0; item < graph.itemCount; item++) if (!touched[item]) loose.push(item);

  const ranked = rankVertices(graph, touched);
  const layers = buildLayers(graph, touched, ranked);
  orderLayers(layers);
  const x = placeAcross(layers);
  return assemble(graph, ranked, layers, x, loose);
}

function rankVertices(graph: FlatGraph, touched: Uint8Array): Ranked {
  const count = vertexCount(graph);
  const turned = turnRings(graph);
  const out: number[][] = Array.from({ length: count }, () => []);
  const into: number[][] = Array.from({ length: count }, () => []);
  for (let edge = 0; edge < graph.from.length; edge++) {
    const high = turned[edge] ? graph.to[edge]! : graph.from[edge]!;
    const low = turned[edge] ? graph.from[edge]! : graph.to[edge]!;
    out[high]!.push(low);
    into[low]!.push(high);
  }
  const firstIn = graph.itemCount;
  const firstOut = graph.itemCount + graph.inPorts;
  const rank = new Int32Array(count);
  const waits = into.map((list) => list.length);
  const order: number[] = [];
  for (let vertex = 0; vertex < count; vertex++) if (waits[vertex] === 0) order.push(vertex);
  const lowest = graph.inPorts > 0 ? 1 : 0;
  for (let head = 0; head < order.length; head++) {
    const vertex = order[head]!;
    if (vertex < firstIn) rank[vertex] = Math.max(rank[vertex]!, lowest);
    for (const next of out[vertex]!) {
      rank[next] = Math.max(rank[next]!, rank[vertex]! + 1);
      if (--waits[next]! === 0) order.push(next);
    }
  }
  // What has more readers than inputs moves down to its readers: shorter edges.
  for (let at = order.length - 1; at >= 0; at--) {
    const vertex = order[at]!;
    if (vertex >= firstIn || out[vertex]!.length <= into[vertex]!.length) continue;
    let lowestRank = Infinity;
    for (const next of out[vertex]!) lowestRank = Math.min(lowestRank, rank[next]!);
    rank[vertex] = lowestRank - 1;
  }
  let last = 0;
  for (let item = 0; item < firstIn; item++) if (touched[item]) last = Math.max(last, rank[item]!);
  for (let port = firstIn; port < firstOut; port++) rank[port] = 0;
  for (let port = firstOut; port < count; port++) rank[port] = last + 1;
  return { rank, ranks: last + 1 + (graph.outPorts > 0 ? 1 : 0), turned };
}

function buildLayers(graph: FlatGraph, touched: Uint8Array, ranked: Ranked): Layers {
  const count = vertexCount(graph);
  const { rank, turned } = ranked;
  const width: number[] = [];
  for (let vertex = 0; vertex < count; vertex++) {
    width.push(vertex < graph.itemCount ? graph.width[vertex]! : PORT_WIDTH);
  }
  const isBend = new Array<boolean>(count).fill(false);
  const up: number[][] = Array.from({ length: count }, () => []);
  const down: number[][] = Array.from({ length: count }, () => []);
  const layers: number[][] = Array.from({ length: ranked.ranks }, () => []);
  const limit = longestBent(graph, rank);
  const bends: number[][] = [];
  const bendLayers: number[][] = Array.from({ length: ranked.ranks }, () => []);
  // Edges of one source run together for as long as they can: a value that all blocks read is one line.
  const chains = new Map<number, number[]>();
  for (let edge = 0; edge < graph.from.length; edge++) {
    const high = turned[edge] ? graph.to[edge]! : graph.from[edge]!;
    const low = turned[edge] ? graph.from[edge]! : graph.to[edge]!;
    const span = rank[low]! - rank[high]!;
    if (span > limit) {
      bends.push([]);
      continue;
    }
    const chain = chains.get(high) ?? [];
    chains.set(high, chain);
    for (let step = chain.length; step < span - 1; step++) {
      const bend = width.length;
      const above = chain[step - 1] ?? high;
      width.push(EDGE_GAP);
      isBend.push(true);
      up.push([above]);
      down.push([]);
      down[above]!.push(bend);
      bendLayers[rank[high]! + 1 + step]!.push(bend);
      chain.push(bend);
    }
    const path = chain.slice(0, span - 1);
    const last = path[path.length - 1] ?? high;
    down[last]!.push(low);
    up[low]!.push(last);
    bends.push(path);
  }
  for (const vertex of depthFirst(count, up, down, touched)) layers[rank[vertex]!]!.push(vertex);
  for (let layer = 0; layer < layers.length; layer++) layers[layer]!.push(...bendLayers[layer]!);
  return { width, isBend, up, down, layers, bends };
}

/** The longest span that still gets bends so that all of them together stay few. */
function longestBent(graph: FlatGraph, rank: Int32Array): number {
  const longest = new Map<number, number>();
  for (let edge = 0; edge < graph.from.length; edge++) {
    const ends = [graph.from[edge]!, graph.to[edge]!] as const;
    const high = rank[ends[0]]! < rank[ends[1]]! ? ends[0] : ends[1];
    const span = Math.abs(rank[ends[0]]! - rank[ends[1]]!);
    longest.set(high, Math.max(longest.get(high) ?? 0, span));
  }
  let sum = 0;
  for (const span of [...longest.values()].sort((a, b) => a - b)) {
    sum += span - 1;
    if (sum > MOST_BENDS) return span - 1;
  }
  return Infinity;
}

/** Vertices so that what hangs together comes together. */
function depthFirst(
  count: number,
  up: number[][],
  down: number[][],
  touched: Uint8Array,
): number[] {
  const seen = new Uint8Array(up.length);
  const order: number[] = [];
  const walk = (root: number): void => {
    const stack = [root];
    seen[root] = 1;
    while (stack.length > 0) {
      const vertex = stack.pop()!;
      if (vertex < count) order.push(vertex);
      const next = down[vertex]!;
      for (let index = next.length - 1; index >= 0; index--) {
        if (seen[next[index]!]) continue;
        seen[next[index]!] = 1;
        stack.push(next[index]!);
      }
    }
  };
  for (let vertex = 0; vertex < count; vertex++) {
    if (touched[vertex] && up[vertex]!.length === 0 && !seen[vertex]) walk(vertex);
  }
  for (let vertex = 0; vertex < count; vertex++) if (touched[vertex] && !seen[vertex]) walk(vertex);
  return order;
}

function orderLayers(graph: Layers): void {
  const { layers } = graph;
  const place = new Float64Array(graph.width.length);
  const number = (layer: number[]): void => {
    for (let index = 0; index < layer.length; index++) place[layer[index]!] = index;
  };
  layers.forEach(number);
  const key = new Float64Array(graph.width.length);
  const sortBy = (layer: number[], near: number[][]): void => {
    for (const vertex of layer) {
      const around = near[vertex]!;
      let sum = 0;
      for (const other of around) sum += place[other]!;
      key[vertex] = around.length > 0 ? sum / around.length : place[vertex]!;
    }
    layer.sort((a, b) => key[a]! - key[b]! || place[a]! - place[b]!);
    number(layer);
  };
  let best = layers.map((layer) => layer.slice());
  let fewest = crossings(graph, place);
  for (let sweep = 0; sweep < ORDER_SWEEPS && fewest > 0; sweep++) {
    if (sweep % 2 === 0) for (let at = 1; at < layers.length; at++) sortBy(layers[at]!, graph.up);
    else for (let at = layers.length - 2; at >= 0; at--) sortBy(layers[at]!, graph.down);
    const now = crossings(graph, place);
    if (now < fewest) {
      fewest = now;
      best = layers.map((layer) => layer.slice());
    }
  }
  graph.layers = best;
}

/** Crossing pairs of edges between neighbouring layers, by a binary indexed tree. */
function crossings(graph: Layers, place: Float64Array): number {
  let total = 0;
  for (let at = 1; at < graph.layers.length; at++) {
    const above = graph.layers[at - 1]!;
    const size = graph.layers[at]!.length;
    const tree = new Int32Array(size + 1);
    let added = 0;
    for (const vertex of above) {
      const ends = graph.down[vertex]!.map((low) => place[low]!).sort((a, b) => a - b);
      for (const end of ends) {
        let before = 0;
        for (let i = end + 1; i > 0; i -= i & -i) before += tree[i]!;
        total += added - before;
      }
      for (const end of ends) {
        for (let i = end + 1; i <= size; i += i & -i) tree[i]!++;
        added++;
      }
    }
  }
  return total;
}

/** Centres along x. */
function placeAcross(graph: Layers): Float64Array {
  const x = new Float64Array(graph.width.length);
  const gap = (a: number, b: number): number =>
    graph.isBend[a] && graph.isBend[b] ? EDGE_GAP / 2 : NODE_GAP;
  for (const layer of graph.layers) {
    let left = 0;
    for (let index = 0; index < layer.length; index++) {
      const vertex = layer[index]!;
      if (index > 0) left += gap(layer[index - 1]!, vertex);
      x[vertex] = left + graph.width[vertex]! / 2;
      left += graph.width[vertex]!;
    }
    for (const vertex of layer) x[vertex]! -= left / 2;
  }
  for (let sweep = 0; sweep < PLACE_SWEEPS; sweep++) {
    const both = sweep >= PLACE_SWEEPS - 2;
    if (sweep % 2 === 0) {
      for (let at = 0; at < graph.layers.length; at++) {
        settle(graph, graph.layers[at]!, x, gap, true, both);
      }
    } else {
      for (let at = graph.layers.length - 1; at >= 0; at--) {
        settle(graph, graph.layers[at]!, x, gap, both, true);
      }
    }
  }
  return x;
}

/** Moves a layer to its neighbours' centres as near as its order and gaps allow. */
function settle(
  graph: Layers,
  layer: number[],
  x: Float64Array,
  gap: (a: number, b: number) => number,
  useUp: boolean,
  useDown: boolean,
): void {
  const means: number[] = [];
  const weights: number[] = [];
  const counts: number[] = [];
  let offset = 0;
  const offsets: number[] = [];
  for (let index = 0; index < layer.length; index++) {
    const vertex = layer[index]!;
    if (index > 0) {
      const before = layer[index - 1]!;
      offset += (graph.width[before]! + graph.width[vertex]!) / 2 + gap(before, vertex);
    }
    offsets.push(offset);
    let sum = 0;
    let weight = 0;
    const pull = (other: number): void => {
      // Long edges want to be straight; items stand below items, not below edges that pass.
      const bends = Number(graph.isBend[vertex]) + Number(graph.isBend[other]);
      const force = bends === 2 ? 8 : bends === 1 ? 0.001 : 1;
      sum += force * x[other]!;
      weight += force;
    };
    if (useUp) graph.up[vertex]!.forEach(pull);
    if (useDown) graph.down[vertex]!.forEach(pull);
    let mean = (weight > 0 ? sum / weight : x[vertex]!) - offset;
    weight = weight > 0 ? weight : 0.05;
    let many = 1;
    while (means.length > 0 && means[means.length - 1]! > mean) {
      const lastWeight = weights.pop()!;
      mean = (mean * weight + means.pop()! * lastWeight) / (weight + lastWeight);
      weight += lastWeight;
      many += counts.pop()!;
    }
    means.push(mean);
    weights.push(weight);
    counts.push(many);
  }
  let index = 0;
  for (let block = 0; block < means.length; block++) {
    for (let k = 0; k < counts[block]!; k++, index++) {
      x[layer[index]!] = means[block]! + offsets[index]!;
    }
  }
}

function assemble(
  graph: FlatGraph,
  ranked: Ranked,
  layers: Layers,
  across: Float64Array,
  loose: number[],
): FlatLayout {
  const count = vertexCount(graph);
  const top: number[] = [];
  const tall: number[] = [];
  let down = 0;
  for (const layer of layers.layers) {
    let height = 0;
    for (const vertex of layer) {
      if (vertex < graph.itemCount) height = Math.max(height, graph.height[vertex]!);
    }
    top.push(down);
    tall.push(height);
    down += height + RANK_GAP;
  }
  let height = Math.max(0, down - RANK_GAP);
  let left = Infinity;
  let right = -Infinity;
  for (const layer of layers.layers) {
    for (const vertex of layer) {
      left = Math.min(left, across[vertex]! - layers.width[vertex]! / 2);
      right = Math.max(right, across[vertex]! + layers.width[vertex]! / 2);
    }
  }
  if (left > right) left = right = 0;
  let width = right - left;
  const x = new Float64Array(count);
  const y = new Float64Array(count);
  for (let vertex = 0; vertex < count; vertex++) {
    x[vertex] = across[vertex]! - left;
    const rank = ranked.rank[vertex]!;
    y[vertex] = (top[rank] ?? 0) + (tall[rank] ?? 0) / 2;
  }
  if (loose.length > 0) {
    const row = Math.max(width, gridWidth(loose, graph.width, graph.height));
    const grid = gridOf(loose, graph.width, graph.height, row);
    const below = height > 0 ? height + RANK_GAP : 0;
    const shift = Math.max(0, (width - grid.width) / 2);
    loose.forEach((item, index) => {
      x[item] = shift + grid.x[index]!;
      y[item] = below + grid.y[index]!;
    });
    width = Math.max(width, grid.width);
    height = below + grid.height + (graph.outPorts > 0 ? PORT_RISE : 0);
  }
  const routes = layers.bends.map((path, edge) => {
    const from = graph.from[edge]!;
    const to = graph.to[edge]!;
    const high = ranked.turned[edge] ? to : from;
    const low = ranked.turned[edge] ? from : to;
    const half = (vertex: number): number =>
      vertex < graph.itemCount ? graph.height[vertex]! / 2 : 0;
    let rank = ranked.rank[high]!;
    // Upright within ranks: a small item beside a tall one is reached past it, not through it.
    const points = [x[high]!, y[high]! + half(high), x[high]!, top[rank]! + tall[rank]!];
    for (const bend of path) {
      rank++;
      const at = across[bend]! - left;
      points.push(at, top[rank]!, at, top[rank]! + tall[rank]!);
    }
    points.push(x[low]!, top[ranked.rank[low]!]!, x[low]!, y[low]! - half(low));
    return ranked.turned[edge] ? reversed(points) : points;
  });
  return { width, height, x, y, routes };
}
