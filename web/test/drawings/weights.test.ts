import { describe, expect, it } from "vitest";

import { drawnBoxes, nodesOfParts, partsWithin, weightTree } from "../../src/drawings/weights/tree";
import { contentOf } from "../../src/drawings/weights/Treemap";
import { makeWeights, table } from "../fixture_parts";

const TABLE = makeWeights();
const SIZES = TABLE.values["size"] as number[];
const NODES = weightTree(TABLE);
const at = (path: string): number => NODES.findIndex((node) => node.path === path);

describe("the tree of a file's parts", () => {
  it("has each part once, and adds up at each node", () => {
    expect(NODES[0]!.total).toBe(5000);
    expect([...nodesOfParts(NODES).keys()].sort((a, b) => a - b)).toEqual(SIZES.map((_, row) => row));
    NODES.forEach((node, index) => {
      const bytes = partsWithin(NODES, index).reduce((sum, part) => sum + SIZES[part]!, 0);
      expect(node.total).toBe(bytes);
    });
  });

  it("joins modules that hold one module and nothing else", () => {
    expect(at("blocks")).toBe(-1);
    expect(NODES[at("blocks.layer")]).toMatchObject({ name: "blocks.layer", parent: 0, total: 2304 });
    expect(NODES[at("blocks.layer.0.linear")]!.name).toBe("0.linear");
  });

  it("tells what is not known, and what is not weights, from modules", () => {
    expect(NODES[at("(module not known)")]!.total).toBe(256);
    expect(NODES[at("(delegates' data)")]!.total).toBe(500);
    expect(NODES[0]!.parts).toEqual([6]);
  });
});

describe("the tree of several files", () => {
  const files = table("Parts of the files", [
    ["kind", "text", null, ["tables", "weights", "weights", "weights", "tables"]],
    ["file", "path", null, ["a.pte", "a.pte", "a.ptd", "a.ptd", "a.ptd"]],
    ["module", "path", null, [null, "head.fc", "head.fc", "(root)", null]],
    ["name", "text", null, [null, "head.fc.bias", "head.fc.weight", "scale", null]],
    ["content", "text", null, [null, "float32[8]", "float32[8, 8]", "float32[]", null]],
    ["size", "bytes", null, [100, 32, 256, 4, 60]],
  ]);
  const nodes = weightTree(files);
  const node = (path: string) => nodes.find((one) => one.path === path);

  it("has the parts of a .ptd in a node of their own", () => {
    expect(nodes[0]).toMatchObject({ name: "the files", total: 452 });
    expect(node("a.ptd")).toMatchObject({ parent: 0, total: 320, parts: [3] });
    expect(node("a.ptd/head.fc")).toMatchObject({ name: "head.fc", total: 256 });
    expect(node("a.ptd/(tables)")).toMatchObject({ total: 60 });
    expect(node("head.fc")).toMatchObject({ total: 32 });
  });

  it("names its weights", () => {
    const texts = [0, 1, 2, 3].map((part) => contentOf(files, { parts: [part] }));
    expect(texts).toEqual(["tables", "bias: float32[8]", "weight: float32[8, 8]", "scale: float32[]"]);
  });
});

describe("the boxes of a treemap", () => {
  it("are as large as their bytes, and are all of what is zoomed into", () => {
    for (const focus of [0, at("blocks.layer"), at("blocks.layer.1.linear")]) {
      const { leaves } = drawnBoxes(NODES, SIZES, focus, 500, 300);
      const whole = NODES[focus]!.total;
      expect(leaves.reduce((sum, leaf) => sum + leaf.bytes, 0)).toBe(whole);
      for (const { x0, x1, y0, y1, bytes } of leaves) {
        expect((x1 - x0) * (y1 - y0)).toBeCloseTo((bytes / whole) * 500 * 300, 6);
      }
      expect(leaves.flatMap(({ parts }) => parts).sort((a, b) => a - b)).toEqual(partsWithin(NODES, focus));
    }
  });

  it("draws what is too small to be seen together", () => {
    const many = table("Parts of the file", [
      ["kind", "text", null, ["weights", ...Array.from({ length: 1000 }, () => "weights")]],
      ["module", "path", null, ["large", ...Array.from({ length: 1000 }, (_, n) => (n < 500 ? "small" : `few.${n}`))]],
      ["size", "bytes", null, [1_000_000, ...Array.from({ length: 1000 }, () => 4)]],
    ]);
    const nodes = weightTree(many);
    const { leaves } = drawnBoxes(nodes, many.values["size"] as number[], 0, 600, 300);
    expect(leaves.map(({ parts }) => parts.length).sort((a, b) => a - b)).toEqual([1, 500, 500]);
    expect(leaves.reduce((sum, leaf) => sum + leaf.bytes, 0)).toBe(1_004_000);
  });
});
