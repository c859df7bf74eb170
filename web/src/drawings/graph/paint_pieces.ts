// Draws the pieces of edges: bends and labels near, straight lines from afar.

import { SANS } from "../canvas";
import type { TextFitter } from "../canvas";
import type { DrawnPieces } from "../layout/engine";
import { edgeLabel } from "./model";
import type { GraphModel } from "./model";
import { shadeOf } from "./shade";
import type { Scene, View } from "./scene";

const LABELS_FROM = 0.85;
const CURVES_FROM = 0.3;
const BENDS_FROM = 0.12;
const MOST_LABELS = 250;
/** Shorter pieces than this are not seen, in pixels. */
const SHORTEST = 1.5;

const boundsOf = new WeakMap<DrawnPieces, Float32Array>();

export function paintPieces(
  pen: CanvasRenderingContext2D,
  scene: Scene,
  view: View,
  fitter: TextFitter,
): void {
  const { pieces } = scene.drawing;
  const { presence } = scene;
  const seen = piecesInView(pieces, view).filter((piece) => {
    if (presence === undefined) return true;
    const edges = pieces.edges.subarray(pieces.edgeStart[piece]!, pieces.edgeStart[piece + 1]!);
    return edges.some((edge) => presence.edge(edge));
  });
  const { near } = scene.marks;
  const { palette } = scene;
  pen.lineJoin = "round";
  pen.globalAlpha = near.size > 0 ? 0.55 : 1;
  paintLines(pen, pieces, seen.filter((piece) => !near.has(piece)), view, palette.line, 1.1);
  pen.globalAlpha = 1;
  paintLines(pen, pieces, seen.filter((piece) => near.has(piece)), view, palette.strongLine, 2);
  if (scene.look.labels && view.k >= LABELS_FROM) paintLabels(pen, scene, seen, fitter);
}

function piecesInView(pieces: DrawnPieces, view: View): number[] {
  let bounds = boundsOf.get(pieces);
  if (bounds === undefined) boundsOf.set(pieces, (bounds = makeBounds(pieces)));
  const left = -view.x / view.k;
  const top = -view.y / view.k;
  const right = left + view.width / view.k;
  const bottom = top + view.height / view.k;
  const shortest = SHORTEST / view.k;
  const seen: number[] = [];
  for (let piece = 0; piece < pieces.box.length; piece++) {
    const at = piece * 4;
    if (bounds[at]! > right || bounds[at + 1]! > bottom) continue;
    if (bounds[at + 2]! < left || bounds[at + 3]! < top) continue;
    const size = bounds[at + 2]! - bounds[at]! + bounds[at + 3]! - bounds[at + 1]!;
    if (size >= shortest) seen.push(piece);
  }
  return seen;
}

function makeBounds(pieces: DrawnPieces): Float32Array {
  const bounds = new Float32Array(4 * pieces.box.length);
  for (let piece = 0; piece < pieces.box.length; piece++) {
    let left = Infinity;
    let top = Infinity;
    let right = -Infinity;
    let bottom = -Infinity;
    for (let at = pieces.pointStart[piece]!; at < pieces.pointStart[piece + 1]!; at += 2) {
      left = Math.min(left, pieces.points[at]!);
      right = Math.max(right, pieces.points[at]!);
      top = Math.min(top, pieces.points[at + 1]!);
      bottom = Math.max(bottom, pieces.points[at + 1]!);
    }
    bounds.set([left, top, right, bottom], 4 * piece);
  }
  return bounds;
}

function paintLines(
  pen: CanvasRenderingContext2D,
  pieces: DrawnPieces,
  seen: number[],
  view: View,
  colour: string,
  width: number,
): void {
  if (seen.length === 0) return;
  pen.strokeStyle = colour;
  pen.lineWidth = Math.max(width, (width * 0.6) / view.k);
  const curved = view.k >= CURVES_FROM;
  const bent = view.k >= BENDS_FROM;
  const top = -view.y / view.k;
  const bottom = top + view.height / view.k;
  pen.beginPath();
  for (const piece of seen) {
    const start = pieces.pointStart[piece]!;
    const end = pieces.pointStart[piece + 1]! - 2;
    if (curved) curve(pen, pieces.points, start, end, top, bottom);
    else {
      pen.moveTo(pieces.points[start]!, pieces.points[start + 1]!);
      if (bent) {
        for (let at = start + 2; at < end; at += 2) {
          pen.lineTo(pieces.points[at]!, pieces.points[at + 1]!);
        }
      }
      pen.lineTo(pieces.points[end]!, pieces.points[end + 1]!);
    }
  }
  pen.stroke();
  if (!curved) return;
  pen.fillStyle = colour;
  pen.beginPath();
  for (const piece of seen) if (pieces.to[piece]! >= 0) arrow(pen, pieces, piece);
  pen.fill();
}

