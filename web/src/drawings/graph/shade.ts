// Shades and kinds of boxes.

import type { GraphModel } from "./model";
import type { Scene } from "./scene";

/** Deeper boxes stand out from those around them. */
export function shadeOf({ palette, model }: Scene, item: number): string {
  const depth = model.tree.depth[item]! - 1;
  const last = palette.box.length - 1;
  return palette.box[depth <= last ? depth : last - ((depth - last) % 2)]!;
}

export function kindOf(model: GraphModel, item: number): "module" | "delegate" | "branch" {
  const kind = model.doc.groups[item - model.tree.nodeCount]?.kind;
  return kind === "delegate" || kind === "branch" ? kind : "module";
}
