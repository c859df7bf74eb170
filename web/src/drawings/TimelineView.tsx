// The Timeline tab: what ran when, track by track, nested spans on a canvas.

import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Run, Timeline } from "../document";
import { cellFormat, visible } from "../format";
import { rowsOf } from "../links";
import { Nothing } from "../parts/nothing";
import { control, indexControl, select, selection } from "../store";
import { theme } from "../theme";
import { PALETTES, tipPlace } from "./canvas";
import { nameColours } from "./scale";
import { lanesOf } from "./timeline/lanes";
import type { Lanes } from "./timeline/lanes";
import { RULER, laneTops } from "./timeline/paint";
import type { TimelineScene } from "./timeline/paint";
import { TimelineStage } from "./timeline/stage";
import { SpanTable } from "./timeline/table";
import { nextSpan } from "./timeline/walk";
import "./drawings.css";

interface Hover {
  span: number;
  x: number;
  y: number;
}

const NOTHING: Hover = { span: -1, x: 0, y: 0 };
const NAME_LENGTH = 300;
/** The part of time that is summed up: "0.25-1.5", in the run's unit. */
const markedText = control("timeline.span", "");
/** The run of the dump that is to be seen first. */
export const runToShow = indexControl("timeline.run");

export function TimelineView({ run }: { run: Run }) {
  if (run.timeline === null || run.timeline.start.length === 0) {
    return <Nothing>No timeline: the report was made without a dump.</Nothing>;
  }
  return <Tracks key={run.id} run={run} timeline={run.timeline} />;
}

interface TracksProps {
  run: Run;
  timeline: Timeline;
  /** Its name for tests and control, where it is not the run's own. */
  name?: string;
  /** The name of a span, where it says more than that by which it has its colour. */
  describe?: (span: number) => string;
  /** A span was clicked, or chosen by the keyboard; -1 for none. */
  onChoose?: (span: number) => void;
}

