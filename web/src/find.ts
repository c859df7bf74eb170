// Find anything: the named things of a run as one list, the best matches of a text first, and the
// address that each leads to.

import type { GraphDoc, Run } from "./document";
import { isRepeat } from "./drawings/graph/repeats";
import { plainText } from "./format";
import type { Place, Selection, TabName } from "./store";

/** In the order in which equally good matches are listed. */
export const KINDS = [
  "run",
  "operator",
  "module",
  "event",
  "line",
  "tensor",
  "shape",
  "handle",
  "node",
] as const;
export type FindKind = (typeof KINDS)[number];

export interface Thing {
  kind: FindKind;
  text: string;
  /** What tells it from others of its name; searched as well. */
  detail: string;
  /** The graph or method that it is in, where there are several. */
  where: string;
  place: Place;
  /** All that it is called, `text` first, normalized. */
  names: readonly string[];
}

/** How well a text matches; the smaller, the better. */
enum Match {
  Exact,
  Prefix,
  Word,
  Within,
  Fuzzy,
}

export interface Found {
  things: readonly Thing[];
  /** How many there are in all, of which the best are in `things`. */
  count: number;
}

/**
 * The things that hold all words of `text`, the best first: whole name, beginning of a name, of a word,
 * within a word; if there are few of these, the words' letters in order.
 */
export function find(things: readonly Thing[], text: string, most: number): Found {
  const whole = normalized(text);
  if (!whole) return { things: [], count: 0 };
  const words = whole.split(" ");
  const found: [rank: number, at: number][] = [];
  const weigh = (match: (name: string, wanted: string) => number): void => {
    const known = new Set(found.map(([, at]) => at));
    things.forEach((thing, at) => {
      const rank = known.has(at) ? Infinity : rankOf(thing, whole, words, match);
      if (rank < Infinity) found.push([rank, at]);
    });
  };
  weigh(literal);
  if (found.length < most && whole.length > 2) weigh(fuzzy);
  found.sort(([one, first], [other, second]) => one - other || first - second);
  return { things: found.slice(0, most).map(([, at]) => things[at]!), count: found.length };
}

/** Lower case, and sizes as "1x64x8", however they are written. */
const normalized = (text: string): string =>
  text
    .trim()
    .toLowerCase()
    .replace(/(\d)\s*[,×*]\s*(?=\d)/g, "$1x")
    .replace(/\s+/g, " ");

type Matcher = (name: string, wanted: string) => number;

/** Of a text in one name, else of each of its words in any name. Short names stand before long ones. */
function rankOf(thing: Thing, whole: string, words: readonly string[], match: Matcher): number {
  let best = bestOf(thing, whole, match);
  if (best === Infinity && words.length > 1) {
    best = Match.Word;
    for (const word of words) {
      best = Math.max(best, bestOf(thing, word, match));
      if (best === Infinity) return best;
    }
  }
  return best * 1e6 + KINDS.indexOf(thing.kind) * 1e4 + Math.min(thing.text.length, 9999);
}

function bestOf(thing: Thing, wanted: string, match: Matcher): number {
  let best = Infinity;
  thing.names.forEach((name, at) => {
    const found = match(name, wanted);
    // The last is the detail: to hold the text is not to be called so.
    best = Math.min(best, at === thing.names.length - 1 ? Math.max(found, Match.Word) : found);
  });
  return best;
}

function literal(name: string, wanted: string): number {
  let at = name.indexOf(wanted);
  if (at < 0) return Infinity;
  if (at === 0) return name.length === wanted.length ? Match.Exact : Match.Prefix;
  for (; at > 0; at = name.indexOf(wanted, at + 1)) {
    if (!isWordCharacter(name.charCodeAt(at - 1))) return Match.Word;
  }
  return Match.Within;
}

const isWordCharacter = (code: number): boolean => (code > 47 && code < 58) || (code > 96 && code < 123);

