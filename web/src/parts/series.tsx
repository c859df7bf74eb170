// The time of a row in each run of its method.

import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import type { ExcludedRuns, Method, Run } from "../document";
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
  /** Runs that do not count, of which only the points are shown. */
  excluded?: ExcludedRuns | null;
}

/** A point a run, with a line at the median of those that count. */
export function SampleChart({
  runIndex,
  samples,
  unit,
  label,
  testId,
  height = 130,
  bounds,
  excluded = null,
}: SampleChartProps) {
  const chart = useMemo(() => {
    const middle = median(samples.filter((one): one is number => one !== null));
    const times = new Map(runIndex.map((run, at) => [run, samples[at] ?? null]));
    const left = new Map(excluded?.runIndex.map((run, at) => [run, excluded.totals[at]!]));
    const runs = [...times.keys(), ...left.keys()].sort((a, b) => a - b);
    const data: uPlot.AlignedData = [
      runs,
      runs.map((run) => times.get(run)),
      runs.map(() => middle),
      ...(left.size ? [runs.map((run) => left.get(run))] : []),
    ];
    return { data, options: options(unit, runs.length, bounds, left.size > 0) };
  }, [runIndex, samples, unit, bounds?.join(), excluded]);
  if (chart.data[0].length < 2) return null;
  return <Chart {...chart} height={height} label={label} testId={testId} />;
}

function options(
  unit: string,
  count: number,
  bounds: readonly [number, number] | undefined,
  isAnyExcluded: boolean,
): Omit<uPlot.Options, "width" | "height"> {
  const value = (_: uPlot, number: number | null | undefined): string =>
    number == null ? "–" : `${formatDuration(number, unit)} ${unit}`;
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
      ...(isAnyExcluded
        ? [{ label: "excluded", value, points: { show: true, size: 5, stroke: () => colour("warn") } }]
        : []),
    ],
  };
}

const padded = ([least, most]: readonly [number, number]): [number, number] => {
  const room = (most - least) * 0.08 || most * 0.08 || 1;
  return [least - room, most + room];
};
