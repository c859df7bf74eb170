import { describe, expect, it } from "vitest";

import { drawnBoxes, nodesOfParts, partsWithin, weightTree } from "../../src/drawings/weights/tree";
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
