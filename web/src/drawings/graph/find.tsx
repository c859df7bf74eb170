// The search box of a graph: a list of what was found, and jumps from one to the next.

import { useId, useState } from "preact/hooks";

import { fullName, pathOf } from "./model";
import type { GraphModel } from "./model";

const MOST_LISTED = 40;

interface FindProps {
  model: GraphModel;
  text: string;
  /** Items that the text finds. */
  found: readonly number[];
  onText: (text: string) => void;
  onJump: (item: number) => void;
}

export function Find({ model, text, found, onText, onJump }: FindProps) {
  const [at, setAt] = useState(-1);
  const [shown, setShown] = useState(false);
  const id = useId();

  const search = (next: string): void => {
    setAt(-1);
    setShown(next.trim() !== "");
    onText(next);
  };
  const jump = (to: number): void => {
    if (found.length === 0) return;
    const next = (to + found.length) % found.length;
    setAt(next);
    onJump(found[next]!);
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Enter") jump(at + (event.shiftKey ? -1 : 1));
    else if (event.key === "ArrowDown") jump(at + 1);
    else if (event.key === "ArrowUp") jump(at < 0 ? -1 : at - 1);
    else if (event.key === "Escape") {
      if (shown) setShown(false);
      else search("");
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const listed = shown && found.length > 0;
  // The list moves along so that what was jumped to is in it.
  const first = Math.max(0, Math.min(at - 5, found.length - MOST_LISTED));
  return (
    <div class="drawing-find">
      <input
        type="search"
        role="combobox"
        aria-label="Search the graph"
        aria-expanded={listed}
        aria-controls={`${id}-list`}
        aria-activedescendant={listed && at >= 0 ? `${id}-${at}` : undefined}
        placeholder="Search name, op, #handle"
        data-testid="graph-search"
        value={text}
        onInput={(event) => search(event.currentTarget.value)}
        onKeyDown={onKey}
        onFocus={() => setShown(text.trim() !== "")}
        onBlur={() => setShown(false)}
      />
      {text.trim() !== "" && (
        <span class="drawing-count" data-testid="graph-found" aria-live="polite">
          {at >= 0 ? `${at + 1} of ${found.length}` : `${found.length} found`}
        </span>
      )}
      {listed && (
        <ul id={`${id}-list`} role="listbox" class="drawing-found">
          {found.slice(first, first + MOST_LISTED).map((item, index) => (
            <li
              key={item}
              id={`${id}-${first + index}`}
              role="option"
              aria-selected={first + index === at}
              title={pathOf(model, item)}
              onPointerDown={(event) => {
                event.preventDefault();
                jump(first + index);
              }}
            >
              <b>{fullName(model, item)}</b> <small>{model.title[item]}</small>
            </li>
          ))}
          {found.length > first + MOST_LISTED && <li class="more">… {found.length} in all</li>}
        </ul>
      )}
    </div>
  );
}
