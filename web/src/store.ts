// What the page shows at the moment: the document, the run and method looked at, the tab, the one
// selection that all views share, and the controls of the views. The address's hash holds all of it, so
// a link, or a reload, leads to the same place:
// #<run id>/<tab>/<method index>/<selection>?<control>=<value>&…

import { batch, computed, effect, signal } from "@preact/signals";
import type { Method, ReportDocument, Run } from "./document";

export const TABS = [
  "summary",
  "events",
  "modules",
  "timeline",
  "generation",
  "roofline",
  "graph",
  "source",
  "numerics",
  "memory",
  "compare",
] as const;
export type TabName = (typeof TABS)[number];

/** The tabs that are shown: that of language models only where there is one. */
export const shownTabs = computed<readonly TabName[]>(() =>
  TABS.filter((name) => name !== "generation" || doc.value.runs.some((one) => one.generation)),
);

/** What is selected; indices are those of the run looked at. */
export type Selection =
  | { kind: "row"; method: number; row: number }
  | { kind: "node"; graph: string; node: number }
  | { kind: "group"; graph: string; group: number }
  | { kind: "module"; method: number; module: number }
  | { kind: "line"; line: number }
  | null;

/** Set by `load.ts` before anything is rendered; replaced when a served report changes. */
export const doc = signal<ReportDocument>(null as unknown as ReportDocument);
export const runIndex = signal(0);
export const methodIndex = signal(0);
export const tab = signal<TabName>("summary");
export const selection = signal<Selection>(null);

/** The controls that are not as at first, by name. */
const controls = signal<ReadonlyMap<string, string>>(new Map());

/** What a control of a view is set to, as text. */
export interface Control<T extends string = string> {
  value: T;
}

/** The control of that name. What the address says is taken if it is one of `choices`. */
export function control<T extends string = string>(
  name: string,
  initial: NoInfer<T>,
  choices?: readonly T[],
): Control<T> {
  const now = computed(() => {
    const text = controls.value.get(name) as T | undefined;
    return text === undefined || (choices && !choices.includes(text)) ? initial : text;
  });
  return {
    get value() {
      return now.value;
    },
    set value(next) {
      if (next === now.peek()) return;
      const changed = new Map(controls.peek());
      if (next === initial) changed.delete(name);
      else changed.set(name, next);
      controls.value = changed;
    },
  };
}

/** A control whose value is an index, or null for none. */
export function indexControl(name: string): { value: number | null } {
  const text = control(name, "");
  return {
    get value() {
      return /^\d+$/.test(text.value) ? Number(text.value) : null;
    },
    set value(next) {
      text.value = next === null ? "" : String(next);
    },
  };
}

/** A control that is on or off. */
export function switchControl(name: string, initial: boolean): { value: boolean } {
  const text = control(name, initial ? "on" : "off", ["on", "off"]);
  return {
    get value() {
      return text.value === "on";
    },
    set value(next) {
      text.value = next ? "on" : "off";
    },
  };
}

/** A control for each of several things, made when it is first asked for. */
export function controlOfEach(name: string): (key: string) => Control {
  const made = new Map<string, Control>();
  return (key) => {
    let found = made.get(key);
    if (!found) made.set(key, (found = control(`${name}.${key}`, "")));
    return found;
  };
}

export const run = computed<Run>(() => {
  const runs = doc.value.runs;
  return runs[Math.min(runIndex.value, runs.length - 1)]!;
});

/** The method looked at; undefined when the run has no profile (a record without a dump). */
export const method = computed<Method | undefined>(() => run.value.methods[methodIndex.value]);

/** Select in all views; the method of a row or module becomes the one looked at. */
export function select(next: Selection): void {
  if (next !== null && "method" in next && next.method !== methodIndex.value) {
    methodIndex.value = next.method;
  }
  if (!sameSelection(selection.value, next)) selection.value = next;
}

export function selectRow(row: number, inMethod: number = methodIndex.value): void {
  select({ kind: "row", method: inMethod, row });
}

export function showRun(index: number): void {
  if (index === runIndex.value) return;
  // Rows and nodes of one run mean nothing in another.
  selection.value = null;
  methodIndex.value = 0;
  runIndex.value = index;
}

export function showMethod(index: number): void {
  if (index === methodIndex.value) return;
  selection.value = null;
  methodIndex.value = index;
}

export function sameSelection(one: Selection, other: Selection): boolean {
  return one === other || hashOfSelection(one) === hashOfSelection(other);
}

