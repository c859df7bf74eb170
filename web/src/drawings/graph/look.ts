// What the colours of a graph tell: a measure, the backend, or nothing.

import type { Measure } from "../../document";
import { asNumber, cellFormat } from "../../format";
import type { Theme } from "../../theme";
import type { Drawing } from "../layout/engine";
import { measureScale, nameColours } from "../scale";
import type { MeasureScale, ScaleMode, Value } from "../scale";
import type { GraphModel } from "./model";
import { nodesOfItem } from "./marks";
import type { Look } from "./scene";
import { isRepeat } from "./repeats";

/** "none", "backend", or the key of a measure. */
export type ColourBy = string;

export interface Legend {
  scale: MeasureScale | null;
  names: { name: string; colour: string }[];
  /** The measure's number as text with its unit. */
  text(value: Value): string;
}

export interface Colouring {
  look: Omit<Look, "labels">;
  legend: Legend;
}

export const NO_BACKEND = "no delegate";
const SEVERAL = "several";

export function colouring(
  model: GraphModel,
  drawing: Drawing,
  by: ColourBy,
  mode: ScaleMode,
  theme: Theme,
  others: readonly Value[] = [],
): Colouring {
  if (by === "backend") return byBackend(model, theme);
  const measure = measureOf(model, by);
  if (!measure) return plain();
  const scale = measureScale(measure, seenValues(model, drawing, by), mode, theme, others);
  return byMeasure(model, measure, scale);
}

const measureOf = (model: GraphModel, by: ColourBy): Measure | undefined =>
  model.doc.measures.find((one) => one.key === by);

/** The values of what is drawn and not open, that a scale is to cover. A box of repeated blocks is more
 * than all else together: with it, no operator beside it would have a colour that says something. */
export function seenValues(model: GraphModel, drawing: Drawing, by: ColourBy): Value[] {
  const measure = measureOf(model, by);
  if (!measure) return [];
  const seen = Array.from(drawing.items).filter(
    (item, index) => !drawing.isOpen[index] && !isWhole(model, measure, item),
  );
  const single = seen.filter((item) => !isRepeat(model.doc.groups[item - model.tree.nodeCount]));
  const values = single.map((item) => valueOf(model, measure, item));
  return values.some((value) => value !== null) ? values : seen.map((item) => valueOf(model, measure, item));
}

/** Whether the item is a delegate's call with operators beside it in its box: its time is that of the box,
 * all of them together, and says nothing of what is slow. */
function isWhole({ doc, tree }: GraphModel, measure: Measure, item: number): boolean {
  if (measure.kind !== "duration" || item >= tree.nodeCount) return false;
  const group = doc.nodes[item]!.group;
  if (group === null || doc.groups[group]?.kind !== "delegate") return false;
  if (measure.nodes[item] === null || measure.nodes[item] !== measure.groups[group]) return false;
  return tree.children[tree.nodeCount + group]!.some(
    (inside) => inside !== item && (valueOf({ tree }, measure, inside) ?? null) !== null,
  );
}

function plain(): Colouring {
  return {
    look: { colour: () => null, number: () => "", shared: new Set() },
    legend: { scale: null, names: [], text: () => "" },
  };
}

function byMeasure(model: GraphModel, measure: Measure, scale: MeasureScale): Colouring {
  const text = measureText(measure);
  const texts = new Map<number, string>();
  return {
    look: {
      colour: (item) =>
        isWhole(model, measure, item) ? null : scale.colourOf(valueOf(model, measure, item)),
      number: (item) => {
        let known = texts.get(item);
        if (known === undefined) {
          known = isWhole(model, measure, item) ? "" : text(valueOf(model, measure, item));
          texts.set(item, known);
        }
        return known;
      },
      shared: new Set(measure.shared),
    },
    legend: { scale, names: [], text },
  };
}

/** The node with the worst value that is its own; null without any. */
export function hottest(model: GraphModel, by: ColourBy): number | null {
  const measure = model.doc.measures.find(({ key }) => key === by);
  if (!measure) return null;
  const sign = measure.largerIsWorse ? 1 : -1;
  let found: number | null = null;
  let most = -Infinity;
  measure.nodes.forEach((value, node) => {
    const number = asNumber(value);
    if (number === null || sign * number <= most || isWhole(model, measure, node)) return;
    [found, most] = [node, sign * number];
  });
  return found;
}

export function valueOf(model: Pick<GraphModel, "tree">, measure: Measure, item: number): Value {
  const { nodeCount } = model.tree;
  return item < nodeCount ? measure.nodes[item] : measure.groups[item - nodeCount];
}

/** Numbers of one measure with equal decimals, with the unit. */
export function measureText(measure: Measure): (value: Value) => string {
  const write = cellFormat(measure, [...measure.nodes, ...measure.groups]);
  const unit = measure.unit && measure.kind !== "bytes" ? ` ${measure.unit}` : "";
  return (value) => {
    if (value === null || value === undefined) return "";
    const text = write(value);
    return text && text + unit;
  };
}

function byBackend(model: GraphModel, theme: Theme): Colouring {
  const names = [...new Set(model.doc.nodes.map((node) => node.backend))];
  const named = names.filter((name): name is string => name !== null).sort();
  const colour = nameColours(named, theme);
  const cache = new Map<number, string | null>();
  const backendOf = (item: number): string | null => {
    let known = cache.get(item);
    if (known === undefined) cache.set(item, (known = findBackend(model, item)));
    return known;
  };
  const colourOf = (item: number): string | null => {
    const backend = backendOf(item);
    return backend === null || backend === SEVERAL ? null : colour(backend);
  };
  return {
    look: { colour: colourOf, number: () => "", shared: new Set() },
    legend: {
      scale: null,
      names: named.map((name) => ({ name, colour: colour(name) })),
      text: () => "",
    },
  };
}

/** A box has the backend that it names, or that all of its nodes have. */
function findBackend(model: GraphModel, item: number): string | null {
  const { nodeCount } = model.tree;
  if (item < nodeCount) return model.doc.nodes[item]!.backend;
  const own = model.doc.groups[item - nodeCount]?.backend ?? null;
  if (own !== null) return own;
  const backends = new Set<string | null>();
  for (const node of nodesOfItem(model, item)) {
    if (!model.shape.weight[node]) backends.add(model.doc.nodes[node]!.backend);
  }
  if (backends.size === 1) return [...backends][0]!;
  return backends.size === 0 ? null : SEVERAL;
}
