// The bytes of the program's file and its .ptd files: a treemap by module, and the table of their parts.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Run, TableDoc } from "../document";
import { Crumbs } from "../drawings/modules/crumbs";
import { childrenOf, pathTo, step } from "../drawings/modules/frames";
import { nameColours } from "../drawings/scale";
import { nodesOfParts, partsWithin, weightTree, type Leaf, type WeightNode } from "../drawings/weights/tree";
import { contentOf, Treemap } from "../drawings/weights/Treemap";
import { filterRows, type RowTest } from "../filter";
import { formatBytes, formatCount, formatShare, plainText, visible } from "../format";
import { sumsOf } from "../groups";
import { control, doc } from "../store";
import { sortRows, tableFormats } from "../tables";
import { theme } from "../theme";
import { useGrid } from "../parts/grid";
import { useWidth } from "../parts/size";
import { DataTable, type SumRow } from "../parts/table";
import { ColumnChooser, CsvButton, FilterBox, Segments, Select, useFilter } from "../parts/toolbar";
import { sortKey } from "./events";
import "../drawings/drawings.css";

const filter = control("weights.filter", "");
const colourBy = control("weights.colour", "dtype", ["dtype", "kind"]);
/** What is zoomed into: the path of a module, "" for the file. */
const zoom = control("weights.zoom", "");
/** What is looked at: "#12", a part by its row, or the path of a module. */
const chosen = control("weights.chosen", "");
/** The id of the run beside this one. */
const beside = control("weights.beside", "");
const PLAIN = { light: "#d5dae2", dark: "#3a404b" };
const FILE = 0;

interface WeightsProps {
  run: Run;
  table: TableDoc;
  /** Controls that stand before those of the weights. */
  children: ComponentChildren;
}

export function Weights({ run, table, children }: WeightsProps) {
  const nodes = useMemo(() => weightTree(table), [table]);
  const focus = focusIn(nodes) ?? FILE;
  const others = doc.value.runs.filter((one) => one.id !== run.id && one.weights !== null);
  const other = others.find((one) => one.id === beside.value);
  const within = useMemo(() => partsWithin(nodes, focus), [nodes, focus]);
  const { test, problem } = useFilter(filter.value, table);
  const kept = useMemo(() => filterRows(table, within, test), [table, within, test]);
  const formats = useMemo(() => tableFormats(table), [table]);
  const [place, width] = useWidth<HTMLDivElement>();
  const grid = useGrid("weights", table, formats, width - 14);
  const rows = useMemo(() => sortRows(table, kept, grid.sorting), [table, kept, sortKey(grid.sorting)]);
  const part = partOf(table, chosen.value);
  return (
    <div class="view" data-testid="weights">
      <div class="toolbar">
        {children}
        <span class="muted">Colour by</span>
        <Segments
          label="Colour by"
          value={colourBy.value}
          options={[
            ["dtype", "dtype"],
            ["kind", "kind"],
          ]}
          onChange={(next) => (colourBy.value = next)}
          testId="weights-colour"
        />
        {others.length > 0 && (
          <Select
            label="Beside"
            value={other?.id ?? ""}
            options={[["", "nothing"], ...others.map((one) => [one.id, visible(one.name)] as const)]}
            onChange={(id) => (beside.value = id)}
            testId="weights-beside"
          />
        )}
        <FilterBox text={filter.value} onText={(text) => (filter.value = text)} problem={problem} />
        <span class="spacer" />
        <ColumnChooser grid={grid} />
        <CsvButton table={table} rows={rows} grid={grid} name={`${run.name}-weights`} />
      </div>
      <Crumbs
        nodes={nodes}
        path={pathTo(nodes, focus).slice(1)}
        all={nodes[FILE]!.name}
        onGo={(node) => zoomTo(nodes, node ?? FILE)}
        testId="weights-crumbs"
      />
      <Panes run={run} nodes={nodes} focus={focus} other={other} test={test} />
      <div class="fill" ref={place}>
        {width > 0 && (
          <DataTable
            grid={grid}
            formats={formats}
            rows={rows}
            sums={sumRows(table, kept)}
            selected={new Set(part === null ? [] : [part])}
            onSelect={(row) => (chosen.value = `#${row}`)}
            label={table.title}
            testId="weights-table"
            empty="No part matches the filter."
          />
        )}
      </div>
    </div>
  );
}

