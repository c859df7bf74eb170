// From a selection to all that belongs to it, in every view. Pure functions of a run.
//
// A row knows its nodes in every graph, its lines and its module (`RowLinks`). The other way round,
// and between graphs, what is not behind any row is found by its debug handle.

import type { GraphDoc, Method, Run } from "./document";
import type { Selection } from "./store";

/** A method index and a row index, as text so that sets work: "0:12". */
export type RowKey = `${number}:${number}`;

export const rowKey = (method: number, row: number): RowKey => `${method}:${row}`;

export function parseRowKey(key: RowKey): [method: number, row: number] {
  const [method, row] = key.split(":");
  return [Number(method), Number(row)];
}

/** Rows of any method that the selection covers. */
export function rowsOf(run: Run, sel: Selection): Set<RowKey> {
  if (sel === null) return new Set();
  switch (sel.kind) {
    case "row":
      return new Set([rowKey(sel.method, sel.row)]);
    case "module":
      return modulesRows(run, sel.method, sel.module);
    case "line":
      return new Set(indexOf(run).lineRows.get(sel.line) ?? []);
    case "node":
    case "group": {
      const byNode = indexOf(run).nodeRows.get(sel.graph);
      const rows = new Set<RowKey>();
      for (const node of nodesOf(run, sel, sel.graph)) {
        for (const key of byNode?.get(node) ?? []) rows.add(key);
      }
      return rows;
    }
  }
}

/** Nodes of one graph that the selection covers. */
export function nodesOf(run: Run, sel: Selection, graphKey: string): Set<number> {
  const graph = run.graphs.find((one) => one.key === graphKey);
  if (sel === null || !graph) return new Set();
  switch (sel.kind) {
    case "row":
      return new Set(run.methods[sel.method]?.links.nodes[graphKey]?.[sel.row] ?? []);
    case "line":
      return nodesWhere(graph, (node) => node.line === sel.line || node.stack.includes(sel.line));
    case "module": {
      const method = run.methods[sel.method];
      const path = method?.modules[sel.module]?.path;
      if (!method || path === undefined || !ofMethod(graph, method)) return new Set();
      const nodes = nodesOfModule(graph, path);
      for (const key of modulesRows(run, sel.method, sel.module)) {
        const [, row] = parseRowKey(key);
        for (const node of method.links.nodes[graphKey]?.[row] ?? []) nodes.add(node);
      }
      return nodes;
    }
    case "node":
    case "group": {
      const own = run.graphs.find((one) => one.key === sel.graph);
      if (!own) return new Set();
      const chosen = sel.kind === "node" ? new Set([sel.node]) : nodesInGroup(own, sel.group);
      return sel.graph === graphKey ? chosen : across(run, own, chosen, graph);
    }
  }
}

/** The user's innermost lines behind the selection (indices into `source.lines`), best first. */
export function linesOf(run: Run, sel: Selection): Set<number> {
  if (sel === null) return new Set();
  if (sel.kind === "line") return new Set([sel.line]);
  const lines = new Set<number>();
  if (sel.kind === "node" || sel.kind === "group") {
    const graph = run.graphs.find((one) => one.key === sel.graph);
    for (const node of nodesOf(run, sel, sel.graph)) {
      const line = graph?.nodes[node]?.line;
      if (line !== null && line !== undefined) lines.add(line);
    }
    if (lines.size) return lines;
  }
  for (const key of rowsOf(run, sel)) {
    const [method, row] = parseRowKey(key);
    for (const line of run.methods[method]?.links.lines[row] ?? []) lines.add(line);
  }
  return lines;
}

/** The whole Python stack of the selection, outermost first, when all of it has the same. */
export function stackOf(run: Run, sel: Selection): number[] {
  if (sel === null) return [];
  if (sel.kind === "row") return run.methods[sel.method]?.links.stack[sel.row] ?? [];
  if (sel.kind === "node") {
    const graph = run.graphs.find((one) => one.key === sel.graph);
    return graph?.nodes[sel.node]?.stack ?? [];
  }
  return sel.kind === "line" ? [sel.line] : [];
}

/** The module the selection lies in; null if it has none or several. */
export function moduleOf(run: Run, sel: Selection): { method: number; module: number } | null {
  if (sel === null) return null;
  if (sel.kind === "module") return { method: sel.method, module: sel.module };
  let found: { method: number; module: number } | null = null;
  for (const key of rowsOf(run, sel)) {
    const [method, row] = parseRowKey(key);
    const module = run.methods[method]?.links.module[row];
    if (module === null || module === undefined) continue;
    if (found && (found.method !== method || found.module !== module)) return null;
    found = { method, module };
  }
  return found;
}

/** The nodes of a group and of all groups within. */
export function nodesInGroup(graph: GraphDoc, group: number): Set<number> {
  const inside = new Set([group]);
  // Parents stand before their children.
  graph.groups.forEach((one, index) => {
    if (one.parent !== null && inside.has(one.parent)) inside.add(index);
  });
  return nodesWhere(graph, (node) => node.group !== null && inside.has(node.group));
}

