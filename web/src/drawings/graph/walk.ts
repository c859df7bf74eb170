// From item to item with the arrow keys.

import type { Drawing } from "../layout/engine";
import { neighbours } from "./model";
import type { GraphModel } from "./model";
import { nodesOfItem } from "./marks";

export type Way = "up" | "down" | "left" | "right";

/** The drawn item to go to from the one at `index`; null when there is none that way. */
export function walk(
  model: GraphModel,
  drawing: Drawing,
  shown: Int32Array,
  index: number,
  way: Way,
): number | null {
  if (index < 0) return drawing.items.length > 0 ? topmost(drawing) : null;
  return way === "up" || way === "down"
    ? along(model, drawing, shown, index, way)
    : beside(model, drawing, index, way);
}

/** Along an edge: to the nearest item that this one reads (up) or is read by (down). */
function along(
  model: GraphModel,
  drawing: Drawing,
  shown: Int32Array,
  index: number,
  way: "up" | "down",
): number | null {
  const inside = nodesOfItem(model, drawing.items[index]!);
  let best: number | null = null;
  let nearest = Infinity;
  for (const node of inside) {
    for (const other of neighbours(model, node, way === "up" ? "into" : "out")) {
      const at = shown[other]!;
      if (inside.has(other) || at < 0 || at === index) continue;
      const far = distance(drawing, index, at);
      if (far < nearest) [best, nearest] = [at, far];
    }
  }
  return best;
}

/** The nearest item in the same box to the left or right, those at the same height first. */
function beside(
  model: GraphModel,
  drawing: Drawing,
  index: number,
  way: "left" | "right",
): number | null {
  const box = model.tree.parent[drawing.items[index]!];
  const [x, y] = centre(drawing, index);
  let best: number | null = null;
  let nearest = Infinity;
  drawing.items.forEach((item, at) => {
    if (at === index || model.tree.parent[item] !== box) return;
    const [otherX, otherY] = centre(drawing, at);
    const right = way === "right" ? otherX - x : x - otherX;
    if (right <= 1) return;
    const far = right + 6 * Math.abs(otherY - y);
    if (far < nearest) [best, nearest] = [at, far];
  });
  return best;
}

function topmost(drawing: Drawing): number {
  let best = 0;
  drawing.items.forEach((_, at) => {
    if (drawing.y[at]! < drawing.y[best]!) best = at;
  });
  return best;
}

function distance(drawing: Drawing, a: number, b: number): number {
  const [x, y] = centre(drawing, a);
  const [otherX, otherY] = centre(drawing, b);
  return Math.hypot(otherX - x, otherY - y);
}

function centre(drawing: Drawing, index: number): [number, number] {
  return [
    drawing.x[index]! + drawing.w[index]! / 2,
    drawing.y[index]! + drawing.h[index]! / 2,
  ];
}