/** "row-0-12", "node-3-<graph key>", "" for no selection. */
export function hashOfSelection(sel: Selection): string {
  if (sel === null) return "";
  switch (sel.kind) {
    case "row":
      return `row-${sel.method}-${sel.row}`;
    case "module":
      return `module-${sel.method}-${sel.module}`;
    case "line":
      return `line-${sel.line}`;
    case "node":
      return `node-${sel.node}-${encodeURIComponent(sel.graph)}`;
    case "group":
      return `group-${sel.group}-${encodeURIComponent(sel.graph)}`;
  }
}

/** The selection that `text` names in `run`; null if there is no such thing. */
export function selectionOfHash(text: string, inRun: Run): Selection {
  const found = /^(row|module|line|node|group)-(\d+)(?:-(.*))?$/s.exec(text);
  if (!found) return null;
  const kind = found[1]!;
  const first = Number(found[2]);
  const rest = found[3] ?? "";
  if (kind === "line") return first < inRun.source.lines.length ? { kind, line: first } : null;
  if (kind === "row" || kind === "module") {
    const method = inRun.methods[first];
    const index = /^\d+$/.test(rest) ? Number(rest) : -1;
    if (!method || index < 0) return null;
    if (kind === "row") {
      return index < rowCount(method) ? { kind, method: first, row: index } : null;
    }
    return index < method.modules.length ? { kind, method: first, module: index } : null;
  }
  const key = decoded(rest);
  const graph = inRun.graphs.find((one) => one.key === key);
  if (!graph) return null;
  if (kind === "node") return first < graph.nodes.length ? { kind, graph: key, node: first } : null;
  return first < graph.groups.length ? { kind: "group", graph: key, group: first } : null;
}

/** How many rows a method's table has. */
export function rowCount(ofMethod: Method): number {
  const name = ofMethod.rows.columns[0]?.name;
  return name === undefined ? 0 : (ofMethod.rows.values[name]?.length ?? 0);
}

/** What the page shows, and controls that are not as at first. */
export interface Place {
  run: number;
  tab: TabName;
  method: number;
  selection: Selection;
  controls: Readonly<Record<string, string>>;
}

/** The hash of a place. Controls that it does not name stay as they are now; "" sets one back. */
export function hashOf(place: Place): string {
  const id = doc.value.runs[place.run]?.id ?? "";
  const parts = [encodeURIComponent(id), place.tab, String(place.method)];
  const selected = hashOfSelection(place.selection);
  const path = "#" + (selected ? [...parts, selected] : parts).join("/");
  const named = new Map([...controls.value, ...Object.entries(place.controls)]);
  const set = [...named].filter(([, value]) => value !== "");
  return set.length ? `${path}?${new URLSearchParams(set).toString()}` : path;
}

/** The hash of what is shown now. */
export const hash = computed(() =>
  hashOf({
    run: Math.min(runIndex.value, doc.value.runs.length - 1),
    tab: tab.value,
    method: methodIndex.value,
    selection: selection.value,
    controls: {},
  }),
);

/** Show what a hash names; what it names wrongly stays as it is. */
export function goTo(text: string): void {
  const [place, ...set] = text.replace(/^#/, "").split("?");
  const [id, name, inMethod, ...rest] = place!.split("/");
  const at = doc.value.runs.findIndex((one) => one.id === decoded(id ?? ""));
  if (at < 0) return;
  batch(() => {
    runIndex.value = at;
    const now = run.value;
    if ((TABS as readonly string[]).includes(name ?? "")) tab.value = name as TabName;
    const index = Number(inMethod ?? 0);
    methodIndex.value = now.methods[index] ? index : 0;
    selection.value = selectionOfHash(rest.join("/"), now);
    controls.value = new Map(new URLSearchParams(set.join("?")));
  });
}

/** Keep the address and what is shown the same, both ways. Tabs get an entry in the history. */
export function followHash(): () => void {
  goTo(location.hash);
  let shown = tab.peek();
  const stop = effect(() => {
    const text = hash.value;
    if (text === location.hash) return;
    const step = tab.value !== shown;
    shown = tab.value;
    if (step) history.pushState(null, "", text);
    else history.replaceState(null, "", text);
  });
  const back = (): void => {
    goTo(location.hash);
    shown = tab.peek();
  };
  addEventListener("hashchange", back);
  addEventListener("popstate", back);
  return () => {
    stop();
    removeEventListener("hashchange", back);
    removeEventListener("popstate", back);
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
