// Find anything: a box over the page, and the list of what it finds in the run looked at.

import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { visible } from "../format";
import { find, KINDS, thingsOf, type Thing } from "../find";
import { doc, goTo, hashOf, runIndex } from "../store";

/** The best of what was found; a longer list is not read. */
const MOST_LISTED = 50;
/** Rows that Page Up and Page Down pass. */
const PAGE = 8;

export const finderShown = signal(false);

export function FinderButton() {
  return (
    <button
      class="button finder-button"
      data-testid="find"
      aria-haspopup="dialog"
      aria-keyshortcuts="Control+K Meta+K"
      title="Find anything (Ctrl+K or ⌘K)"
      onClick={() => (finderShown.value = true)}
    >
      <span aria-hidden="true">⌕</span> <span class="finder-word">Find</span>
    </button>
  );
}

export function Finder() {
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const runs = doc.value.runs;
  const things = useMemo(
    () => thingsOf(runs, Math.min(runIndex.value, runs.length - 1)),
    [runs, runIndex.value],
  );
  const found = useMemo(() => find(things, text, MOST_LISTED), [things, text]);
  const listed = found.things;

  // As a modal dialog it keeps the focus, and gives it back to where it was.
  useEffect(() => dialog.current?.showModal(), []);
  useEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [at, listed]);

  const close = (): void => dialog.current?.close();
  const go = (thing: Thing | undefined): void => {
    if (!thing) return;
    close();
    goTo(hashOf(thing.place));
  };
  const onKey = (event: KeyboardEvent): void => {
    const last = listed.length - 1;
    const to = {
      ArrowDown: at < last ? at + 1 : 0,
      ArrowUp: at > 0 ? at - 1 : last,
      PageDown: Math.min(at + PAGE, last),
      PageUp: Math.max(at - PAGE, 0),
    }[event.key];
    if (to !== undefined) setAt(Math.max(to, 0));
    else if (event.key === "Enter") go(listed[at]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <dialog
      ref={dialog}
      class="finder"
      aria-label="Find anything"
      data-testid="finder"
      onClose={() => (finderShown.value = false)}
      onClick={(event) => event.target === event.currentTarget && close()}
    >
      <div class="finder-body">
        <input
          type="search"
          role="combobox"
          aria-label="Find anything"
          aria-autocomplete="list"
          aria-expanded={listed.length > 0}
          aria-controls="finder-list"
          aria-activedescendant={listed[at] ? `finder-${at}` : undefined}
          placeholder="Operator, event, module, net.py:12, tensor, 1x64x8, #42, node"
          spellcheck={false}
          data-testid="finder-box"
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={onKey}
        />
        <ul id="finder-list" role="listbox" aria-label="Found" class="finder-list" ref={list}>
          {listed.map((thing, index) => (
            <li
              key={`${thing.kind}${thing.text}${thing.detail}${thing.where}`}
              id={`finder-${index}`}
              role="option"
              class="finder-item"
              aria-selected={index === at}
              data-kind={thing.kind}
              onPointerMove={() => setAt(index)}
              onClick={() => go(thing)}
            >
              <span class="badge">{thing.kind}</span>
              <bdi dir="ltr" class="finder-text" title={visible(thing.text)}>
                {visible(thing.text)}
              </bdi>
              <bdi dir="ltr" class="finder-detail" title={visible(thing.detail)}>
                {visible(thing.detail)}
              </bdi>
              <small>{visible(thing.where)}</small>
            </li>
          ))}
        </ul>
        <p class="muted" role="status" data-testid="finder-count">
          {text.trim() ? told(found.count, listed.length) : contents(things)}
        </p>
      </div>
    </dialog>
  );
}

const told = (count: number, listed: number): string =>
  count === 0
    ? "Nothing of that name in this run."
    : `${count.toLocaleString("en")} found${count > listed ? `, the best ${listed} are listed` : ""}`;

/** "3 runs, 12 operators, …" */
function contents(things: readonly Thing[]): string {
  const counts = KINDS.map((kind) => [things.filter((thing) => thing.kind === kind).length, kind] as const);
  const shown = counts.filter(([count]) => count > 0);
  return shown
    .map(([count, kind]) => `${count.toLocaleString("en")} ${kind}${count > 1 ? "s" : ""}`)
    .join(", ");
}
