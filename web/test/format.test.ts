// The cases of tests/unit/test_units.py: a number reads the same in the terminal and on the page.

import { describe, expect, it, test } from "vitest";
import {
  cellFormat,
  formatBytes,
  formatCount,
  formatDuration,
  formatDurations,
  formatFloat,
  formatFloats,
  formatShare,
  visible,
} from "../src/format";

test.each([
  [1234.5678, "ms", "1,234.568"],
  [12.3456789, "ms", "12.346"],
  [0.0123, "ms", "0.012300"],
  [15, "us", "15.000"],
  [123456.7, "us", "123,456.7"],
  [1234, "ns", "1,234"],
  [2 ** 62, "cycles", "4,611,686,018,427,387,904"],
  [0, "ms", "0"],
  [-0.0, "ms", "0"],
  [null, "ms", ""],
  [NaN, "ms", ""],
  [Infinity, "ms", "inf"],
])("duration %d %s", (value, unit, text) => {
  expect(formatDuration(value, unit)).toBe(text);
});

test("durations of a column have equal decimals", () => {
  expect(formatDurations([12.3456, 0.001, null, 1e-9, -1e-9], "ms")).toEqual([
    "12.346",
    "0.001",
    "",
    "<0.001",
    ">-0.001",
  ]);
});

test("floats", () => {
  expect(formatFloats([1.0, 2.0, null])).toEqual(["1", "2", ""]);
  expect(formatFloats([1.5, 22222.0])).toEqual(["1.50", "22,222.00"]);
  expect(formatFloats([1e-9, 3.0, 0.0, NaN])).toEqual(["1.000e-09", "3", "0", ""]);
  expect(formatFloat(12.3456789)).toBe("12.346");
  expect(formatFloat(-Infinity)).toBe("-inf");
  expect(formatFloats([1e-9, 123456, 12340000, 0.00012345678])).toEqual([
    "1.000e-09",
    "1.2346e+05",
    "1.234e+07",
    "0.00012346",
  ]);
});

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1.00 KiB"],
  [1536, "1.50 KiB"],
  [10 * 1024, "10.0 KiB"],
  [1023.6 * 1024, "1.00 MiB"],
  [435 * 2 ** 20, "435 MiB"],
  [7 * 2 ** 40, "7.00 TiB"],
  [-2048, "-2.00 KiB"],
  [null, ""],
])("bytes %d", (size, text) => {
  expect(formatBytes(size)).toBe(text);
});

test("counts and shares", () => {
  expect([1234567, 3.0, 1.5, null].map(formatCount)).toEqual(["1,234,567", "3", "1.50", ""]);
  expect([1.0, 0.1234, 0.00001, 0.0, null].map(formatShare)).toEqual(["100.0%", "12.3%", "<0.1%", "0%", ""]);
});

describe("rounding", () => {
  it("takes ties to the even digit, as Python does", () => {
    // f"{2.5:.0f}", f"{3.5:.0f}", f"{0.125:.2f}", f"{-2.5:.0f}"
    expect(formatDurations([2.5, 3.5, -2.5], "ns")).toEqual(["2", "4", "-2"]);
    expect(formatCount(0.125)).toBe("0.12");
    expect(formatCount(2.675)).toBe("2.67"); // no tie: 2.67499999…
  });
  it("never shows what is not zero as zero", () => {
    for (const unit of ["ns", "us", "ms", "s", "cycles"]) {
      for (let power = -300; power < 300; power += 7) {
        expect(formatDuration(1.7 * 10 ** power, unit)).not.toMatch(/^[0.]*$/);
        expect(formatDuration(-1.7 * 10 ** power, unit)).not.toMatch(/^-?[0.]*$/);
      }
    }
  });
});

test("cells by kind", () => {
  const duration = { kind: "duration", unit: "ms" } as const;
  const format = cellFormat(duration, [12.3456, "Infinity", null, "skipped"]);
  expect([12.3456, "Infinity", null, "skipped"].map(format)).toEqual(["12.346", "inf", "", "skipped"]);
  expect(cellFormat({ kind: "int", unit: null }, [1234])(1234)).toBe("1234");
  expect(cellFormat({ kind: "bool", unit: null }, [true])(true)).toBe("yes");
  expect(cellFormat({ kind: "list", unit: null }, [])(["a", 2])).toBe("a, 2");
});

test("what cannot be seen is written as an escape", () => {
  expect(visible("a\u0000b\u001b[31m\u202ec\u2028\u00ad\ufeff")).toBe(
    "a\\x00b\\x1b[31m\\u202ec\\u2028\\xad\\ufeff",
  );
  expect(visible("a\tb\nc")).toBe("a\\tb\\nc");
  expect(visible("größe 大小 é")).toBe("größe 大小 é");
  expect(visible("\u00a0\u{e0001}\ud800")).toBe("\\xa0\\U000e0001\\ud800");
});
