// The Modules tab: the module tree as an icicle (or flame), as wide as its time.

import { useEffect, useMemo, useState } from "preact/hooks";

import type { Method, ModuleNode, Run } from "../document";
import { cellFormat, formatShare, visible } from "../format";
import { moduleOf } from "../links";
import { Nothing } from "../parts/nothing";
import { useWidth } from "../parts/size";
import { Segments } from "../parts/toolbar";
import { control, methodIndex, select, selection } from "../store";
import { theme } from "../theme";
import { NO_MODULE } from "../words";
import { inkOn, nameColours, shareRamp } from "./scale";
import { childrenOf, frames, pathTo, searchModules, wholeTime } from "./modules/frames";
import type { Frame } from "./modules/frames";
import { ModuleSearch } from "./modules/search";
import "./drawings.css";

const COLOURS = ["total", "self", "type"] as const;
type ColourBy = (typeof COLOURS)[number];

const ROW = 25;
/** Frames narrower than this are left out, in pixels. */
const NARROWEST = 1;
/** Frames narrower than this have no words. */
const WORDS_FROM = 34;

const shape = control("modules.shape", "icicle", ["icicle", "flame"]);
const colourBy = control("modules.colour", "total", COLOURS);
const find = control("modules.find", "");
/** What is zoomed into: the path of a module, "" for all. */
const zoom = control("modules.zoom", "");
const ROOT = "(root)";

export function Icicle({ run }: { run: Run }) {
  const method = run.methods[methodIndex.value];
  if (!method || method.modules.length === 0) {
    return <Nothing>No modules: the report was made without a dump, or without a record to name them.</Nothing>;
  }
  return <MethodIcicle key={methodIndex.value} run={run} method={method} index={methodIndex.value} />;
}

