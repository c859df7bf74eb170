// @vitest-environment jsdom
// The page of rooflines: dots have the numbers of the document, no time is lost, texts are text.

import { render } from "preact";
import { beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { Method, ReportDocument, RooflineDoc } from "../src/document";
import {
  dotsOf,
  dotTable,
  gbpsOf,
  gflopsOf,
  intensityOf,
  peakOf,
  type By,
} from "../src/drawings/roofline/dots";
import { dotAt, pictureOf } from "../src/drawings/roofline/plot";
import { panned, zoomed } from "../src/drawings/roofline/zoom";
import { fixture } from "./fixture";

beforeAll(() => {
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => undefined }));
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      disconnect() {}
    },
  );
  HTMLCanvasElement.prototype.getContext = () => null; // jsdom draws nothing
});

let place: HTMLElement;

beforeEach(() => {
  document.body.textContent = "";
  place = document.body.appendChild(document.createElement("div"));
});

/** Of each of the first rows one that computes, and one of each other place. */
function made(count = 12): RooflineDoc {
  const kinds = ["computes", "moves data", "no work", "unknown"];
  const each = Array.from({ length: count }, (_, at) => at);
  const kind = (at: number): number => (at < 8 ? 0 : (at % 3) + 1);
  return {
    places: [...kinds, "outside"],
    bounds: ["compute", "memory", "overhead"],
    methods: [
      {
        name: [...each.map(() => null), "between the instructions"],
        rows: [...each.map((at) => [at]), []],
        place: [...each.map(kind), 4],
        ns: [...each.map((at) => 1000 * (count - at)), 10],
        share: [...each.map((at) => (count - at) / ((count * (count + 1)) / 2)), 0],
        flops: [...each.map((at) => (kind(at) === 0 ? 1e4 * (at + 1) : kind(at) === 1 ? 0 : null)), null],
        bytes: [...each.map((at) => (kind(at) < 2 ? 500 : null)), null],
        roof: [...each.map((at) => (kind(at) === 0 ? 500 : null)), null],
        bound: [...each.map((at) => (kind(at) === 0 ? at % 2 : null)), null],
        dtype: [...each.map((at) => (kind(at) === 0 ? "float32" : null)), null],
        level: [...each.map(() => "L1"), null],
        partial: [2],
        reason: [...each.map((at) => (kind(at) === 3 ? "the FLOPs of my.op are not known" : null)), null],
        notes: ["a note"],
      },
    ],
    ceilings: {
      compute: [
        ["float32", 100],
        ["int8", 400],
      ],
      memory: [
        ["L1", 50],
        ["memory", 10],
      ],
      table: { title: "Ceilings", columns: [], values: {}, notes: [] },
    },
  };
}

const report = (): ReportDocument => fixture({ blocks: 1, events: 5, samples: 1 });
const methodOf = (doc: ReportDocument): Method => doc.runs[0]!.methods[0]!;

test("dots have the numbers of the document", () => {
  const method = methodOf(report());
  const dots = dotsOf(made(), 0, method, "each");
  expect(dots).toHaveLength(13);
  const [first] = dots;
  expect(intensityOf(first!)).toBe(20);
  expect(gflopsOf(first!)).toBeCloseTo(1e4 / 12000);
  expect(gbpsOf(first!)).toBeCloseTo(500 / 12000);
  expect(peakOf(first!)).toBeCloseTo(500 / 12000);
  expect(first!.to).toEqual({ kind: "row", method: 0, row: 0 });
  const moves = dots.find((dot) => dot.place === "moves data")!;
  expect([intensityOf(moves), gflopsOf(moves)]).toEqual([null, null]);
  expect(gbpsOf(moves)).toBeGreaterThan(0);
  expect(dots.at(-1)!).toMatchObject({ name: "between the instructions", place: "outside", to: null });
  expect(dots[2]!.partial).toBe(true);
});

test.each<By>(["op", "module", "source"])("grouped by %s no time and no work is lost", (by) => {
  const method = methodOf(report());
  const sums = (all: ReturnType<typeof dotsOf>) =>
    (["ns", "flops", "bytes"] as const).map((key) => all.reduce((sum, dot) => sum + (dot[key] ?? 0), 0));
  const each = dotsOf(made(), 0, method, "each");
  const grouped = dotsOf(made(), 0, method, by);
  expect(grouped.length).toBeLessThan(each.length + Number(by === "source")); // each has a line of its own
  sums(grouped).forEach((sum, at) => expect(sum).toBeCloseTo(sums(each)[at]!));
  const times = grouped.map(({ ns }) => ns);
  expect(times).toEqual([...times].sort((one, other) => other - one));
  const table = dotTable(grouped, "us", 1e-3, by);
  expect(table.columns[0]!.name).toBe(by);
  for (const column of table.columns) expect(table.values[column.name]).toHaveLength(grouped.length);
});

