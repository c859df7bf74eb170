// The Graph tab: graphs in every dialect, boxes that open, colours by measure, two side by side.

import { useState } from "preact/hooks";

import type { GraphDoc, Run } from "../document";
import { visible } from "../format";
import { Nothing } from "../parts/nothing";
import { Popover, Segments, Select } from "../parts/toolbar";
import { control, selection, switchControl } from "../store";
import type { Selection } from "../store";
import { folds, RepeatsSelect } from "./folds";
import { nameOf } from "./graph/folding";
import { graphModel } from "./graph/model";
import { GraphPane } from "./graph/pane";
import type { PaneSettings } from "./graph/pane";
import { LARGE, withoutRepeats } from "./graph/repeats";
import type { Value } from "./scale";
import "./drawings.css";

/** Keys of the graphs, the same in all runs; "" until the reader chooses. */
const pickers = [control("graph.left", ""), control("graph.right", "")] as const;
const split = switchControl("graph.split", false);
/** What is coloured; "" until the reader chooses. */
const by = control("graph.colour", "");
const mode = control("graph.scale", "linear", ["linear", "quantile"]);
const labels = switchControl("graph.labels", true);
const weights = switchControl("graph.weights", false);
const follow = switchControl("graph.follow", true);
const NOTHING: readonly Value[] = [];

export function GraphView({ run }: { run: Run }) {
  if (run.graphs.length === 0) {
    return <Nothing>No graph: the report was made without a record (.etrecord).</Nothing>;
  }
  return <Graphs run={run} />;
}

function Graphs({ run }: { run: Run }) {
  const first = graphOf(run, pickers[0].value) ?? firstGraph(run, selection.value);
  const second = graphOf(run, pickers[1].value) ?? otherGraph(run, first);
  const now: PaneSettings = {
    by: by.value || firstColour(run),
    mode: mode.value,
    labels: labels.value,
    weights: weights.value,
    follow: follow.value,
  };
  const [seen, setSeen] = useState<Record<number, readonly Value[]>>({});
  const panes = split.value && second ? [first, second] : [first];
  const options = run.graphs.map(
    (one) => [one.key, `${visible(one.title)} · ${one.nodes.length} nodes`] as const,
  );
  return (
    <div class="view" data-testid="graph-view">
      <div class="toolbar graph-toolbar" role="toolbar" aria-label="Graphs and colours">
        {panes.map((graph, index) => (
          <Select
            key={index}
            label={index === 0 ? "Graph" : "and"}
            value={graph.key}
            options={options}
            onChange={(key) => (pickers[index]!.value = key)}
            testId={`graph-select-${index}`}
          />
        ))}
        {second && (
          <button
            class="button"
            aria-pressed={split.value}
            data-testid="graph-split"
            title="Two graphs side by side, with one selection"
            onClick={() => (split.value = !split.value)}
          >
            Side by side
          </button>
        )}
        <ColourTools run={run} now={now} />
      </div>
      <div class={panes.length > 1 ? "graph-panes two" : "graph-panes"}>
        {panes.map(drawnGraph).map((graph, index) => (
          <GraphPane
            key={`${nameOf(graphModel(graph))}/${index}`}
            run={run}
            graph={graph}
            settings={now}
            onWeights={() => (weights.value = true)}
            others={(panes.length > 1 && seen[1 - index]) || NOTHING}
            onSeen={(values) => setSeen((old) => ({ ...old, [index]: values }))}
          />
        ))}
      </div>
    </div>
  );
}

function ColourTools({ run, now }: { run: Run; now: PaneSettings }) {
  const measures = new Map(
    run.graphs.flatMap((graph) => graph.measures.map((one) => [one.key, visible(one.title)] as const)),
  );
  return (
    <>
      <Select
        label="Colour by"
        value={now.by}
        options={[["none", "nothing"], ["backend", "backend"], ...measures]}
        onChange={(key) => (by.value = key)}
        testId="graph-colour"
      />
      {measures.has(now.by) && now.by !== "change" && (
        <Segments
          label="Scale of the colours"
          value={now.mode}
          options={[
            ["linear", "linear"],
            ["quantile", "by rank"],
          ]}
          onChange={(key) => (mode.value = key)}
          testId="graph-scale"
        />
      )}
      <Popover label="What is drawn" button="Options" testId="graph-options">
        <Check text="Shapes on edges" setting={labels} />
        <Check text="Weights and constants" setting={weights} />
        <Check text="Open boxes around what other views select" setting={follow} />
        <RepeatsSelect />
      </Popover>
    </>
  );
}

function Check({ text, setting }: { text: string; setting: { value: boolean } }) {
  return (
    <label>
      <input
        type="checkbox"
        checked={setting.value}
        onChange={(event) => (setting.value = event.currentTarget.checked)}
      />{" "}
      {text}
    </label>
  );
}

/** The graph with its repeated blocks in one box, or apart, as the reader wants it. */
const drawnGraph = (graph: GraphDoc): GraphDoc =>
  folds(graph.nodes.length >= LARGE) ? graph : withoutRepeats(graph);

const graphOf = (run: Run, key: string): GraphDoc | null =>
  run.graphs.find((graph) => graph.key === key) ?? null;

/** The graph of the selection, else the one with most to colour; of equals the last, nearest to what ran. */
function firstGraph(run: Run, sel: Selection): GraphDoc {
  if (sel?.kind === "node" || sel?.kind === "group") {
    const named = graphOf(run, sel.graph);
    if (named) return named;
  }
  const by = firstColour(run);
  const measured = (graph: GraphDoc): number =>
    graph.measures.find((one) => one.key === by)?.nodes.filter((value) => value !== null).length ?? 0;
  return run.graphs.reduce((best, graph) => (measured(graph) >= measured(best) ? graph : best));
}

function otherGraph(run: Run, first: GraphDoc): GraphDoc | null {
  const others = run.graphs.filter((graph) => graph !== first);
  return others.find((graph) => graph.method === first.method) ?? others[0] ?? null;
}

function firstColour(run: Run): PaneSettings["by"] {
  const measured = run.graphs.find((graph) => graph.measures.length > 0)?.measures;
  if (measured) return (measured.find((one) => one.key === "avg") ?? measured[0]!).key;
  return run.graphs.some((graph) => graph.nodes.some((node) => node.backend !== null)) ? "backend" : "none";
}
