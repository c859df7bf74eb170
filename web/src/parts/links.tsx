// Names of rows, nodes, lines and modules that select what they name.

import type { Run } from "../document";
import { formatWithUnit, plainText, visible } from "../format";
import { sameSelection, select, selection, tab, type Selection, type TabName } from "../store";
import { GLOSSARY } from "../words";
import { OutlierMark } from "./outlier";
import { Text } from "./text";

/** A button that selects `to`, in the tab that shows it best when `show` says so. */
export function SelectLink({
  to,
  text,
  title,
  show,
}: {
  to: Selection;
  text: string;
  title?: string;
  show?: TabName;
}) {
  return (
    <button
      class="link"
      aria-pressed={sameSelection(selection.value, to)}
      title={visible(title ?? text)}
      onClick={() => {
        select(to);
        if (show) tab.value = show;
      }}
    >
      <bdi dir="ltr">{visible(text)}</bdi>
    </button>
  );
}

interface RowLinkProps {
  run: Run;
  method: number;
  row: number;
  /** Say in which module as well. */
  place?: boolean;
  /** The tab to go to. */
  show?: TabName;
}

export function RowLink({ run, method, row, place = false, show }: RowLinkProps) {
  const rows = run.methods[method]?.rows;
  const cell = (name: string) => rows?.values[name]?.[row] ?? null;
  const column = rows?.columns.find((one) => one.name === "avg");
  const index = cell("instruction");
  return (
    <div class={place ? "entry entry-place" : "entry"}>
      <span class="entry-key" title={GLOSSARY.instruction}>
        {index === null ? "└" : plainText(index)}
      </span>
      <SelectLink
        to={{ kind: "row", method, row }}
        text={plainText(cell("event"))}
        {...(show ? { show } : {})}
      />
      {place && (
        <span class="muted">
          <Text text={plainText(cell("module")) || plainText(cell("source"))} end />
        </span>
      )}
      <span class="figure" data-value={String(cell("avg") ?? "")}>
        {place && <OutlierMark run={run} method={run.methods[method]!} row={row} />}
        {column ? formatWithUnit(cell("avg"), column) : ""}
      </span>
    </div>
  );
}

export function NodeLink({ run, graph, node }: { run: Run; graph: string; node: number }) {
  const found = run.graphs.find((one) => one.key === graph)?.nodes[node];
  if (!found) return null;
  return (
    <div class="entry">
      <span class="entry-key" title={`Debug handle: ${GLOSSARY.handle}`}>
        {found.handle ?? "–"}
      </span>
      <SelectLink to={{ kind: "node", graph, node }} text={found.name} title={`${found.name}\n${found.op}`} />
      <span class="muted">
        <Text text={found.op === found.name ? found.kind : found.op} end />
      </span>
    </div>
  );
}

export function LineLink({ run, line, show }: { run: Run; line: number; show?: TabName }) {
  const found = run.source.lines[line];
  if (!found) return null;
  const file = run.source.files[found.file] ?? "?";
  return (
    <div class="frame">
      <div class="frame-place">
        <SelectLink
          to={{ kind: "line", line }}
          text={`${baseName(file)}:${found.line}`}
          title={`${file}:${found.line}`}
          {...(show ? { show } : {})}
        />
        <span class="muted">
          <Text text={found.function} />
        </span>
      </div>
      <code class="frame-text" title={visible(found.text)}>
        {visible(found.text.trim()) || " "}
      </code>
    </div>
  );
}

export const baseName = (path: string): string => path.split(/[\\/]/).at(-1) || path;
