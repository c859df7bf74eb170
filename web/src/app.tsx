// The page: what is looked at above, the view of a tab, and the selection's details at its side.

import { signal } from "@preact/signals";
import { useEffect, useErrorBoundary, useRef } from "preact/hooks";
import type { ComponentType } from "preact";
import { GraphView } from "./drawings/GraphView";
import { Icicle } from "./drawings/Icicle";
import { TimelineView } from "./drawings/TimelineView";
import type { Run } from "./document";
import { visible } from "./format";
import { followKeys, helpShown, KEY_HELP } from "./keys";
import { reports, stale } from "./load";
import { OpenFiles } from "./opening";
import { Details } from "./parts/details";
import { Failure } from "./parts/failure";
import { Finder, FinderButton, finderShown } from "./parts/finder";
import { Select } from "./parts/toolbar";
import {
  doc,
  methodIndex,
  run,
  runIndex,
  selection,
  showMethod,
  showRun,
  shownTabs,
  tab,
  type TabName,
} from "./store";
import { theme, toggleTheme } from "./theme";
import { Compare } from "./views/compare";
import { Events } from "./views/events";
import { Generation } from "./views/generation";
import { Memory } from "./views/memory";
import { Numerics } from "./views/numerics";
import { Roofline } from "./views/roofline";
import { Source } from "./views/source";
import { Summary } from "./views/summary";
import { glossary } from "./words";

interface AppProps {
  report: string | null;
}

export function App(props: AppProps) {
  useEffect(followKeys, []);
  const now = run.value;
  return (
    <div class="page">
      <Header {...props} />
      <Tabs now={now} />
      <div class="content" style={{ "--details": `${detailsWidth.value}px` }}>
        <main id="view" data-tab={tab.value}>
          {/* A comparison is of several runs: it stays as it is when a selection is of another run. */}
          <View key={tab.value === "compare" ? tab.value : `${tab.value}${now.id}`} now={now} />
        </main>
        {selection.value !== null && tab.value !== "summary" && (
          <>
            <div
              class="divider"
              role="separator"
              aria-orientation="vertical"
              title="Drag to change the width"
              onPointerDown={drag}
            />
            <Details />
          </>
        )}
      </div>
      {helpShown.value && <Help />}
      {finderShown.value && <Finder />}
    </div>
  );
}

const detailsWidth = signal(Math.round(Math.min(420, Math.max(320, innerWidth * 0.24))));

function drag(event: PointerEvent): void {
  event.preventDefault();
  const bar = event.currentTarget as HTMLElement;
  const start = detailsWidth.value;
  bar.setPointerCapture(event.pointerId);
  const move = (now: PointerEvent): void => {
    detailsWidth.value = Math.min(innerWidth - 400, Math.max(260, start - (now.clientX - event.clientX)));
  };
  bar.addEventListener("pointermove", move);
  bar.addEventListener("pointerup", () => bar.removeEventListener("pointermove", move), { once: true });
}

function Header({ report }: AppProps) {
  const { runs, title } = doc.value;
  const methods = run.value.methods;
  return (
    <header class="top">
      <span class="brand" title={visible(doc.value.generator)}>
        etscope
      </span>
      {reports.value.length > 1 ? (
        <Select
          label="Report"
          value={report ?? ""}
          options={reports.value.map(({ id, title: name }) => [id, visible(name)] as const)}
          onChange={(id) => location.assign(`?report=${encodeURIComponent(id)}`)}
          testId="report-select"
        />
      ) : (
        <h1 title={visible(title)}>
          <bdi dir="ltr">{visible(title)}</bdi>
        </h1>
      )}
      {stale.value !== null && (
        <span class="badge bad" role="status" title={visible(stale.value)}>
          changed, but cannot be read
        </span>
      )}
      <span class="spacer" />
      {runs.length > 1 && (
        <Select
          label="Run"
          value={String(Math.min(runIndex.value, runs.length - 1))}
          options={runs.map((one, at) => [String(at), visible(one.name)] as const)}
          onChange={(at) => showRun(Number(at))}
          testId="run-select"
        />
      )}
      {methods.length > 1 && (
        <Select
          label="Method"
          value={String(methodIndex.value)}
          options={methods.map((one, at) => [String(at), visible(one.name)] as const)}
          onChange={(at) => showMethod(Number(at))}
          testId="method-select"
        />
      )}
      <OpenFiles />
      <FinderButton />
      <button
        class="icon"
        data-testid="theme"
        onClick={toggleTheme}
        aria-label={theme.value === "dark" ? "Light colours" : "Dark colours"}
        title="Dark or light (d)"
      >
        {theme.value === "dark" ? "☀" : "☾"}
      </button>
      <button
        class="icon"
        aria-label="Keyboard"
        title="Keyboard (?)"
        aria-expanded={helpShown.value}
        onClick={() => (helpShown.value = !helpShown.value)}
      >
        ?
      </button>
    </header>
  );
}

