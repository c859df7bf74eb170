// From a node to its partner in the program of another run. Pure functions of the document.

import type { GraphPairDoc, NodeStatus, ReportDocument } from "./document";
import type { Selection } from "./store";

/** A node as a comparison of two programs has it. */
export interface Partner {
  status: NodeStatus;
  what: readonly string[];
  /** The other run, and the node there; null if it has none. */
  run: number;
  node: number | null;
}

/** What the comparisons of a run's program say of the selected node, one for each other program. */
export function partnersOf(report: ReportDocument, run: number, sel: Selection): Partner[] {
  if (sel?.kind !== "node") return [];
  return report.programs.flatMap(({ a, b, graphs }): Partner[] => {
    if (run !== a && run !== b) return [];
    const pair = graphs.find((one) => one.key === sel.graph);
    const at = pair && placesOf(pair)[run === a ? 0 : 1].get(sel.node);
    if (!pair || at === undefined) return [];
    const node = (run === a ? pair.b : pair.a)[at] ?? null;
    return [{ status: pair.status[at]!, what: pair.what[at]!, run: run === a ? b : a, node }];
  });
}

type Places = readonly [Map<number, number>, Map<number, number>];
const known = new WeakMap<GraphPairDoc, Places>();

/** The place of each node in the lists of a pair, by side. */
function placesOf(pair: GraphPairDoc): Places {
  let places = known.get(pair);
  if (!places) {
    const of = (nodes: readonly (number | null)[]): Map<number, number> =>
      new Map(nodes.flatMap((node, at) => (node === null ? [] : [[node, at] as const])));
    known.set(pair, (places = [of(pair.a), of(pair.b)]));
  }
  return places;
}