function MethodIcicle({ run, method, index }: { run: Run; method: Method; index: number }) {
  const { modules } = method;
  // Another run, or a served report that changed, may not have the module.
  const zoomed = modules.findIndex(({ path }) => (path || ROOT) === zoom.value);
  const focus = zoomed < 0 ? null : zoomed;
  const setFocus = (module: number | null): void => {
    zoom.value = module === null ? "" : modules[module]!.path || ROOT;
  };
  const text = find.value;
  const [at, setAt] = useState(-1);
  const [stage, width] = useWidth<HTMLDivElement>();
  const whole = useMemo(() => wholeTime(modules), [modules]);
  const below = useMemo(() => childrenOf(modules), [modules]);
  const shown = useMemo(() => frames(modules, focus, NARROWEST / Math.max(width, 1)), [modules, focus, width]);
  const found = useMemo(() => new Set(searchModules(modules, text).found), [modules, text]);
  const place = moduleOf(run, selection.value);
  const chosen = place?.method === index ? place.module : null;
  const write = useMemo(() => timeText(modules, run.unit), [modules, run.unit]);

  const go = (module: number, zoom: boolean): void => {
    select({ kind: "module", method: index, module });
    if (zoom) setFocus(module);
  };
  // What another view selects has to be in sight.
  useEffect(() => {
    if (chosen !== null && !shown.some((frame) => frame.module === chosen)) {
      setFocus(modules[chosen]!.parent);
    }
  }, [chosen]);
  useEffect(() => {
    stage.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [chosen, focus, shape.value]);

  const onKey = (event: KeyboardEvent): void => {
    const now = chosen ?? focus ?? 0;
    const to = step(modules, below, now, event.key, shape.value === "flame");
    if (to !== undefined) {
      if (to !== null) go(to, !shown.some((frame) => frame.module === to));
    } else if (event.key === "Enter" || event.key === " ") setFocus(now);
    else if (event.key === "Backspace") setFocus(focus === null ? null : modules[focus]!.parent);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const rows = shown.reduce((most, frame) => Math.max(most, frame.row + 1), 0);
  const colour = useMemo(
    () => frameColour(modules, whole, colourBy.value, theme.value),
    [modules, whole, colourBy.value, theme.value],
  );

  return (
    <div class="view" data-testid="icicle">
      <div class="toolbar" role="toolbar" aria-label="Module chart">
        <ModuleSearch
          modules={modules}
          whole={whole}
          text={text}
          at={at}
          onText={(next) => {
            find.value = next;
            setAt(-1);
          }}
          onJump={(next, module) => {
            setAt(next);
            go(module, false);
            if (!shown.some((frame) => frame.module === module)) setFocus(modules[module]!.parent);
          }}
        />
        <Segments
          label="Direction"
          value={shape.value}
          options={[
            ["icicle", "icicle"],
            ["flame", "flame"],
          ]}
          onChange={(next) => (shape.value = next)}
          testId="icicle-shape"
        />
        <span class="muted">Colour by</span>
        <Segments
          label="Colour by"
          value={colourBy.value}
          options={[
            ["total", "total"],
            ["self", "self"],
            ["type", "type"],
          ]}
          onChange={(next) => (colourBy.value = next)}
          testId="icicle-colour"
        />
      </div>
      <Crumbs modules={modules} focus={focus} onGo={(module) => setFocus(module)} />
      <div class="icicle-stage" ref={stage}>
        <div
          class="icicle"
          role="tree"
          aria-label="Modules by time"
          tabIndex={0}
          aria-activedescendant={chosen === null ? undefined : `module-${chosen}`}
          style={{ height: `${rows * ROW}px` }}
          onKeyDown={onKey}
        >
          {shown.map((frame) => (
            <FrameView
              key={frame.module}
              frame={frame}
              module={modules[frame.module]!}
              width={width}
              row={shape.value === "icicle" ? frame.row : rows - 1 - frame.row}
              colour={colour(modules[frame.module]!)}
              words={write}
              whole={whole}
              state={{ chosen: frame.module === chosen, found: found.has(frame.module), dim: found.size > 0 }}
              onClick={() => go(frame.module, true)}
            />
          ))}
        </div>
      </div>
      <ModuleBar modules={modules} module={chosen} whole={whole} unit={run.unit} words={write} />
    </div>
  );
}

interface FrameProps {
  frame: Frame;
  module: ModuleNode;
  width: number;
  row: number;
  colour: string;
  words: (value: number) => string;
  whole: number;
  state: { chosen: boolean; found: boolean; dim: boolean };
  onClick: () => void;
}

function FrameView({ frame, module, width, row, colour, words, whole, state, onClick }: FrameProps) {
  const wide = (frame.right - frame.left) * width;
  const name = visible(module.name || module.path || ROOT);
  const share = whole > 0 ? formatShare(module.total / whole) : "";
  const classes = ["frame-box"];
  if (state.chosen) classes.push("chosen");
  if (state.found) classes.push("found");
  // What is around, or not found, steps back: it has no colour of its own.
  const quiet = frame.around || (state.dim && !state.found);
  return (
    <div
      id={`module-${frame.module}`}
      class={classes.join(" ")}
      role="treeitem"
      aria-level={frame.row + 1}
      aria-selected={state.chosen}
      aria-label={`${name}, ${words(module.total)}, ${share}`}
      data-testid="icicle-frame"
      data-path={module.path}
      data-total={module.total}
      title={`${visible(module.path) || ROOT}${module.type ? `\n${visible(module.type)}` : ""}\ntotal ${words(module.total)} (${share}), self ${words(module.self)}`}
      style={{
        left: `${frame.left * 100}%`,
        width: `calc(${(frame.right - frame.left) * 100}% - ${wide > 4 ? 1 : 0}px)`,
        top: `${row * ROW}px`,
        background: quiet ? "var(--raise)" : colour,
        color: quiet ? "var(--text)" : inkOn(colour),
      }}
      onClick={onClick}
    >
      {wide >= WORDS_FROM && (
        <>
          <span class="frame-name">{name}</span>
          {module.type && wide > 190 && <span class="frame-type">{visible(module.type)}</span>}
          {wide > 110 && <span class="frame-time">{words(module.total)}</span>}
        </>
      )}
    </div>
  );
}

function Crumbs({ modules, focus, onGo }: { modules: readonly ModuleNode[]; focus: number | null; onGo: (module: number | null) => void }) {
  const path = pathTo(modules, focus);
  return (
    <nav class="crumbs" aria-label="Zoomed into" data-testid="icicle-crumbs">
      <button class="link" aria-pressed={focus === null} onClick={() => onGo(null)}>
        all
      </button>
      {path.map((module) => (
        <span key={module}>
          {" › "}
          <button class="link" aria-pressed={module === focus} onClick={() => onGo(module)}>
            {visible(modules[module]!.name || modules[module]!.path || ROOT).slice(0, 80)}
          </button>
        </span>
      ))}
    </nav>
  );
}

interface ModuleBarProps {
  modules: readonly ModuleNode[];
  module: number | null;
  whole: number;
  unit: string;
  words: (value: number) => string;
}

function ModuleBar({ modules, module, whole, unit, words }: ModuleBarProps) {
  const one = module === null ? undefined : modules[module];
  return (
    <div class="graph-bar" data-testid="icicle-card" aria-live="polite">
      {one === undefined ? (
        <span class="muted">
          A click zooms in; arrow keys go from module to module, Backspace zooms out. {words(whole)} in all.
          {modules.some((one) => one.path === "(no module)") && ` (no module): ${NO_MODULE}`}
        </span>
      ) : (
        <>
          <b>
            <bdi dir="ltr">{(visible(one.path) || ROOT).slice(0, 200)}</bdi>
          </b>
          {one.type !== null && <span class="muted">{visible(one.type).slice(0, 120)}</span>}
          <Time name="total" value={one.total} unit={unit} words={words} />
          {whole > 0 && <span class="figure">{formatShare(one.total / whole)}</span>}
          <Time name="self" value={one.self} unit={unit} words={words} />
          <span class="muted">
            {one.rows.length} {one.rows.length === 1 ? "row" : "rows"} of its own
          </span>
        </>
      )}
    </div>
  );
}

function Time({ name, value, unit, words }: { name: string; value: number; unit: string; words: (value: number) => string }) {
  return (
    <span>
      <span class="muted">{name} </span>
      <span class="figure" data-testid={`icicle-${name}`} data-value={value} title={`${value} ${unit}`}>
        {words(value)}
      </span>
    </span>
  );
}

function timeText(modules: readonly ModuleNode[], unit: string): (value: number) => string {
  const write = cellFormat({ kind: "duration", unit }, modules.map((module) => module.total));
  return (value) => `${write(value)} ${unit}`;
}

function frameColour(
  modules: readonly ModuleNode[],
  whole: number,
  by: ColourBy,
  now: "light" | "dark",
): (module: ModuleNode) => string {
  if (by === "type") {
    const names = [...new Set(modules.map((module) => module.type ?? ""))].sort();
    const colour = nameColours(names, now);
    return (module) => colour(module.type ?? "");
  }
  const ramp = shareRamp(now);
  const value = (module: ModuleNode): number => (by === "total" ? module.total : module.self);
  const most = by === "total" ? whole : modules.reduce((top, module) => Math.max(top, module.self), 0);
  return (module) => ramp(most > 0 ? Math.min(1, Math.max(0, value(module)) / most) : 0);
}

/** Where an arrow key leads; null where there is nothing, undefined for other keys. */
function step(
  modules: readonly ModuleNode[],
  below: Map<number | null, number[]>,
  from: number,
  key: string,
  flame: boolean,
): number | null | undefined {
  const out = flame ? "ArrowDown" : "ArrowUp";
  const into = flame ? "ArrowUp" : "ArrowDown";
  if (key === out) return modules[from]?.parent ?? null;
  if (key === into) {
    const inside = below.get(from) ?? [];
    // Into the part that takes most of the time.
    return inside.length === 0 ? null : inside.reduce((a, b) => (modules[b]!.total > modules[a]!.total ? b : a));
  }
  if (key !== "ArrowLeft" && key !== "ArrowRight") return undefined;
  const siblings = below.get(modules[from]?.parent ?? null) ?? [];
  return siblings[siblings.indexOf(from) + (key === "ArrowLeft" ? -1 : 1)] ?? null;
}
