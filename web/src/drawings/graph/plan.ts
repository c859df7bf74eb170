// Where the view of a graph is to go when the next layout is there.

import type { Selection } from "../../store";
import type { Drawing } from "../layout/engine";
import { countShown, shownAt } from "./marks";
import type { GraphModel } from "./model";
import type { Stage } from "./stage";

/** What is to happen to the view when the next layout is there. */
export interface Plan {
  centre: number[] | null;
  anchor: { item: number; x: number; y: number } | null;
  /** The selection that this pane made itself. */
  own: Selection;
  fitted: boolean;
}

export const NO_PLAN: Readonly<Plan> = { centre: null, anchor: null, own: null, fitted: false };

/** Move the view as planned, as soon as what is planned for is drawn. hot: the item to show first where
 * not all is in sight. */
export function settle(
  stage: Stage | null,
  drawing: Drawing | null,
  model: GraphModel,
  plan: Plan,
  hot: number | null = null,
): void {
  if (!stage || !drawing) return;
  if (!plan.fitted) {
    plan.fitted = true;
    const isWhole = stage.fit(drawing, true);
    if (!isWhole && hot !== null) plan.centre ??= [hot];
  }
  if (plan.centre) {
    const shown = shownAt(model, drawing);
    stage.centre(drawing, [...countShown(shown, plan.centre).keys()]);
    plan.centre = null;
    plan.anchor = null;
  } else if (plan.anchor) {
    const { item, x, y } = plan.anchor;
    const index = drawing.items.indexOf(item);
    if (index >= 0) stage.shift(x, y, drawing.x[index]! + drawing.w[index]! / 2, drawing.y[index]!);
    plan.anchor = null;
  }
}
