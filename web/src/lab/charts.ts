// Charts by uPlot in the page's colours, as wide as their place.

import uPlot from "uplot";
import { THEME_CHANGED } from "./theme";

interface SamplesData {
  series: { name: string; x: number[]; y: number[] }[];
  x: string;
  disturbed?: [number, number, string][];
  /** x is in seconds since 1970. */
  time?: boolean;
  /** Of y; milliseconds by default. */
  unit?: string;
}

interface CourseData {
  series: { name: string; unit: string; x: number[]; y: (number | null)[] }[];
  count: number;
}

interface HistoryData {
  /** "ms", or of an energy, whose p50 and p90 are the same. */
  unit: string;
  at: number[];
  p50: number[];
  p90: number[];
  marked: boolean[];
  standing: string[];
  jobs: string[];
  labels: string[];
}

type Draw = (place: HTMLElement, data: never) => uPlot | null;

const KINDS: Record<string, Draw> = { samples: drawSamples as Draw, course: drawCourse as Draw, history: drawHistory as Draw };
const HEIGHT = 220;
const LOW = 120;
/** The series of points that other programs made slow, drawn without a line. */
const SLOW = "disturbed";

export function drawCharts(root: ParentNode): void {
  for (const place of root.querySelectorAll<HTMLElement>("[data-chart]")) {
    const script = place.querySelector("script");
    const draw = KINDS[place.dataset["chart"]!];
    if (!script || !draw || place.dataset["ready"]) continue;
    place.dataset["ready"] = "yes";
    const data = JSON.parse(script.textContent ?? "null") as never;
    let chart = draw(place, data);
    const again = (): void => {
      chart?.destroy();
      chart = draw(place, data);
    };
    document.addEventListener(THEME_CHANGED, again);
    new ResizeObserver(() => chart?.setSize({ width: width(place), height: height(place) })).observe(place);
  }
}

const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const height = (place: HTMLElement): number => (place.dataset["chart"] === "course" ? LOW : HEIGHT);

const width = (place: HTMLElement): number => Math.max(160, place.clientWidth);

/** 0.0123 ms is "12.3 µs": figures of an axis or a legend. */
export function shortTime(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  const size = Math.abs(ms);
  const [unit, factor] = size >= 1000 ? ["s", 1e-3] : size >= 1 || size === 0 ? ["ms", 1] : size >= 1e-3 ? ["µs", 1e3] : ["ns", 1e6];
  return `${(ms * (factor as number)).toLocaleString("en", { maximumSignificantDigits: 4 })} ${unit}`;
}

function axes(x: uPlot.Axis, y: uPlot.Axis): uPlot.Axis[] {
  return [x, y].map((one) => ({
    stroke: colour("muted"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1, size: 4 },
    font: "11px system-ui, sans-serif",
    labelFont: "11px system-ui, sans-serif",
    ...one,
  }));
}

const timeAxis: uPlot.Axis = { size: 70, values: (_chart, splits) => splits.map((at) => (at === 0 ? "0" : shortTime(at))) };

const wholeAxis: uPlot.Axis = { values: (_chart, splits) => splits.map((at) => (Number.isInteger(at) ? at.toLocaleString("en") : "")) };

const plain = (value: number | null | undefined, unit: string): string =>
  value === null || value === undefined ? "–" : `${value.toLocaleString("en", { maximumSignificantDigits: 4 })} ${unit}`.trim();

const amount = (value: number | null | undefined, unit: string): string => (unit === "ms" ? shortTime(value) : plain(value, unit));

const HALF_HOUR = 1800;

/** A single moment is in the middle of an hour, and not at the beginning of years. */
const moments: uPlot.Range.Function = (chart, low, high) => {
  if (low === null || high === null) return [0, 1];
  return chart.data[0].length === 1 ? [low - HALF_HOUR, low + HALF_HOUR] : [low, high];
};

/** From 0, so that noise looks as small as it is, unless all is far from there. */
const fromZero: uPlot.Range.Function = (_chart, low, high) => {
  if (low === null || high === null) return [0, 1];
  const room = (high - low || high || 1) * 0.08;
  return [low < high / 2 ? 0 : Math.max(0, low - room), high + room];
};

/** Colours of the lines beyond the palette, dashed to tell them from those before. */
const DASHES = [[], [6, 3], [2, 3]];

function drawSamples(place: HTMLElement, { series, x, disturbed = [], time = false, unit = "ms" }: SamplesData): uPlot | null {
  const palette = [colour("accent"), colour("hot"), colour("good"), colour("bad")];
  const shown = (value: number | null): string => amount(value, unit);
  const tables = series.map((one) => [one.x, one.y] as uPlot.AlignedData);
  if (tables.length === 0) return null;
  const data = tables.length === 1 ? tables[0]! : uPlot.join(tables);
  return new uPlot(
    {
      width: width(place),
      height: HEIGHT,
      scales: { x: time ? { range: moments } : { time: false }, y: { range: fromZero } },
      axes: axes(time ? {} : wholeAxis, { ...timeAxis, values: (_chart, splits) => splits.map((at) => (at === 0 ? "0" : shown(at))) }),
      cursor: { points: { size: 7 } },
      series: [
        { label: x, value: (_chart, at) => (at === null ? "–" : time ? new Date(at * 1000).toLocaleString() : String(at)) },
        ...series.map((one, at) => ({
          label: one.name,
          stroke: one.name === SLOW ? colour("bad") : palette[at % palette.length]!,
          width: 1,
          spanGaps: true,
          dash: DASHES[Math.floor(at / palette.length) % DASHES.length]!,
          ...(one.name === SLOW ? { paths: () => null } : {}),
          points: { show: one.name === SLOW || one.x.length <= 400, size: 4, fill: one.name === SLOW ? colour("panel") : palette[at % palette.length]! },
          value: (_chart: uPlot, value: number | null) => shown(value),
        })),
      ],
      hooks: { drawClear: [(chart) => shade(chart, disturbed)] },
    },
    data,
    place,
  );
}

