// The page of the tensor viewer.

import type { Drawn } from "./drawn";
import { colour, histogram } from "./tensor";

declare function acquireVsCodeApi(): { postMessage(message: unknown): void };

const STYLES = `
body { font: var(--vscode-font-size) var(--vscode-font-family); color: var(--vscode-foreground); padding: 0 1em 1em; }
h1 { font-size: 1.15em; margin: .8em 0 .2em; overflow-wrap: anywhere; }
p { margin: .3em 0; color: var(--vscode-descriptionForeground); overflow-wrap: anywhere; }
.views { display: flex; flex-wrap: wrap; gap: 1.5em; margin-top: .8em; }
figure { margin: 0; width: min(100%, 300px); }
figcaption { font-weight: 600; margin-bottom: .3em; }
canvas { width: 100%; image-rendering: pixelated; display: block; border: 1px solid var(--vscode-widget-border, #8884); }
canvas.bars { height: 72px; border: 0; margin-top: .4em; }
.ends { display: flex; justify-content: space-between; font-size: .9em; }
.at { min-height: 1.4em; font-family: var(--vscode-editor-font-family); }
input { width: 6em; color: var(--vscode-input-foreground); background: var(--vscode-input-background);
  border: 1px solid var(--vscode-input-border, #8884); }
`;

const editor = acquireVsCodeApi();
const main = document.querySelector("main")!;
const style = document.createElement("style");
style.textContent = STYLES;
document.head.append(style);

function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  parent: HTMLElement,
  text = "",
): HTMLElementTagNameMap[K] {
  const found = document.createElement(name);
  found.textContent = text;
  parent.append(found);
  return found;
}

const short = (value: number) => String(Number(value.toPrecision(5)));

/** Writes one number for each outer dimension: the part that is shown. */
function drawIndex({ part }: Drawn, parent: HTMLElement): void {
  const outer = part.shape.sizes.slice(0, -2);
  if (!outer.length) return;
  const line = element("p", parent, "Shown: ");
  const inputs = outer.map((size, at) => {
    const input = element("input", line);
    Object.assign(input, { type: "number", min: "0", max: String(size - 1), value: String(part.index[at]) });
    input.ariaLabel = `index of dimension ${at}`;
    input.onchange = () => editor.postMessage({ index: inputs.map((one) => Number(one.value)) });
    line.append(` of ${size} `);
    return input;
  });
}

function drawMap(values: number[], { part }: Drawn, parent: HTMLElement): HTMLCanvasElement {
  const canvas = element("canvas", parent);
  canvas.width = Math.ceil(part.columns.size / part.columns.step);
  canvas.height = Math.ceil(part.rows.size / part.rows.step);
  // Long rows stay visible: a cell is at least 6 pixels high, and a small map is not blown up to a wall.
  canvas.style.height = `${Math.min(Math.max(canvas.height * 6, (300 / canvas.width) * canvas.height, 24), 300)}px`;
  const most = values.reduce((a, b) => (Number.isFinite(b) ? Math.max(a, Math.abs(b)) : a), 0);
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(canvas.width, canvas.height);
  values.forEach((value, at) => image.data.set([...colour(value, most), 255], 4 * at));
  context.putImageData(image, 0, 0);
  return canvas;
}

function drawBars(values: number[], parent: HTMLElement): void {
  const found = histogram(values);
  const canvas = element("canvas", parent);
  canvas.className = "bars";
  [canvas.width, canvas.height] = [found.counts.length * 6, 72];
  const context = canvas.getContext("2d")!;
  context.fillStyle = getComputedStyle(document.body).getPropertyValue("--vscode-charts-blue") || "#3794ff";
  const most = Math.max(...found.counts, 1);
  found.counts.forEach((count, at) => {
    const height = count ? Math.max((72 * count) / most, 1) : 0;
    context.fillRect(at * 6, 72 - height, 5, height);
  });
  const ends = element("div", parent);
  ends.className = "ends";
  for (const end of found.least <= found.greatest ? [found.least, found.greatest] : []) {
    element("span", ends, short(end));
  }
  if (found.nan || found.infinite) element("p", parent, `${found.nan} NaN, ${found.infinite} infinite`);
}

function draw(drawn: Drawn): void {
  main.replaceChildren();
  element("h1", main, drawn.title);
  element("p", main, drawn.statistics);
  drawIndex(drawn, main);
  const { rows, columns } = drawn.part;
  if (rows.step > 1 || columns.step > 1) {
    element("p", main, `A sample: each ${rows.step}. row and each ${columns.step}. column.`);
  }
  const at = element("p", main);
  at.className = "at";
  const views = element("div", main);
  views.className = "views";
  for (const { name, values } of drawn.views) {
    const figure = element("figure", views);
    element("figcaption", figure, name);
    const canvas = drawMap(values, drawn, figure);
    canvas.onmousemove = (event) => {
      const column = Math.floor((event.offsetX / canvas.clientWidth) * canvas.width);
      const row = Math.floor((event.offsetY / canvas.clientHeight) * canvas.height);
      const cell = Math.min(row, canvas.height - 1) * canvas.width + Math.min(column, canvas.width - 1);
      const place = [...drawn.part.index, row * rows.step, column * columns.step];
      const shown = drawn.views.map((view) => `${view.name} ${view.values[cell]}`);
      at.textContent = `[${place.slice(-drawn.part.shape.sizes.length).join(", ")}]  ${shown.join("  ")}`;
    };
    drawBars(values, figure);
  }
  if (drawn.note) element("p", main, drawn.note);
}

window.addEventListener("message", ({ data }: MessageEvent<Drawn | { error: string }>) => {
  if ("error" in data) main.replaceChildren(Object.assign(document.createElement("p"), { textContent: data.error }));
  else draw(data);
});
editor.postMessage({ index: [] }); // ready