/** The node that the address names; null if this file has none of that path. */
function focusIn(nodes: readonly WeightNode[]): number | null {
  const found = nodes.findIndex(({ path }) => path === zoom.value);
  return found < 0 ? null : found;
}

function zoomTo(nodes: readonly WeightNode[], node: number): void {
  zoom.value = nodes[node]!.path;
}

function partOf(table: TableDoc, text: string): number | null {
  const found = /^#(\d+)$/.exec(text);
  return found && Number(found[1]) < (table.values["size"]?.length ?? 0) ? Number(found[1]) : null;
}

/** What is shown and what is not, which are the file together, or the files. */
function sumRows(table: TableDoc, kept: readonly number[]): SumRow[] {
  const every = table.values["size"]!.map((_, row) => row);
  const there = new Set(kept);
  const sum = (label: string, rows: readonly number[], testId: string): SumRow => ({
    label: `${label}: ${formatCount(rows.length)}`,
    sums: sumsOf(table, rows),
    testId,
  });
  const file = sum(table.values["file"] ? "all" : "the file", every, "weights-file");
  if (kept.length === every.length) return [file];
  const hidden = every.filter((row) => !there.has(row));
  return [sum("shown", kept, "weights-shown"), sum("not shown", hidden, "weights-hidden"), file];
}

interface PanesProps {
  run: Run;
  nodes: readonly WeightNode[];
  focus: number;
  other: Run | undefined;
  /** Of the parts of the run: what it does not keep steps back. */
  test: RowTest | null;
}

