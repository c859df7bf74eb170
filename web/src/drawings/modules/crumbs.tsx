// The way to what is zoomed into: each part of it zooms out.

import { visible } from "../../format";
import type { TreeNode } from "./frames";

interface CrumbsProps {
  nodes: readonly TreeNode[];
  /** What is zoomed into, last, and what is around it. */
  path: readonly number[];
  /** What all of it is called. */
  all: string;
  onGo: (node: number | null) => void;
  testId: string;
}

export function Crumbs({ nodes, path, all, onGo, testId }: CrumbsProps) {
  return (
    <nav class="crumbs" aria-label="Zoomed into" data-testid={testId}>
      <button class="link" aria-pressed={path.length === 0} onClick={() => onGo(null)}>
        {all}
      </button>
      {path.map((node) => (
        <span key={node}>
          {" › "}
          <button class="link" aria-pressed={node === path.at(-1)} onClick={() => onGo(node)}>
            {visible(nodes[node]!.name || nodes[node]!.path || "(root)").slice(0, 80)}
          </button>
        </span>
      ))}
    </nav>
  );
}
