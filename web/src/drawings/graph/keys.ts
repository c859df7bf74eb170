// The keys of a graph: arrows follow edges, Enter opens a box, + and - zoom.

import type { Drawing } from "../layout/engine";
import type { GraphModel } from "./model";
import type { Stage } from "./stage";
import { walk } from "./walk";
import type { Way } from "./walk";

interface Keyed {
  model: GraphModel;
  drawing: Drawing;
  shown: Int32Array;
  /** The item that is selected, -1 for none. */
  item: number;
  stage: Stage;
  jump(item: number): void;
  toggle(item: number): void;
  /** Open the boxes around what is selected. */
  reveal(): void;
  /** Select the node with the largest value. */
  hottest?(): void;
}

/** Do what a key says; whether it says anything. */
export function graphKey(event: KeyboardEvent, at: Keyed): boolean {
  const { model, drawing, shown, item, stage } = at;
  const way = WAYS[event.key];
  if (way !== undefined && event.shiftKey) {
    const step = 80;
    const x = way === "left" ? step : way === "right" ? -step : 0;
    stage.panBy(x, way === "up" ? step : way === "down" ? -step : 0);
  } else if (way !== undefined) {
    const to = walk(model, drawing, shown, item < 0 ? -1 : (shown[item] ?? -1), way);
    if (to !== null) at.jump(drawing.items[to]!);
  } else if (event.key === "Enter" || event.key === " ") {
    if (item >= model.tree.nodeCount) at.toggle(item);
  } else if (event.key === "+" || event.key === "=") stage.zoomBy(1.4);
  else if (event.key === "-") stage.zoomBy(1 / 1.4);
  else if (event.key === "f" || event.key === "0") stage.fit(drawing);
  else if (event.key === "o") at.reveal();
  else if (event.key === "h") at.hottest?.();
  else return false;
  return true;
}

const WAYS: Record<string, Way> = {
  ArrowUp: "up",
  ArrowDown: "down",
  ArrowLeft: "left",
  ArrowRight: "right",
};
