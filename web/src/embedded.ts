// The page in a cell of a notebook: a sandboxed frame whose document came as text (srcdoc), without an
// address and a history. It sends the cell what is selected, and selects what another view of the same
// report, or Python, sends it.

import { batch, effect } from "@preact/signals";
import { parseRowKey, rowsOf } from "./links";
import {
  doc,
  goTo,
  hashOfSelection,
  run,
  select,
  selection,
  selectionOfHash,
  showRun,
  tab,
  TABS,
  type TabName,
} from "./store";

/** What a cell says to its views; `src/etscope/reporting/notebook.py` has the other side. */
interface Message {
  tab: string;
  /** "run0/row-0-12", as the address has both; "" for none. */
  selection: string;
}

export const isEmbedded = (): boolean => location.protocol === "about:" && parent !== window;

export function followCell(): void {
  let known: string | null = null; // until the cell has said what is selected
  addEventListener("message", (event: MessageEvent<{ etscope?: Message }>) => {
    const message = event.data?.etscope;
    if (event.source !== parent || message === undefined) return;
    const [id, ...rest] = message.selection.split("/");
    const at = doc.value.runs.findIndex((one) => one.id === id);
    const isFirst = known === null;
    known = message.selection;
    batch(() => {
      if ((TABS as readonly string[]).includes(message.tab)) tab.value = message.tab as TabName;
      if (at >= 0) showRun(at);
      select(at < 0 ? null : selectionOfHash(rest.join("/"), run.value));
    });
    if (isFirst) effect(send);
  });
  // A link to "#…" would lead to the address of the notebook.
  addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.('a[href^="#"]');
    if (!link) return;
    event.preventDefault();
    goTo(link.getAttribute("href")!);
  });
  parent.postMessage({ etscope: "ready" }, "*");

  function send(): void {
    const chosen = hashOfSelection(selection.value);
    const text = chosen && `${run.value.id}/${chosen}`;
    const isOwn = text !== known; // or the cell's, which then wants the rows alone
    known = text;
    const rows = [...rowsOf(run.value, selection.value)].map(parseRowKey);
    parent.postMessage({ etscope: { selection: text, rows, isOwn } }, "*");
  }
}
