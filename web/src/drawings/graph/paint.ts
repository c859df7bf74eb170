// Draws a graph on a canvas: what is in view only, and the less of it the smaller it gets.

import { SANS, TextFitter } from "../canvas";
import type { Drawing } from "../layout/engine";
import { BOX_HEAD } from "../layout/engine";
import { inkOn } from "../scale";
import { paintPieces } from "./paint_pieces";
import type { Scene, View } from "./scene";
import { kindOf, shadeOf } from "./shade";

const fitter = new TextFitter();
/** Least size of letters that are worth drawing, in pixels. */
const READABLE = 5.6;
/** The sign's place in its box. */
const SIGN_LEFT = 8;
const SIGN_TOP = 8;

export function paint(pen: CanvasRenderingContext2D, scene: Scene, view: View, ratio: number): void {
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, view.width, view.height);
  pen.setTransform(ratio * view.k, 0, 0, ratio * view.k, ratio * view.x, ratio * view.y);
  const seen = itemsInView(scene.drawing, view);
  for (const index of seen) if (scene.drawing.isOpen[index]) paintBox(pen, scene, view, index);
  paintPieces(pen, scene, view, fitter);
  paintClosed(pen, scene, view, seen);
  // The outer ones last: the head of a box that leaves the view passes below those of the boxes around.
  for (const index of [...seen].reverse()) if (scene.drawing.isOpen[index]) paintHead(pen, scene, view, index);
  paintRings(pen, scene, view, seen);
}

function itemsInView(drawing: Drawing, view: View): number[] {
  const left = -view.x / view.k;
  const top = -view.y / view.k;
  const right = left + view.width / view.k;
  const bottom = top + view.height / view.k;
  const seen: number[] = [];
  for (let index = 0; index < drawing.items.length; index++) {
    const x = drawing.x[index]!;
    const y = drawing.y[index]!;
    if (x > right || y > bottom) continue;
    if (x + drawing.w[index]! < left || y + drawing.h[index]! < top) continue;
    seen.push(index);
  }
  return seen;
}

/** Whether the drawn item is in the graph; one that is not is left as an outline. */
function isHere(pen: CanvasRenderingContext2D, scene: Scene, view: View, index: number): boolean {
  const { drawing, palette, presence } = scene;
  if (presence === undefined || presence.item(drawing.items[index]!)) return true;
  pen.strokeStyle = palette.line;
  pen.lineWidth = Math.max(1, 0.8 / view.k);
  pen.setLineDash([4 / Math.min(1, view.k), 4 / Math.min(1, view.k)]);
  outline(pen, drawing, index, view.k > 0.3 ? 6 : 0);
  pen.stroke();
  pen.setLineDash([]);
  return false;
}

function paintBox(pen: CanvasRenderingContext2D, scene: Scene, view: View, index: number): void {
  const { drawing, palette, model } = scene;
  const item = drawing.items[index]!;
  if (!isHere(pen, scene, view, index)) return;
  pen.fillStyle = shadeOf(scene, item);
  pen.strokeStyle = palette.boxLine[kindOf(model, item)];
  pen.lineWidth = Math.max(1, 0.8 / view.k);
  outline(pen, drawing, index, view.k > 0.25 ? 7 : 0);
  pen.fill();
  pen.stroke();
}

