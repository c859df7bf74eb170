// The canvas of a graph: what part of it is seen, and what lies under the pointer.

import { select as element } from "d3-selection";
import type { Selection as Elements } from "d3-selection";
import { zoom as zoomBehaviour, zoomIdentity } from "d3-zoom";
import type { D3ZoomEvent, ZoomBehavior } from "d3-zoom";

import { onFrame, sharpen } from "../canvas";
import type { Drawing } from "../layout/engine";
import { onSign, paint } from "./paint";
import type { Scene, View } from "./scene";

export interface StageEvents {
  /** Index of the drawing's item under the pointer, -1 for none. */
  hover(index: number, x: number, y: number): void;
  click(index: number): void;
  toggle(index: number): void;
  moved(view: View): void;
  /** The reader, or what was selected, moved the view; not a new size of the window. */
  panned?(view: View): void;
}

const SMALLEST = 0.0004;
const LARGEST = 4;
/** A first look smaller than this starts at the top instead of showing all. */
const READABLE = 0.65;
const MARGIN = 24;
const GLIDE = 260;
/** The page has its new shape after a selection, in milliseconds. */
const SETTLED = 600;

export class Stage {
  readonly view: View = { k: 1, x: 0, y: 0, width: 1, height: 1 };
  private scene: Scene | null = null;
  private readonly zoom: ZoomBehavior<HTMLCanvasElement, unknown>;
  private readonly target: Elements<HTMLCanvasElement, unknown, null, undefined>;
  private readonly frame = onFrame(() => this.draw());
  private readonly watch: ResizeObserver;
  private glide = 0;
  /** Whether the last click opened or closed a box. */
  private toggled = false;
  private goal: { k: number; x: number; y: number; since: number } | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly events: StageEvents,
  ) {
    this.zoom = zoomBehaviour<HTMLCanvasElement, unknown>()
      .scaleExtent([SMALLEST, LARGEST])
      .clickDistance(4)
      .filter((event: MouseEvent) => !event.button && event.type !== "dblclick")
      .on("zoom", (event: D3ZoomEvent<HTMLCanvasElement, unknown>) => {
        const { k, x, y } = event.transform;
        if (event.sourceEvent) this.stopGlide();
        Object.assign(this.view, { k, x, y });
        this.frame.ask();
        this.events.moved(this.view);
        this.events.panned?.(this.view);
      });
    this.target = element<HTMLCanvasElement, unknown>(canvas);
    this.target.call(this.zoom).on("dblclick.zoom", null);
    canvas.addEventListener("click", this.onClick);
    canvas.addEventListener("dblclick", this.onDouble);
    canvas.addEventListener("pointermove", this.onMove);
    canvas.addEventListener("pointerleave", this.onLeave);
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(canvas);
    this.resize();
  }

  stop(): void {
    this.watch.disconnect();
    this.frame.stop();
    cancelAnimationFrame(this.glide);
    this.target.on(".zoom", null);
    this.canvas.removeEventListener("click", this.onClick);
    this.canvas.removeEventListener("dblclick", this.onDouble);
    this.canvas.removeEventListener("pointermove", this.onMove);
    this.canvas.removeEventListener("pointerleave", this.onLeave);
  }

  show(scene: Scene): void {
    this.scene = scene;
    this.frame.ask();
  }

  /** All of the drawing; at a first look no smaller than can be read, from the top. Whether all is in sight. */
  fit(drawing: Drawing, first = false): boolean {
    const { width, height } = this.view;
    const all = Math.min(
      (width - 2 * MARGIN) / Math.max(1, drawing.width),
      (height - 2 * MARGIN) / Math.max(1, drawing.height),
      1.25,
    );
    const k = Math.max(SMALLEST, first && all < READABLE ? READABLE : all);
    const top = drawing.height * k > height ? MARGIN : (height - drawing.height * k) / 2;
    const middle = first && drawing.width * k > width ? entryOf(drawing) : drawing.width / 2;
    this.moveTo(k, width / 2 - middle * k, top, !first);
    return k <= all;
  }

  /** The items in the middle; nearer when they are too small to read, and further if they do not fit. */
  centre(drawing: Drawing, items: number[]): void {
    if (items.length === 0) return;
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const index of items) {
      left = Math.min(left, drawing.x[index]!);
      top = Math.min(top, drawing.y[index]!);
      right = Math.max(right, drawing.x[index]! + drawing.w[index]!);
      bottom = Math.max(bottom, drawing.y[index]! + drawing.h[index]!);
    }
    const { width, height } = this.view;
    const most = Math.min(
      (width - 2 * MARGIN) / Math.max(1, right - left),
      (height - 2 * MARGIN) / Math.max(1, bottom - top),
    );
    const k = Math.max(SMALLEST, Math.min(Math.max(this.view.k, 0.8), most, 1.5));
    this.moveTo(k, width / 2 - ((left + right) / 2) * k, height / 2 - ((top + bottom) / 2) * k, true);
  }

  zoomBy(factor: number): void {
    const { k, x, y, width, height } = this.view;
    const next = Math.min(LARGEST, Math.max(SMALLEST, k * factor));
    const grown = next / k;
    this.moveTo(next, width / 2 - (width / 2 - x) * grown, height / 2 - (height / 2 - y) * grown, true);
  }

  panBy(x: number, y: number): void {
    this.moveTo(this.view.k, this.view.x + x, this.view.y + y, false);
  }

  /** Where a point of the drawing is to be in the middle (from the small map). */
  lookAt(x: number, y: number): void {
    const { k, width, height } = this.view;
    this.moveTo(k, width / 2 - x * k, height / 2 - y * k, false);
  }

  /** The place of a point on the screen stays while the drawing under it changes. */
  shift(fromX: number, fromY: number, toX: number, toY: number): void {
    const { k, x, y } = this.view;
    this.moveTo(k, x + (fromX - toX) * k, y + (fromY - toY) * k, false);
  }

  /** To what another stage shows, which is panned in step. */
  match({ k, x, y }: View): void {
    if (this.view.k === k && this.view.x === x && this.view.y === y) return;
    this.stopGlide();
    this.target.call(this.zoom.transform, zoomIdentity.translate(x, y).scale(k));
  }

  private moveTo(k: number, x: number, y: number, gently: boolean): void {
    const { width, height } = this.view;
    this.goTo(k, (width / 2 - x) / k, (height / 2 - y) / k, gently);
  }

  /** To a scale with a point of the drawing in the middle; its place holds when the window changes. */
  private goTo(k: number, middleX: number, middleY: number, gently: boolean): void {
    cancelAnimationFrame(this.glide);
    this.goal = { k, x: middleX, y: middleY, since: performance.now() };
    const from = { k: this.view.k, ...this.middle() };
    const start = performance.now();
    const still = !gently || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const step = (): void => {
      const time = still ? 1 : Math.min(1, (performance.now() - start) / GLIDE);
      const eased = 1 - (1 - time) ** 3;
      const mix = (a: number, b: number): number => a + (b - a) * eased;
      this.place(from.k * (k / from.k) ** eased, mix(from.x, middleX), mix(from.y, middleY));
      this.glide = time < 1 ? requestAnimationFrame(step) : 0;
    };
    step();
  }

  private place(k: number, middleX: number, middleY: number): void {
    const { width, height } = this.view;
    const at = zoomIdentity.translate(width / 2 - middleX * k, height / 2 - middleY * k).scale(k);
    this.target.call(this.zoom.transform, at);
  }

  private middle(): { x: number; y: number } {
    const { k, x, y, width, height } = this.view;
    return { x: (width / 2 - x) / k, y: (height / 2 - y) / k };
  }

  private resize(): void {
    const { width, height } = this.canvas.getBoundingClientRect();
    this.view.width = Math.max(1, width);
    this.view.height = Math.max(1, height);
    // What a selection brought to the middle stays there when its details open beside; else nothing
    // moves under the pointer, so that a second click meets what the first one did.
    const { goal } = this;
    if (goal && this.glide === 0 && performance.now() - goal.since < SETTLED) this.place(goal.k, goal.x, goal.y);
    this.frame.ask();
    this.events.moved(this.view);
  }

  private draw(): void {
    const pen = this.canvas.getContext("2d");
    const ratio = sharpen(this.canvas, this.view.width, this.view.height);
    if (pen !== null && this.scene !== null) paint(pen, this.scene, this.view, ratio);
  }

  private stopGlide(): void {
    this.goal = null;
    cancelAnimationFrame(this.glide);
    this.glide = 0;
  }

  private readonly onClick = (event: MouseEvent): void => {
    const at = this.pointOf(event);
    const index = this.hit(at);
    const isBox = index >= 0 && this.isBox(index);
    // The second click of a double click belongs to the first, whatever is under it now.
    if (event.detail > 1) return;
    this.toggled = isBox && onSign(this.scene!, index, this.view, at.x, at.y);
    if (this.toggled) this.events.toggle(index);
    else this.events.click(index);
  };

  private readonly onDouble = (event: MouseEvent): void => {
    const at = this.pointOf(event);
    const index = this.hit(at);
    if (index >= 0 && this.isBox(index) && !this.toggled) this.events.toggle(index);
  };

  private readonly onMove = (event: PointerEvent): void => {
    if (event.buttons !== 0) return;
    const index = this.hit(this.pointOf(event));
    this.events.hover(index, event.offsetX, event.offsetY);
  };

  private readonly onLeave = (): void => this.events.hover(-1, 0, 0);

  private isBox(index: number): boolean {
    return this.scene!.drawing.items[index]! >= this.scene!.model.tree.nodeCount;
  }

  private pointOf(event: MouseEvent): { x: number; y: number } {
    const { k, x, y } = this.view;
    return { x: (event.offsetX - x) / k, y: (event.offsetY - y) / k };
  }

  /** The innermost item at a point. */
  private hit(at: { x: number; y: number }): number {
    if (this.scene === null) return -1;
    const { drawing } = this.scene;
    // What is drawn later lies further inside.
    for (let index = drawing.items.length - 1; index >= 0; index--) {
      const right = at.x - drawing.x[index]!;
      const down = at.y - drawing.y[index]!;
      if (right >= 0 && down >= 0 && right <= drawing.w[index]! && down <= drawing.h[index]!) {
        return index;
      }
    }
    return -1;
  }
}

/** Middle of the uppermost item. */
function entryOf(drawing: Drawing): number {
  let first = 0;
  for (let index = 1; index < drawing.items.length; index++) {
    if (drawing.y[index]! < drawing.y[first]!) first = index;
  }
  return drawing.items.length === 0 ? 0 : drawing.x[first]! + drawing.w[first]! / 2;
}
