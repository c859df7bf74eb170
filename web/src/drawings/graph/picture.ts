// The whole drawing as a file: PNG, or SVG by a pen that writes what the canvas' pen would draw.

import { paint } from "./paint";
import type { Scene, View } from "./scene";

const MOST_PIXELS = 8_000;
const MARGIN = 20;

export async function pngOf(scene: Scene): Promise<Blob | null> {
  const { drawing, palette } = scene;
  const canvas = document.createElement("canvas");
  const longest = Math.max(drawing.width, drawing.height) + 2 * MARGIN;
  const view = wholeView(scene, Math.min(2, MOST_PIXELS / longest));
  canvas.width = Math.ceil(view.width);
  canvas.height = Math.ceil(view.height);
  const pen = canvas.getContext("2d");
  if (!pen) return null;
  paint(pen, scene, view, 1);
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.globalCompositeOperation = "destination-over";
  pen.fillStyle = palette.ground;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function svgOf(scene: Scene): string {
  const view = wholeView(scene, 1);
  const pen = new SvgPen();
  paint(pen as unknown as CanvasRenderingContext2D, scene, view, 1);
  const size = `width="${view.width.toFixed(0)}" height="${view.height.toFixed(0)}"`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" ${size}>`,
    `<rect width="100%" height="100%" fill="${scene.palette.ground}"/>`,
    `<g transform="translate(${MARGIN} ${MARGIN})">`,
    ...pen.parts,
    "</g></svg>",
  ].join("\n");
}

function wholeView({ drawing }: Scene, k: number): View {
  return {
    k,
    x: MARGIN * k,
    y: MARGIN * k,
    width: (drawing.width + 2 * MARGIN) * k,
    height: (drawing.height + 2 * MARGIN) * k,
  };
}

/** The part of a canvas' pen that `paint` uses. Texts are escaped: they come from files. */
export class SvgPen {
  readonly parts: string[] = [];
  fillStyle = "#000";
  strokeStyle = "#000";
  lineWidth = 1;
  lineJoin = "round";
  font = "12px sans-serif";
  textAlign: CanvasTextAlign = "left";
  textBaseline: CanvasTextBaseline = "middle";
  globalAlpha = 1;
  private path: string[] = [];
  private dash: number[] = [];

  setTransform(): void {}
  clearRect(): void {}

  setLineDash(dash: number[]): void {
    this.dash = dash;
  }

  /** Letters as wide as most fonts have them. */
  measureText(text: string): { width: number } {
    const size = Number(/([\d.]+)px/.exec(this.font)?.[1] ?? 12);
    return { width: text.length * size * 0.57 };
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    this.parts.push(`<rect x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" ${this.filled()}/>`);
  }

  strokeRect(x: number, y: number, width: number, height: number): void {
    this.parts.push(`<rect x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" ${this.stroked()}/>`);
  }

  beginPath(): void {
    this.path = [];
  }

  moveTo(x: number, y: number): void {
    this.path.push(`M${n(x)} ${n(y)}`);
  }

  lineTo(x: number, y: number): void {
    this.path.push(`L${n(x)} ${n(y)}`);
  }

  quadraticCurveTo(...at: number[]): void {
    this.path.push(`Q${at.map(n).join(" ")}`);
  }

  bezierCurveTo(...at: number[]): void {
    this.path.push(`C${at.map(n).join(" ")}`);
  }

  closePath(): void {
    this.path.push("Z");
  }

  rect(x: number, y: number, width: number, height: number): void {
    this.path.push(`M${n(x)} ${n(y)}h${n(width)}v${n(height)}h${n(-width)}Z`);
  }

  roundRect(x: number, y: number, width: number, height: number, radius: number): void {
    const r = Math.min(radius, width / 2, height / 2);
    const arc = (right: number, down: number): string => `a${n(r)} ${n(r)} 0 0 1 ${n(right)} ${n(down)}`;
    this.path.push(
      `M${n(x + r)} ${n(y)}h${n(width - 2 * r)}${arc(r, r)}v${n(height - 2 * r)}${arc(-r, r)}` +
        `h${n(2 * r - width)}${arc(-r, -r)}v${n(2 * r - height)}${arc(r, -r)}Z`,
    );
  }

  fill(): void {
    if (this.path.length > 0) this.parts.push(`<path d="${this.path.join("")}" ${this.filled()}/>`);
  }

  stroke(): void {
    if (this.path.length > 0) this.parts.push(`<path d="${this.path.join("")}" ${this.stroked()}/>`);
  }

  fillText(text: string, x: number, y: number): void {
    if (text === "") return;
    const [, weight, size] = /^(\d+ )?([\d.]+)px/.exec(this.font) ?? [];
    const anchor = this.textAlign === "right" ? "end" : this.textAlign === "center" ? "middle" : "start";
    this.parts.push(
      `<text x="${n(x)}" y="${n(y)}" dominant-baseline="central" text-anchor="${anchor}" ` +
        `font-family="system-ui, sans-serif" font-size="${size ?? 12}" font-weight="${weight?.trim() ?? 400}" ` +
        `${this.filled()}>${escaped(text)}</text>`,
    );
  }

  private filled(): string {
    return `fill="${this.fillStyle}"${this.alpha()}`;
  }

  private stroked(): string {
    const dash = this.dash.length > 0 ? ` stroke-dasharray="${this.dash.map(n).join(" ")}"` : "";
    return `fill="none" stroke="${this.strokeStyle}" stroke-width="${n(this.lineWidth)}"${dash}${this.alpha()}`;
  }

  private alpha(): string {
    return this.globalAlpha < 1 ? ` opacity="${n(this.globalAlpha)}"` : "";
  }
}

const n = (value: number): string => String(Math.round(value * 100) / 100);

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