function paintHead(pen: CanvasRenderingContext2D, scene: Scene, view: View, index: number): void {
  if (view.k * 12 < READABLE) return;
  const { drawing, palette, model, look, presence } = scene;
  const item = drawing.items[index]!;
  if (presence?.item(item) === false) return;
  const x = drawing.x[index]!;
  const { left, top } = headPlace(scene, index, view);
  const middle = top + BOX_HEAD / 2 - 2;
  if (top > drawing.y[index]!) {
    pen.fillStyle = shadeOf(scene, item);
    pen.fillRect(x + 1, top, drawing.w[index]! - 2, BOX_HEAD - 4);
  }
  const ground = (from: number, width: number): void => {
    // Edges to what is inside run below the words.
    pen.fillStyle = shadeOf(scene, item);
    pen.fillRect(from - 2, middle - 8, width + 4, 16);
  };
  paintSign(pen, left + SIGN_LEFT, top + SIGN_TOP, false, palette.faint);
  const colour = look.colour(item);
  let start = left + 26;
  if (colour !== null) {
    pen.fillStyle = colour;
    pen.fillRect(start, middle - 6, 12, 12);
    start += 17;
  }
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  const number = look.number(item);
  const room = x + drawing.w[index]! - start - 8;
  pen.font = `600 12px ${SANS}`;
  const title = fitter.fit(pen, model.title[item]!, room);
  ground(start, fitter.width(pen, title));
  pen.fillStyle = palette.ink;
  pen.fillText(title, start, middle);
  start += fitter.width(pen, title) + 8;
  pen.font = `11px ${SANS}`;
  const rest = number ? `${number} · ${model.detail[item]!}` : model.detail[item]!;
  const seen = fitter.fit(pen, rest, x + drawing.w[index]! - start - 8);
  if (seen === "") return;
  ground(start, fitter.width(pen, seen));
  pen.fillStyle = palette.faint;
  pen.fillText(seen, start, middle);
}

function paintClosed(
  pen: CanvasRenderingContext2D,
  scene: Scene,
  view: View,
  seen: number[],
): void {
  const { drawing, palette, model, look } = scene;
  const round = view.k > 0.3;
  const lines = view.k > 0.16;
  for (const index of seen) {
    if (drawing.isOpen[index] || !isHere(pen, scene, view, index)) continue;
    const item = drawing.items[index]!;
    const isBox = item >= model.tree.nodeCount;
    const colour = look.colour(item) ?? palette.plain;
    pen.fillStyle = colour;
    if (!round) {
      // Never less than a pixel: a graph seen from afar is still all there.
      const w = Math.max(drawing.w[index]!, 1 / view.k);
      const h = Math.max(drawing.h[index]!, 1 / view.k);
      pen.fillRect(drawing.x[index]!, drawing.y[index]!, w, h);
    } else {
      outline(pen, drawing, index, isBox ? 7 : 5);
      pen.fill();
    }
    if (lines) {
      pen.strokeStyle = isBox ? palette.boxLine[kindOf(model, item)] : palette.nodeLine;
      pen.lineWidth = isBox ? 1.6 : 0.8;
      outline(pen, drawing, index, round ? (isBox ? 7 : 5) : 0);
      pen.stroke();
    }
    if (view.k * 12 >= READABLE) paintWords(pen, scene, index, colour, isBox);
  }
}

function paintWords(
  pen: CanvasRenderingContext2D,
  scene: Scene,
  index: number,
  colour: string,
  isBox: boolean,
): void {
  const { drawing, model, look } = scene;
  const item = drawing.items[index]!;
  const x = drawing.x[index]!;
  const y = drawing.y[index]!;
  const w = drawing.w[index]!;
  const h = drawing.h[index]!;
  const ink = inkOn(colour);
  pen.textBaseline = "middle";
  pen.fillStyle = ink;
  pen.textAlign = "left";
  const left = x + (isBox ? 24 : 9);
  if (isBox) paintSign(pen, x + SIGN_LEFT, y + SIGN_TOP, true, ink);
  const detail = model.detail[item]!;
  const number = look.number(item);
  const twoLines = detail !== "" || number !== "";
  pen.font = `600 12px ${SANS}`;
  const high = twoLines ? y + h * 0.33 : y + h / 2;
  pen.fillText(fitter.fit(pen, model.title[item]!, x + w - left - 7), left, high);
  if (!twoLines) return;
  pen.font = `10.5px ${SANS}`;
  const low = y + h * 0.7;
  let room = x + w - left - 7;
  if (number !== "") {
    const text = look.shared.has(item) ? `${number} Σ` : number;
    pen.textAlign = "right";
    pen.font = `600 10.5px ${SANS}`;
    pen.fillText(text, x + w - 7, low);
    room -= fitter.width(pen, text) + 8;
    pen.textAlign = "left";
    pen.font = `10.5px ${SANS}`;
  }
  pen.fillText(fitter.fit(pen, detail, room), left, low);
}

