// The canvas of a timeline: the window on time that it shows, and how it moves.

import { onFrame, sharpen } from "../canvas";
import { spanAt } from "./lanes";
import { LANE_HEIGHT, RULER, paintTimeline } from "./paint";
import type { TimelineScene, Window } from "./paint";

export interface TimelineEvents {
  hover(span: number, x: number, y: number): void;
  click(span: number): void;
  scrolled(scroll: number): void;
  /** A part of time was marked: with Shift, or on the ruler. */
  marked(from: number, to: number): void;
}

/** No closer than this part of the whole. */
const CLOSEST = 1e-7;
/** Pixels that a pointer may move in a click. */
const STILL = 4;
/** A span this near to the pointer is the one meant, in pixels. */
const NEAR = 3;

export class TimelineStage {
  readonly view: Window = { from: 0, to: 1, scroll: 0, width: 1, height: 1 };
  private scene: TimelineScene | null = null;
  private contentHeight = 0;
  private readonly frame = onFrame(() => this.draw());
  private readonly watch: ResizeObserver;
  private drag: { x: number; y: number; view: Window; moved: boolean; marks: boolean } | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly events: TimelineEvents,
  ) {
    canvas.addEventListener("wheel", this.onWheel, { passive: false });
    canvas.addEventListener("pointerdown", this.onDown);
    canvas.addEventListener("pointermove", this.onMove);
    canvas.addEventListener("pointerup", this.onUp);
    canvas.addEventListener("pointercancel", this.onUp);
    canvas.addEventListener("pointerleave", this.onLeave);
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(canvas);
    this.resize();
  }

  stop(): void {
    this.watch.disconnect();
    this.frame.stop();
    this.canvas.removeEventListener("wheel", this.onWheel);
    this.canvas.removeEventListener("pointerdown", this.onDown);
    this.canvas.removeEventListener("pointermove", this.onMove);
    this.canvas.removeEventListener("pointerup", this.onUp);
    this.canvas.removeEventListener("pointercancel", this.onUp);
    this.canvas.removeEventListener("pointerleave", this.onLeave);
  }

  show(scene: TimelineScene, contentHeight: number): void {
    const first = this.scene === null;
    this.scene = scene;
    this.contentHeight = contentHeight;
    if (first) this.fit();
    this.frame.ask();
  }

  fit(): void {
    if (!this.scene) return;
    const { from, to } = this.scene.lanes;
    const margin = (to - from) * 0.01;
    this.look(from - margin, to + margin);
  }

  /** Show a part of time; it stays within what there is, with a little around it. */
  look(from: number, to: number): void {
    if (!this.scene) return;
    const { lanes } = this.scene;
    const whole = lanes.to - lanes.from;
    const length = Math.min(Math.max(to - from, whole * CLOSEST), whole * 1.05);
    const middle = (from + to) / 2;
    const margin = whole * 0.025;
    const least = lanes.from - margin;
    const most = Math.max(least, lanes.to + margin - length);
    const start = Math.min(Math.max(middle - length / 2, least), most);
    this.view.from = start;
    this.view.to = start + length;
    this.frame.ask();
  }

  zoomBy(factor: number, at = 0.5): void {
    const { from, to } = this.view;
    const fixed = from + (to - from) * at;
    this.look(fixed - (fixed - from) / factor, fixed + (to - fixed) / factor);
  }

  /** By parts of what is seen. */
  panBy(part: number): void {
    const step = (this.view.to - this.view.from) * part;
    this.look(this.view.from + step, this.view.to + step);
  }

  scrollTo(scroll: number): void {
    const most = Math.max(0, this.contentHeight + RULER - this.view.height);
    this.view.scroll = Math.min(Math.max(0, scroll), most);
    this.events.scrolled(this.view.scroll);
    this.frame.ask();
  }

  /** Bring a span into sight, as it is when it can be seen. */
  reveal(span: number): void {
    if (!this.scene) return;
    const { timeline, lanes, tops } = this.scene;
    const start = timeline.start[span]!;
    const end = start + timeline.duration[span]!;
    const { from, to } = this.view;
    if (end < from || start > to) {
      const middle = (start + end) / 2;
      const half = Math.max((to - from) / 2, (end - start) * 0.6);
      this.look(middle - half, middle + half);
    }
    const lane = lanes.lanes.findIndex((one) => one.track === timeline.track[span] && one.level === timeline.level[span]);
    const top = tops[lane] ?? 0;
    const room = this.view.height - RULER;
    if (top < this.view.scroll || top + LANE_HEIGHT > this.view.scroll + room) this.scrollTo(top - room / 2);
  }

  /** Scroll to the lane of a span. */
  showTop(span: number): void {
    if (!this.scene) return;
    const { timeline, lanes, tops } = this.scene;
    const lane = lanes.lanes.findIndex((one) => one.track === timeline.track[span]);
    this.scrollTo((tops[lane] ?? 0) - 2 * LANE_HEIGHT);
  }

  private resize(): void {
    const { width, height } = this.canvas.getBoundingClientRect();
    this.view.width = Math.max(1, width);
    this.view.height = Math.max(1, height);
    this.scrollTo(this.view.scroll);
  }

  private draw(): void {
    const pen = this.canvas.getContext("2d");
    const ratio = sharpen(this.canvas, this.view.width, this.view.height);
    if (pen && this.scene) paintTimeline(pen, this.scene, this.view, ratio);
  }

  private readonly onWheel = (event: WheelEvent): void => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.panBy(((event.deltaX || event.deltaY) * lines) / this.view.width);
    } else if (event.altKey) this.scrollTo(this.view.scroll + event.deltaY * lines);
    else this.zoomBy(2 ** ((-event.deltaY * lines) / 240), event.offsetX / this.view.width);
  };

  private readonly onDown = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { x: event.offsetX, y: event.offsetY, view: { ...this.view }, moved: false, marks: event.shiftKey || event.offsetY < RULER };
  };

  private readonly onMove = (event: PointerEvent): void => {
    const { drag } = this;
    if (drag === null) {
      this.events.hover(this.hit(event), event.offsetX, event.offsetY);
      return;
    }
    const right = event.offsetX - drag.x;
    const down = event.offsetY - drag.y;
    if (!drag.moved && Math.hypot(right, down) < STILL) return;
    drag.moved = true;
    this.events.hover(-1, 0, 0);
    if (drag.marks) {
      this.events.marked(this.timeAt(Math.min(drag.x, event.offsetX)), this.timeAt(Math.max(drag.x, event.offsetX)));
      return;
    }
    const step = (-right * (drag.view.to - drag.view.from)) / this.view.width;
    this.look(drag.view.from + step, drag.view.to + step);
    this.scrollTo(drag.view.scroll - down);
  };

  private readonly onUp = (event: PointerEvent): void => {
    const { drag } = this;
    this.drag = null;
    if (drag && !drag.moved && event.type === "pointerup") this.events.click(this.hit(event));
  };

  private readonly onLeave = (): void => this.events.hover(-1, 0, 0);

  private timeAt(x: number): number {
    return this.view.from + (Math.min(Math.max(x, 0), this.view.width) * (this.view.to - this.view.from)) / this.view.width;
  }

  private hit(event: PointerEvent): number {
    if (!this.scene || event.offsetY < RULER) return -1;
    const { timeline, lanes, tops } = this.scene;
    const y = event.offsetY - RULER + this.view.scroll;
    const lane = tops.findIndex((top) => y >= top && y < top + LANE_HEIGHT);
    if (lane < 0) return -1;
    const perPixel = (this.view.to - this.view.from) / this.view.width;
    const time = this.view.from + event.offsetX * perPixel;
    return spanAt(timeline, lanes.lanes[lane]!, time, NEAR * perPixel);
  }
}
