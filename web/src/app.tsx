import { Icicle } from "./drawings/Icicle";
import { TimelineView } from "./drawings/TimelineView";
import { GraphView } from "./drawings/GraphView";
import type { ReportEntry } from "./load";
import { run, tab, TABS } from "./store";

export function App(_: { reports: ReportEntry[]; report: string | null }) {
  const now = run.value;
  return (
    <div class="page">
      <nav>{TABS.map((name) => <button onClick={() => (tab.value = name)}>{name}</button>)}</nav>
      <main>
        {tab.value === "modules" && <Icicle run={now} />}
        {tab.value === "timeline" && <TimelineView run={now} />}
        {tab.value === "graph" && <GraphView run={now} />}
      </main>
    </div>
  );
}
