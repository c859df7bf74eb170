// A panel of the stacked times of calls, with what is said of the call under the pointer.

import uPlot from "uplot";
import { useMemo, useRef, useState } from "preact/hooks";
import type { GenerationDoc } from "../../document";
import { formatDuration } from "../../format";
import { Chart, colour } from "../../parts/chart";
import { Figure } from "../../parts/text";
import { theme } from "../../theme";
import { nameOfPoint, stacked, type Over, type Panel } from "./stack";

interface StackPanelProps {
  doc: GenerationDoc;
  panel: Panel;
  names: readonly string[];
  colours: readonly string[];
  unit: string;
  over: Over;
  title: string;
  /** Leads to the call, where the page shows it. */
  linkOf(call: number): (() => void) | null;
}

const HEIGHT = 230;

export function StackPanel({ doc, panel, names, colours, unit, over, title, linkOf }: StackPanelProps) {
  const [at, setAt] = useState<number | null>(null);
  const chart = useRef<uPlot | null>(null);
  const hover = useRef(setAt);
  hover.current = setAt;
  const bars = panel.points.length < 4;
  const drawn = useMemo(() => {
    // A few calls are bars side by side, whatever their positions are.
    const x = panel.points.map((point, index) => (bars ? index : point.x));
    const sums = stacked(panel.times).reverse();
    const known = panel.points.some(({ untraced }) => untraced !== null);
    const data: uPlot.AlignedData = [
      x,
      ...sums,
      ...(known ? [panel.points.map(({ untraced }) => untraced)] : []),
    ];
    const fills = [...colours].reverse();
    const labels = panel.points.map((point) => labelOf(doc, point));
    return { data, options: options(fills, known, bars ? labels : null, over, x.length > 400, chart, hover) };
  }, [doc, panel, colours, over, theme.value]);
  const now = at !== null && panel.points[at] ? at : null;
  const move = (to: number): void => {
    const next = Math.min(Math.max(to, 0), panel.points.length - 1);
    const plot = chart.current;
    if (plot) plot.setCursor({ left: plot.valToPos(Number(drawn.data[0]![next]), "x"), top: 10 });
    setAt(next);
  };
  const follow = (point: number): void => {
    const link = panel.points[point]!.calls.map(linkOf).find((one) => one !== null);
    link?.();
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps: Record<string, number> = {
      ArrowLeft: (now ?? 1) - 1,
      ArrowRight: (now ?? -1) + 1,
      PageUp: (now ?? 0) - 20,
      PageDown: (now ?? 0) + 20,
      Home: 0,
      End: panel.points.length - 1,
    };
    const to = steps[event.key];
    if (to !== undefined) move(to);
    else if (event.key === "Enter" && now !== null) follow(now);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <section class="stack-panel" data-testid={panel.decode ? "stack-decode" : "stack-before"}>
      <h3>{title}</h3>
      <div
        class="stack-plot"
        tabIndex={0}
        role="application"
        aria-roledescription="chart"
        aria-label={`${title}: ${panel.points.length} points. Arrow keys go from call to call, Enter leads to the timeline.`}
        onKeyDown={onKey}
        onPointerLeave={() => setAt(null)}
      >
        <Chart
          data={drawn.data}
          options={drawn.options}
          height={HEIGHT}
          label={`${title}, stacked`}
          onPick={follow}
        />
      </div>
      <PointText doc={doc} panel={panel} at={now} names={names} unit={unit} />
    </section>
  );
}

/** What the point is, its time, and the largest groups of it. */
function PointText({
  doc,
  panel,
  at,
  names,
  unit,
}: {
  doc: GenerationDoc;
  panel: Panel;
  at: number | null;
  names: readonly string[];
  unit: string;
}) {
  if (at === null)
    return <p class="stack-text muted">Point at a call for its numbers; a click leads to it.</p>;
  const point = panel.points[at]!;
  const text = (value: number): string => `${formatDuration(value, unit)} ${unit}`;
  const largest = names
    .map((name, group) => ({ name, time: panel.times[group]![at]! }))
    .sort((one, other) => other.time - one.time)
    .slice(0, 3);
  return (
    <p class="stack-text" aria-live="polite" data-testid="stack-point">
      <b>{nameOfPoint(doc, point)}</b> <Figure text={text(point.time)} value={point.time} />
      {point.untraced !== null && <span class="muted"> · untraced {text(point.untraced)}</span>}
      <span class="muted"> · {largest.map(({ name, time }) => `${name} ${text(time)}`).join(", ")}</span>
    </p>
  );
}

/** Below a bar: "vision", "encoder" and the positions, one below the other. */
function labelOf(doc: GenerationDoc, { phase, position, tokens }: Panel["points"][number]): string {
  const place = position < 0 ? [] : [tokens > 1 ? `${position}…${position + tokens - 1}` : `${position}`];
  return [...(doc.phases[phase] ?? "?").split("_"), ...place].join("\n");
}

function options(
  fills: readonly string[],
  hasLine: boolean,
  labels: readonly string[] | null,
  over: Over,
  many: boolean,
  chart: { current: uPlot | null },
  hover: { current: (at: number | null) => void },
): Omit<uPlot.Options, "width" | "height"> {
  const barPaths = uPlot.paths.bars!({ size: [0.6, 70] });
  return {
    scales: {
      x: { time: false, ...(labels ? { range: () => [-0.7, labels.length - 0.3] as [number, number] } : {}) },
      y: { range: (_, __, most) => [0, (most || 1) * 1.05] },
    },
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
    hooks: {
      init: [(plot) => (chart.current = plot)],
      setCursor: [(plot) => plot.cursor.left! >= 0 && hover.current(plot.cursor.idx ?? null)],
    },
    axes: [
      labels
        ? {
            splits: () => labels.map((_, at) => at),
            values: () => [...labels],
            size: 50,
            grid: { show: false },
          }
        : { label: over === "call" ? "call of the dump" : "position", labelSize: 16, size: 26, incrs: STEPS },
      { size: 62, values: (_, splits) => splits.map((split) => String(Number(split.toPrecision(6)))) },
    ],
    series: [
      {},
      ...fills.map((fill) => ({
        fill,
        stroke: fill,
        width: 0.5,
        points: { show: false },
        ...(labels ? { paths: barPaths } : {}),
      })),
      ...(hasLine
        ? [
            {
              stroke: () => colour("text"),
              width: many ? 0.8 : 1.4,
              ...(labels || many ? {} : { dash: [5, 3] }),
              points: labels
                ? { show: true, size: 9, stroke: () => colour("text"), fill: () => colour("panel") }
                : { show: false },
              ...(labels ? { paths: () => null } : {}),
            } as uPlot.Series,
          ]
        : []),
    ],
  };
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000];
