import { render } from "preact";
import { App } from "./app";
import { doc, followHash } from "./store";
import { fetchDocument, inlined, listReports, onChange, type ReportEntry } from "./load";
import { followTheme } from "./theme";
import { Failure } from "./parts/failure";
import "./styles.css";

const root = document.getElementById("app")!;

async function start(): Promise<void> {
  followTheme();
  const here = inlined();
  if (here) {
    show(here, [], null);
    return;
  }
  const reports = await listReports();
  const asked = new URLSearchParams(location.search).get("report");
  const report = asked ?? reports[0]?.id ?? null;
  show(await fetchDocument(report), reports, report);
  onChange((id) => {
    if (report !== null && id !== "" && id !== report) return;
    void fetchDocument(report).then(
      (fresh) => {
        doc.value = fresh;
        document.title = fresh.title;
      },
      (error: unknown) => console.warn("the report changed but cannot be read", error),
    );
  });
}

function show(loaded: typeof doc.value, reports: ReportEntry[], report: string | null): void {
  doc.value = loaded;
  document.title = loaded.title;
  followHash();
  root.textContent = "";
  render(<App reports={reports} report={report} />, root);
}

start().catch((error: unknown) => {
  root.textContent = "";
  render(<Failure error={error} />, root);
});
