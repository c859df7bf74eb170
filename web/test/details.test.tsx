// @vitest-environment jsdom
// What the pane at the side says of nodes, boxes and modules.

import { render } from "preact";
import { beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { ReportDocument } from "../src/document";
import { fixture } from "./fixture";

const GRAPH = "edge/forward";

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

/** The fixture with bytes and an error for node 2 and its box, and a time of several nodes there. */
function measured(): ReportDocument {
  const found = fixture({ blocks: 1, events: 5, samples: 1 });
  const graph = found.runs[0]!.graphs.find((one) => one.key === GRAPH)!;
  const columns = (value: number | string) => ({
    nodes: graph.nodes.map(() => value),
    groups: graph.groups.map(() => value),
    shared: [],
    largerIsWorse: true,
  });
  graph.measures = [
    { key: "avg", title: "average time", unit: "ms", kind: "duration", ...columns(0.00123456), shared: [2] },
    { key: "memory", title: "bytes of the results", unit: "bytes", kind: "bytes", ...columns(2359296) },
    { key: "error", title: "mse", unit: null, kind: "float", ...columns(4.5123456789e-9) },
    { key: "local_error", title: "sqnr", unit: "dB", kind: "float", ...columns("Infinity") },
  ];
  return found;
}

async function show(sel: string): Promise<Record<string, [string, string]>> {
  const { Details } = await import("../src/parts/details");
  const { doc, goTo } = await import("../src/store");
  doc.value = measured();
  goTo(`#run0/graph/0/${sel}`);
  render(<Details />, place);
  return Object.fromEntries(
    [...place.querySelectorAll<HTMLElement>("[data-testid=measures] [data-fact]")].map((fact) => {
      const value = fact.querySelector("dd")!;
      return [fact.dataset["fact"]!, [value.textContent!, value.dataset["value"]!]];
    }),
  );
}

test.each(["node-2-edge%2Fforward", "group-0-edge%2Fforward"])("measures of %s", async (sel) => {
  expect(await show(sel)).toEqual({
    avg: ["0.001235 ms", "0.00123456"],
    memory: ["2.25 MiB", "2359296"],
    error: ["4.512e-09", "4.5123456789e-9"],
    local_error: ["inf dB", "Infinity"],
  });
});

test("a time of several nodes says so, and so do boxes and modules", async () => {
  await show("node-2-edge%2Fforward");
  expect(place.querySelector("[data-testid=shared-note]")!.textContent).toContain("of several nodes");
  await show("node-1-edge%2Fforward");
  expect(place.querySelector("[data-testid=shared-note]")).toBeNull();
  await show("group-0-edge%2Fforward");
  expect(place.querySelector("[data-testid=box-note]")!.textContent).toContain("at the first node");
  await show("module-0-1");
  expect(place.querySelector("[data-testid=module-note]")!.textContent).toContain("can differ");
});

test("a node tells who refused it and why", async () => {
  const { Details } = await import("../src/parts/details");
  const { doc, goTo } = await import("../src/store");
  const found = measured();
  const { nodes } = found.runs[0]!.graphs.find((one) => one.key === GRAPH)!;
  nodes[2]!.refusals = [["VulkanBackend", "no operator implementation"], ["XnnpackBackend", "<b>unknown</b>"]];
  doc.value = found;
  const texts = (): string[] =>
    [...place.querySelectorAll("[data-testid=refusals] .fact")].map((fact) => fact.textContent!);
  goTo("#run0/graph/0/node-2-edge%2Fforward");
  render(<Details />, place);
  expect(texts()).toEqual(["VulkanBackendno operator implementation", "XnnpackBackend<b>unknown</b>"]);
  expect(place.textContent).toContain("Why it is not delegated");
  goTo("#run0/graph/0/node-1-edge%2Fforward");
  render(<Details />, place);
  expect(texts()).toEqual([]);
});
