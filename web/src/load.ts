// The one place that brings the document in: inlined in the page (a report file), or fetched from
// the server the page came from (`etscope report --serve`, the TensorBoard tab).

import { signal } from "@preact/signals";
import { SCHEMA, type ReportDocument } from "./document";
import { withRepeats } from "./drawings/graph/repeats";
import { token } from "./opening";

/** A report that a server offers. */
export interface ReportEntry {
  id: string;
  title: string;
}

/** The reports to choose from; empty when there is one. */
export const reports = signal<ReportEntry[]>([]);

/** Why the report changed but could not be read again. */
export const stale = signal<string | null>(null);

export class LoadError extends Error {}

/** The document whose text the page carries, or null if it is to be fetched. */
export function inlined(): ReportDocument | null {
  const element = document.getElementById("etscope-data");
  return element ? checked(element.textContent ?? "", "the page") : null;
}

/** The reports that the server lists; empty if it lists none. */
export async function listReports(): Promise<ReportEntry[]> {
  try {
    const response = await fetch("reports.json");
    if (!response.ok) return [];
    token.value = response.headers.get("etscope-token");
    const entries: unknown = await response.json();
    return Array.isArray(entries) ? (entries as ReportEntry[]) : [];
  } catch {
    return []; // a server of a single report lists none
  }
}

export async function fetchDocument(report: string | null): Promise<ReportDocument> {
  const address = report === null ? "data.json" : `data.json?report=${encodeURIComponent(report)}`;
  let response: Response;
  try {
    response = await fetch(address);
  } catch (error) {
    throw new LoadError(`The server does not answer (${String(error)}).`);
  }
  const text = await response.text();
  if (!response.ok) throw new LoadError(`${response.status} ${response.statusText}: ${text.slice(0, 500)}`);
  return checked(text, address);
}

/** Call `changed` with a report's id whenever the server says that it changed, where it says so. */
export function onChange(changed: (id: string) => void): void {
  if (typeof EventSource === "undefined") return;
  const source = new EventSource("events");
  let opened = false;
  source.onopen = () => {
    opened = true;
  };
  source.onmessage = (event: MessageEvent<string>) => changed(event.data);
  source.onerror = () => {
    // Not offered here: do not ask again and again. A server that went away is waited for.
    if (!opened) source.close();
  };
}

export function checked(text: string, from: string): ReportDocument {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new LoadError(`What ${from} holds is not JSON: ${String(error)}`);
  }
  const schema = (value as { schema?: unknown } | null)?.schema;
  if (schema !== SCHEMA) {
    throw new LoadError(
      `The report's data is of schema ${JSON.stringify(schema)}; this page reads ${SCHEMA}.`,
    );
  }
  const found = value as ReportDocument;
  if (!found.runs?.length) throw new LoadError("The report holds no run.");
  const runs = found.runs.map((run) => ({ ...run, graphs: run.graphs.map(withRepeats) }));
  return { ...found, runs };
}
