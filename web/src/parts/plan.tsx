// The memory plan as a picture: each value a box from its first to its last instruction, at its place
// in the arena.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Memory } from "../document";
import { asNumber, formatBytes, plainText } from "../format";
import { rowsIn } from "../tables";
import { theme } from "../theme";
import { colour } from "./chart";

interface Box {
  at: number;
  first: number;
  last: number;
  offset: number;
  size: number;
  peak: boolean;
}

export interface PlanProps {
  memory: Memory;
  /** Memory id of the arena that is drawn. */
  arena: number;
  height: number;
  selected: ReadonlySet<number>;
  onPick(value: number): void;
}

const LEFT = 64; // as the chart above it

export function Plan({ memory, arena, height, selected, onPick }: PlanProps) {
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<Box | null>(null);
  const boxes = boxesOf(memory, arena);
  const top = Math.max(1, ...boxes.map((box) => box.offset + box.size));
  const count = Math.max(1, memory.live.length);
  const x = (instruction: number): number => LEFT + (instruction / count) * (width - LEFT - 8);
  const y = (offset: number): number => height - 4 - (offset / top) * (height - 10);

  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(place.current?.clientWidth ?? 0));
    watch.observe(place.current!);
    return () => watch.disconnect();
  }, []);

  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !width) return;
    const scale = devicePixelRatio || 1;
    canvas.current!.width = width * scale;
    canvas.current!.height = height * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colour("muted");
    context.textAlign = "right";
    for (const part of [0, 0.5, 1])
      context.fillText(formatBytes(Math.round(top * part)), LEFT - 8, y(top * part) + (part ? 8 : -2));
    for (const box of boxes) {
      const chosen = selected.has(box.at);
      const [left, upper] = [x(box.first), y(box.offset + box.size)];
      const [wide, high] = [
        Math.max(1, x(box.last + 1) - left - 0.5),
        Math.max(1, y(box.offset) - upper - 0.5),
      ];
      context.fillStyle = colour(chosen ? "chosen-line" : box.peak ? "hot" : "accent");
      context.globalAlpha = chosen ? 1 : box === hover ? 0.85 : 0.5;
      context.fillRect(left, upper, wide, high);
    }
    context.globalAlpha = 1;
  }, [memory, arena, width, height, selected, hover?.at, theme.value]);

  const under = (event: MouseEvent): Box | null => {
    const area = canvas.current!.getBoundingClientRect();
    const [px, py] = [event.clientX - area.left, event.clientY - area.top];
    return (
      boxes.find(
        (box) =>
          px >= x(box.first) &&
          px <= x(box.last + 1) &&
          py >= y(box.offset + box.size) &&
          py <= y(box.offset),
      ) ?? null
    );
  };
  const found = hover && describe(memory, hover);
  return (
    <div class="plan" ref={place} title={found ?? undefined}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`Memory ${arena}: values by instruction and place`}
        data-testid={`plan-${arena}`}
        style={{ width: `${width}px`, height: `${height}px` }}
        onMouseMove={(event) => setHover(under(event))}
        onMouseLeave={() => setHover(null)}
        onClick={(event) => {
          const box = under(event);
          if (box) onPick(box.at);
        }}
      />
      <p class="muted plan-label">
        {found ??
          "Each box is a value: from its first to its last instruction, at its place in the memory. Those alive at the peak stand out."}
      </p>
    </div>
  );
}

function describe(memory: Memory, box: Box): string {
  const cell = (name: string): string => plainText(memory.values.values[name]?.[box.at]);
  return `${cell("tensor")} of ${cell("op") || cell("role")}, ${formatBytes(box.size)} at ${box.offset}, instructions ${box.first} to ${box.last}`;
}

export function boxesOf(memory: Memory, arena: number): Box[] {
  const { values } = memory.values;
  const number = (name: string, at: number): number => asNumber(values[name]?.[at]) ?? 0;
  const boxes: Box[] = [];
  for (let at = 0; at < rowsIn(memory.values); at++) {
    if (number("memory", at) !== arena) continue;
    boxes.push({
      at,
      first: number("first", at),
      last: number("last", at),
      offset: number("offset", at),
      size: number("size", at),
      peak: values["at_peak"]?.[at] === true,
    });
  }
  return boxes;
}
