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
import { folds, RepeatsSelect } from "./folds";
import { FrameBox, NARROWEST, ROW } from "./modules/frame";
import { Crumbs } from "./modules/crumbs";
import { childrenOf, frames, pathTo, searchModules, sightOf, step, wholeTime } from "./modules/frames";
import type { Frame } from "./modules/frames";
import { apart, folded, LARGE, openTo, placeOf } from "./modules/repeats";
import type { ShownModule } from "./modules/repeats";
import { ModuleSearch } from "./modules/search";
import { eachBlock, eachText } from "./repeats";
import { nameColours, shareRamp } from "./scale";
import "./drawings.css";

const COLOURS = ["total", "self", "type"] as const;
type ColourBy = (typeof COLOURS)[number];

const shape = control("modules.shape", "icicle", ["icicle", "flame"]);
const colourBy = control("modules.colour", "total", COLOURS);
const find = control("modules.find", "");
/** What is zoomed into: the path of a module, "" for all. */
const zoom = control("modules.zoom", "");
/** The boxes around repeated blocks that are open: their paths (JSON). */
const opened = control("modules.open", "");
/** The path of a box, or of what stands for several modules, that is looked at. */
const merged = control("modules.merged", "");
const ROOT = "(root)";

export function Icicle({ run }: { run: Run }) {
  const method = run.methods[methodIndex.value];
  if (!method || method.modules.length === 0) {
    return <Nothing>No modules: the report was made without a dump, or without a record to name them.</Nothing>;
  }
  return <MethodIcicle key={methodIndex.value} run={run} method={method} index={methodIndex.value} />;
}

function MethodIcicle({ run, method, index }: { run: Run; method: Method; index: number }) {
  const open = useMemo(() => openOf(opened.value), [opened.value]);
  const isFolded = folds(method.modules.length >= LARGE);
  const modules = useMemo(
    () => (isFolded ? folded(method.modules, open) : apart(method.modules)),
    [method, isFolded, open],
  );
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
  const narrowest = NARROWEST / Math.max(width, 1);
  const shown = useMemo(() => frames(modules, focus, narrowest), [modules, focus, narrowest]);
  const found = useMemo(() => new Set(searchModules(method.modules, text).found), [method, text]);
  const place = moduleOf(run, selection.value);
  const selected = place?.method === index ? place.module : null;
  const chosenAt =
    merged.value === ""
      ? placeOf(modules, selected)
      : modules.findIndex(({ of, path }) => of.length > 1 && path === merged.value);
  const chosen = chosenAt < 0 ? null : chosenAt;
  const write = useMemo(() => timeText(modules, run.unit), [modules, run.unit]);

  /** Select a module; what stands for several is looked at here alone. */
  const choose = (module: number): void => {
    const { of, path } = modules[module]!;
    merged.value = of.length > 1 ? path : "";
    select(of.length > 1 ? null : { kind: "module", method: index, module: of[0]! });
  };
  /** Open or close a box, zoom into anything else and out to what is around. */
  const enter = (module: number): void => {
    const { isBox, path } = modules[module]!;
    if (!isBox || pathTo(modules, focus).slice(0, -1).includes(module)) return setFocus(module);
    const next = new Set(open);
    if (!next.delete(path)) next.add(path);
    opened.value = textOfOpen(next);
  };
  const bringIntoSight = (module: number): void => {
    if (!shown.some((frame) => frame.module === module)) setFocus(sightOf(modules, module, narrowest));
  };
  const go = (module: number): void => {
    choose(module);
    bringIntoSight(module);
  };
  // What another view selects has to be in sight.
  useEffect(() => {
    if (selected === null) return;
    merged.value = "";
    if (isFolded && placeOf(modules, selected) < 0) opened.value = textOfOpen(openTo(method.modules, open, selected));
  }, [selected]);
  useEffect(() => {
    if (chosen !== null && width > 0) bringIntoSight(chosen);
  }, [chosen, width > 0]);
  useEffect(() => {
    stage.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [chosen, focus, shape.value]);

  const onKey = (event: KeyboardEvent): void => {
    const now = chosen ?? focus ?? 0;
    const to = step(modules, below, now, event.key, shape.value === "flame");
    if (to !== undefined) {
      if (to !== null) go(to);
    } else if (event.key === "Enter" || event.key === " ") enter(now);
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
          modules={method.modules}
          whole={whole}
          text={text}
          at={at}
          onText={(next) => {
            find.value = next;
            setAt(-1);
          }}
          onJump={(next, module) => {
            setAt(next);
            select({ kind: "module", method: index, module });
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
        <RepeatsSelect />
      </div>
      <Crumbs nodes={modules} path={pathTo(modules, focus)} all="all" onGo={setFocus} testId="icicle-crumbs" />
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
            <ModuleFrame
              key={modules[frame.module]!.path}
              frame={frame}
              module={modules[frame.module]!}
              width={width}
              row={shape.value === "icicle" ? frame.row : rows - 1 - frame.row}
              colour={colour(modules[frame.module]!)}
              words={write}
              whole={whole}
              state={{
                chosen: frame.module === chosen,
                found: modules[frame.module]!.of.some((one) => found.has(one)),
                dim: found.size > 0,
                open: modules[frame.module]!.isBox ? open.has(modules[frame.module]!.path) : undefined,
              }}
              onClick={() => {
                choose(frame.module);
                enter(frame.module);
              }}
            />
          ))}
        </div>
      </div>
      <ModuleBar
        all={method.modules}
        isFolded={isFolded}
        one={chosen === null ? undefined : modules[chosen]}
        whole={whole}
        unit={run.unit}
        words={write}
      />
    </div>
  );
}

