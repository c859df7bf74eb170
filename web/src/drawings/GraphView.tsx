// The Graph tab: graphs in every dialect, boxes that open, colours by measure, two side by side.

import { signal } from "@preact/signals";

import type { GraphDoc, Run } from "../document";
import { visible } from "../format";
import { Nothing } from "../parts/nothing";
import { Popover, Segments, Select } from "../parts/toolbar";
import { selection } from "../store";
import type { Selection } from "../store";
import { nameOf } from "./graph/folding";
import type { ColourBy } from "./graph/look";
import { graphModel } from "./graph/model";
import { GraphPane } from "./graph/pane";
import type { PaneSettings } from "./graph/pane";
import "./drawings.css";

/** Kept while other tabs are looked at. Graph keys are the same in all runs. */
const settings = signal<PaneSettings & { chosen: boolean }>({
  by: "none",
  mode: "linear",
  labels: true,
  weights: false,
  follow: true,
  chosen: false,
});
const left = signal<string | null>(null);
const right = signal<string | null>(null);
const split = signal(false);

export function GraphView({ run }: { run: Run }) {
  if (run.graphs.length === 0) {
    return <Nothing>No graph: the report was made without a record (.etrecord).</Nothing>;
  }
  const first = graphOf(run, left.value) ?? firstGraph(run, selection.value);
  const second = graphOf(run, right.value) ?? otherGraph(run, first);
  const by = settings.value.chosen ? settings.value.by : firstColour(run);
  const now = { ...settings.value, by };
  const set = (change: Partial<PaneSettings>): void => {
    settings.value = { ...now, ...change, chosen: settings.value.chosen || "by" in change };
  };
  const panes = split.value && second ? [first, second] : [first];
  const pickers = [left, right];
  const options = run.graphs.map((one) => [one.key, `${visible(one.title)} · ${one.nodes.length} nodes`] as const);
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
        <ColourTools run={run} now={now} set={set} />
      </div>
      <div class={panes.length > 1 ? "graph-panes two" : "graph-panes"}>
        {panes.map((graph, index) => (
          <GraphPane
            key={`${nameOf(graphModel(graph))}/${index}`}
            run={run}
            graph={graph}
            settings={now}
            onWeights={() => set({ weights: true })}
          />
        ))}
      </div>
    </div>
  );
}

interface ColourToolsProps {
  run: Run;
  now: PaneSettings;
  set: (change: Partial<PaneSettings>) => void;
}

function ColourTools({ run, now, set }: ColourToolsProps) {
  const measures = new Map(
    run.graphs.flatMap((graph) => graph.measures.map((one) => [one.key, visible(one.title)] as const)),
  );
  return (
    <>
      <Select
        label="Colour by"
        value={now.by}
        options={[["none", "nothing"], ["backend", "backend"], ...measures]}
        onChange={(by) => set({ by })}
        testId="graph-colour"
      />
      {measures.has(now.by) && (
        <Segments
          label="Scale of the colours"
          value={now.mode}
          options={[
            ["linear", "linear"],
            ["quantile", "by rank"],
          ]}
          onChange={(mode) => set({ mode })}
          testId="graph-scale"
        />
      )}
      <Popover label="What is drawn" button="Options" testId="graph-options">
        <Check text="Shapes on edges" on={now.labels} set={(labels) => set({ labels })} />
        <Check text="Weights and constants" on={now.weights} set={(weights) => set({ weights })} />
        <Check
          text="Open boxes around what other views select"
          on={now.follow}
          set={(follow) => set({ follow })}
        />
      </Popover>
    </>
  );
}

function Check({ text, on, set }: { text: string; on: boolean; set: (on: boolean) => void }) {
  return (
    <label>
      <input type="checkbox" checked={on} onChange={(event) => set(event.currentTarget.checked)} /> {text}
    </label>
  );
}

const graphOf = (run: Run, key: string | null): GraphDoc | null =>
  run.graphs.find((graph) => graph.key === key) ?? null;

/** The graph of the selection, else the one with most measured; of equals the last, nearest to what ran. */
function firstGraph(run: Run, sel: Selection): GraphDoc {
  if (sel?.kind === "node" || sel?.kind === "group") {
    const named = graphOf(run, sel.graph);
    if (named) return named;
  }
  const measured = (graph: GraphDoc): number =>
    graph.measures[0]?.nodes.reduce<number>((sum, value) => sum + (value === null ? 0 : 1), 0) ?? 0;
  return run.graphs.reduce((best, graph) => (measured(graph) >= measured(best) ? graph : best));
}

function otherGraph(run: Run, first: GraphDoc): GraphDoc | null {
  const others = run.graphs.filter((graph) => graph !== first);
  return others.find((graph) => graph.method === first.method) ?? others[0] ?? null;
}

function firstColour(run: Run): ColourBy {
  const measured = run.graphs.find((graph) => graph.measures.length > 0)?.measures;
  if (measured) return (measured.find((one) => one.key === "avg") ?? measured[0]!).key;
  return run.graphs.some((graph) => graph.nodes.some((node) => node.backend !== null)) ? "backend" : "none";
}
