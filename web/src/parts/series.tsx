// The time of a row in each run of its method.

import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import type { Method, Run } from "../document";
import { formatDuration } from "../format";
import { median } from "../tables";
import { Chart, colour } from "./chart";

interface SeriesProps {
  run: Run;
  method: Method;
  row: number;
  /** Least and greatest time shown, when several charts are to be compared. */
  bounds?: readonly [number, number] | undefined;
}

export function Series({ run, method, row, bounds }: SeriesProps) {
  const samples = method.samples[row];
  if (!samples) {
    return method.samplesNote ? <p class="muted">{method.samplesNote}</p> : null;
  }
  return (
    <SampleChart
      runIndex={method.runIndex}
      samples={samples}
      unit={run.unit}
      label={`Time in each of ${samples.length} runs`}
      testId="series"
      bounds={bounds}
    />
  );
}

interface SampleChartProps {
  runIndex: number[];
  samples: (number | null)[];
  unit: string;
  label: string;
  testId: string;
  height?: number;
  bounds?: readonly [number, number] | undefined;
}

/** A point a run, with a line at the median. */
export function SampleChart({
  runIndex,
  samples,
  unit,
  label,
  testId,
  height = 130,
  bounds,
}: SampleChartProps) {
  const chart = useMemo(() => {
    const middle = median(samples.filter((one): one is number => one !== null));
    const data: uPlot.AlignedData = [runIndex, samples, samples.map(() => middle)];
    return { data, options: options(unit, samples.length, bounds) };
  }, [runIndex, samples, unit, bounds?.join()]);
  if (samples.length < 2) return null;
  return <Chart {...chart} height={height} label={label} testId={testId} />;
}

function options(
  unit: string,
  count: number,
  bounds: readonly [number, number] | undefined,
): Omit<uPlot.Options, "width" | "height"> {
  const value = (_: uPlot, number: number | null): string =>
    number === null ? "–" : `${formatDuration(number, unit)} ${unit}`;
  return {
    scales: { x: { time: false }, y: bounds ? { range: padded(bounds) } : {} },
    legend: { live: true },
    cursor: { y: false, points: { size: 6 } },
    axes: [
      { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 100000], size: 26 },
      { size: 58, values: (_, splits) => splits.map((split) => String(Number(split.toPrecision(6)))) },
    ],
    series: [
      { label: "run" },
      {
        label: unit,
        value,
        stroke: () => colour("accent"),
        width: count > 400 ? 0.7 : 1.2,
        points: { show: count <= 120, size: 4, fill: colour("accent") },
      },
      {
        label: "median",
        value,
        stroke: () => colour("muted"),
        dash: [4, 4],
        width: 1,
        points: { show: false },
      },
    ],
  };
}

const padded = ([least, most]: readonly [number, number]): [number, number] => {
  const room = (most - least) * 0.08 || most * 0.08 || 1;
  return [least - room, most + room];
};
