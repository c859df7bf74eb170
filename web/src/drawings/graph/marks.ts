// What stands out in a drawing: the selected, the found, and the edges at them.

import type { Drawing } from "../layout/engine";
import type { GraphModel } from "./model";
import type { Marks } from "./scene";

/** Selections of no more nodes than this have their boxes opened for them. */
export const FEW = 12;

/** For each item: index of the drawn item that it is or lies closed in; -1 when it is not drawn. */
export function shownAt(model: GraphModel, drawing: Drawing): Int32Array {
  const shown = new Int32Array(model.tree.itemCount).fill(-1);
  const own = new Int32Array(model.tree.itemCount).fill(-1);
  drawing.items.forEach((item, index) => (own[item] = index));
  for (const item of model.tree.preOrder) {
    if (item === model.tree.root) continue;
    const around = shown[model.tree.parent[item]!]!;
    if (own[item]! >= 0) shown[item] = own[item]!;
    // What an open box leaves out (weights) is not drawn at all.
    else if (around >= 0 && !drawing.isOpen[around]) shown[item] = around;
  }
  return shown;
}

/** How many of the `items` each drawn item is or holds. */
export function countShown(shown: Int32Array, items: Iterable<number>): Map<number, number> {
  const counts = new Map<number, number>();
  for (const item of items) {
    const index = shown[item] ?? -1;
    if (index >= 0) counts.set(index, (counts.get(index) ?? 0) + 1);
  }
  return counts;
}

/** Pieces with an edge that has one end in `nodes` (for a box: that leads in or out), or just one end. */
export function piecesAt(
  model: GraphModel,
  drawing: Drawing,
  nodes: ReadonlySet<number>,
  crossing: boolean,
): Set<number> {
  const pieces = new Set<number>();
  if (nodes.size === 0) return pieces;
  const { edgeStart, edges, box } = drawing.pieces;
  for (let piece = 0; piece < box.length; piece++) {
    for (let at = edgeStart[piece]!; at < edgeStart[piece + 1]!; at++) {
      const from = nodes.has(model.shape.edges[2 * edges[at]!]!);
      const to = nodes.has(model.shape.edges[2 * edges[at]! + 1]!);
      if (crossing ? from !== to : from || to) {
        pieces.add(piece);
        break;
      }
    }
  }
  return pieces;
}

/** The nodes of an item: itself, or all that a box holds. */
export function nodesOfItem(model: GraphModel, item: number): Set<number> {
  const nodes = new Set<number>();
  const stack = [item];
  while (stack.length > 0) {
    const next = stack.pop()!;
    if (next < model.tree.nodeCount) nodes.add(next);
    else stack.push(...model.tree.children[next]!);
  }
  return nodes;
}

export function marksOf(
  model: GraphModel,
  drawing: Drawing,
  shown: Int32Array,
  chosen: number[],
  found: number[],
  hovered: number,
): Marks {
  const near = new Set<number>();
  const add = (item: number): void => {
    const box = item >= model.tree.nodeCount;
    for (const piece of piecesAt(model, drawing, nodesOfItem(model, item), box)) near.add(piece);
  };
  if (chosen.length <= FEW) chosen.forEach(add);
  // An open box under the pointer is the ground, not what is pointed at.
  if (hovered >= 0 && hovered < drawing.items.length && !drawing.isOpen[hovered]) {
    add(drawing.items[hovered]!);
  }
  return {
    selected: countShown(shown, chosen),
    found: new Set(countShown(shown, found).keys()),
    hovered: hovered >= 0 && !drawing.isOpen[hovered] ? hovered : -1,
    near,
  };
}
