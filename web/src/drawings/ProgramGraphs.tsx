// The graphs of two programs side by side: one layout, so that partners stand at the same place, one view of
// it, one selection.

import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { GraphDoc, GraphPairDoc, NodeStatus, ProgramComparisonDoc, Run } from "../document";
import { visible } from "../format";
import { nodesOf } from "../links";
import { Nothing } from "../parts/nothing";
import { Popover, Segments, Select } from "../parts/toolbar";
import { control, controlOfEach, doc, runIndex, select, selection, showRun, switchControl } from "../store";
import type { Selection } from "../store";
import { theme } from "../theme";
import type { Theme } from "../theme";
import { PALETTES, tipPlace } from "./canvas";
import { SelectionBar, Tooltip } from "./graph/card";
import { useFolding } from "./graph/folding";
import type { Folding } from "./graph/folding";
import { graphKey } from "./graph/keys";
import { FEW, marksOf, shownAt } from "./graph/marks";
import { MiniMap, SmallMap } from "./graph/minimap";
import { graphModel, searchItems } from "./graph/model";
import type { GraphModel } from "./graph/model";
import type { Look, Scene } from "./graph/scene";
import { DrawnNumbers } from "./graph/pane";
import { NO_PLAN, settle } from "./graph/plan";
import type { Plan } from "./graph/plan";
import { Stage } from "./graph/stage";
import { PaneTools } from "./graph/tools";
import { isOn, itemOf, STATUSES, statusOf, unionOf } from "./graph/union";
import type { Union } from "./graph/union";
import { boxesToDepth } from "./layout/tree";
import "./drawings.css";

/** Key of the graph, the same in both runs; "" until the reader chooses. */
const graphKeyChosen = control("compare.graph", "");
const only = switchControl("compare.only", false);
const labels = switchControl("graph.labels", true);
const weights = switchControl("graph.weights", false);
const findIn = controlOfEach("find");
/** Boxes around so many changes are open at first. */
const MOST_OPENED = 30;

/** Colours by what was compared; what is the same is plain. */
const COLOURS: Record<Theme, Partial<Record<NodeStatus, string>>> = {
  light: { changed: "#f0c75e", moved: "#b7a3ea", removed: "#ee9c8f", added: "#7fcfa0" },
  dark: { changed: "#a37a14", moved: "#6a55b5", removed: "#a8473c", added: "#2c8454" },
};
export const STATUS_WORDS: Record<NodeStatus, string> = {
  changed: "changed",
  moved: "moved",
  removed: "only in A",
  added: "only in B",
  same: "the same",
};

export function ProgramGraphs({ found }: { found: ProgramComparisonDoc }) {
  const runs = [doc.value.runs[found.a]!, doc.value.runs[found.b]!] as const;
  const pairs = found.graphs.filter(({ key }) => runs.every((run) => graphOf(run, key)));
  const pair = pairs.find((one) => one.key === graphKeyChosen.value) ?? firstPair(pairs, selection.value);
  const docs = useMemo(
    () => pair && ([graphOf(runs[0], pair.key)!, graphOf(runs[1], pair.key)!] as const),
    [pair, runs[0], runs[1]],
  );
  const union = useMemo(() => pair && docs && unionOf(pair, docs, only.value), [pair, docs, only.value]);
  if (!pair || !union) return <Nothing>The two programs have no graph in common.</Nothing>;
  return (
    <>
      <div class="toolbar" role="toolbar" aria-label="Graphs of both programs">
        <Select
          label="Graph"
          value={pair.key}
          options={pairs.map((one) => [one.key, visible(one.title)] as const)}
          onChange={(key) => (graphKeyChosen.value = key)}
          testId="compare-graph"
        />
        <Segments
          label="Nodes shown"
          value={only.value ? "changes" : "all"}
          options={[
            ["all", "all nodes"],
            ["changes", "changes"],
          ]}
          onChange={(next) => (only.value = next === "changes")}
          testId="compare-only"
        />
        <Counts pair={pair} />
      </div>
      <Panes key={union.doc.key} found={found} union={union} docs={docs!} />
    </>
  );
}

const graphOf = (run: Run, key: string): GraphDoc | undefined => run.graphs.find((one) => one.key === key);

