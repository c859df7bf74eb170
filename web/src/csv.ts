// Tables as CSV (RFC 4180): names with units in the head ("avg_ms"), full precision, no value is an
// empty field, lists are JSON text.

import type { Cell, Column, TableDoc } from "./document";

/** `rows` of `table`, with the named columns or all. */
export function toCsv(table: TableDoc, rows: readonly number[], names?: readonly string[]): string {
  const columns = names ? table.columns.filter((column) => names.includes(column.name)) : table.columns;
  const lines = [columns.map((column) => field(keyOf(column)))];
  for (const row of rows) {
    lines.push(columns.map((column) => field(table.values[column.name]![row] ?? null)));
  }
  return lines.map((line) => line.join(",") + "\r\n").join("");
}

/** The column's name with its unit, for files that have no other place for it. */
export function keyOf(column: Column): string {
  const unit = (column.unit ?? "").replace(/\W+/g, "_").replace(/^_+|_+$/g, "");
  return unit && !column.name.endsWith(`_${unit}`) ? `${column.name}_${unit}` : column.name;
}

function field(value: Cell): string {
  if (value === null) return "";
  if (typeof value === "boolean" || typeof value === "number") return String(value);
  return quoted(inert(Array.isArray(value) ? JSON.stringify(value) : value));
}

/** A spreadsheet runs text that begins like a formula: a quote before it makes it text. */
const inert = (text: string): string =>
  /^[=+\-@\t\r]/.test(text) && !/^-?Infinity$/.test(text) ? `'${text}` : text;

const quoted = (text: string): string => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Offer `text` to the reader as a file. */
export function download(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