export function Tracks({ run, timeline, name = "timeline", describe, onChoose }: TracksProps) {
  const own = name === "timeline"; // the dump's: with sums of what lies in a part of time
  const lanes = useMemo(() => lanesOf(timeline), [timeline]);
  const { tops, tracks, height } = useMemo(() => laneTops(timeline, lanes), [timeline, lanes]);
  const [hover, setHover] = useState<Hover>(NOTHING);
  const [scroll, setScroll] = useState(0);
  /** The span clicked last: of the many that a row has, the one to describe. */
  const [span, setSpan] = useState(-1);
  const canvas = useRef<HTMLCanvasElement>(null);
  const sel = selection.value;
  const chosenHere = useRef(sel);
  const write = useMemo(() => timeText(timeline, run.unit), [timeline, run.unit]);
  const chosen = useMemo(() => chosenSpans(run, timeline, sel), [run, timeline, sel]);
  const now = span >= 0 && (chosen.flags[span] || timeline.row[span] === null) ? span : chosen.first;
  const kernels = useMemo(() => kernelsByTime(timeline), [timeline]);
  const colours = useMemo(() => {
    const colour = nameColours(kernels, theme.value);
    return timeline.names.map((name) => colour(kernelOf(name)));
  }, [timeline, kernels, theme.value]);

  const choose = (next: number): void => {
    setSpan(next);
    const row = next < 0 ? null : timeline.row[next];
    if (own) select(row ? { kind: "row", method: row[0], row: row[1] } : null);
    chosenHere.current = selection.peek();
    onChoose?.(next);
  };
  const text = (at: number): string => visible((describe?.(at) ?? label(at)).slice(0, NAME_LENGTH));
  const label = (at: number): string => labelOf(run, timeline, at);
  const marked = useMemo(() => (own ? spanOfText(markedText.value) : null), [markedText.value]);
  const mark = (from: number, to: number): void => {
    if (!own) return;
    const [first, last] = [Math.max(from, lanes.from), Math.min(to, lanes.to)];
    if (last > first) markedText.value = `${Number(first.toPrecision(9))}-${Number(last.toPrecision(9))}`;
  };
  const stage = useTimelineStage(canvas, setHover, setScroll, choose, mark);

  const scene = useMemo<TimelineScene>(
    () => ({
      timeline,
      lanes,
      tops,
      palette: PALETTES[theme.value],
      unit: run.unit,
      colours,
      label,
      chosen: chosen.flags,
      someChosen: chosen.first >= 0,
      hovered: hover.span,
      marked,
    }),
    [timeline, lanes, tops, theme.value, run.unit, colours, chosen, hover.span, marked],
  );
  useEffect(() => stage.current?.show(scene, height), [scene, height]);
  useEffect(() => {
    const track = own && runToShow.value !== null ? (timeline.runs ?? []).indexOf(runToShow.value) : -1;
    if (track < 0) return;
    const shown = timeline.track.findIndex((one) => one === track || timeline.tracks[one]?.parent === track);
    if (shown >= 0) {
      choose(shown);
      stage.current?.showTop(shown);
    }
  }, [timeline, runToShow.value]);
  useEffect(() => {
    if (sel === null || sel === chosenHere.current) return;
    setSpan(-1);
    if (chosen.first >= 0) stage.current?.reveal(chosen.first);
  }, [sel, chosen]);

  const onKey = (event: KeyboardEvent): void => {
    const view = stage.current;
    if (!view || event.ctrlKey || event.metaKey) return;
    const key = event.key;
    if (key.startsWith("Arrow")) {
      const next = nextSpan(timeline, lanes, now, key);
      if (next !== null) {
        choose(next);
        view.reveal(next);
      }
    } else if (key === "w" || key === "+" || key === "=") view.zoomBy(1.5);
    else if (key === "s" || key === "-") view.zoomBy(1 / 1.5);
    else if (key === "a") view.panBy(-0.2);
    else if (key === "d") view.panBy(0.2);
    else if (key === "f" || key === "0") view.fit();
    else if (key === "Enter" && now >= 0) zoomTo(view, timeline, now);
    else if (key === "m") markSpan();
    else if ((key === "[" || key === "]") && now >= 0) {
      const [start, end] = [timeline.start[now]!, timeline.start[now]! + timeline.duration[now]!];
      if (key === "[") mark(start, marked && marked.to > start ? marked.to : end);
      else mark(marked && marked.from < end ? marked.from : start, end);
    } else if (own && key === "x") markedText.value = "";
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  /** Sum up the time of the selected span; without one, what is seen. */
  const markSpan = (): void => {
    const view = stage.current?.view;
    if (now >= 0) mark(timeline.start[now]!, timeline.start[now]! + timeline.duration[now]!);
    else if (view) mark(view.from, view.to);
  };

  return (
    <div class="view" data-testid={name}>
      <div class="toolbar" role="toolbar" aria-label={own ? "Timeline" : "Timeline of the generation"}>
        <span class="segments">
          <button aria-label="Zoom out" title="Zoom out (s)" onClick={() => stage.current?.zoomBy(1 / 1.8)}>
            −
          </button>
          <button aria-label="Zoom in" title="Zoom in (w)" onClick={() => stage.current?.zoomBy(1.8)}>
            +
          </button>
          <button data-testid={`${name}-fit`} title="Show all (f)" onClick={() => stage.current?.fit()}>
            Fit
          </button>
        </span>
        <button
          class="button"
          disabled={now < 0}
          title="Zoom to the selected span (Enter)"
          onClick={() => stage.current && zoomTo(stage.current, timeline, now)}
        >
          Zoom to selection
        </button>
        {own && (
          <button
            class="button"
            data-testid="timeline-mark"
            title="Sum up what lies in the time of the selected span, or in what is seen (m); [ and ] take its start or end"
            onClick={markSpan}
          >
            Sum up
          </button>
        )}
        {timeline.note && <span class="muted" data-testid="timeline-note">{visible(timeline.note)}</span>}
        <span class="spacer" />
        <span class="muted wide-only">
          Wheel or W S: zoom · drag or A D: move{own && " · Shift+drag or [ ]: sum up"}
        </span>
      </div>
      <div class="timeline">
        <TrackNames run={run} timeline={timeline} lanes={lanes} places={tracks} scroll={scroll} />
        <div class="drawing-stage">
          <canvas
            ref={canvas}
            class="drawing"
            tabIndex={0}
            role="application"
            aria-roledescription="timeline"
            aria-label={`Timeline of ${timeline.start.length} spans. Arrow keys go from span to span, W and S zoom, A and D move${own ? ", M sums up the selected span's time" : ""}.`}
            data-testid={`${name}-canvas`}
            data-spans={timeline.start.length}
            onKeyDown={onKey}
          />
          {hover.span >= 0 && stage.current && (
            <SpanTip
              timeline={timeline}
              span={hover.span}
              text={text(hover.span)}
              place={tipPlace(hover.x, hover.y, stage.current.view)}
              write={write}
            />
          )}
        </div>
      </div>
      {marked && (
        <SpanTable run={run} timeline={timeline} marked={marked} write={write} onClose={() => (markedText.value = "")} />
      )}
      {own && <Legend timeline={timeline} kernels={kernels} colours={colours} />}
      <SpanBar timeline={timeline} span={now} text={now < 0 ? "" : text(now)} own={own} many={chosen.count} write={write} />
    </div>
  );
}

function spanOfText(text: string): { from: number; to: number } | null {
  const found = /^(-?[\d.]+(?:e[+-]?\d+)?)-([\d.]+(?:e[+-]?\d+)?)$/.exec(text);
  const [from, to] = [Number(found?.[1]), Number(found?.[2])];
  return from < to && Number.isFinite(to) ? { from, to } : null;
}

function useTimelineStage(
  canvas: RefObject<HTMLCanvasElement>,
  setHover: (hover: Hover) => void,
  setScroll: (scroll: number) => void,
  choose: (span: number) => void,
  mark: (from: number, to: number) => void,
): { current: TimelineStage | null } {
  const stage = useRef<TimelineStage | null>(null);
  const choosing = useRef(choose);
  choosing.current = choose;
  const marking = useRef(mark);
  marking.current = mark;
  useEffect(() => {
    const made = new TimelineStage(canvas.current!, {
      hover: (span, x, y) => setHover(span < 0 ? NOTHING : { span, x, y }),
      click: (span) => choosing.current(span),
      scrolled: setScroll,
      marked: (from, to) => marking.current(from, to),
    });
    stage.current = made;
    return () => {
      made.stop();
      stage.current = null;
    };
  }, []);
  return stage;
}

interface TrackNamesProps {
  run: Run;
  timeline: Timeline;
  lanes: Lanes;
  places: { top: number; height: number }[];
  scroll: number;
}

function TrackNames({ run, timeline, lanes, places, scroll }: TrackNamesProps) {
  const prefix = run.methods.length === 1 ? `${run.methods[0]!.name} · ` : "";
  return (
    <div class="timeline-names">
      {lanes.tracks.map(({ track, depth }, index) => {
        const { name, note } = timeline.tracks[track]!;
        const { top, height } = places[index]!;
        const text = visible(name.slice(name.startsWith(prefix) ? prefix.length : 0, NAME_LENGTH));
        return (
          <div
            key={track}
            class="timeline-name"
            data-testid="timeline-track"
            style={{ top: `${RULER + top - scroll}px`, height: `${height}px`, paddingLeft: `${10 + depth * 12}px` }}
            title={note ? `${text}\n${visible(note)}` : text}
          >
            <bdi dir="ltr">{text}</bdi>
            {note && <small>{visible(note.slice(0, NAME_LENGTH))}</small>}
          </div>
        );
      })}
    </div>
  );
}

interface SpanProps {
  timeline: Timeline;
  text: string;
  write: (value: number) => string;
}

function SpanTip({ timeline, span, text, place, write }: SpanProps & { span: number; place: Record<string, string> }) {
  return (
    <div class="drawing-tip" role="presentation" data-testid="timeline-tooltip" style={place}>
      <b>{text}</b>
      <div data-testid="timeline-tooltip-duration" data-value={timeline.duration[span]}>
        {write(timeline.duration[span]!)}
      </div>
      <div>from {write(timeline.start[span]!)}</div>
    </div>
  );
}

function SpanBar({ timeline, span, text, own, many, write }: SpanProps & { span: number; own: boolean; many: number }) {
  return (
    <div class="graph-bar" data-testid="timeline-card" aria-live="polite">
      {span < 0 ? (
        <span class="muted">
          {own ? "A click selects the row of a span in all views." : "A click tells what a span is."}
        </span>
      ) : (
        <>
          <b>
            <bdi dir="ltr">{text}</bdi>
          </b>
          <span class="figure" data-testid="timeline-duration" data-value={timeline.duration[span]} title={String(timeline.duration[span])}>
            {write(timeline.duration[span]!)}
          </span>
          <span>
            <span class="muted">from </span>
            <span class="figure" data-testid="timeline-start" data-value={timeline.start[span]} title={String(timeline.start[span])}>
              {write(timeline.start[span]!)}
            </span>
          </span>
          <span class="muted">{visible(timeline.tracks[timeline.track[span]!]?.name ?? "")}</span>
          {many > 1 && <span class="muted">one of {many} selected spans</span>}
        </>
      )}
    </div>
  );
}

/** Kernels that the legend names. */
const MOST_NAMED = 8;

function Legend({ timeline, kernels, colours }: { timeline: Timeline; kernels: string[]; colours: string[] }) {
  const named = kernels.filter((name) => name !== "Method::execute").slice(0, MOST_NAMED);
  return (
    <div class="timeline-legend" data-testid="timeline-legend">
      {named.map((name) => (
        <span key={name}>
          <i style={{ background: colours[timeline.names.findIndex((one) => kernelOf(one) === name)] }} />
          {visible(name)}
        </span>
      ))}
    </div>
  );
}

/** A delegate numbers the kernels of one name. */
const kernelOf = (name: string): string => name.replace(/ #\d+$/, "");

/** Names of kernels, those with most time first. */
function kernelsByTime({ names, name, duration }: Timeline): string[] {
  const kernels = names.map(kernelOf);
  const times = new Map(kernels.map((kernel) => [kernel, 0]));
  name.forEach((at, span) => {
    const kernel = kernels[at]!;
    times.set(kernel, times.get(kernel)! + duration[span]!);
  });
  return [...times.keys()].sort((one, other) => times.get(other)! - times.get(one)!);
}

/** The name of a span; of a delegate's call the module first, as the delegate's name is that of many. */
function labelOf(run: Run, timeline: Timeline, span: number): string {
  const [method, row] = timeline.row[span] ?? [];
  const values = method === undefined ? undefined : run.methods[method]?.rows.values;
  const module = values?.["kind"]?.[row!] === "delegate" ? values["module"]?.[row!] : null;
  const name = nameOf(timeline, span);
  return module ? `${module} · ${name}` : name;
}

const nameOf = (timeline: Timeline, span: number): string =>
  timeline.names[timeline.name[span]!] ?? "";

function timeText(timeline: Timeline, unit: string): (value: number) => string {
  // Single spans, not the whole: their digits are what one looks for.
  const longest = timeline.duration.reduce((most, value) => Math.max(most, value), 0);
  const write = cellFormat({ kind: "duration", unit }, [longest]);
  return (value) => `${write(value)} ${unit}`;
}

function chosenSpans(run: Run, timeline: Timeline, sel: typeof selection.value): { flags: Uint8Array; first: number; count: number } {
  const flags = new Uint8Array(timeline.start.length);
  const rows = rowsOf(run, sel);
  let first = -1;
  let count = 0;
  if (rows.size === 0) return { flags, first, count };
  timeline.row.forEach((row, span) => {
    if (row === null || !rows.has(`${row[0]}:${row[1]}`)) return;
    flags[span] = 1;
    if (first < 0 || timeline.start[span]! < timeline.start[first]!) first = span;
    count++;
  });
  return { flags, first, count };
}

function zoomTo(stage: TimelineStage, timeline: Timeline, span: number): void {
  const start = timeline.start[span]!;
  const around = timeline.duration[span]! * 0.15;
  stage.look(start - around, start + timeline.duration[span]! + around);
  stage.reveal(span);
}
