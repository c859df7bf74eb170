// One graph with its tools: search, folding, legend, small map and the card of what is selected.

import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { GraphDoc, Run } from "../../document";
import { nodesOf } from "../../links";
import { controlOfEach, select, selection } from "../../store";
import type { Selection } from "../../store";
import { theme } from "../../theme";
import { PALETTES, tipPlace } from "../canvas";
import type { Drawing } from "../layout/engine";
import { boxesToDepth } from "../layout/tree";
import type { ScaleMode, Value } from "../scale";
import { SelectionBar, Tooltip, selectItem } from "./card";
import { useFolding } from "./folding";
import type { Folding } from "./folding";
import { graphKey } from "./keys";
import { LegendView } from "./legend";
import { colouring, hottest, seenValues } from "./look";
import type { ColourBy } from "./look";
import { FEW, marksOf, shownAt } from "./marks";
import { MiniMap, SmallMap } from "./minimap";
import { graphModel, searchItems } from "./model";
import type { GraphModel } from "./model";
import type { Scene } from "./scene";
import { NO_PLAN, settle } from "./plan";
import type { Plan } from "./plan";
import { Stage } from "./stage";
import { PaneTools } from "./tools";

export interface PaneSettings {
  by: ColourBy;
  mode: ScaleMode;
  labels: boolean;
  weights: boolean;
  /** Open the boxes around what another view selects. */
  follow: boolean;
}

interface PaneProps {
  run: Run;
  graph: GraphDoc;
  settings: PaneSettings;
  onWeights: () => void;
  /** Values seen in the pane beside, for one scale of the colours. */
  others: readonly Value[];
  onSeen: (values: Value[]) => void;
}

interface Hover {
  index: number;
  x: number;
  y: number;
}

/** The text of each graph's search box. */
const findIn = controlOfEach("find");
const NOWHERE: Hover = { index: -1, x: 0, y: 0 };

