// The Graph tab: graphs in every dialect, boxes that open, colours by measure, two side by side.

import { signal } from "@preact/signals";

import type { GraphDoc, Run } from "../document";
import { visible } from "../format";
import { selection } from "../store";
import type { Selection } from "../store";
import type { ColourBy } from "./graph/look";
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
    return <p class="drawing-empty">This report has no graph: give a record to have one.</p>;
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
  return (
    <div class="graph-view" data-testid="graph-view">
      <ViewTools run={run} now={now} set={set} two={second !== null} />
      <div class={split.value ? "graph-panes two" : "graph-panes"}>
        {panes.map((graph, index) => (
          <div class="graph-side" key={index}>
            <label class="graph-pick">
              Graph{" "}
              <select
                data-testid={`graph-select-${index}`}
                value={graph.key}
                onChange={(event) => (pickers[index]!.value = event.currentTarget.value)}
              >
                {run.graphs.map((one) => (
                  <option key={one.key} value={one.key}>
                    {visible(one.title)} · {one.nodes.length} nodes
                  </option>
                ))}
              </select>
            </label>
            <GraphPane
              key={`${run.id}/${graph.key}`}
              run={run}
              graph={graph}
              settings={now}
              onWeights={() => set({ weights: true })}
            />
          </div>
        ))}
      </div>
    </div>
  );
}

interface ViewToolsProps {
  run: Run;
  now: PaneSettings;
  set: (change: Partial<PaneSettings>) => void;
  two: boolean;
}

function ViewTools({ run, now, set, two }: ViewToolsProps) {
  const measures = new Map(
    run.graphs.flatMap((graph) => graph.measures.map((one) => [one.key, one.title] as const)),
  );
  const isMeasure = measures.has(now.by);
  return (
    <div class="drawing-tools" role="toolbar" aria-label="Colours and panes">
      <label>
        Colour by{" "}
        <select
          data-testid="graph-colour"
          value={now.by}
          onChange={(event) => set({ by: event.currentTarget.value })}
        >
          <option value="none">nothing</option>
          <option value="backend">backend</option>
          {[...measures].map(([key, title]) => (
            <option key={key} value={key}>
              {visible(title)}
            </option>
          ))}
        </select>
      </label>
      <label>
        Scale{" "}
        <select
          data-testid="graph-scale"
          disabled={!isMeasure}
          value={now.mode}
          onChange={(event) => set({ mode: event.currentTarget.value as PaneSettings["mode"] })}
        >
          <option value="linear">linear</option>
          <option value="quantile">by rank</option>
        </select>
      </label>
      <Check text="Shapes on edges" on={now.labels} set={(labels) => set({ labels })} />
      <Check text="Weights" on={now.weights} set={(weights) => set({ weights })} />
      <Check
        text="Follow selection"
        title="Open the boxes around what other views select"
        on={now.follow}
        set={(follow) => set({ follow })}
      />
      {two && <Check text="Side by side" testid="graph-split" on={split.value} set={(on) => (split.value = on)} />}
    </div>
  );
}

interface CheckProps {
  text: string;
  on: boolean;
  set: (on: boolean) => void;
  title?: string;
  testid?: string;
}

function Check({ text, on, set, title, testid }: CheckProps) {
  return (
    <label title={title}>
      <input
        type="checkbox"
        checked={on}
        data-testid={testid}
        onChange={(event) => set(event.currentTarget.checked)}
      />{" "}
      {text}
    </label>
  );
}

const graphOf = (run: Run, key: string | null): GraphDoc | null =>
  run.graphs.find((graph) => graph.key === key) ?? null;

/** The graph of the selection, else the one with most measured, else the first. */
function firstGraph(run: Run, sel: Selection): GraphDoc {
  if (sel?.kind === "node" || sel?.kind === "group") {
    const named = graphOf(run, sel.graph);
    if (named) return named;
  }
  const measured = (graph: GraphDoc): number =>
    graph.measures[0]?.nodes.reduce<number>((sum, value) => sum + (value === null ? 0 : 1), 0) ?? 0;
  return run.graphs.reduce((best, graph) => (measured(graph) > measured(best) ? graph : best));
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