/** From point to point, upright at each; what lies above or below the view is left out. */
function curve(
  pen: CanvasRenderingContext2D,
  points: Float32Array,
  start: number,
  end: number,
  top: number,
  bottom: number,
): void {
  let isAt = false;
  for (let at = start; at < end; at += 2) {
    const x = points[at]!;
    const y = points[at + 1]!;
    const toX = points[at + 2]!;
    const toY = points[at + 3]!;
    if ((y < top && toY < top) || (y > bottom && toY > bottom)) {
      isAt = false;
      continue;
    }
    if (!isAt) pen.moveTo(x, y);
    isAt = true;
    const middle = (y + toY) / 2;
    if (Math.abs(toX - x) < 0.5) pen.lineTo(toX, toY);
    else pen.bezierCurveTo(x, middle, toX, middle, toX, toY);
  }
}

function arrow(pen: CanvasRenderingContext2D, pieces: DrawnPieces, piece: number): void {
  const end = pieces.pointStart[piece + 1]! - 2;
  const x = pieces.points[end]!;
  const y = pieces.points[end + 1]!;
  const up = pieces.points[end - 1]! > y ? -1 : 1;
  pen.moveTo(x, y);
  pen.lineTo(x - 3.5, y - 7 * up);
  pen.lineTo(x + 3.5, y - 7 * up);
  pen.closePath();
}

function paintLabels(
  pen: CanvasRenderingContext2D,
  scene: Scene,
  seen: number[],
  fitter: TextFitter,
): void {
  const { drawing, model, palette } = scene;
  const { pieces } = drawing;
  if (seen.length > MOST_LABELS) return;
  pen.font = `9.5px ${SANS}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const taken: [left: number, top: number, right: number][] = [];
  const { near } = scene.marks;
  const openBoxes = new Set(drawing.items.filter((_, index) => drawing.isOpen[index]));
  const order = [...seen.filter((piece) => near.has(piece)), ...seen.filter((piece) => !near.has(piece))];
  for (const piece of order) {
    // Each edge is labelled once, where it ends at what is seen of its reader, if there is room.
    if (pieces.to[piece]! < 0 || openBoxes.has(pieces.to[piece]!)) continue;
    const text = pieceLabel(model, pieces, piece);
    if (text === "") continue;
    const [x, y] = labelPlace(pieces, piece);
    const short = fitter.fit(pen, text, 150);
    const width = fitter.width(pen, short) + 6;
    const left = x - width / 2;
    if (taken.some(([l, t, r]) => Math.abs(t - y) < 13 && left < r && l < left + width)) continue;
    taken.push([left, y, left + width]);
    pen.globalAlpha = 0.88;
    const box = pieces.box[piece]!;
    pen.fillStyle = box === model.tree.root ? palette.ground : shadeOf(scene, box);
    pen.fillRect(x - width / 2, y - 6.5, width, 13);
    pen.globalAlpha = 1;
    pen.fillStyle = palette.faint;
    pen.fillText(short, x, y);
  }
}

export function pieceLabel(model: GraphModel, pieces: DrawnPieces, piece: number): string {
  const from = pieces.edgeStart[piece]!;
  const many = pieces.edgeStart[piece + 1]! - from;
  if (many === 1) return edgeLabel(model, pieces.edges[from]!);
  // Several readers in a box of one value are still one tensor.
  const sources = new Set<number>();
  for (let at = from; at < from + many; at++) {
    sources.add(model.shape.edges[2 * pieces.edges[at]!]!);
  }
  return sources.size === 1 ? edgeLabel(model, pieces.edges[from]!) : `${sources.size} tensors`;
}

/** In the gap above the reader. */
function labelPlace(pieces: DrawnPieces, piece: number): [number, number] {
  const { points } = pieces;
  let end = pieces.pointStart[piece + 1]! - 2;
  // The last step may be no more than the way along a rank.
  while (end - 2 > pieces.pointStart[piece]! && Math.abs(points[end + 1]! - points[end - 1]!) < 8) end -= 2;
  return [
    points[end]! + (points[end - 2]! - points[end]!) * 0.3,
    points[end + 1]! + (points[end - 1]! - points[end + 1]!) * 0.42,
  ];
}
