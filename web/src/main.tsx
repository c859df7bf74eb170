import { batch } from "@preact/signals";
import { render } from "preact";
import { App } from "./app";
import { followCell, isEmbedded } from "./embedded";
import { doc, followHash, goTo } from "./store";
import { fetchDocument, inlined, listReports, onChange, reports, stale } from "./load";
import { followTheme } from "./theme";
import { Failure } from "./parts/failure";
import "./styles.css";

const root = document.getElementById("app")!;

async function start(): Promise<void> {
  followTheme();
  const here = inlined();
  if (here) {
    show(here, null);
    return;
  }
  reports.value = await listReports();
  const asked = new URLSearchParams(location.search).get("report");
  const report = asked ?? reports.value[0]?.id ?? null;
  show(await fetchDocument(report), report);
  onChange((id) => void refresh(report, id));
}

/** The server says that report `id` changed: read it again if it is the one shown. */
async function refresh(report: string | null, id: string): Promise<void> {
  reports.value = await listReports();
  if (report !== null && id !== "" && id !== report) return;
  try {
    const fresh = await fetchDocument(report);
    batch(() => {
      doc.value = fresh;
      goTo(location.hash); // what was selected may be gone
    });
    document.title = fresh.title;
    stale.value = null;
  } catch (error) {
    // A file that is being written: the report before stays, the next change is read again.
    stale.value = error instanceof Error ? error.message : String(error);
  }
}

function show(loaded: typeof doc.value, report: string | null): void {
  doc.value = loaded;
  document.title = loaded.title;
  if (isEmbedded()) followCell();
  else followHash();
  root.textContent = "";
  render(<App report={report} />, root);
}

start().catch((error: unknown) => {
  root.textContent = "";
  render(<Failure error={error} />, root);
});
