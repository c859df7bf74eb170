// The search box of the module tree.

import { useMemo } from "preact/hooks";

import type { ModuleNode } from "../../document";
import { formatShare } from "../../format";
import { searchModules } from "./frames";

interface SearchProps {
  modules: readonly ModuleNode[];
  whole: number;
  text: string;
  onText: (text: string) => void;
  at: number;
  onJump: (at: number, module: number) => void;
}

export function ModuleSearch({ modules, whole, text, onText, at, onJump }: SearchProps) {
  const { found, time } = useMemo(() => searchModules(modules, text), [modules, text]);
  const onKey = (event: KeyboardEvent): void => {
    if (event.key !== "Enter" || found.length === 0) return;
    const next = (at + (event.shiftKey ? -1 : 1) + found.length) % found.length;
    onJump(next, found[next]!);
    event.preventDefault();
  };
  return (
    <>
      <input
        type="search"
        aria-label="Search modules"
        placeholder="Search path or type"
        data-testid="icicle-search"
        value={text}
        onInput={(event) => onText(event.currentTarget.value)}
        onKeyDown={onKey}
      />
      {text.trim() !== "" && (
        <span class="drawing-count" data-testid="icicle-found" data-value={time} aria-live="polite">
          {at >= 0 && found.length > 0 ? `${at + 1} of ${found.length}` : `${found.length} found`}
          {found.length > 0 && whole > 0 && `, ${formatShare(time / whole)} of the time`}
        </span>
      )}
    </>
  );
}
