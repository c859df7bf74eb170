// @vitest-environment jsdom
// The page of a language model's calls: its numbers are those of the document, its texts are text.

import { render } from "preact";
import { beforeAll, beforeEach, expect, test, vi } from "vitest";
import {
  panelsOf,
  sharesOf,
  stacked,
  nameOfPoint,
  typicalOf,
  type StackChoice,
} from "../src/drawings/generation/stack";
import { wholeOf } from "../src/drawings/generation/whole";
import type { GenerationDoc, ReportDocument } from "../src/document";
import { fixture } from "./fixture";

vi.mock("../src/parts/chart", () => ({ Chart: () => null, colour: () => "#000000" }));

const ALL: StackChoice = { by: "op", over: "position", generation: null, method: null };

/** A prefill of three tokens and `decodes` decode calls, of an embedding and a decoder; twice. */
function made(decodes = 4, phase = "decode"): GenerationDoc {
  const columns: Record<string, number[]> = {};
  const push = (row: Record<string, number>): void => {
    for (const [name, value] of Object.entries(row)) (columns[name] ??= []).push(value);
  };
  const times: number[][] = [[], []];
  for (let generation = 0; generation < 2; generation++) {
    for (let step = 0; step <= decodes; step++) {
      for (const method of [0, 1]) {
        const prefill = step === 0;
        const time = (prefill ? 30 : 10 + step) * (method ? 1 : 0.1) * (1 + generation);
        const number = columns["number"]?.length ?? 0;
        push({
          number,
          run: number + 1,
          generation,
          phase: prefill ? 0 : 1,
          method,
          step: prefill ? 0 : step - 1,
          position: prefill ? 0 : 2 + step,
          tokens: prefill ? 3 : 1,
          joined: 1,
          token: method ? 7 : -1,
          start: number * 50,
          time,
        });
        times[0]!.push(time * 0.75);
        times[1]!.push(time * 0.25);
      }
    }
  }
  const calls = columns as unknown as GenerationDoc["calls"];
  return {
    note: null,
    phases: ["prefill", phase],
    methods: ["token_embedding", "text_decoder"],
    table: {
      title: "Phases of the calls",
      columns: [
        { name: "phase", title: "phase", kind: "text", unit: null, priority: 0 },
        { name: "calls", title: "calls", kind: "count", unit: null, priority: 0 },
      ],
      values: { phase: ["prefill", phase], calls: [4, 4 * decodes] },
      notes: [],
    },
    pace: null,
    calls,
    groups: { op: { names: ["linear", "(the rest)"], times } },
    untraced: {
      phases: ["prefill", phase],
      methods: ["token_embedding", "text_decoder"],
      generation: calls.generation,
      phase: calls.phase,
      method: calls.method,
      position: calls.position,
      tokens: calls.tokens,
      joined: calls.joined,
      start: calls.start,
      end: calls.start.map((start, at) => start + calls.time[at]! / 2),
      execute: calls.time.map((time) => time / 2),
      sampling: calls.method.map((method) => (method ? 4 : 0)),
    },
  };
}

test("calls at a position add up over methods, and are the mean of generations", () => {
  const doc = made();
  const [before, decode] = panelsOf(doc, ALL);
  expect(before!.points.map(({ x }) => x)).toEqual([0]);
  expect(decode!.points.map(({ x }) => x)).toEqual([3, 4, 5, 6]);
  // The mean of once and twice 1.1 times as long.
  expect(before!.points[0]!.time).toBeCloseTo(30 * 1.1 * 1.5);
  expect(decode!.points[0]!.time).toBeCloseTo(11 * 1.1 * 1.5);
  for (const panel of [before!, decode!]) {
    panel.points.forEach((point, at) => {
      expect(panel.times[0]![at]! + panel.times[1]![at]!).toBeCloseTo(point.time);
      expect(point.untraced).toBeCloseTo(point.time / 2);
    });
  }
  expect(sharesOf(decode!)).toEqual([expect.closeTo(0.75), expect.closeTo(0.25)]);
  expect(nameOfPoint(doc, decode!.points[1]!)).toBe("decode 1 · position 4 · 1 token · 4 calls");
});

test("one generation, one method, and call by call", () => {
  const doc = made();
  const [, second] = panelsOf(doc, { ...ALL, generation: 1 });
  expect(second!.points[0]!.time).toBeCloseTo(11 * 1.1 * 2);
  const [, decoder] = panelsOf(doc, { ...ALL, method: 1 });
  expect(decoder!.points[0]!.time).toBeCloseTo(11 * 1.5);
  const [before, each] = panelsOf(doc, { ...ALL, over: "call" });
  expect(before!.points).toHaveLength(4);
  expect(each!.points.map(({ x }) => x)).toEqual(
    doc.calls.number.filter((_, at) => doc.calls.phase[at] === 1),
  );
  expect(each!.points.every(({ calls }) => calls.length === 1)).toBe(true);
});

