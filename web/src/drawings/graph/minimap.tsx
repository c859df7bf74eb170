// The small map in the corner: all of the drawing, and the part that is seen.

import { useEffect, useRef } from "preact/hooks";

import { sharpen } from "../canvas";
import { paint } from "./paint";
import type { Scene, View } from "./scene";
import type { Stage } from "./stage";

const WIDTH = 150;
const HEIGHT = 130;
const MARGIN = 7;

export class SmallMap {
  canvas: HTMLCanvasElement | null = null;
  private picture: HTMLCanvasElement | null = null;
  private place = { k: 1, x: 0, y: 0 };
  private accent = "";

  /** Paint the picture anew: after a layout, or other colours. */
  take(scene: Scene): void {
    const { drawing } = scene;
    const k = Math.min(
      (WIDTH - 2 * MARGIN) / Math.max(1, drawing.width),
      (HEIGHT - 2 * MARGIN) / Math.max(1, drawing.height),
    );
    const x = (WIDTH - drawing.width * k) / 2;
    const y = (HEIGHT - drawing.height * k) / 2;
    this.place = { k, x, y };
    this.accent = scene.palette.accent;
    const picture = document.createElement("canvas");
    const ratio = sharpen(picture, WIDTH, HEIGHT);
    const pen = picture.getContext("2d");
    const marks = { selected: new Map(), found: new Set<number>(), hovered: -1, near: new Set<number>() };
    if (pen) paint(pen, { ...scene, marks }, { k, x, y, width: WIDTH, height: HEIGHT }, ratio);
    this.picture = picture;
  }

  show(view: View): void {
    const pen = this.canvas?.getContext("2d");
    if (!this.canvas || !pen || !this.picture) return;
    const ratio = sharpen(this.canvas, WIDTH, HEIGHT);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.picture, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { k, x, y } = this.place;
    const left = x + (-view.x / view.k) * k;
    const top = y + (-view.y / view.k) * k;
    pen.strokeStyle = this.accent;
    pen.lineWidth = 1.5;
    const width = Math.max(4, (view.width / view.k) * k);
    const height = Math.max(4, (view.height / view.k) * k);
    pen.strokeRect(left, top, width, height);
  }

  pointOf(event: PointerEvent): { x: number; y: number } {
    const { k, x, y } = this.place;
    return { x: (event.offsetX - x) / k, y: (event.offsetY - y) / k };
  }
}

export function MiniMap({ map, stage }: { map: SmallMap; stage: () => Stage | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    map.canvas = canvas.current;
    const now = stage();
    if (now) map.show(now.view);
    return () => {
      map.canvas = null;
    };
  }, [map]);
  const go = (event: PointerEvent): void => {
    if (event.buttons === 0) return;
    canvas.current?.setPointerCapture(event.pointerId);
    const { x, y } = map.pointOf(event);
    stage()?.lookAt(x, y);
  };
  return (
    <canvas
      ref={canvas}
      class="graph-map"
      role="img"
      aria-label="The whole graph, with the part that is seen: a click goes there"
      style={{ width: `${WIDTH}px`, height: `${HEIGHT}px` }}
      onPointerDown={go}
      onPointerMove={go}
    />
  );
}
