// Averages that one run makes: a row of such an average may stand first, and yet be short in every other
// run.

import type { Method, Run } from "../document";
import { asNumber, formatDuration } from "../format";

export interface Outlier {
  /** Index of the run in the dump; null if the single runs are not in the report. */
  run: number | null;
  /** Its time, and the average of the others. */
  most: number;
  others: number;
}

/** The run without which the average of the row would be less than half of what it is. */
export function outlierOf({ rows, runs, runIndex, samples }: Method, row: number): Outlier | null {
  const average = asNumber(rows.values["avg"]?.[row]);
  const most = asNumber(rows.values["max"]?.[row]);
  if (average === null || most === null || runs < 3) return null;
  const others = Math.max(0, (average * runs - most) / (runs - 1));
  if (!(others < average / 2)) return null;
  const at = samples[row]?.indexOf(most) ?? -1;
  return { run: at < 0 ? null : runIndex[at]!, most, others };
}

export const OUTLIER = "▲ One run makes most of this average: the median says more.";

function sentence({ run, most, others }: Outlier, unit: string): string {
  const time = (value: number): string => `${formatDuration(value, unit)} ${unit}`;
  return `${run === null ? "One run" : `Run ${run}`} took ${time(most)}; the average of the others is ${time(others)}.`;
}

interface OutlierProps {
  run: Run;
  method: Method;
  row: number;
}

/** The sign at the average of such a row. */
export function OutlierMark({ run, method, row }: OutlierProps) {
  const found = outlierOf(method, row);
  if (!found) return null;
  const text = sentence(found, run.unit);
  return (
    <span class="outlier" role="img" aria-label={text} title={text}>
      ▲
    </span>
  );
}

/** What makes the average, in a sentence. */
export function OutlierNote({ run, method, row }: OutlierProps) {
  const found = outlierOf(method, row);
  return (
    found && <p data-testid="outlier">▲ One run makes most of the average. {sentence(found, run.unit)}</p>
  );
}