/** The graph of the selection, else the last: nearest to what runs. */
function firstPair(pairs: readonly GraphPairDoc[], sel: Selection): GraphPairDoc | undefined {
  const named = sel?.kind === "node" || sel?.kind === "group" ? sel.graph : null;
  return pairs.find((one) => one.key === named) ?? pairs.at(-1);
}

/** How many nodes are what: the legend of the colours. */
function Counts({ pair }: { pair: GraphPairDoc }) {
  const counts = STATUSES.map(
    (status) => [status, pair.status.filter((one) => one === status).length] as const,
  );
  return (
    <span class="compared-counts" data-testid="compare-counts">
      {counts.map(([status, count]) =>
        count > 0 ? (
          <span key={status} data-status={status} data-count={count}>
            <i style={{ background: COLOURS[theme.value][status] ?? PALETTES[theme.value].plain }} />
            {count} {STATUS_WORDS[status]}
          </span>
        ) : null,
      )}
    </span>
  );
}

interface PanesProps {
  found: ProgramComparisonDoc;
  union: Union;
  docs: readonly [GraphDoc, GraphDoc];
}

interface Hover {
  side: 0 | 1;
  index: number;
  x: number;
  y: number;
}

const NOWHERE: Hover = { side: 0, index: -1, x: 0, y: 0 };
const SIDES = [0, 1] as const;

