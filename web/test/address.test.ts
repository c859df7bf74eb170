// The address holds what is shown and every control: what it says is what is shown again.

import { beforeEach, expect, test } from "vitest";
import { fixture } from "./fixture";
import { textOfOpen, openOfText } from "../src/drawings/graph/folding";
import { control, controlOfEach, doc, goTo, hash, indexControl, switchControl } from "../src/store";

const colour = control("graph.colour", "none", ["none", "avg", "backend"]);
const split = switchControl("graph.split", false);
const value = indexControl("memory.value");
const sort = controlOfEach("sort");

beforeEach(() => {
  doc.value = fixture({ blocks: 1, events: 5, samples: 2 });
  goTo("#run0/summary/0");
});

test("controls that were set are in the address, and come back from it", () => {
  colour.value = "avg";
  split.value = true;
  value.value = 7;
  sort("rows").value = "-avg,event";
  const kept = hash.value;

  goTo("#run0/graph/0");
  expect([colour.value, split.value, value.value, sort("rows").value]).toEqual(["none", false, null, ""]);
  goTo(kept);
  expect([colour.value, split.value, value.value, sort("rows").value]).toEqual([
    "avg",
    true,
    7,
    "-avg,event",
  ]);
  expect(hash.value).toBe(kept);
});

test("a control that is as at first takes no room in the address", () => {
  colour.value = "avg";
  colour.value = "none";
  expect(hash.value).toBe("#run0/summary/0");
});

test("any text survives, beside a selection", () => {
  goTo("#run0/graph/0/node-2-edge%2Fforward");
  const filter = control("events.filter", "");
  filter.value = "a&b=c?d#e/f %2F 100% ü";
  const kept = hash.value;

  goTo("#run0/events/0");
  goTo(kept);

  expect(filter.value).toBe("a&b=c?d#e/f %2F 100% ü");
  expect(hash.value).toBe(kept);
  expect(kept).toContain("/node-2-edge%2Fforward?");
});

test("what is no choice of a control is not taken", () => {
  goTo("#run0/graph/0?graph.colour=nonsense&graph.split=7&memory.value=-1");
  expect([colour.value, split.value, value.value]).toEqual(["none", false, null]);
});

test("open boxes as text", () => {
  const model = { shape: { nodeCount: 10, groupCount: 8 } } as Parameters<typeof textOfOpen>[0];
  const open = new Set([17, 10, 11, 12, 15]);

  expect(textOfOpen(model, open)).toBe("10.8:0-2,5,7");
  expect(openOfText(model, "10.8:0-2,5,7")).toEqual(open);
  expect(openOfText(model, textOfOpen(model, new Set()))).toEqual(new Set());
  // Of another graph, or of none; and no more boxes than there are.
  expect(openOfText(model, "11.8:0-2")).toBeNull();
  expect(openOfText(model, "")).toBeNull();
  expect(openOfText(model, "10.8:6-99999999")).toEqual(new Set([16, 17]));
});