/** Stretches of executions, behind them. */
function shade(chart: uPlot, stretches: [number, number, string][]): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.globalAlpha = 0.18;
  ctx.fillStyle = colour("warn");
  for (const [from, to] of stretches) {
    const left = Math.max(chart.valToPos(from, "x", true), bbox.left);
    const right = Math.min(chart.valToPos(to, "x", true), bbox.left + bbox.width);
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

/** The device during the executions: a scale for each quantity, the axis of the first one left. */
function drawCourse(place: HTMLElement, { series, count }: CourseData): uPlot | null {
  const palette = [colour("bad"), colour("accent"), colour("muted")];
  const [times] = series;
  if (!times) return null;
  const shown = (unit: string) => (value: number | null): string => plain(value, unit);
  return new uPlot(
    {
      width: width(place),
      height: LOW,
      scales: { x: { time: false, range: [1, Math.max(count, 2)] } },
      axes: axes(wholeAxis, { size: 70, scale: times.name, values: (_chart, splits) => splits.map(shown(times.unit)) }),
      series: [
        { label: "execution", value: (_chart, at) => (at === null ? "–" : String(at)) },
        ...series.map((one, at) => ({
          label: one.name,
          scale: one.name,
          stroke: palette[at % palette.length]!,
          width: 1.5,
          points: { show: one.x.length <= 100, size: 4 },
          value: (_chart: uPlot, value: number | null) => shown(one.unit)(value),
        })),
      ],
    },
    [times.x, ...series.map((one) => one.y)],
    place,
  );
}

function drawHistory(place: HTMLElement, data: HistoryData): uPlot | null {
  const marks = (name: string) => (chart: uPlot, series: number): null => {
    paintPoints(chart, series, data.marked, colour(name));
    if (series === 1) ringChanges(chart, data.standing);
    return null;
  };
  const line = (label: string, name: string): uPlot.Series => ({
    label,
    stroke: colour(name),
    width: 1.5,
    points: { show: false },
    value: (_chart, value) => amount(value, data.unit),
  });
  const [main, ...more] = data.unit === "ms" ? [line("p50", "accent"), line("p90", "hot")] : [line("energy", "accent")];
  const chart = new uPlot(
    {
      width: width(place),
      height: HEIGHT,
      scales: { x: { range: moments }, y: { range: fromZero } },
      axes: axes({}, { ...timeAxis, values: (_chart, splits) => splits.map((at) => (at === 0 ? "0" : amount(at, data.unit))) }),
      cursor: { points: { size: 8 } },
      series: [
        { label: "at", value: (_chart, at) => (at === null ? "–" : new Date(at * 1000).toLocaleString()) },
        main!,
        ...more,
      ],
      hooks: { draw: [(drawn) => { marks("accent")(drawn, 1); if (more.length > 0) marks("hot")(drawn, 2); }] },
    },
    [data.at, data.p50, ...more.map(() => data.p90)],
    place,
  );
  const base = document.body.dataset["base"] ?? "";
  chart.over.style.cursor = "pointer";
  chart.over.addEventListener("click", () => {
    const at = chart.cursor.idx;
    const job = at === null || at === undefined ? undefined : data.jobs[at];
    if (job) location.assign(`${base}/jobs/${encodeURIComponent(job)}`);
  });
  chart.over.addEventListener("mousemove", () => {
    const at = chart.cursor.idx;
    chart.over.title = at === null || at === undefined ? "" : [data.labels[at], data.marked[at] ? "with a caveat" : "", RINGS[data.standing[at]!] ? data.standing[at] : ""].filter(Boolean).join(" · ");
  });
  return chart;
}

/** Full points; hollow ones for results with a caveat. */
function paintPoints(chart: uPlot, series: number, marked: boolean[], stroke: string): void {
  const { ctx } = chart;
  const ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.lineWidth = 1.5 * ratio;
  ctx.strokeStyle = stroke;
  for (let at = 0; at < marked.length; at++) {
    const value = chart.data[series]![at];
    if (value === null || value === undefined) continue;
    ctx.beginPath();
    ctx.arc(chart.valToPos(chart.data[0][at]!, "x", true), chart.valToPos(value, "y", true), 3 * ratio, 0, 2 * Math.PI);
    ctx.fillStyle = marked[at] ? colour("panel") : stroke;
    ctx.fill();
    ctx.stroke();
  }
  ctx.restore();
}

const RINGS: Record<string, string> = { regressed: "bad", improved: "good", suspicious: "warn" };

/** A ring around the points where the model changed, or may have. */
function ringChanges(chart: uPlot, standing: string[]): void {
  const { ctx } = chart;
  const ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.lineWidth = 2 * ratio;
  standing.forEach((word, at) => {
    const ring = RINGS[word];
    const value = chart.data[1]![at];
    if (!ring || value === null || value === undefined) return;
    ctx.strokeStyle = colour(ring);
    ctx.beginPath();
    ctx.arc(chart.valToPos(chart.data[0][at]!, "x", true), chart.valToPos(value, "y", true), 7 * ratio, 0, 2 * Math.PI);
    ctx.stroke();
  });
  ctx.restore();
}
