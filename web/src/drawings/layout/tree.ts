// The tree of boxes of a graph: which node or box stands in which box.
//
// Nodes and boxes share one numbering, "items": node i is item i, box (group) g is item N + g, and the
// whole graph is item N + G, the root. All later steps work on items.

/** What layout needs of a graph; cheap to send to a worker. */
export interface GraphShape {
  nodeCount: number;
  groupCount: number;
  /** Box of each node, -1 at the top. */
  nodeGroup: Int32Array;
  /** Box around each box, -1 at the top. */
  groupParent: Int32Array;
  /** Flat pairs: from node, to node. */
  edges: Int32Array;
  /** Width and height of each item when closed, in drawing units. */
  width: Float32Array;
  height: Float32Array;
  /** 1 for weights and constants, which stand beside what reads them and can be left out. */
  weight: Uint8Array;
}

export interface BoxTree {
  nodeCount: number;
  itemCount: number;
  root: number;
  /** The item around each item; the root's is -1. */
  parent: Int32Array;
  depth: Int32Array;
  /** Items directly inside of each box, nodes before boxes; empty for nodes. */
  children: number[][];
  /** Nodes in each item at any depth (1 for a node), weights left out, and with them. */
  size: Int32Array;
  sizeWithWeights: Int32Array;
  /** Order such that parents stand before children. */
  preOrder: Int32Array;
}

export function boxTree(shape: GraphShape): BoxTree {
  const { nodeCount, groupCount } = shape;
  const root = nodeCount + groupCount;
  const parent = new Int32Array(root + 1).fill(root);
  parent[root] = -1;
  for (let group = 0; group < groupCount; group++) {
    const up = shape.groupParent[group]!;
    // A box can only stand in one that came before it: a file cannot make a ring of boxes.
    if (up >= 0 && up < group) parent[nodeCount + group] = nodeCount + up;
  }
  const depth = new Int32Array(root + 1);
  for (let item = nodeCount; item < root; item++) depth[item] = depth[parent[item]!]! + 1;
  for (let node = 0; node < nodeCount; node++) {
    const group = shape.nodeGroup[node]!;
    if (group >= 0 && group < groupCount) parent[node] = nodeCount + group;
  }
  weightsToReaders(shape, parent, depth, root);
  for (let node = 0; node < nodeCount; node++) depth[node] = depth[parent[node]!]! + 1;

  const children: number[][] = Array.from({ length: root + 1 }, () => []);
  for (let item = 0; item < root; item++) children[parent[item]!]!.push(item);
  return {
    nodeCount,
    itemCount: root + 1,
    root,
    parent,
    depth,
    children,
    size: sizes(shape, parent, (node) => (shape.weight[node] ? 0 : 1)),
    sizeWithWeights: sizes(shape, parent, () => 1),
    preOrder: preOrderOf(children, root),
  };
}

function sizes(
  shape: GraphShape,
  parent: Int32Array,
  own: (node: number) => number,
): Int32Array {
  const size = new Int32Array(parent.length);
  for (let node = 0; node < shape.nodeCount; node++) {
    size[node] = own(node);
    size[parent[node]!]! += size[node]!;
  }
  for (let item = parent.length - 2; item >= shape.nodeCount; item--) {
    size[parent[item]!]! += size[item]!;
  }
  return size;
}

/** Weights stand at the top of a graph, far from their readers: each is drawn in the readers' box. */
function weightsToReaders(
  shape: GraphShape,
  parent: Int32Array,
  depth: Int32Array,
  root: number,
): void {
  const common = new Int32Array(shape.nodeCount).fill(-1);
  for (let edge = 0; edge < shape.edges.length; edge += 2) {
    const from = shape.edges[edge]!;
    if (!shape.weight[from] || parent[from] !== root) continue;
    const box = parent[shape.edges[edge + 1]!]!;
    common[from] = common[from]! < 0 ? box : commonBox(parent, depth, common[from]!, box);
  }
  for (let node = 0; node < shape.nodeCount; node++) {
    if (common[node]! >= 0) parent[node] = common[node]!;
  }
}

export function commonBox(parent: Int32Array, depth: Int32Array, a: number, b: number): number {
  while (a !== b) {
    if (depth[a]! >= depth[b]!) a = parent[a]!;
    else b = parent[b]!;
  }
  return a;
}

function preOrderOf(children: number[][], root: number): Int32Array {
  const order = new Int32Array(children.length);
  const stack = [root];
  let count = 0;
  while (stack.length > 0) {
    const item = stack.pop()!;
    order[count++] = item;
    const inside = children[item]!;
    for (let index = inside.length - 1; index >= 0; index--) stack.push(inside[index]!);
  }
  return order;
}

/** Whether the item is inside of `box`, or is it. */
export function isInside(tree: BoxTree, item: number, box: number): boolean {
  while (tree.depth[item]! > tree.depth[box]!) item = tree.parent[item]!;
  return item === box;
}

/** The outermost closed box around the item, or the item itself when all boxes around are open. */
export function visibleItem(tree: BoxTree, open: ReadonlySet<number>, item: number): number {
  let visible = item;
  for (let up = tree.parent[item]!; up >= 0 && up !== tree.root; up = tree.parent[up]!) {
    if (!open.has(up)) visible = up;
  }
  return visible;
}

/** The boxes around the item, outermost first, the root left out. */
export function boxesAround(tree: BoxTree, item: number): number[] {
  const around: number[] = [];
  for (let up = tree.parent[item]!; up >= 0 && up !== tree.root; up = tree.parent[up]!) {
    around.push(up);
  }
  return around.reverse();
}

/** All boxes that stand no deeper than `levels` (1: the outermost boxes are open). */
export function boxesToDepth(tree: BoxTree, levels: number): Set<number> {
  const open = new Set<number>();
  for (let item = tree.nodeCount; item < tree.root; item++) {
    if (tree.depth[item]! <= levels) open.add(item);
  }
  return open;
}

/** How deep boxes stand in boxes. */
export function deepestBox(tree: BoxTree): number {
  let deepest = 0;
  for (let item = tree.nodeCount; item < tree.root; item++) {
    deepest = Math.max(deepest, tree.depth[item]!);
  }
  return deepest;
}

/** Boxes to open first: while no more than `room` items are seen, and none that `stays` closed. */
export function firstOpen(
  tree: BoxTree,
  room: number,
  stays: (box: number) => boolean = () => false,
): Set<number> {
  const open = new Set<number>();
  let seen = seenIn(tree, tree.root);
  let level = tree.children[tree.root]!.filter((item) => item >= tree.nodeCount);
  while (level.length > 0) {
    const below: number[] = [];
    // The smallest first: many small boxes tell more than one that fills the view.
    const order = [...level].sort((a, b) => seenIn(tree, a) - seenIn(tree, b) || a - b);
    for (const box of order) {
      if (stays(box)) continue;
      const more = seenIn(tree, box) - 1;
      if (seen + more > room) return open;
      seen += more;
      open.add(box);
      for (const item of tree.children[box]!) if (item >= tree.nodeCount) below.push(item);
    }
    level = below;
  }
  return open;
}

function seenIn(tree: BoxTree, box: number): number {
  let count = 0;
  for (const item of tree.children[box]!) if (tree.size[item]! > 0) count++;
  return count;
}
