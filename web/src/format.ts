// Numbers as people read them: the same rules, and the same texts, as `etscope.units` in Python.
// No value (null or NaN) is the empty text.

import type { Cell, Column } from "./document";

type Value = number | null | undefined;

// unit -> [decimals that are always shown, decimals that reach the clock's nanosecond]
const DURATION_DECIMALS: Record<string, [number, number]> = {
  ns: [0, 0],
  us: [1, 3],
  ms: [3, 6],
  s: [3, 9],
  cycles: [0, 0],
};
const FIGURES = 5; // of the largest value of a column
// Outside of these magnitudes a float is written with an exponent.
const PLAIN_LOW = 1e-4;
const PLAIN_HIGH = 1e7;

/** A time in the given `unit`, which the text does not repeat: 1234.5678 ms is "1,234.568". */
export function formatDuration(value: Value, unit: string): string {
  return fixed(value, durationDecimals([value], unit));
}

/** Times of one `unit` with equal decimals: those that fit the largest. */
export function formatDurations(values: readonly Value[], unit: string): string[] {
  const decimals = durationDecimals(values, unit);
  return values.map((value) => fixed(value, decimals));
}

/** How many decimals the largest of `values` deserves; they reach to the nanosecond at most. */
export function durationDecimals(values: readonly Value[], unit: string): number {
  const [least, most] = DURATION_DECIMALS[unit] ?? [0, 9];
  return Math.min(Math.max(decimalsFor(values), least), most);
}

export function formatFloat(value: Value): string {
  return floatFormat([value])(value);
}

export function formatFloats(values: readonly Value[]): string[] {
  return values.map(floatFormat(values));
}

/** How numbers without a unit are written: equal decimals, or five figures each if some are tiny or
 * huge. */
export function floatFormat(values: readonly Value[]): (value: Value) => string {
  let smallest = Infinity;
  let largest = 0;
  let whole = true;
  for (const value of values) {
    if (!isFinite(value) || value === 0) continue;
    const size = Math.abs(value);
    if (size < smallest) smallest = size;
    if (size > largest) largest = size;
    whole &&= Number.isInteger(value);
  }
  if (smallest < PLAIN_LOW || largest >= PLAIN_HIGH) return figures;
  const decimals = whole ? 0 : Math.min(Math.max(decimalsFor([largest]), 2), 6);
  return (value) => fixed(value, decimals);
}

const POWERS: Record<string, number> = { ns: -9, us: -6, ms: -3, s: 0 };

/** A time in another unit; null if one of them is not of time (cycles). */
export function convertedTime(value: number, from: string, to: string): number | null {
  if (from === to) return value;
  const [one, other] = [POWERS[from], POWERS[to]];
  if (one === undefined || other === undefined) return null;
  const power = one - other;
  return power < 0 ? value / 10 ** -power : value * 10 ** power; // exact powers of ten alone
}

/** A fraction as percent: 0.1234 is "12.3%". */
export function formatShare(value: Value): string {
  const text = fixed(isNumber(value) ? 100 * value : null, 1);
  return text && text + "%";
}

