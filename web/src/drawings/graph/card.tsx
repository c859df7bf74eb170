// The facts of what is selected in a graph, and the few of what is pointed at.

import type { ComponentChildren } from "preact";

import type { Measure } from "../../document";
import { formatWithUnit, plainText, visible } from "../../format";
import { select } from "../../store";
import type { ColourBy } from "./look";
import { measureText, valueOf } from "./look";
import { fullName, neighbours, pathOf } from "./model";
import type { GraphModel } from "./model";

const MOST_LISTED = 12;

interface CardProps {
  model: GraphModel;
  /** Selected items; one is described, several are listed. */
  items: number[];
  onJump: (item: number) => void;
  onClose: () => void;
}

export function Card({ model, items, onJump, onClose }: CardProps) {
  if (items.length === 0) return null;
  return (
    <aside class="graph-card" data-testid="graph-card" aria-label="Selected in the graph">
      <button class="graph-card-close" aria-label="Clear the selection" onClick={onClose}>
        ×
      </button>
      {items.length === 1 ? (
        <Facts model={model} item={items[0]!} onJump={onJump} />
      ) : (
        <>
          <h3>{items.length} nodes selected</h3>
          <ItemList model={model} items={items} onJump={onJump} />
        </>
      )}
    </aside>
  );
}

function Facts({ model, item, onJump }: { model: GraphModel; item: number; onJump: (item: number) => void }) {
  const isNode = item < model.tree.nodeCount;
  return (
    <>
      <h3 data-testid="graph-card-name" title={fullName(model, item)}>
        {isNode ? fullName(model, item) : visible(model.doc.groups[item - model.tree.nodeCount]!.label)}
      </h3>
      <dl>
        {isNode ? <NodeFacts model={model} node={item} /> : <GroupFacts model={model} item={item} />}
        {model.doc.measures.map((measure) => (
          <MeasureFact key={measure.key} model={model} measure={measure} item={item} />
        ))}
      </dl>
      {isNode && (
        <>
          <Neighbours title="Reads" model={model} items={neighbours(model, item, "into")} onJump={onJump} />
          <Neighbours title="Read by" model={model} items={neighbours(model, item, "out")} onJump={onJump} />
        </>
      )}
    </>
  );
}

function NodeFacts({ model, node }: { model: GraphModel; node: number }) {
  const doc = model.doc.nodes[node]!;
  const path = pathOf(model, model.tree.parent[node]!);
  return (
    <>
      <Fact name="op">{visible(doc.op)}</Fact>
      {model.tree.parent[node] !== model.tree.root && <Fact name="in">{path}</Fact>}
      {doc.backend !== null && <Fact name="backend">{visible(doc.backend)}</Fact>}
      {doc.weight !== null && <Fact name="weight">{visible(doc.weight)}</Fact>}
      {doc.handle !== null && <Fact name="debug handle">{doc.handle}</Fact>}
      {doc.instructions.length > 0 && <Fact name="instructions">{doc.instructions.join(", ")}</Fact>}
      {doc.outputs.length > 0 && <Fact name="outputs">{plainText(doc.outputs)}</Fact>}
      {doc.args.map(([name, text]) => (
        <Fact key={name} name={visible(name)}>
          <code>{visible(text)}</code>
        </Fact>
      ))}
    </>
  );
}

function GroupFacts({ model, item }: { model: GraphModel; item: number }) {
  const group = model.doc.groups[item - model.tree.nodeCount]!;
  return (
    <>
      <Fact name="kind">{group.kind}</Fact>
      {group.type !== null && <Fact name="type">{visible(group.type)}</Fact>}
      {group.backend !== null && <Fact name="backend">{visible(group.backend)}</Fact>}
      <Fact name="nodes">{model.tree.size[item]}</Fact>
    </>
  );
}

function MeasureFact({ model, measure, item }: { model: GraphModel; measure: Measure; item: number }) {
  const value = valueOf(model, measure, item);
  if (value === null || value === undefined) return null;
  const shared = measure.shared.includes(item);
  return (
    <Fact name={visible(measure.title)}>
      <span data-testid={`graph-card-${measure.key}`} data-value={value} title={String(value)}>
        {formatWithUnit(value, measure)}
      </span>
      {shared && " (of several nodes together)"}
    </Fact>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>
        <bdi>{children}</bdi>
      </dd>
    </>
  );
}

interface ListProps {
  model: GraphModel;
  items: number[];
  onJump: (item: number) => void;
}

function Neighbours({ title, ...list }: ListProps & { title: string }) {
  if (list.items.length === 0) return null;
  return (
    <>
      <h4>{title}</h4>
      <ItemList {...list} />
    </>
  );
}

function ItemList({ model, items, onJump }: ListProps) {
  return (
    <ul>
      {items.slice(0, MOST_LISTED).map((item) => (
        <li key={item}>
          <button title={pathOf(model, item)} onClick={() => onJump(item)}>
            {fullName(model, item)}
          </button>
        </li>
      ))}
      {items.length > MOST_LISTED && <li>… and {items.length - MOST_LISTED} more</li>}
    </ul>
  );
}

export function Tooltip({
  model,
  item,
  by,
  x,
  y,
}: {
  model: GraphModel;
  item: number;
  by: ColourBy;
  x: number;
  y: number;
}) {
  const measure = model.doc.measures.find((one) => one.key === by);
  const value = measure ? valueOf(model, measure, item) : null;
  return (
    <div class="drawing-tip" data-testid="graph-tooltip" role="presentation" style={{ left: `${x + 14}px`, top: `${y + 14}px` }}>
      <b>{fullName(model, item)}</b>
      <div>{item < model.tree.nodeCount ? visible(model.doc.nodes[item]!.op) : model.detail[item]}</div>
      {item < model.tree.nodeCount && <div>{plainText(model.doc.nodes[item]!.outputs)}</div>}
      {measure && (
        <div data-testid="graph-tooltip-value" data-value={value ?? ""}>
          {visible(measure.title)}: {value === null || value === undefined ? "not measured" : measureText(measure)(value)}
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