/** The letters in order, the first of them at the start of a word. */
function fuzzy(name: string, wanted: string): number {
  let at = name.indexOf(wanted[0]!);
  while (at > 0 && isWordCharacter(name.charCodeAt(at - 1))) at = name.indexOf(wanted[0]!, at + 1);
  for (let index = 1; at >= 0 && index < wanted.length; index++) at = name.indexOf(wanted[index]!, at + 1);
  return at < 0 ? Infinity : Match.Fuzzy;
}

const known = new WeakMap<Run, readonly Thing[]>();

/** Everything that run `at` names, and the other runs. Made when it is first asked for. */
export function thingsOf(runs: readonly Run[], at: number): readonly Thing[] {
  const run = runs[at]!;
  let things = known.get(run);
  if (!things) {
    const list = new List(at);
    if (runs.length > 1) {
      runs.forEach((one, number) => list.add("run", one.name, { run: number, tab: "summary" }));
    }
    run.methods.forEach((_, method) => addProfile(list, run, method));
    addLines(list, run);
    addMemory(list, run);
    addWeights(list, run);
    for (const graph of [...run.graphs].reverse()) addGraph(list, run, graph);
    known.set(run, (things = list.things));
  }
  return things;
}

type Somewhere = Partial<Place> & { tab: TabName };

interface Described {
  detail?: string;
  where?: string;
  names?: readonly string[];
}

class List {
  readonly things: Thing[] = [];
  private readonly seen = new Set<string>();

  constructor(private readonly run: number) {}

  /** Add a thing, unless the same is there: the first place that knows it is the best to show it. */
  add(
    kind: FindKind,
    text: string,
    place: Somewhere,
    { detail = "", where = "", names = [] }: Described = {},
  ): void {
    const key = [kind, text, detail, where].join("\n");
    if (!text || this.seen.has(key)) return;
    this.seen.add(key);
    const called = [...new Set([text, ...names].map(normalized))].filter(Boolean);
    this.things.push({
      kind,
      text,
      detail,
      where,
      place: { run: this.run, method: 0, selection: null, controls: {}, ...place },
      names: [...called, normalized(detail)],
    });
  }

  /** Add an operator by its name without namespace and overload, which dialects write differently. */
  addOperator(op: string, place: Somewhere, where: string): void {
    const name = op.replace(/^\w+(::|\.)/, "").replace(/\.\w+$/, "");
    this.add("operator", name, place, { where, names: [op] });
  }

  /** Add the shapes of texts such as "float32[1, 8]", as "1x8". */
  addShapes(texts: readonly string[], place: (sizes: string) => Somewhere, where: string): void {
    for (const text of texts) {
      const sizes = /\[[<=?]*([^\]]+)\]$/.exec(text)?.[1]?.replaceAll(", ", "x");
      if (sizes) this.add("shape", sizes, place(sizes), { where });
    }
  }

  addHandle(handle: string, place: Somewhere, where: string): void {
    this.add("handle", `#${handle}`, place, { detail: "debug handle", where, names: [handle] });
  }
}

/** Show the instructions of a method that a filter keeps. */
const rowsWith = (method: number, filter: string): Somewhere => ({
  tab: "events",
  method,
  controls: { "events.show": "rows", "events.filter": filter, "events.group": "" },
});

/** The name of a method where a run has several. */
const methodName = (run: Run, name: string | null): string => (run.methods.length > 1 ? (name ?? "") : "");

function addProfile(list: List, run: Run, method: number): void {
  const { name, rows: table, modules } = run.methods[method]!;
  const where = methodName(run, name);
  const texts = (column: string, row: number): string[] => {
    const value = table.values[column]?.[row] ?? null;
    return Array.isArray(value) ? value.map(String) : value === null ? [] : [String(value)];
  };
  (table.values["event"] ?? []).forEach((event, row) => {
    const number = texts("instruction", row).map((one) => `#${one}`);
    list.add(
      "event",
      plainText(event),
      { ...rowsWith(method, ""), selection: { kind: "row", method, row } },
      { detail: [...number, ...texts("module", row)].join(" · "), where },
    );
    const types = texts("op_types", row);
    for (const op of types.length ? types : texts("operator", row)) {
      list.addOperator(op, rowsWith(method, `op:"${op}"`), where);
    }
    for (const handle of texts("debug_handles", row)) {
      list.addHandle(handle, rowsWith(method, `handle:${handle}`), where);
    }
    for (const column of ["outputs", "inputs"]) {
      list.addShapes(texts(column, row), (sizes) => rowsWith(method, `shape:${sizes}`), where);
    }
  });
  modules.forEach((one, module) => {
    const controls = { "modules.find": "" };
    list.add(
      "module",
      one.path || "(root)",
      { tab: "modules", method, selection: { kind: "module", method, module }, controls },
      { detail: one.type ?? "", where, names: [one.name] },
    );
  });
}