/** Nodes of `to` that stand for the same computation as `nodes` of `from`: by the edge graph's nodes
 * behind both, else by debug handle, else by the rows that both belong to. */
function across(run: Run, from: GraphDoc, nodes: Set<number>, to: GraphDoc): Set<number> {
  if (from.method !== null && to.method !== null && from.method !== to.method) return new Set();
  const edge = edgeOf(run, from);
  if (edge !== undefined && edge === edgeOf(run, to)) {
    const behind = new Set(
      [...nodes].flatMap((node) => from.edgeNodes?.[node] ?? (from === edge ? [node] : [])),
    );
    if (to === edge) return behind;
    return new Set(
      to.edgeNodes!.flatMap((edges, node) => (edges.some((one) => behind.has(one)) ? [node] : [])),
    );
  }
  const found = new Set<number>();
  const index = indexOf(run);
  for (const node of nodes) {
    const handle = from.nodes[node]?.handle ?? null;
    const same = handle === null ? [] : (index.handles.get(to.key)?.get(handle) ?? []);
    for (const other of same) found.add(other);
    if (same.length) continue;
    for (const key of index.nodeRows.get(from.key)?.get(node) ?? []) {
      const [method, row] = parseRowKey(key);
      for (const other of run.methods[method]?.links.nodes[to.key]?.[row] ?? []) found.add(other);
    }
  }
  return found;
}

/** The edge graph that `edgeNodes` of the graph point into; undefined without one. */
function edgeOf(run: Run, graph: GraphDoc): GraphDoc | undefined {
  const edge = run.graphs.find((one) => one.key === `edge/${graph.method}`);
  return graph === edge || graph.edgeNodes ? edge : undefined;
}

function modulesRows(run: Run, methodIndex: number, module: number): Set<RowKey> {
  const rows = new Set<RowKey>();
  const modules = run.methods[methodIndex]?.modules ?? [];
  const top = modules[module];
  if (!top) return rows;
  for (let at = module; at < modules.length; at++) {
    const one = modules[at]!;
    if (at > module && one.depth <= top.depth) break; // pre-order: what is below stands together
    for (const row of one.rows) rows.add(rowKey(methodIndex, row));
  }
  return rows;
}

function nodesOfModule(graph: GraphDoc, path: string): Set<number> {
  const inside = new Set<number>();
  graph.groups.forEach((group, index) => {
    const below = group.kind === "module" && (group.label === path || group.label.startsWith(path + "."));
    if (below || (group.parent !== null && inside.has(group.parent))) inside.add(index);
  });
  return path === "" ? new Set() : nodesWhere(graph, (node) => node.group !== null && inside.has(node.group));
}

function nodesWhere(graph: GraphDoc, keep: (node: GraphDoc["nodes"][number]) => boolean): Set<number> {
  const found = new Set<number>();
  graph.nodes.forEach((node, index) => {
    if (keep(node)) found.add(index);
  });
  return found;
}

const ofMethod = (graph: GraphDoc, method: Method): boolean =>
  graph.method === null || graph.method === method.name;

interface RunIndex {
  /** graph key -> node -> rows */
  nodeRows: Map<string, Map<number, RowKey[]>>;
  /** line -> rows that have it anywhere in their stack */
  lineRows: Map<number, RowKey[]>;
  /** graph key -> debug handle -> nodes */
  handles: Map<string, Map<number, number[]>>;
}

const indices = new WeakMap<Run, RunIndex>();

function indexOf(run: Run): RunIndex {
  let index = indices.get(run);
  if (!index) indices.set(run, (index = makeIndex(run)));
  return index;
}

function makeIndex(run: Run): RunIndex {
  const nodeRows = new Map<string, Map<number, RowKey[]>>();
  const lineRows = new Map<number, RowKey[]>();
  run.methods.forEach((method, m) => {
    for (const [key, byRow] of Object.entries(method.links.nodes)) {
      const byNode = nodeRows.get(key) ?? new Map<number, RowKey[]>();
      nodeRows.set(key, byNode);
      byRow.forEach((nodes, row) => {
        for (const node of nodes) push(byNode, node, rowKey(m, row));
      });
    }
    method.links.stack.forEach((stack, row) => {
      const lines = new Set([...stack, ...(method.links.lines[row] ?? [])]);
      for (const line of lines) push(lineRows, line, rowKey(m, row));
    });
  });
  const handles = new Map<string, Map<number, number[]>>();
  for (const graph of run.graphs) {
    const byHandle = new Map<number, number[]>();
    graph.nodes.forEach((node, index) => {
      if (node.handle !== null) push(byHandle, node.handle, index);
    });
    handles.set(graph.key, byHandle);
  }
  return { nodeRows, lineRows, handles };
}

function push<K, V>(map: Map<K, V[]>, key: K, value: V): void {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}
