// The time of what lies between two moments of the timeline, by row of the profile.

import type { Method, Run, Timeline } from "../../document";
import { bodyAndTotals, leavesOf } from "../../tables";

export interface SpanSums {
  method: Method;
  /** Runs of the method of which something lies in the span. */
  runs: number;
  /** Of Method::execute: what the rows below add up to. */
  total: number;
  /** Time of each row of the table, null where nothing of it lies in the span. */
  times: (number | null)[];
}

/**
 * The sums for each method between `from` and `to`, over all runs; of spans that reach beyond, the part
 * within. The rows that are leaves, and "unaccounted", add up to the total.
 */
export function spanSums(run: Run, timeline: Timeline, from: number, to: number): SpanSums[] {
  const sums = run.methods.map(({ rows }) => new Float64Array(rows.values["event"]?.length ?? 0));
  const seen = run.methods.map(() => new Set<number>());
  // The span around each level of a track: a call and its kernel are one row, counted once.
  const around: number[][] = [];
  for (let span = 0; span < timeline.start.length; span++) {
    const track = timeline.track[span]!;
    const level = timeline.level[span]!;
    const levels = (around[track] ??= []);
    levels[level] = span;
    const row = timeline.row[span];
    const start = Math.max(timeline.start[span]!, from);
    const end = Math.min(timeline.start[span]! + timeline.duration[span]!, to);
    if (!row || end <= start) continue;
    const outer = level > 0 ? timeline.row[levels[level - 1]!] : null;
    if (outer && outer[0] === row[0] && outer[1] === row[1]) continue;
    sums[row[0]]![row[1]]! += end - start;
    seen[row[0]]!.add(timeline.tracks[track]!.parent ?? track);
  }
  return run.methods.flatMap((method, index) =>
    seen[index]!.size ? [sumsOf(method, sums[index]!, seen[index]!.size)] : [],
  );
}

function sumsOf(method: Method, sums: Float64Array, runs: number): SpanSums {
  const table = method.rows;
  const { body, totals } = bodyAndTotals(table);
  const [rest, whole] = totals as [number, number];
  const isLeaf = leavesOf(table);
  const total = sums[whole]!;
  const times: (number | null)[] = Array.from(sums, () => null);
  let accounted = 0;
  let head = 0;
  let left = 0;
  for (const row of body) {
    if (!table.depth?.[row]) {
      head = row;
      left = sums[row]!;
      accounted += left;
    } else if (table.values["kind"]?.[row] === "unaccounted") {
      sums[row] = Math.max(left, 0); // the rest of the call that `head` is
    } else if (!isLeaf[head]) {
      left -= sums[row]!;
    }
    if (sums[row]! > 0) times[row] = sums[row]!;
  }
  times[whole] = total;
  times[rest] = Math.max(total - accounted, 0);
  return { method, runs, total, times };
}
