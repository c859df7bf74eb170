// What the canvases share: colours of the two themes, sharp pixels, texts that fit.

import type { Theme } from "../theme";

export interface Palette {
  ground: string;
  ink: string;
  faint: string;
  line: string;
  strongLine: string;
  box: string[];
  boxLine: Record<"module" | "delegate" | "branch", string>;
  plain: string;
  nodeLine: string;
  accent: string;
  accentSoft: string;
  found: string;
}

export const PALETTES: Record<Theme, Palette> = {
  light: {
    ground: "#ffffff",
    ink: "#1b1f27",
    faint: "#5c6370",
    line: "#a3abb8",
    strongLine: "#2f6feb",
    box: ["#f5f7fa", "#edf0f5", "#e5eaf1", "#dde3ec"],
    boxLine: { module: "#b6bfcc", delegate: "#c2722a", branch: "#7c5cc4" },
    plain: "#cdd3dc",
    nodeLine: "rgba(27, 31, 39, 0.28)",
    accent: "#2f6feb",
    accentSoft: "rgba(47, 111, 235, 0.16)",
    found: "#c026d3",
  },
  dark: {
    ground: "#171a21",
    ink: "#e3e6ec",
    faint: "#9aa3b2",
    line: "#5a6372",
    strongLine: "#6a9dff",
    box: ["#1d2129", "#242933", "#2b313d", "#333a47"],
    boxLine: { module: "#474f5d", delegate: "#d08a45", branch: "#9d84e0" },
    plain: "#3a404b",
    nodeLine: "rgba(227, 230, 236, 0.22)",
    accent: "#6a9dff",
    accentSoft: "rgba(106, 157, 255, 0.2)",
    found: "#f07bfb",
  },
};

export const SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

/** Gives the canvas as many pixels as the screen has under it; returns them per CSS pixel. */
export function sharpen(canvas: HTMLCanvasElement, width: number, height: number): number {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const wide = Math.max(1, Math.round(width * ratio));
  const high = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  return ratio;
}

/** Calls back once per frame at most. */
export function onFrame(draw: () => void): { ask: () => void; stop: () => void } {
  let asked = 0;
  return {
    ask: () => {
      asked ||= requestAnimationFrame(() => {
        asked = 0;
        draw();
      });
    },
    stop: () => cancelAnimationFrame(asked),
  };
}

/** The text, or as much of it as fits with a mark for the rest; "" when not even that does. */
export class TextFitter {
  private readonly widths = new Map<string, number>();

  fit(pen: CanvasRenderingContext2D, text: string, room: number): string {
    if (room < 8 || text === "") return "";
    if (this.width(pen, text) <= room) return text;
    // By the mean width of a letter, corrected once: near enough, and two measurements a text.
    const letter = this.width(pen, text) / text.length;
    let letters = Math.floor((room - 8) / letter);
    if (letters < 1) return "";
    const beyond = this.width(pen, `${text.slice(0, letters)}…`) - room;
    if (beyond > 0) letters -= Math.ceil(beyond / letter);
    return letters < 1 ? "" : `${text.slice(0, letters)}…`;
  }

  width(pen: CanvasRenderingContext2D, text: string): number {
    const key = `${pen.font}\n${text}`;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (this.widths.size > 20_000) this.widths.clear();
      width = pen.measureText(text).width;
      this.widths.set(key, width);
    }
    return width;
  }
}

/** Offers what was drawn as a file. */
export function download(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Where a tip stands beside the pointer so that it stays in its window. */
export function tipPlace(
  x: number,
  y: number,
  { width, height }: { width: number; height: number },
): Record<string, string> {
  return {
    ...(x > width * 0.6 ? { right: `${width - x + 10}px` } : { left: `${x + 14}px` }),
    ...(y > height * 0.65 ? { bottom: `${height - y + 10}px` } : { top: `${y + 14}px` }),
  };
}
