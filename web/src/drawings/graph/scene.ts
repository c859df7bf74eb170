// What is painted of a graph, and the window on it.

import type { Palette } from "../canvas";
import type { Drawing } from "../layout/engine";
import type { GraphModel } from "./model";

/** The window on the drawing: a point p of it is seen at p * k + (x, y). */
export interface View {
  k: number;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Colours and numbers of the items. */
export interface Look {
  /** Null: not measured. */
  colour(item: number): string | null;
  /** The measure's number as text, or "". */
  number(item: number): string;
  /** Items whose number is of several nodes together. */
  shared: ReadonlySet<number>;
  labels: boolean;
}

/** What stands out; indices of the drawing's items and pieces. */
export interface Marks {
  /** How many of the selected nodes each drawn item is or holds. */
  selected: ReadonlyMap<number, number>;
  found: ReadonlySet<number>;
  hovered: number;
  /** Pieces of edges at what is selected or pointed at. */
  near: ReadonlySet<number>;
}

export interface Scene {
  model: GraphModel;
  drawing: Drawing;
  look: Look;
  marks: Marks;
  palette: Palette;
  /** Of a drawing of two graphs: what this one has. The rest is an outline. */
  presence?: Presence;
}

export interface Presence {
  item(item: number): boolean;
  edge(edge: number): boolean;
}