/** A number of things with thousands separators; a mean of counts keeps two decimals. */
export function formatCount(value: Value): string {
  return fixed(value, isFinite(value) && !Number.isInteger(value) ? 2 : 0);
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Bytes in binary units with three figures: 1536 is "1.50 KiB". */
export function formatBytes(value: Value): string {
  if (!isFinite(value)) return fixed(value, 0);
  let size = value;
  let at = 0;
  // 1023.7 would be written as "1024 KiB": it belongs to the next unit.
  while (Math.abs(size) >= 1023.5 && at < BYTE_UNITS.length - 1) {
    size /= 1024;
    at++;
  }
  const decimals = at === 0 ? 0 : Math.abs(size) < 9.995 ? 2 : Math.abs(size) < 99.95 ? 1 : 0;
  return `${rounded(size, decimals)} ${BYTE_UNITS[at]}`;
}

/** A text that says how large a number is and in what unit: "1.25 ms", "12.3%", "4.00 KiB". */
export function formatWithUnit(value: Cell, column: Pick<Column, "kind" | "unit">): string {
  const text = cellFormat(column, [value])(value);
  return column.unit && text && isNumber(asNumber(value)) && column.kind !== "bytes"
    ? `${text} ${column.unit}`
    : text;
}

/** How the cells of a column are written, given all of its values. */
export function cellFormat(
  column: Pick<Column, "kind" | "unit">,
  values: readonly Cell[],
  decimals?: number,
): (value: Cell) => string {
  const numbers = numberFormat(column, values, decimals);
  return (value) => {
    const number = numbers === null ? null : asNumber(value);
    return number === null || numbers === null ? plainText(value) : numbers(number);
  };
}

function numberFormat(
  column: Pick<Column, "kind" | "unit">,
  values: readonly Cell[],
  decimals?: number,
): ((value: number) => string) | null {
  switch (column.kind) {
    case "duration": {
      const unit = column.unit ?? "ns";
      const places = decimals ?? durationDecimals(values.map(asNumber), unit);
      return (value) => fixed(value, places);
    }
    case "float":
      return floatFormat(values.map(asNumber));
    case "share":
      return formatShare;
    case "bytes":
      return formatBytes;
    case "count":
      return formatCount;
    default:
      return null;
  }
}

/** A cell as a number: infinities are texts in the document. */
export function asNumber(value: Cell | undefined): number | null {
  if (typeof value === "number") return value;
  if (value === "Infinity") return Infinity;
  if (value === "-Infinity") return -Infinity;
  return null;
}

/** Any cell as text, as Python's tables for people write it. */
export function plainText(value: Cell | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(plainText).join(", ");
  return visible(String(value));
}

// Everything that Python's `str.isprintable` refuses: control and format characters, lone surrogates,
// private use, unassigned, and separators but the plain space.
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** `text` with an escape in the place of everything that cannot be seen, or turns the line around. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (char) => {
    const code = char.codePointAt(0)!;
    if (code === 9) return "\\t";
    if (code === 10) return "\\n";
    if (code === 13) return "\\r";
    const hex = code.toString(16);
    if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
  });
}

function decimalsFor(values: readonly Value[]): number {
  let largest = 0;
  for (const value of values) {
    if (isFinite(value)) largest = Math.max(largest, Math.abs(value));
  }
  return largest === 0 ? 0 : FIGURES - 1 - Math.floor(Math.log10(largest));
}

/** `value` with thousands separators and so many decimals. */
export function fixed(value: Value, decimals: number): string {
  if (value === 0) return "0";
  if (!isNumber(value)) return "";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const text = rounded(value, decimals);
  // What is not zero must not read as zero.
  if (/^-?[0.]*$/.test(text)) {
    const smallest = (10 ** -decimals).toFixed(decimals);
    return value > 0 ? `<${smallest}` : `>-${smallest}`;
  }
  const [whole, fraction] = text.split(".");
  const grouped = whole!.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

/** As Python's `f"{value:.{decimals}f}"`: ties go to the even digit, and no number is too large. */
function rounded(value: number, decimals: number): string {
  if (Math.abs(value) >= 1e21) {
    const zeros = decimals > 0 ? "." + "0".repeat(decimals) : "";
    return BigInt(value).toString() + zeros;
  }
  const places = Math.max(0, decimals);
  const text = value.toFixed(places);
  // `toFixed` takes ties away from zero. A tie is exact in binary, so twice of it scaled is whole; its
  // digits end with this 5.
  if (!Number.isInteger(value * 10 ** places * 2)) return text;
  const exact = value.toFixed(Math.min(100, places + 40));
  const rest = exact.indexOf(".") + 1 + places;
  if (!/^50*$/.test(exact.slice(rest))) return text;
  const down = exact.slice(0, places === 0 ? rest - 1 : rest);
  return Number(down.at(-1)) % 2 === 0 ? down : text;
}

function figures(value: Value): string {
  if (!isNumber(value)) return "";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size < PLAIN_LOW || size >= PLAIN_HIGH) return exponent(value, 3);
  // Python's "g": an exponent if the number has more whole digits than figures.
  const power = Number(value.toExponential(FIGURES - 1).split("e")[1]);
  if (power >= FIGURES) return trimmed(exponent(value, FIGURES - 1));
  return trimmed(value.toFixed(FIGURES - 1 - power));
}

function exponent(value: number, decimals: number): string {
  const [mantissa, power] = value.toExponential(decimals).split("e");
  const sign = power!.startsWith("-") ? "-" : "+";
  return `${mantissa}e${sign}${power!.slice(1).padStart(2, "0")}`;
}

/** Without the zeros that end a fraction. */
const trimmed = (text: string): string => text.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");

const isNumber = (value: Value): value is number =>
  value !== null && value !== undefined && !Number.isNaN(value);

const isFinite = (value: Value): value is number => isNumber(value) && Number.isFinite(value);
