import { expect, it } from "vitest";
import { glossary, meaningOf, termsIn } from "../src/words";

it("finds each term of a note once", () => {
  const parts = termsIn("SQNR of the delegate calls; SQNR is by design");
  expect(parts.map(({ term }) => term)).toEqual(["sqnr", undefined, "delegate-call", undefined, "by-design"]);
  expect(parts.map(({ text }) => text).join("")).toBe("SQNR of the delegate calls; SQNR is by design");
  expect(termsIn("nothing here")).toEqual([{ text: "nothing here" }]);
});

it("gives columns the words of the glossary", () => {
  expect(meaningOf("local")).toMatch(/^An operator's own error/);
  expect(glossary("leaf")).toMatch(/glossary\/#leaf$/);
});
