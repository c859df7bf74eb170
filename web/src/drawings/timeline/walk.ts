// From span to span with the arrow keys.

import type { Timeline } from "../../document";
import { spanAt } from "./lanes";
import type { Lane, Lanes } from "./lanes";

/** The span to go to; null when there is none that way. */
export function nextSpan(timeline: Timeline, lanes: Lanes, span: number, key: string): number | null {
  if (span < 0) return lanes.lanes[0]?.spans[0] ?? null;
  const at = lanes.lanes.findIndex(
    (lane) => lane.track === timeline.track[span] && lane.level === timeline.level[span],
  );
  const lane = lanes.lanes[at];
  if (!lane) return null;
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const place = lane.spans.indexOf(span) + (key === "ArrowLeft" ? -1 : 1);
    return lane.spans[place] ?? null;
  }
  const other = lanes.lanes[at + (key === "ArrowUp" ? -1 : 1)];
  return other ? within(timeline, other, span) : null;
}

/** The span of the lane at the middle of this one, else the first that starts in it. */
function within(timeline: Timeline, lane: Lane, span: number): number | null {
  const start = timeline.start[span]!;
  const length = timeline.duration[span]!;
  const found = spanAt(timeline, lane, start + length / 2, length / 2);
  return found < 0 ? null : found;
}