test("typical calls are real ones of median time", () => {
  const [, decode] = panelsOf(made(60), { ...ALL, method: 1 });
  decode!.points[7]!.time = 1e6; // interrupted
  const found = typicalOf(decode!, 20);
  expect(found.points).toHaveLength(20);
  expect(found.points.map(({ x }) => x)).not.toContain(decode!.points[7]!.x);
  found.points.forEach((point, at) => {
    expect(found.times[0]![at]! + found.times[1]![at]!).toBeCloseTo(point.time);
    if (at !== 2) expect(point.untraced).toBeCloseTo(point.time / 2);
  });
  expect(typicalOf(decode!, 60)).toBe(decode);
});

test("what is stacked ends at the whole", () => {
  expect(
    stacked([
      [1, 2],
      [3, 4],
      [5, 6],
    ]),
  ).toEqual([
    [1, 2],
    [4, 6],
    [9, 12],
  ]);
});

test("the whole generation has no time twice and none lost", () => {
  const doc = made();
  const { timeline, names, generations } = wholeOf(doc, 1);
  expect(generations).toEqual([0, 1]);
  expect(timeline.tracks.map(({ name }) => name)).toEqual([
    "token_embedding",
    "text_decoder",
    "sampling",
    "host",
  ]);
  const spans = timeline.start.map((start, at) => [start, start + timeline.duration[at]!] as const);
  spans.sort(([one], [other]) => one - other);
  expect(spans[0]![0]).toBe(0);
  for (let at = 1; at < spans.length; at++) expect(spans[at]![0]).toBeCloseTo(spans[at - 1]![1]);
  expect(names).toContain("decode, position 3");
  expect(names).toContain("sampling after decode, position 3");
});

test("without an untraced pass the dump's own calls are drawn", () => {
  const { timeline } = wholeOf({ ...made(), untraced: null }, 0);
  expect(timeline.tracks.at(-1)!.name).toBe("between calls");
  expect(timeline.names).not.toContain("sampling");
});

// -- in the page

beforeAll(() => {
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => undefined }));
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      disconnect() {}
    },
  );
  // jsdom draws nothing.
  HTMLCanvasElement.prototype.getContext = () => null;
});

let place: HTMLElement;

beforeEach(() => {
  document.body.textContent = "";
  place = document.body.appendChild(document.createElement("div"));
});

function report(generation: GenerationDoc | null): ReportDocument {
  const doc = fixture({ blocks: 1, events: 5, samples: 1 });
  doc.runs[0]!.generation = generation;
  return doc;
}

test("the tab is there only where there are calls of a language model", async () => {
  const { doc, shownTabs } = await import("../src/store");
  doc.value = report(null);
  expect(shownTabs.value).not.toContain("generation");
  expect(shownTabs.value).toHaveLength(10);
  doc.value = report(made());
  expect(shownTabs.value.indexOf("generation")).toBe(4);
});

test("names of a file stay text", async () => {
  const { Generation } = await import("../src/views/generation");
  const { doc, run } = await import("../src/store");
  const evil = `<img src=x onerror="window.hacked=1">\u202e`;
  const generation = made(4, evil);
  generation.groups["op"]!.names = [evil, "(the rest)"];
  generation.methods = [evil, "b"];
  generation.untraced!.methods = [evil, "b"];
  doc.value = report(generation);
  render(<Generation run={run.value} />, place);
  expect(document.querySelectorAll("img")).toHaveLength(0);
  expect(place.textContent).toContain("<img src=x onerror=");
  expect(place.textContent).not.toContain("\u202e");
});

test("growth is that of the tables of the methods", async () => {
  const { Generation } = await import("../src/views/generation");
  const { doc, run } = await import("../src/store");
  const found = report(made());
  const rows = found.runs[0]!.methods[0]!.rows;
  const count = rows.values["event"]!.length;
  const cells = (value: number): (number | null)[] =>
    Array.from({ length: count }, (_, at) => (at === 2 ? value : null));
  for (const [name, value] of [
    ["growth", 12.5],
    ["growth_low", 12],
    ["growth_high", 13],
  ] as const) {
    rows.columns.push({ name, title: name, kind: "float", unit: "ns/token", priority: 1 });
    rows.values[name] = cells(value);
  }
  doc.value = found;
  render(<Generation run={run.value} />, place);
  const table = place.querySelector('[data-testid="growth-table"] tbody')!;
  expect(table.querySelectorAll("tr")).toHaveLength(1);
  expect(table.textContent).toContain("12.50");
  expect(table.textContent).toContain("12 to 13");
  expect(table.querySelector("button")!.textContent).toContain(String(rows.values["event"]![2]));
});
