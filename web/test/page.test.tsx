// @vitest-environment jsdom
// A report is full of names that others chose: whatever they are, they are text on the page.

import { render } from "preact";
import { beforeAll, beforeEach, expect, it, test, vi } from "vitest";
import { fixture, HOSTILE } from "./fixture";
import type { ReportDocument } from "../src/document";

const NAME = `</script><img src=x onerror="window.hacked=1">${HOSTILE}`;

/** The fixture with a hostile text in the place of every text that a file could hold. */
function hostile(): ReportDocument {
  const keep = new Set(["schema", "id", "unit", "kind", "key", "dialect", "columns"]);
  const walk = (value: unknown, key: string): unknown => {
    if (typeof value === "string") return keep.has(key) ? value : NAME + value;
    if (key === "columns") return value;
    if (Array.isArray(value)) return value.map((one) => walk(one, key));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, walk(one, name)]));
  };
  return walk(fixture({ blocks: 1, events: 5, samples: 1 }), "") as ReportDocument;
}

beforeAll(() => {
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => undefined }));
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      disconnect() {}
    },
  );
});

let place: HTMLElement;

beforeEach(() => {
  document.body.textContent = "";
  place = document.body.appendChild(document.createElement("div"));
});

/** Nothing of the text became an element, and nothing that cannot be seen is left. */
function expectInert(): void {
  expect(document.querySelectorAll("script, img")).toHaveLength(0);
  expect((window as { hacked?: number }).hacked).toBeUndefined();
  const text = document.body.textContent!;
  expect(text).toContain("<img src=x onerror=");
  expect(text).toContain("\\u202eevil\\x07\\x00");
  // eslint-disable-next-line no-control-regex
  expect(text).not.toMatch(/[\u0000-\u001f\u202a-\u202e]/);
  for (const element of document.querySelectorAll("[title]")) {
    expect(element.getAttribute("title")).not.toMatch(/[\u0000-\u0008\u202a-\u202e]/);
  }
}

it.each([
  ["row-0-1"],
  ["row-0-3"],
  ["node-2-edge%2Fforward"],
  ["group-0-executed%2Fforward"],
  ["module-0-3"],
  ["line-3"],
])("details of %s", async (sel) => {
  const { Details } = await import("../src/parts/details");
  const { doc, goTo, selection } = await import("../src/store");
  doc.value = hostile();
  goTo(`#run0/events/0/${sel}`);
  expect(selection.value).not.toBeNull();
  render(<Details />, place);
  expectInert();
});

test("an insight links the line that its sentence names", async () => {
  const { Insights } = await import("../src/views/insights");
  const { doc } = await import("../src/store");
  const report = fixture({ blocks: 1, events: 5, samples: 1 });
  const [run] = report.runs;
  const { file, line } = run!.source.lines.at(-1)!;
  const named = `${run!.source.files[file]!.split("/").at(-1)}:${line}`;
  const [first] = run!.insights;
  expect(first!.explanation!.sites[0]!.line).not.toBe(named);
  const insights = [{ ...first!, sentence: `It takes long, at ${named} and 2 other lines.` }];
  doc.value = { ...report, runs: [{ ...run!, insights }] };
  render(<Insights now={doc.value.runs[0]!} method={0} />, place);
  expect(place.querySelector(".frame button")!.textContent).toBe(named);
});

test("summary and source", async () => {
  const { Summary } = await import("../src/views/summary");
  const { Source } = await import("../src/views/source");
  const { doc } = await import("../src/store");
  doc.value = hostile();
  render(
    <>
      <Summary />
      <Source />
    </>,
    place,
  );
  expectInert();
});

test("what is not a report is refused", async () => {
  const { checked, LoadError } = await import("../src/load");
  expect(() => checked("<html>", "data.json")).toThrow(LoadError);
  expect(() => checked('{"schema": "etscope.report/9"}', "")).toThrow(/is of schema "etscope.report\/9"/);
  expect(() => checked('{"schema": "etscope.report/3", "runs": []}', "")).toThrow(/holds no run/);
});
