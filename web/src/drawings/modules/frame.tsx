// One module of an icicle: a frame as wide as its time, with the words that fit.

import type { ComponentProps } from "preact";

import { visible } from "../../format";
import { inkOn } from "../scale";
import type { Frame } from "./frames";

/** Height of a row, in pixels. */
export const ROW = 25;
/** Frames narrower than this are left out, in pixels. */
export const NARROWEST = 1;
/** From so many pixels a frame has its name, its time, its type. */
const [NAME_FROM, TIME_FROM, TYPE_FROM] = [34, 110, 190];

type FrameBoxProps = Omit<ComponentProps<"button">, "name" | "type" | "label"> & {
  frame: Frame;
  /** Of the drawing, in pixels. */
  width: number;
  row: number;
  /** null: it steps back. */
  colour: string | null;
  name: string;
  type?: string | null;
  time: string;
};

export function FrameBox({ frame, width, row, colour, name, type, time, ...more }: FrameBoxProps) {
  const share = frame.right - frame.left;
  const wide = share * width;
  return (
    <button
      {...more}
      role="treeitem"
      aria-level={frame.row + 1}
      style={{
        left: `${frame.left * 100}%`,
        width: `calc(${share * 100}% - ${wide > 4 ? 1 : 0}px)`,
        top: `${row * ROW}px`,
        background: colour ?? "var(--raise)",
        color: colour === null ? "var(--text)" : inkOn(colour),
      }}
    >
      {wide >= NAME_FROM && (
        <>
          <span class="frame-name">{visible(name)}</span>
          {type && wide > TYPE_FROM && <span class="frame-type">{visible(type)}</span>}
          {wide > TIME_FROM && <span class="frame-time">{time}</span>}
        </>
      )}
    </button>
  );
}