/** One run, or two on one scale: as wide as what they show has bytes. */
function Panes({ run, nodes, focus, other, test }: PanesProps) {
  const [hover, setHover] = useState<{ run: Run; leaf: Leaf } | null>(null);
  const table = run.weights!;
  const below = useMemo(() => childrenOf(nodes), [nodes]);
  const nodeOf = useMemo(() => nodesOfParts(nodes), [nodes]);
  const colours = useMemo(coloursOfAll, [doc.value, colourBy.value, theme.value]);
  const part = partOf(table, chosen.value);
  const node = part === null ? nodes.findIndex(({ path }) => path !== "" && path === chosen.value) : -1;
  const looked = part !== null ? { part } : node > 0 ? { node } : null;
  const height = Math.round(Math.min(560, Math.max(200, 0.42 * innerHeight)));
  const pick = (tree: readonly WeightNode[], leaf: Leaf): void => {
    // Rows are those of this run's file.
    const isPart = leaf.parts.length === 1 && tree === nodes;
    chosen.value = isPart ? `#${leaf.parts[0]}` : tree[leaf.node]!.path;
    const way = pathTo(tree, leaf.node);
    const next = way[way.findIndex((at) => tree[at]!.path === nodes[focus]!.path) + 1];
    if (next !== undefined) zoomTo(tree, next);
  };
  const onKey = (event: KeyboardEvent): void => {
    const now = part === null ? Math.max(node, FILE) : nodeOf.get(part)!;
    const to = step(nodes, below, now, event.key, false);
    if (to !== undefined) {
      if (to !== null && to !== FILE) chosen.value = nodes[to]!.path;
      if (to !== null && !pathTo(nodes, to).includes(focus)) zoomTo(nodes, nodes[to]!.parent ?? FILE);
    } else if (event.key === "Enter" || event.key === " ") zoomTo(nodes, now);
    else if (event.key === "Backspace") zoomTo(nodes, nodes[focus]!.parent ?? FILE);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const runs = other ? [run, other] : [run];
  return (
    <div class="weights-top" tabIndex={0} aria-label="Weights by module" data-testid="weights-keys" onKeyDown={onKey}>
      <div class="weights-panes">
        {runs.map((one) => {
          const tree = weightTree(one.weights!);
          const at = focusIn(tree);
          const bytes = tree[at ?? FILE]!.total;
          return (
            <section key={one.id} style={{ flexGrow: at === null ? 0 : bytes }} data-testid="weights-pane">
              {other && (
                <h3>
                  <bdi dir="ltr">{visible(one.name)}</bdi> <small>{at === null ? "" : formatBytes(bytes)}</small>
                </h3>
              )}
              {at === null ? (
                <p class="muted">It has no {visible(zoom.value)}.</p>
              ) : (
                <Treemap
                  table={one.weights!}
                  nodes={tree}
                  focus={at}
                  height={height}
                  colourOf={(row) => colours(one.weights!, row)}
                  chosen={one === run ? looked : null}
                  test={one === run ? test : null}
                  label={`${one.name}: ${formatBytes(bytes)} by module`}
                  testId="weights-map"
                  onPick={(leaf) => pick(tree, leaf)}
                  onHover={(leaf) => setHover(leaf && { run: one, leaf })}
                />
              )}
            </section>
          );
        })}
      </div>
      <Legend table={table} parts={partsWithin(nodes, focus)} colourOf={(row) => colours(table, row)} />
      <Bar run={hover?.run ?? run} leaf={hover?.leaf ?? leafOf(nodes, part, node, nodeOf)} />
    </div>
  );
}

/** The colour of a part, the same in all runs. */
function coloursOfAll(): (table: TableDoc, row: number) => string {
  const tables = doc.value.runs.flatMap(({ weights }) => (weights ? [weights] : []));
  const names = [...new Set(tables.flatMap((table) => table.values[colourBy.value]!.map(plainText)))].sort();
  const colour = nameColours(names.filter((name) => name !== ""), theme.value);
  return (table, row) => {
    const name = plainText(table.values[colourBy.value]![row]);
    return name === "" ? PLAIN[theme.value] : colour(name);
  };
}

interface LegendProps {
  table: TableDoc;
  parts: readonly number[];
  colourOf(row: number): string;
}

/** The colours, each with the bytes of what is drawn in it. */
function Legend({ table, parts, colourOf }: LegendProps) {
  const sizes = new Map<string, { colour: string; bytes: number }>();
  for (const part of parts) {
    const name = plainText(table.values[colourBy.value]![part]) || "not tensors";
    const one = sizes.get(name) ?? { colour: colourOf(part), bytes: 0 };
    one.bytes += table.values["size"]![part] as number;
    sizes.set(name, one);
  }
  return (
    <div class="weights-legend" data-testid="weights-legend">
      {[...sizes]
        .sort(([, one], [, other]) => other.bytes - one.bytes)
        .map(([name, { colour, bytes }]) => (
          <span key={name} title={`${bytes} bytes`}>
            <i style={{ background: colour }} />
            {name} <span class="figure muted">{formatBytes(bytes)}</span>
          </span>
        ))}
    </div>
  );
}

function leafOf(
  nodes: readonly WeightNode[],
  part: number | null,
  node: number,
  nodeOf: ReadonlyMap<number, number>,
): Pick<Leaf, "node" | "parts" | "whole"> | null {
  if (part !== null) return { node: nodeOf.get(part)!, parts: [part], whole: false };
  return node < 0 ? null : { node, parts: partsWithin(nodes, node), whole: true };
}

/** What is under the pointer, else what is chosen. */
function Bar({ run, leaf }: { run: Run; leaf: Pick<Leaf, "node" | "parts" | "whole"> | null }) {
  const table = run.weights!;
  const nodes = weightTree(table);
  const file = nodes[FILE]!.total;
  if (!leaf) {
    return (
      <div class="graph-bar" data-testid="weights-bar">
        <span class="muted">
          Area is bytes: {formatBytes(file)} in all. A click zooms in; arrow keys go from module to module,
          Enter zooms in, Backspace out.
        </span>
      </div>
    );
  }
  const sizes = table.values["size"] as number[];
  const bytes = leaf.parts.reduce((sum, part) => sum + sizes[part]!, 0);
  const every = (name: string): string =>
    [...new Set(leaf.parts.map((part) => plainText(table.values[name]?.[part])))].filter(Boolean).join(", ");
  const contents = leaf.parts.slice(0, 4).map((part) => contentOf(table, { parts: [part] }));
  const more = leaf.parts.length - contents.length;
  return (
    <div class="graph-bar" data-testid="weights-bar" aria-live="polite">
      <b>
        <bdi dir="ltr">{visible(nodes[leaf.node]!.path) || "(root)"}</bdi>
      </b>
      <span>{every("kind")}</span>
      <span>{every("dtype")}</span>
      <span class="figure" data-testid="weights-bytes" data-value={bytes} title={`${bytes} bytes`}>
        {formatBytes(bytes)}
      </span>
      <span class="figure">
        {formatShare(bytes / file)} of {nodes[FILE]!.name}
      </span>
      <span class="muted">
        {contents.join(" · ")}
        {more > 0 && ` and ${formatCount(more)} more`}
      </span>
    </div>
  );
}