const TITLES: Record<TabName, string> = {
  summary: "Summary",
  events: "Events",
  modules: "Modules",
  timeline: "Timeline",
  generation: "Generation",
  roofline: "Roofline",
  graph: "Graph",
  source: "Source",
  numerics: "Numerics",
  memory: "Memory",
  compare: "Compare",
};

function Tabs({ now }: { now: Run }) {
  const chosen = useRef<HTMLButtonElement>(null);
  const shown = tab.value;
  useEffect(() => chosen.current?.scrollIntoView?.({ block: "nearest", inline: "center" }), [shown]);
  return (
    <nav class="tabs" role="tablist" aria-label="Views" onKeyDown={onTabKey}>
      {shownTabs.value.map((name, at) => (
        <button
          key={name}
          ref={tab.value === name ? chosen : null}
          role="tab"
          aria-selected={tab.value === name}
          tabIndex={tab.value === name ? 0 : -1}
          aria-controls="view"
          class={holds(name, now) ? "tab" : "tab empty"}
          data-testid={`tab-${name}`}
          title={`${TITLES[name]}${at < 10 ? ` (${(at + 1) % 10})` : ""}${holds(name, now) ? "" : ": nothing to show"}`}
          onClick={() => (tab.value = name)}
        >
          {TITLES[name]}
        </button>
      ))}
    </nav>
  );
}

/** Arrow keys, Home and End go from tab to tab, as in any list of tabs. */
function onTabKey(event: KeyboardEvent): void {
  const tabs = shownTabs.value;
  const at = tabs.indexOf(tab.value);
  const to = {
    ArrowLeft: (at + tabs.length - 1) % tabs.length,
    ArrowRight: (at + 1) % tabs.length,
    Home: 0,
    End: tabs.length - 1,
  }[event.key];
  if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  tab.value = tabs[to]!;
  (event.currentTarget as HTMLElement).querySelectorAll("button")[to]!.focus();
  event.preventDefault();
}

/** Whether the report has anything for the tab; one without says why. */
function holds(name: TabName, now: Run): boolean {
  switch (name) {
    case "events":
    case "modules":
      return now.methods.length > 0;
    case "timeline":
      return now.timeline !== null;
    case "generation":
      return !!now.generation;
    case "roofline":
      return !!now.roofline;
    case "graph":
      return now.graphs.length > 0;
    case "source":
      return now.source.lines.length > 0;
    case "numerics":
      return now.numerics !== null;
    case "memory":
      return now.memory.length > 0;
    case "compare":
      return doc.value.programs.length > 0 || doc.value.comparisons.length > 0;
    case "summary":
      return true;
  }
}

const VIEWS: Record<TabName, ComponentType<{ run: Run }>> = {
  summary: Summary,
  events: Events,
  modules: Icicle,
  timeline: TimelineView,
  generation: Generation,
  roofline: Roofline,
  graph: GraphView,
  source: Source,
  numerics: Numerics,
  memory: Memory,
  compare: Compare,
};

/** The tab's view; one that fails says so and leaves the others alone. */
function View({ now }: { now: Run }) {
  const [error] = useErrorBoundary((caught) => console.error(caught));
  const Shown = VIEWS[tab.value];
  return error ? <Failure error={error} title="This view cannot be shown" /> : <Shown run={now} />;
}

function Help() {
  return (
    <div class="overlay" onClick={() => (helpShown.value = false)}>
      <div class="help" role="dialog" aria-label="Keyboard" onClick={(event) => event.stopPropagation()}>
        <h2>Keyboard</h2>
        <table class="help-table">
          <tbody>
            {KEY_HELP.map(([keys, what]) => (
              <tr key={keys}>
                <td>
                  <kbd>{keys}</kbd>
                </td>
                <td>{what}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <p class="muted">The address holds what is shown and selected: a link leads to the same place.</p>
        <p class="muted">
          The{" "}
          <a href={glossary()} target="_blank" rel="noopener noreferrer">
            glossary
          </a>{" "}
          explains all words.
        </p>
      </div>
    </div>
  );
}
