// @vitest-environment jsdom
// The page shows a comparison as Python made it: its words, its verdicts, its rows.

import { render } from "preact";
import { beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { changeRamp } from "../src/drawings/scale";
import type { ReportDocument } from "../src/document";
import { fixture } from "./fixture";

beforeAll(() => {
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => undefined }));
  vi.stubGlobal("ResizeObserver", class { observe() {} disconnect() {} });
});

async function shown(report: ReportDocument, address: string): Promise<HTMLElement> {
  const { Compare } = await import("../src/views/compare");
  const { doc, goTo } = await import("../src/store");
  doc.value = report;
  goTo(address);
  const place = document.body.appendChild(document.createElement("div"));
  render(<Compare />, place);
  return place;
}

beforeEach(() => {
  document.body.textContent = "";
});

describe("two profiles", () => {
  it("have the headline of the document, with its verdict", async () => {
    const place = await shown(fixture(), "#run0/compare/0");
    const headline = place.querySelector('[data-testid="headline"]')!;
    expect(headline.textContent).toContain("forward takes 12 % longer.");
    expect(headline.textContent).toContain("By operator: aten.linear +1 ms.");
    expect(headline.querySelector(".verdict-regressed")!.textContent).toBe("regressed");
  });
  it("that cannot be compared say why", async () => {
    const report = fixture();
    const why = "Times in different units cannot be compared.";
    report.comparisons[0] = { ...report.comparisons[0]!, verdict: null, headline: [why], table: null, sums: [] };
    const place = await shown(report, "#run0/compare/0");
    expect(place.querySelector('[data-testid="headline"]')!.textContent).toContain(why);
    expect(place.querySelector('[data-testid="compare-table"]')).toBeNull();
  });
});

it("one profile is not compared", async () => {
  const report = { ...fixture(), comparisons: [] };
  report.runs = report.runs.slice(0, 1);
  expect((await shown(report, "#run0/compare/0")).textContent).toContain("There is one profile");
});

it("modules of the icicle are those of the sums, each below the one around it", async () => {
  const { changedModules } = await import("../src/drawings/DifferenceIcicle");
  const report = fixture();
  const modules = changedModules(report.comparisons[0]!.sums[0]!, "after");
  const own = report.runs[0]!.methods[0]!.modules;
  expect(modules.map(({ parent }) => parent)).toEqual(own.map(({ parent }) => parent));
  expect(modules.map(({ total }) => total)).toEqual(own.map(({ total }) => 1.12 * total));
});

it("more is red, less is green, no change has no colour", () => {
  for (const theme of ["light", "dark"] as const) {
    const [less, none, more] = [-1, 0, 1].map((at) => /rgb\((\d+), (\d+), (\d+)\)/.exec(changeRamp(theme)(at))!.slice(1).map(Number));
    expect(more![0]).toBeGreaterThan(more![1]! + 50);
    expect(less![1]).toBeGreaterThan(less![0]! + 50);
    expect(Math.max(...none!) - Math.min(...none!)).toBeLessThan(15);
  }
});