export function GraphPane({ run, graph, settings, onWeights, others, onSeen }: PaneProps) {
  const model = useMemo(() => graphModel(graph), [graph]);
  const folding = useFolding(model, settings.weights);
  const { drawing } = folding;
  const [hover, setHover] = useState<Hover>(NOWHERE);
  const find = findIn(graph.key);
  const found = useMemo(() => searchItems(model, find.value), [model, find.value]);
  const canvas = useRef<HTMLCanvasElement>(null);
  const plan = useRef<Plan>({ ...NO_PLAN });
  const map = useMemo(() => new SmallMap(), []);
  const sel = selection.value;
  const chosen = useMemo(() => itemsOf(run, model, sel), [run, model, sel]);
  const hovered = drawing !== null && hover.index >= 0 ? drawing.items[hover.index] : undefined;
  const latest = useRef({ model, folding, chosen });
  latest.current = { model, folding, chosen };

  const choose = (item: number): void => {
    selectItem(model, item);
    plan.current.own = selection.peek();
  };
  const jump = (item: number): void => {
    if (item < model.tree.nodeCount && model.shape.weight[item] && !settings.weights) onWeights();
    choose(item);
    bring([item], true);
  };
  /** Items to the middle: at once, or when the boxes around them are open. */
  const bring = (items: number[], opening: boolean): void => {
    plan.current.centre = items;
    const waits = opening && folding.openTo(items);
    if (!waits) settle(stage.current, folding.drawing, model, plan.current);
  };
  const stage = useStage(canvas, map, latest, plan, setHover, choose);

  useEffect(() => {
    if (sel === null || sel === plan.current.own || chosen.length === 0) return;
    bring(chosen, settings.follow && chosen.length <= FEW);
  }, [sel, chosen]);

  const colours = useMemo(
    () => drawing && colouring(model, drawing, settings.by, settings.mode, theme.value, others),
    [model, drawing, settings.by, settings.mode, theme.value, others],
  );
  useEffect(() => {
    if (drawing) onSeen(seenValues(model, drawing, settings.by));
  }, [model, drawing, settings.by]);
  const shown = useMemo(() => drawing && shownAt(model, drawing), [model, drawing]);
  const scene = useMemo<Scene | null>(() => {
    if (!drawing || !colours || !shown) return null;
    const look = { ...colours.look, labels: settings.labels };
    const marks = marksOf(model, drawing, shown, chosen, found, hover.index);
    return { model, drawing, look, marks, palette: PALETTES[theme.value] };
  }, [model, drawing, colours, shown, chosen, found, hover.index, settings.labels, theme.value]);

  useEffect(() => {
    if (scene) stage.current?.show(scene);
  }, [scene]);
  useEffect(() => {
    if (!scene || !stage.current) return;
    map.take(scene);
    settle(stage.current, drawing, model, plan.current, hot);
    map.show(stage.current.view);
  }, [drawing, colours]);

  const onKey = (event: KeyboardEvent): void => {
    if (!drawing || !shown || !stage.current) return;
    const item = chosen[0] ?? -1;
    const did = graphKey(event, { model, drawing, shown, item, stage: stage.current, jump, toggle: folding.toggle, reveal: openToSelection, hottest: () => toHottest?.() });
    if (!did) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const openToSelection = (): void => bring(chosen, true);
  const hot = useMemo(() => hottest(model, settings.by), [model, settings.by]);
  const toHottest = hot === null ? null : (): void => jump(hot);
  const missing =
    settings.by !== "none" && settings.by !== "backend" && !graph.measures.some((one) => one.key === settings.by)
      ? "Not measured in this graph"
      : null;

  return (
    <section class="graph-pane" data-testid="graph-pane" data-graph={graph.key}>
      <PaneTools
        model={model}
        scene={scene}
        open={folding.open}
        hasSelection={chosen.length > 0}
        text={find.value}
        found={found}
        onText={(text) => (find.value = text)}
        onJump={jump}
        onDepth={(levels) => {
          plan.current.fitted = false;
          folding.setOpen(boxesToDepth(model.tree, levels));
        }}
        onOpenToSelection={openToSelection}
        onHottest={toHottest}
        onFit={() => drawing && stage.current?.fit(drawing)}
        onZoom={(factor) => stage.current?.zoomBy(factor)}
      />
      <div class="drawing-stage graph-stage">
        <canvas
          ref={canvas}
          class="drawing"
          tabIndex={0}
          role="application"
          aria-roledescription="graph"
          aria-label={`Graph ${graph.title}: ${model.tree.nodeCount} nodes. Arrow keys follow edges, Enter opens a box.`}
          data-testid="graph-canvas"
          onKeyDown={onKey}
        />
        {folding.busy && <p class="drawing-busy">Laying out …</p>}
        {folding.failure && <p class="drawing-busy">{folding.failure}</p>}
        {colours && <LegendView legend={colours.legend} missing={missing} />}
        <MiniMap map={map} stage={() => stage.current} />
        {hovered !== undefined && stage.current && (
          <Tooltip model={model} item={hovered} by={settings.by} place={tipPlace(hover.x, hover.y, stage.current.view)} />
        )}
        <DrawnNumbers drawing={drawing} model={model} />
      </div>
      <SelectionBar model={model} items={chosen} by={settings.by} onJump={jump} />
    </section>
  );
}

interface Latest {
  model: GraphModel;
  folding: Folding;
  chosen: number[];
}

function useStage(
  canvas: RefObject<HTMLCanvasElement>,
  map: SmallMap,
  latest: RefObject<Latest>,
  plan: RefObject<Plan>,
  setHover: (hover: Hover) => void,
  choose: (item: number) => void,
): { current: Stage | null } {
  const stage = useRef<Stage | null>(null);
  const choosing = useRef(choose);
  choosing.current = choose;
  useEffect(() => {
    const itemAt = (index: number): number => latest.current!.folding.drawing!.items[index]!;
    const made = new Stage(canvas.current!, {
      hover: (index, x, y) => setHover(index < 0 ? NOWHERE : { index, x, y }),
      click: (index) => (index < 0 ? select(null) : choosing.current(itemAt(index))),
      toggle: (index) => {
        const { folding } = latest.current!;
        const drawing = folding.drawing!;
        plan.current!.anchor = {
          item: itemAt(index),
          x: drawing.x[index]! + drawing.w[index]! / 2,
          y: drawing.y[index]!,
        };
        folding.toggle(itemAt(index));
      },
      moved: (view) => map.show(view),
    });
    stage.current = made;
    return () => {
      made.stop();
      stage.current = null;
    };
  }, []);
  return stage;
}

/** Items that a selection covers: a module or box as its box, all else as nodes. */
function itemsOf(run: Run, model: GraphModel, sel: Selection): number[] {
  const { doc, tree } = model;
  if (sel?.kind === "group" && sel.graph === doc.key) return [tree.nodeCount + sel.group];
  if (sel?.kind === "module") {
    const path = run.methods[sel.method]?.modules[sel.module]?.path;
    const boxes = doc.groups.flatMap((group, index) =>
      group.kind === "module" && group.label === path ? [tree.nodeCount + index] : [],
    );
    if (boxes.length > 0) return boxes;
  }
  return [...nodesOf(run, sel, doc.key)];
}

/** How much is drawn, for readers that do not see it. */
export function DrawnNumbers({ drawing, model }: { drawing: Drawing | null; model: GraphModel }) {
  if (!drawing) return null;
  const open = drawing.isOpen.reduce((sum, one) => sum + one, 0);
  return (
    <p
      class="drawing-said"
      data-testid="graph-drawn"
      data-items={drawing.items.length}
      data-open={open}
      data-nodes={model.tree.nodeCount}
    >
      {drawing.items.length} items drawn, {open} boxes open
    </p>
  );
}