function addLines(list: List, run: Run): void {
  run.source.lines.forEach((line, at) => {
    const path = run.source.files[line.file] ?? "";
    const name = `${path.split(/[\\/]/).at(-1)}:${line.line}`;
    list.add(
      "line",
      name,
      { tab: "source", selection: { kind: "line", line: at }, controls: { "source.find": "" } },
      { detail: line.text.trim() || line.function, names: [`${path}:${line.line}`, line.function] },
    );
  });
}

function addMemory(list: List, run: Run): void {
  run.memory.forEach(({ method: name, values: { values } }) => {
    const method = Math.max(
      run.methods.findIndex((one) => one.name === name),
      0,
    );
    (values["value"] ?? []).forEach((value, at) => {
      const facts = ["tensor", "role", "op", "module"].map((column) => plainText(values[column]?.[at]));
      const controls = {
        "memory.show": "",
        "memory.value": String(at),
        "memory.filter": "",
        "memory.method": name,
      };
      list.add(
        "tensor",
        `value ${plainText(value)}`,
        { tab: "memory", method, controls },
        { detail: facts.filter(Boolean).join(" · "), where: run.memory.length > 1 ? name : "" },
      );
    });
  });
}

/** Add the weights in the program's file, by the module that reads them. */
function addWeights(list: List, { weights }: Run): void {
  (weights?.values["module"] ?? []).forEach((module, row) => {
    const controls = {
      "memory.show": "weights",
      "weights.chosen": `#${row}`,
      "weights.filter": "",
      "weights.zoom": "",
    };
    const detail = ["weights", plainText(weights!.values["content"]?.[row])].filter(Boolean).join(" · ");
    list.add("tensor", plainText(module), { tab: "memory", controls }, { detail });
  });
}

function addGraph(list: List, run: Run, graph: GraphDoc): void {
  const found = run.methods.findIndex((one) => one.name === graph.method);
  const method = Math.max(found, 0);
  const where = methodName(run, graph.method);
  const at = (selection: Selection, weight = false): Somewhere => ({
    tab: "graph",
    method,
    selection,
    controls: { "graph.left": graph.key, ...(weight ? { "graph.weights": "on" } : {}) },
  });
  graph.nodes.forEach((node, index) => {
    const place = at({ kind: "node", graph: graph.key, node: index }, node.weight !== null);
    const detail = [node.op === node.name ? "" : node.op, moduleAround(graph, node.group)];
    list.add("node", node.name, place, { detail: detail.filter(Boolean).join(" · "), where: graph.title });
    if (node.weight !== null) {
      list.add("tensor", node.weight, place, { detail: node.outputs.join(", "), where, names: [node.name] });
    }
    if (node.kind === "call_function") list.addOperator(node.op, place, where);
    if (node.handle !== null) list.addHandle(String(node.handle), place, where);
    list.addShapes(node.outputs, () => place, where);
  });
  if (run.methods[found]?.modules.length) return;
  graph.groups.forEach((group, index) => {
    if (group.kind !== "module" || isRepeat(group)) return;
    const place = at({ kind: "group", graph: graph.key, group: index });
    list.add("module", group.label, place, { detail: group.type ?? "", where, names: [group.name] });
  });
}

function moduleAround(graph: GraphDoc, group: number | null): string {
  for (let at = group; at !== null; at = graph.groups[at]!.parent) {
    if (graph.groups[at]!.kind === "module") return graph.groups[at]!.label;
  }
  return "";
}