function Panes({ found, union, docs }: PanesProps) {
  const model = useMemo(() => graphModel(union.doc), [union]);
  const opened = useMemo(() => (union.changes.length > MOST_OPENED ? [] : union.changes), [union]);
  const folding = useFolding(model, weights.value, opened);
  const { drawing } = folding;
  const [hover, setHover] = useState<Hover>(NOWHERE);
  const find = findIn(union.doc.key);
  const searched = useMemo(() => searchItems(model, find.value), [model, find.value]);
  const canvases = [useRef<HTMLCanvasElement>(null), useRef<HTMLCanvasElement>(null)] as const;
  const plan = useRef<Plan>({ ...NO_PLAN });
  const map = useMemo(() => new SmallMap(), []);
  const sel = selection.value;
  const chosen = useMemo(
    () => itemsOf(found, union, sel, runIndex.value),
    [found, union, sel, runIndex.value],
  );
  const latest = useRef({ folding, union });
  latest.current = { folding, union };

  const choose = (item: number): void => {
    selectSide(found, latest.current.union, item);
    plan.current.own = selection.peek();
  };
  const stages = useStages(canvases, map, latest, plan, setHover, choose);
  const jump = (item: number): void => {
    if (item < model.tree.nodeCount && model.shape.weight[item]) weights.value = true;
    choose(item);
    bring([item], true);
  };
  const bring = (items: number[], opening: boolean): void => {
    plan.current.centre = items;
    const waits = opening && folding.openTo(items);
    if (!waits) settle(stages.current[0] ?? null, folding.drawing, model, plan.current);
  };
  useEffect(() => {
    if (sel === null || sel === plan.current.own || chosen.length === 0) return;
    bring(chosen, chosen.length <= FEW);
  }, [sel, chosen]);

  const shown = useMemo(() => drawing && shownAt(model, drawing), [model, drawing]);
  const models = useMemo(
    () => SIDES.map((side) => sideModel(model, union, docs, side)),
    [model, union, docs],
  );
  const scenes = useMemo<Scene[] | null>(() => {
    if (!drawing || !shown) return null;
    const look = lookOf(union, theme.value, labels.value);
    const marks = marksOf(model, drawing, shown, chosen, searched, hover.index);
    return SIDES.map((side) => ({
      model: models[side]!,
      drawing,
      look,
      marks,
      palette: PALETTES[theme.value],
      presence: {
        item: (item) => isOn(union, side, item),
        edge: (edge) => (union.edgeSides[edge]! & (1 << side)) > 0,
      },
    }));
  }, [models, drawing, shown, union, chosen, searched, hover.index, labels.value, theme.value]);
  useEffect(() => {
    scenes?.forEach((scene, side) => stages.current[side]?.show(scene));
  }, [scenes]);
  useEffect(() => {
    if (!scenes || !stages.current[0]) return;
    map.take({ ...scenes[1]!, presence: undefined });
    settle(stages.current[0], drawing, model, plan.current);
    map.show(stages.current[1]!.view);
  }, [drawing, theme.value]);

  const reveal = (): void => bring(chosen, true);
  const onKey = (event: KeyboardEvent): void => {
    const stage = stages.current[0];
    if (!drawing || !shown || !stage) return;
    const item = chosen[0] ?? -1;
    if (!graphKey(event, { model, drawing, shown, item, stage, jump, toggle: folding.toggle, reveal }))
      return;
    event.preventDefault();
    event.stopPropagation();
  };
  const hovered = drawing !== null && hover.index >= 0 ? drawing.items[hover.index] : undefined;
  const names = [found.a, found.b].map((run) => visible(doc.value.runs[run]!.name));
  return (
    <>
      <div class="compared-tools">
        <PaneTools
          model={model}
          open={folding.open}
          hasSelection={chosen.length > 0}
          text={find.value}
          found={searched}
          onText={(text) => (find.value = text)}
          onJump={jump}
          onDepth={(levels) => {
            plan.current.fitted = false;
            folding.setOpen(boxesToDepth(model.tree, levels));
          }}
          onOpenToSelection={reveal}
          onFit={() => drawing && stages.current[0]?.fit(drawing)}
          onZoom={(factor) => stages.current[0]?.zoomBy(factor)}
        />
        <Steps changes={union.changes} at={chosen[0] ?? -1} onJump={jump} />
        <Popover label="What is drawn" button="Options" testId="compare-options">
          {[["Shapes on edges", labels] as const, ["Weights and constants", weights] as const].map(
            ([text, setting]) => (
              <label key={text}>
                <input
                  type="checkbox"
                  checked={setting.value}
                  onChange={(event) => (setting.value = event.currentTarget.checked)}
                />{" "}
                {text}
              </label>
            ),
          )}
        </Popover>
      </div>
      <div class="graph-panes two compared">
        {SIDES.map((side) => (
          <section key={side} class="graph-pane" data-testid="compared-pane">
            <h3 class="compared-name">
              {side === 0 ? "A" : "B"} <bdi dir="ltr">{names[side]}</bdi>
            </h3>
            <div class="drawing-stage graph-stage">
              <canvas
                ref={canvases[side]}
                class="drawing"
                tabIndex={0}
                role="application"
                aria-roledescription="graph"
                aria-label={`${side === 0 ? "A" : "B"}: ${union.doc.title} of ${names[side]}. Arrow keys follow edges, Enter opens a box.`}
                data-testid="compared-canvas"
                onKeyDown={onKey}
              />
              {side === 0 && folding.busy && <p class="drawing-busy">Laying out …</p>}
              {folding.failure && <p class="drawing-busy">{folding.failure}</p>}
              {side === 1 && <MiniMap map={map} stage={() => stages.current[1] ?? null} />}
              {hovered !== undefined && hover.side === side && stages.current[side] && (
                <Tooltip
                  model={models[side]!}
                  item={hovered}
                  by="status"
                  place={tipPlace(hover.x, hover.y, stages.current[side].view)}
                />
              )}
              {side === 0 && <DrawnNumbers drawing={drawing} model={model} />}
            </div>
          </section>
        ))}
      </div>
      <SelectionBar model={model} items={chosen} by="status" onJump={jump} />
    </>
  );
}

/** From change to change. */
function Steps({
  changes,
  at,
  onJump,
}: {
  changes: readonly number[];
  at: number;
  onJump(item: number): void;
}) {
  if (changes.length === 0) return null;
  const now = changes.indexOf(at);
  const go = (step: number): void => {
    const next = now < 0 ? (step > 0 ? 0 : changes.length - 1) : now + step;
    onJump(changes[(next + changes.length) % changes.length]!);
  };
  return (
    <span class="segments" data-testid="compare-steps">
      <button aria-label="Previous change" title="Previous change" onClick={() => go(-1)}>
        ‹
      </button>
      <span class="compared-step">
        {now < 0
          ? `${changes.length} ${changes.length === 1 ? "change" : "changes"}`
          : `change ${now + 1} of ${changes.length}`}
      </span>
      <button aria-label="Next change" title="Next change" data-testid="compare-next" onClick={() => go(1)}>
        ›
      </button>
    </span>
  );
}