test("a zoom keeps its place, stays within the whole, and clips the ceilings", () => {
  const doc = made();
  const dots = dotsOf(doc, 0, methodOf(report()), "each");
  const whole = pictureOf(dots, doc.ceilings, 900, 400);
  expect(whole.view).toEqual(whole.whole);
  const { box } = whole;
  const fixed = whole.dots.find(({ moves }) => !moves)!;
  const at = [
    (fixed.x - box.left) / (box.right - box.left),
    (box.bottom - fixed.y) / (box.bottom - box.top),
  ] as const;
  const view = zoomed(whole.view, whole.whole, 2, at)!;
  const near = pictureOf(dots, doc.ceilings, 900, 400, view);
  const again = near.dots.find(({ at: one }) => one === fixed.at)!;
  expect(again.x).toBeCloseTo(fixed.x);
  expect(again.y).toBeCloseTo(fixed.y);
  for (const { from, to } of near.lines) {
    for (const [x, y] of [from, to]) {
      expect(x).toBeGreaterThanOrEqual(box.left - 1e-6);
      expect(x).toBeLessThanOrEqual(box.right + 1e-6);
      expect(y).toBeGreaterThanOrEqual(box.top - 1e-6);
      expect(y).toBeLessThanOrEqual(box.bottom + 1e-6);
    }
  }
  // Out again, and no further; to the side no further than there is something.
  expect(zoomed(view, whole.whole, 0.1, at)).toBeNull();
  const beside = panned(view, whole.whole, 100, -100)!;
  expect(beside.across[1]).toBeCloseTo(whole.whole.across[1]);
  expect(beside.up[0]).toBeCloseTo(whole.whole.up[0]);
  // However close, both axes have numbers.
  let closest = view;
  for (let times = 0; times < 20; times++) closest = zoomed(closest, whole.whole, 2, at)!;
  const deep = pictureOf(dots, doc.ceilings, 700, 260, closest);
  expect(deep.across.length).toBeGreaterThan(0);
  expect(deep.up.length).toBeGreaterThan(0);
  expect(deep.dots.map(({ at: one }) => one)).toContain(fixed.at);
});

test("the picture is logarithmic, and what only moves data stands below the same ceilings", () => {
  const doc = made();
  const dots = dotsOf(doc, 0, methodOf(report()), "each");
  const picture = pictureOf(dots, doc.ceilings, 900, 400);
  expect(picture.dots).toHaveLength(
    dots.filter((dot) => dot.place === "computes" || dot.place === "moves data").length,
  );
  const { box } = picture;
  for (const { x, y, moves } of picture.dots) {
    expect(y).toBeGreaterThanOrEqual(box.top);
    expect(y).toBeLessThanOrEqual(box.bottom);
    if (moves) expect(x).toBe(box.left);
  }
  const [l1, memory] = picture.lines;
  // 50 and 10 GB/s: the same distance everywhere, and of the knees to the right.
  expect(memory!.to[0]).toBeGreaterThan(l1!.to[0]);
  expect(l1!.to[1]).toBeCloseTo(picture.lines.find(({ name }) => name === "int8")!.from[1]);
  const used = picture.lines.filter((line) => !line.memory).map(({ name, used }) => [name, used]);
  expect(used).toEqual([
    ["float32", true],
    ["int8", false],
  ]);
  const one = picture.dots[0]!;
  expect(dotAt(picture, one.x + 1, one.y)).toBe(one);
  expect(dotAt(picture, one.x + 300, one.y + 300)).toBeNull();
});

test("without ceilings and without dots there is still a picture", () => {
  const dots = dotsOf({ ...made(), ceilings: null }, 0, methodOf(report()), "each");
  expect(pictureOf(dots, null, 900, 400).lines).toEqual([]);
  expect(pictureOf([], null, 900, 400).dots).toEqual([]);
});

test("names of a file stay text, and the notes are there", async () => {
  const { Roofline } = await import("../src/views/roofline");
  const { doc, run } = await import("../src/store");
  const found = report();
  const evil = `<img src=x onerror="window.hacked=1">\u202e`;
  const roofline = made();
  roofline.methods[0]!.notes = [evil];
  roofline.ceilings!.memory[0]![0] = evil;
  found.runs[0]!.roofline = roofline;
  doc.value = found;
  render(<Roofline run={run.value} />, place);
  expect(document.querySelectorAll("img")).toHaveLength(0);
  expect(place.querySelector('[data-testid="roofline-notes"]')!.textContent).toContain("<img src=x");
  expect(place.textContent).not.toContain("\u202e");
});

test("a run without known work says so", async () => {
  const { Roofline } = await import("../src/views/roofline");
  const { doc, run } = await import("../src/store");
  doc.value = report();
  render(<Roofline run={run.value} />, place);
  expect(place.textContent).toContain("No roofline");
});
