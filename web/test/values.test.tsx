// @vitest-environment jsdom
// The values behind an error: which comparison is shown, what is drawn, and what is not a number.

import { render } from "preact";
import { beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { Numerics, RowValues, ValueDoc } from "../src/document";
import { fixture } from "./fixture";

beforeAll(() => {
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => undefined }));
});

let place: HTMLElement;

beforeEach(() => {
  document.body.textContent = "";
  place = document.body.appendChild(document.createElement("div"));
});

function value(rms: (number | string | null)[], range: ValueDoc["range"] = null): ValueDoc {
  const worst = rms.findIndex((one) => one !== 0);
  const column = (name: string, kind: "int" | "share") => ({
    name,
    title: name,
    kind,
    unit: null,
    priority: 0,
  });
  return {
    sections: [
      {
        name: "channels",
        facts: false,
        table: {
          title: "Error by channel",
          columns: [column("channel", "int"), column("share", "share")],
          values: { channel: [worst], share: [1] },
          notes: [],
        },
      },
    ],
    histogram: { low: 0, high: 4, reference: [1, 0, 2, 1], device: [0, 1, 2, 1], clippedShare: 0.25 },
    channels: { axis: 1, count: rms.length, perEntry: 1, rms },
    range,
  };
}

async function shown(values: RowValues[], row = 0): Promise<HTMLElement> {
  const { Values } = await import("../src/parts/values");
  const numerics: Numerics = {
    ...fixture({ blocks: 1, events: 5, samples: 1 }).runs[0]!.numerics!,
    values,
  };
  render(<Values numerics={numerics} row={row} />, place);
  return place;
}

test("a wrong row shows its own error, another the one to the reference", async () => {
  const both = { row: 0, local: value([0, 1]), total: value([0, 2]) };
  const against = async (shownFirst: "local" | "total") =>
    (await shown([{ ...both, shown: shownFirst }]))
      .querySelector("[data-testid=values]")!
      .getAttribute("data-against");
  expect(await against("local")).toBe("local");
  expect(await against("total")).toBe("total");
});

test("without another reference there is nothing to choose", async () => {
  const page = await shown([{ row: 0, shown: "local", local: value([0, 1]), total: null }]);
  expect(page.querySelector("[data-testid=values-against]")).toBeNull();
  expect(page.textContent).toContain("which has the same values as the reference");
});

test("channels that are not a number are drawn in full, those without error not at all", async () => {
  const page = await shown([
    { row: 0, shown: "local", local: value([0, null, 0, 2, "Infinity"]), total: null },
  ]);
  const bars = [...page.querySelectorAll("[data-testid=values-channels] rect")];
  expect(bars.map((one) => [one.getAttribute("class"), one.getAttribute("height")])).toEqual([
    ["values-worst", "120"],
    ["values-device", "120"],
    ["values-worst", "120"],
  ]);
});

test("the ends of the quantized range are drawn where they are inside", async () => {
  const page = await shown([{ row: 0, shown: "local", local: value([0, 1], [1, 9]), total: null }]);
  const lines = [...page.querySelectorAll("line.values-range")];
  expect(lines.map((one) => one.getAttribute("x1"))).toEqual(["100"]);
  expect(page.textContent).toContain("25.0% of the elements are outside");
});

test("a row without values says how to see them", async () => {
  const page = await shown([{ row: 1, shown: "local", local: value([0, 1]), total: null }]);
  expect(page.querySelector("[data-testid=no-values]")!.textContent).toContain("etscope numerics --values");
  render(null, place);
  expect((await shown([])).textContent).toBe("");
});
