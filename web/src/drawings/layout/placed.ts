// What a layout of one box takes and gives.

/**
 * One box's items and pieces of edges. Vertices: the items, then the ports at the top border, then
 * those at the bottom border.
 */
export interface FlatGraph {
  itemCount: number;
  inPorts: number;
  outPorts: number;
  /** Sizes of the items. */
  width: Float64Array;
  height: Float64Array;
  /** Ends of each edge, as vertices. */
  from: number[];
  to: number[];
}

/** Where all stands; the origin is the top left corner of what is drawn. */
export interface FlatLayout {
  width: number;
  height: number;
  /** Centres of the vertices. */
  x: Float64Array;
  y: Float64Array;
  /** For each edge: x, y of its points from border to border. */
  routes: number[][];
}

export const NODE_GAP = 22;
export const RANK_GAP = 34;
/** Between two edges that pass side by side. */
export const EDGE_GAP = 10;
export const PORT_WIDTH = 8;
/** How much of the rank of ports may lie outside of what is laid out, in the frame of the box. */
export const PORT_RISE = RANK_GAP - 14;

export function vertexCount(graph: FlatGraph): number {
  return graph.itemCount + graph.inPorts + graph.outPorts;
}

/** Pairs that stand side by side in rows as wide as the rest: items that no edge leads to. */
export function gridOf(
  items: number[],
  width: Float64Array,
  height: Float64Array,
  rowWidth: number,
): { x: number[]; y: number[]; width: number; height: number } {
  const x: number[] = [];
  const y: number[] = [];
  let left = 0;
  let top = 0;
  let rowHeight = 0;
  let widest = 0;
  for (const item of items) {
    if (left > 0 && left + width[item]! > rowWidth) {
      top += rowHeight + NODE_GAP;
      left = 0;
      rowHeight = 0;
    }
    x.push(left + width[item]! / 2);
    y.push(top + height[item]! / 2);
    left += width[item]! + NODE_GAP;
    widest = Math.max(widest, left - NODE_GAP);
    rowHeight = Math.max(rowHeight, height[item]!);
  }
  return { x, y, width: widest, height: top + rowHeight };
}

/** Near-square row width for the items of a grid. */
export function gridWidth(items: number[], width: Float64Array, height: Float64Array): number {
  let area = 0;
  for (const item of items) area += (width[item]! + NODE_GAP) * (height[item]! + NODE_GAP);
  return Math.sqrt(area * 1.8);
}
