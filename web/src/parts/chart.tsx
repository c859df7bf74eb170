// A chart by uPlot in the page's colours, as wide as its place.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";
import { theme } from "../theme";

export interface ChartProps {
  /** x, then each series; made anew when it changes. */
  data: uPlot.AlignedData;
  options: Omit<uPlot.Options, "width" | "height">;
  height: number;
  label: string;
  testId?: string;
  /** The point under a click. */
  onPick?(index: number): void;
}

/** A colour of the stylesheet. */
export const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function Chart({ data, options, height, label, testId, onPick }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const dark = theme.value;
  useEffect(() => {
    const element = place.current!;
    const axis = (one: uPlot.Axis): uPlot.Axis => ({
      stroke: colour("muted"),
      grid: { stroke: colour("line"), width: 1 },
      ticks: { stroke: colour("line"), width: 1, size: 4 },
      font: "11px system-ui, sans-serif",
      labelFont: "11px system-ui, sans-serif",
      ...one,
    });
    const chart = new uPlot(
      {
        ...options,
        axes: (options.axes ?? [{}, {}]).map(axis),
        width: Math.max(80, element.clientWidth),
        height,
      },
      data,
      element,
    );
    chart.ctx.canvas.role = "img";
    chart.ctx.canvas.ariaLabel = label;
    const pick = (): void => {
      const at = chart.cursor.idx;
      if (at !== null && at !== undefined) onPick?.(at);
    };
    if (onPick) chart.over.addEventListener("click", pick);
    const watch = new ResizeObserver(() =>
      chart.setSize({ width: Math.max(80, element.clientWidth), height }),
    );
    watch.observe(element);
    return () => {
      watch.disconnect();
      chart.destroy();
    };
  }, [data, options, height, label, dark]);
  return <div class="chart" ref={place} data-testid={testId} />;
}
