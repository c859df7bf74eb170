// The tools above a graph.

import { download } from "../canvas";
import { deepestBox } from "../layout/tree";
import { Find } from "./find";
import type { GraphModel } from "./model";
import type { Scene } from "./scene";
import { pngOf, svgOf } from "./picture";

interface ToolsProps {
  model: GraphModel;
  /** For pictures; undefined: none are offered. */
  scene?: Scene | null;
  open: ReadonlySet<number>;
  hasSelection: boolean;
  text: string;
  found: readonly number[];
  onText: (text: string) => void;
  onJump: (item: number) => void;
  onDepth: (levels: number) => void;
  onOpenToSelection: () => void;
  /** Without a measure there is none. */
  onHottest?: (() => void) | null;
  onFit: () => void;
  onZoom: (factor: number) => void;
}

/** No more levels than these are offered one by one. */
const MOST_LEVELS = 8;

export function PaneTools(props: ToolsProps) {
  const { model, scene } = props;
  const deepest = deepestBox(model.tree);
  const levels = Array.from({ length: Math.min(deepest, MOST_LEVELS) }, (_, index) => index + 1);
  const save = async (kind: "png" | "svg"): Promise<void> => {
    if (!scene) return;
    const name = `${model.doc.key}.${kind}`;
    const blob = kind === "svg" ? new Blob([svgOf(scene)], { type: "image/svg+xml" }) : await pngOf(scene);
    if (blob) download(name, blob);
  };
  return (
    <div class="toolbar" role="toolbar" aria-label={`Tools of graph ${model.doc.title}`}>
      <Find
        model={model}
        text={props.text}
        found={props.found}
        onText={props.onText}
        onJump={props.onJump}
      />
      {deepest > 0 && (
        <select
          class="drawing-open"
          aria-label="Open boxes to a depth"
          data-testid="graph-depth"
          value=""
          onChange={(event) => {
            props.onDepth(Number(event.currentTarget.value));
            event.currentTarget.value = "";
          }}
        >
          <option value="" disabled>
            Open …
          </option>
          <option value="0">nothing (collapse all)</option>
          {levels.map((level) => (
            <option key={level} value={level}>
              {level === 1 ? "1 level" : `${level} levels`}
            </option>
          ))}
          <option value="999">everything</option>
        </select>
      )}
      <button class="button"
        data-testid="graph-open-path"
        disabled={!props.hasSelection}
        title="Open the boxes around the selection and go there (o)"
        onClick={props.onOpenToSelection}
      >
        Reveal
      </button>
      {props.onHottest && (
        <button
          class="button"
          data-testid="graph-hottest"
          title="Select the node with the largest value (h)"
          onClick={props.onHottest}
        >
          Hottest
        </button>
      )}
      <span class="segments">
        <button aria-label="Zoom out" title="Zoom out (-)" onClick={() => props.onZoom(1 / 1.4)}>
          −
        </button>
        <button aria-label="Zoom in" title="Zoom in (+)" onClick={() => props.onZoom(1.4)}>
          +
        </button>
        <button data-testid="graph-fit" title="Show all (f)" onClick={props.onFit}>
          Fit
        </button>
      </span>
      {scene !== undefined && (
        <span class="segments">
          <button title="Download the graph as drawn, PNG" onClick={() => void save("png")}>
            PNG
          </button>
          <button title="Download the graph as drawn, SVG" onClick={() => void save("svg")}>
            SVG
          </button>
        </span>
      )}
    </div>
  );
}
