// What is selected in a graph, and what is pointed at, in a few words.

import type { Measure } from "../../document";
import { formatWithUnit, plainText, visible } from "../../format";
import { select } from "../../store";
import type { ColourBy } from "./look";
import { measureText, valueOf } from "./look";
import { fullName, neighbours, pathOf } from "./model";
import type { GraphModel } from "./model";
import { eachText } from "../repeats";
import { ofEachBlock } from "./repeats";

const MOST_LISTED = 5;

interface BarProps {
  model: GraphModel;
  /** Selected items; one is described, several are counted. */
  items: number[];
  by: ColourBy;
  onJump: (item: number) => void;
}

/** What is selected, in a line below the graph; all of its facts stand beside it. */
export function SelectionBar({ model, items, by, onJump }: BarProps) {
  return (
    <div class="graph-bar" data-testid="graph-card" aria-live="polite">
      {items.length === 0 ? (
        <span class="muted">
          Double click or + opens a box; arrow keys follow edges.
        </span>
      ) : items.length === 1 ? (
        <OneItem model={model} item={items[0]!} by={by} onJump={onJump} />
      ) : (
        <>
          <b>{items.length} nodes</b>
          <Links model={model} items={items} onJump={onJump} />
        </>
      )}
    </div>
  );
}

function OneItem({ model, item, by, onJump }: Omit<BarProps, "items"> & { item: number }) {
  const isNode = item < model.tree.nodeCount;
  const measure = model.doc.measures.find((one) => one.key === by) ?? model.doc.measures[0];
  return (
    <>
      <b data-testid="graph-card-name" title={fullName(model, item)}>
        <bdi dir="ltr">{cut(pathOf(model, item))}</bdi>
      </b>
      <span class="muted" title={isNode ? visible(model.doc.nodes[item]!.op) : undefined}>
        {isNode ? model.title[item] : model.detail[item]}
      </span>
      {isNode && <span class="muted">{plainText(model.doc.nodes[item]!.outputs)}</span>}
      {measure && <MeasureFact model={model} measure={measure} item={item} />}
      {isNode && (
        <>
          <Neighbours title="reads" model={model} items={neighbours(model, item, "into")} onJump={onJump} />
          <Neighbours title="read by" model={model} items={neighbours(model, item, "out")} onJump={onJump} />
        </>
      )}
    </>
  );
}

function MeasureFact({ model, measure, item }: { model: GraphModel; measure: Measure; item: number }) {
  const value = valueOf(model, measure, item);
  if (value === null || value === undefined) return null;
  return (
    <span>
      <span class="muted">{visible(measure.title)} </span>
      <span class="figure" data-testid={`graph-card-${measure.key}`} data-value={value} title={String(value)}>
        {formatWithUnit(value, measure)}
      </span>
      {measure.shared.includes(item) && <span class="muted"> of several nodes, at the first of them</span>}
      <EachBlock model={model} measure={measure} item={item} />
    </span>
  );
}

/** How a repeated block's least, median and greatest value compare; nothing for other items. */
function EachBlock({ model, measure, item }: { model: GraphModel; measure: Measure; item: number }) {
  const each = ofEachBlock(model.doc, measure, item - model.tree.nodeCount);
  if (each === null) return null;
  return (
    <span class="muted" data-testid="graph-each-block">
      {" "}
      each block {eachText(each, (value) => formatWithUnit(value, measure))}
    </span>
  );
}

interface LinksProps {
  model: GraphModel;
  items: number[];
  onJump: (item: number) => void;
}

function Neighbours({ title, ...links }: LinksProps & { title: string }) {
  if (links.items.length === 0) return null;
  return (
    <span>
      <span class="muted">{title} </span>
      <Links {...links} />
    </span>
  );
}

function Links({ model, items, onJump }: LinksProps) {
  return (
    <span class="graph-links">
      {items.slice(0, MOST_LISTED).map((item) => (
        <button class="link" key={item} title={pathOf(model, item)} onClick={() => onJump(item)}>
          {cut(fullName(model, item))}
        </button>
      ))}
      {items.length > MOST_LISTED && <span class="muted">and {items.length - MOST_LISTED} more</span>}
    </span>
  );
}

const cut = (text: string): string => (text.length > 90 ? `${text.slice(0, 44)}…${text.slice(-44)}` : text);

export function Tooltip({
  model,
  item,
  by,
  place,
}: {
  model: GraphModel;
  item: number;
  by: ColourBy;
  place: Record<string, string>;
}) {
  const measure = model.doc.measures.find((one) => one.key === by);
  const value = measure ? valueOf(model, measure, item) : null;
  return (
    <div class="drawing-tip" data-testid="graph-tooltip" role="presentation" style={place}>
      <b>{fullName(model, item)}</b>
      <div>{item < model.tree.nodeCount ? visible(model.doc.nodes[item]!.op) : model.detail[item]}</div>
      {item < model.tree.nodeCount && <div>{plainText(model.doc.nodes[item]!.outputs)}</div>}
      {measure && (
        <div data-testid="graph-tooltip-value" data-value={value ?? ""}>
          {visible(measure.title)}: {value === null || value === undefined ? "not measured" : measureText(measure)(value)}
          <EachBlock model={model} measure={measure} item={item} />
        </div>
      )}
    </div>
  );
}

/** Selects a node or box, for all views. */
export function selectItem(model: GraphModel, item: number): void {
  const { nodeCount } = model.tree;
  const graph = model.doc.key;
  if (item < nodeCount) select({ kind: "node", graph, node: item });
  else select({ kind: "group", graph, group: item - nodeCount });
}
