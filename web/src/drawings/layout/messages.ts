// What page and worker say to each other.

import type { Drawing } from "./engine";
import type { GraphShape } from "./tree";

export type Request =
  | { kind: "shape"; graph: string; shape: GraphShape }
  | { kind: "layout"; graph: string; ticket: number; open: Int32Array; weights: boolean };

export type Reply =
  | { ticket: number; drawing: Drawing; milliseconds: number }
  | { ticket: number; error: string };