/** Where an open box's name stands: in sight for as long as the box is, below those around it. */
function headPlace(
  { drawing, model }: Pick<Scene, "drawing" | "model">,
  index: number,
  view: View,
): { left: number; top: number } {
  const x = drawing.x[index]!;
  const y = drawing.y[index]!;
  const above = (model.tree.depth[drawing.items[index]!]! - 1) * (BOX_HEAD - 4);
  return {
    left: Math.max(x, Math.min(-view.x / view.k, x + drawing.w[index]! - 160)),
    top: Math.max(y, Math.min(-view.y / view.k + above, y + drawing.h[index]! - BOX_HEAD)),
  };
}

/** Whether a point of the drawing is on the plus or minus of a box. */
export function onSign(scene: Scene, index: number, view: View, x: number, y: number): boolean {
  if (view.k * 12 < READABLE) return false;
  const { drawing } = scene;
  const { left, top } = drawing.isOpen[index]
    ? headPlace(scene, index, view)
    : { left: drawing.x[index]!, top: drawing.y[index]! };
  const right = x - left - SIGN_LEFT;
  const down = y - top - SIGN_TOP;
  return right > -4 && right < 15 && down > -4 && down < 15;
}

/** A small plus or minus: what a double click does. */
function paintSign(
  pen: CanvasRenderingContext2D,
  x: number,
  y: number,
  plus: boolean,
  colour: string,
): void {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.2;
  pen.strokeRect(x, y, 11, 11);
  pen.beginPath();
  pen.moveTo(x + 2.5, y + 5.5);
  pen.lineTo(x + 8.5, y + 5.5);
  if (plus) {
    pen.moveTo(x + 5.5, y + 2.5);
    pen.lineTo(x + 5.5, y + 8.5);
  }
  pen.stroke();
}

function paintRings(
  pen: CanvasRenderingContext2D,
  scene: Scene,
  view: View,
  seen: number[],
): void {
  const { drawing, palette, marks, model } = scene;
  const width = Math.max(2.5, 2.5 / view.k);
  for (const index of seen) {
    const item = drawing.items[index]!;
    const many = marks.selected.get(index);
    if (many === undefined && !marks.found.has(index) && marks.hovered !== index) continue;
    // Open boxes are large: a thin ring is seen well.
    const thin = drawing.isOpen[index] || (many === undefined && marks.hovered === index);
    const held = many !== undefined && item >= model.tree.nodeCount && !drawing.isOpen[index];
    pen.lineWidth = thin ? width * 0.6 : width;
    pen.strokeStyle = many === undefined && marks.found.has(index) ? palette.found : palette.accent;
    // Selected nodes in a closed box: its ring is broken.
    pen.setLineDash(held ? [6 / Math.min(1, view.k), 4 / Math.min(1, view.k)] : []);
    outline(pen, drawing, index, view.k > 0.3 ? 7 : 0, 2 / Math.min(1, view.k));
    pen.stroke();
    pen.setLineDash([]);
  }
}

function outline(
  pen: CanvasRenderingContext2D,
  drawing: Drawing,
  index: number,
  radius: number,
  around = 0,
): void {
  pen.beginPath();
  const x = drawing.x[index]! - around;
  const y = drawing.y[index]! - around;
  const w = drawing.w[index]! + 2 * around;
  const h = drawing.h[index]! + 2 * around;
  if (radius > 0) pen.roundRect(x, y, w, h, radius + around / 2);
  else pen.rect(x, y, w, h);
}