/** The words of a side's own nodes and boxes, at the places of both. */
function sideModel(
  model: GraphModel,
  union: Union,
  docs: readonly [GraphDoc, GraphDoc],
  side: 0 | 1,
): GraphModel {
  const own = graphModel(docs[side]);
  const of = (item: number): number => {
    const { nodeCount } = model.tree;
    if (item < nodeCount) return union.nodes[side][item]!;
    const group = union.groups[side][item - nodeCount] ?? -1;
    return group < 0 ? -1 : own.tree.nodeCount + group;
  };
  const words = (from: "title" | "detail"): string[] =>
    model[from].map((text, item) => (of(item) < 0 ? text : own[from][of(item)]!));
  return { ...model, title: words("title"), detail: words("detail") };
}

function lookOf(union: Union, now: Theme, withLabels: boolean): Look {
  const { nodes, groups } = union.doc.measures[0]!;
  return {
    colour: (item) => COLOURS[now][statusOf(union, item)] ?? null,
    number: (item) => {
      const text = item < nodes.length ? nodes[item] : groups[item - nodes.length];
      if (text === null || text === undefined || text === "same") return "";
      return STATUS_WORDS[text as NodeStatus] ?? String(text);
    },
    shared: new Set(),
    labels: withLabels,
  };
}

/** Items that the selection of a run covers. */
function itemsOf(found: ProgramComparisonDoc, union: Union, sel: Selection, run: number): number[] {
  const side = run === found.b ? 1 : run === found.a ? 0 : null;
  if (side === null || sel === null) return [];
  const { key } = union.pair;
  if (sel.kind === "group") {
    const item = sel.graph === key ? itemOf(union, side, "group", sel.group) : null;
    return item === null ? [] : [item];
  }
  return [...nodesOf(doc.value.runs[run]!, sel, key)].flatMap(
    (node) => itemOf(union, side, "node", node) ?? [],
  );
}

/** Select an item in the run looked at, else in the run that has it. */
function selectSide(found: ProgramComparisonDoc, union: Union, item: number): void {
  const now = runIndex.peek() === found.a ? 0 : 1;
  const side = isOn(union, now, item) ? now : ((1 - now) as 0 | 1);
  const count = union.doc.nodes.length;
  showRun(side === 0 ? found.a : found.b);
  const graph = union.pair.key;
  if (item < count) select({ kind: "node", graph, node: union.nodes[side][item]! });
  else select({ kind: "group", graph, group: union.groups[side][item - count]! });
}

interface Latest {
  folding: Folding;
  union: Union;
}

/** A stage for each canvas; what moves one moves the other. */
function useStages(
  canvases: readonly [RefObject<HTMLCanvasElement>, RefObject<HTMLCanvasElement>],
  map: SmallMap,
  latest: RefObject<Latest>,
  plan: RefObject<Plan>,
  setHover: (hover: Hover) => void,
  choose: (item: number) => void,
): { current: (Stage | null)[] } {
  const stages = useRef<(Stage | null)[]>([null, null]);
  const choosing = useRef(choose);
  choosing.current = choose;
  useEffect(() => {
    const itemAt = (index: number): number => latest.current!.folding.drawing!.items[index]!;
    stages.current = SIDES.map(
      (side) =>
        new Stage(canvases[side].current!, {
          hover: (index, x, y) => setHover(index < 0 ? NOWHERE : { side, index, x, y }),
          click: (index) => (index < 0 ? select(null) : choosing.current(itemAt(index))),
          toggle: (index) => {
            const drawing = latest.current!.folding.drawing!;
            const item = itemAt(index);
            plan.current!.anchor = {
              item,
              x: drawing.x[index]! + drawing.w[index]! / 2,
              y: drawing.y[index]!,
            };
            latest.current!.folding.toggle(item);
          },
          moved: (view) => side === 1 && map.show(view),
          panned: (view) => stages.current[1 - side]?.match(view),
        }),
    );
    return () => {
      for (const stage of stages.current) stage?.stop();
      stages.current = [null, null];
    };
  }, []);
  return stages;
}