interface FrameProps {
  frame: Frame;
  module: ShownModule;
  width: number;
  row: number;
  colour: string;
  words: (value: number) => string;
  whole: number;
  /** open: of a box. */
  state: { chosen: boolean; found: boolean; dim: boolean; open: boolean | undefined };
  onClick: () => void;
}

function ModuleFrame({ frame, module, width, row, colour, words, whole, state, onClick }: FrameProps) {
  const name = module.name || module.path || ROOT;
  const share = whole > 0 ? formatShare(module.total / whole) : "";
  const classes = ["frame-box"];
  if (state.chosen) classes.push("chosen");
  if (state.found) classes.push("found");
  // What is around, or not found, has no colour of its own.
  const quiet = frame.around || (state.dim && !state.found);
  const title = [
    `${visible(module.path) || ROOT}`,
    ...(module.type ? [visible(module.type)] : []),
    `total ${words(module.total)} (${share}), self ${words(module.self)}`,
  ];
  return (
    <FrameBox
      frame={frame}
      width={width}
      row={row}
      colour={quiet ? null : colour}
      name={module.isBox ? `${state.open ? "▾" : "▸"} ${name}` : name}
      type={module.type}
      time={words(module.total)}
      id={`module-${frame.module}`}
      class={classes.join(" ")}
      tabIndex={-1}
      aria-selected={state.chosen}
      aria-expanded={state.open}
      aria-label={`${visible(name)}, ${words(module.total)}, ${share}`}
      data-testid="icicle-frame"
      data-path={module.path}
      data-total={module.total}
      data-modules={module.of.length}
      title={title.join("\n")}
      onClick={onClick}
    />
  );
}

function openOf(text: string): ReadonlySet<string> {
  try {
    const found: unknown = JSON.parse(text || "[]");
    return new Set(Array.isArray(found) ? found.map(String) : []);
  } catch {
    return new Set(); // an address that was cut off
  }
}

const textOfOpen = (open: ReadonlySet<string>): string => (open.size ? JSON.stringify([...open]) : "");

interface ModuleBarProps {
  all: readonly ModuleNode[];
  isFolded: boolean;
  one: ShownModule | undefined;
  whole: number;
  unit: string;
  words: (value: number) => string;
}

function ModuleBar({ all, isFolded, one, whole, unit, words }: ModuleBarProps) {
  const each = one && one.of.length > 1 ? eachBlock(one.of.map((module) => all[module]!.total)) : null;
  return (
    <div class="graph-bar" data-testid="icicle-card" aria-live="polite">
      {one === undefined ? (
        <span class="muted">
          A click zooms in{isFolded ? " or opens a box (▸)" : ""}; arrow keys go from module to module, Backspace zooms out. {words(whole)} in all.
          {all.some((one) => one.path === "(no module)") && ` (no module): ${NO_MODULE}`}
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
          {each && (
            <span class="muted" data-testid="icicle-each-block">
              each of {one.of.length}: {eachText(each, words)}
            </span>
          )}
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
