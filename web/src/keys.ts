// The keyboard: one list, the last one shown, moves with j and k.

import { signal } from "@preact/signals";
import { select, selection, shownTabs, tab } from "./store";
import { finderShown } from "./parts/finder";
import { toggleTheme } from "./theme";

/** A list of rows that the keys move through. */
export interface KeyList {
  /** Move the selection by so many rows; -Infinity and Infinity are the ends. */
  move(by: number): void;
}

const lists: KeyList[] = [];

/** Give the keys to `list` until the returned function is called. */
export function takeKeys(list: KeyList): () => void {
  lists.push(list);
  return () => {
    const at = lists.indexOf(list);
    if (at >= 0) lists.splice(at, 1);
  };
}

export const helpShown = signal(false);

export const KEY_HELP: readonly (readonly [string, string])[] = [
  ["1 … 9  0", "go to a tab"],
  ["j  k  ↓  ↑", "next, previous row"],
  ["g  G", "first, last row"],
  ["Ctrl+K  ⌘K", "find anything: operator, event, module, line, tensor, shape, handle, node"],
  ["/", "go to the filter or search box"],
  ["Esc", "leave the box; close; clear the selection"],
  ["d", "dark or light"],
  ["?", "this list"],
];

export function followKeys(): () => void {
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}

function onKey(event: KeyboardEvent): void {
  if (
    (event.ctrlKey || event.metaKey) &&
    !event.altKey &&
    !event.shiftKey &&
    event.key.toLowerCase() === "k"
  ) {
    finderShown.value = true;
    event.preventDefault();
    return;
  }
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target as HTMLElement | null;
  if (target?.closest("input, textarea, select")) {
    if (event.key === "Escape") {
      // A search box would empty itself, and its list would still be filtered.
      event.preventDefault();
      target.blur();
    }
    return;
  }
  const action = actionOf(event);
  if (!action) return;
  action();
  event.preventDefault();
}

function actionOf(event: KeyboardEvent): (() => void) | undefined {
  const list = lists.at(-1);
  switch (event.key) {
    case "j":
    case "ArrowDown":
      return list && (() => list.move(1));
    case "k":
    case "ArrowUp":
      return list && (() => list.move(-1));
    case "g":
      return list && (() => list.move(-Infinity));
    case "G":
      return list && (() => list.move(Infinity));
    case "/":
      return focusSearch;
    case "?":
      return () => (helpShown.value = !helpShown.value);
    case "d":
      return toggleTheme;
    case "Escape":
      return leave;
    default: {
      const name = /^[0-9]$/.test(event.key) ? shownTabs.value[(Number(event.key) + 9) % 10] : undefined;
      return name && (() => (tab.value = name));
    }
  }
}

function focusSearch(): void {
  const box = document.querySelector<HTMLInputElement>("main input[type=search]");
  box?.focus();
  box?.select();
}

function leave(): void {
  if (helpShown.value) helpShown.value = false;
  else if (selection.value) select(null);
}
