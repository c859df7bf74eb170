// What etscope prints as JSON ("etscope.table/1"), as times and findings of lines.

export interface Table {
  title: string;
  columns: { name: string; unit: string | null }[];
  rows: Record<string, unknown>[];
  findings?: Finding[];
}

export interface Finding {
  kind: string;
  severity: "problem" | "cost" | "fact";
  sentence: string;
  explanation: { evidence: string[]; sites: Site[]; remedies: Remedy[] };
}

interface Site {
  name: string;
  time: number | null;
  line: string | null;
}

export interface Remedy {
  text: string;
  paste: string;
}

export interface LineTime {
  line: number;
  method: string;
  time: number;
  unit: string;
  share: number;
  events: number;
  flops: number | null;
  bytes: number | null;
}

export interface Edit {
  line: number;
  old: string;
  new: string;
}

export interface Place {
  file: string;
  line: number;
}

/** Reads a table. Throws an Error that names what is wrong. */
export function parseTable(text: string): Table {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error(`etscope did not print JSON, but: ${text.slice(0, 200)}`);
  }
  const table = found as Table & { schema?: string };
  if (table?.schema !== "etscope.table/1" || !Array.isArray(table.rows)) {
    throw new Error(`this extension reads etscope.table/1, not ${String(table?.schema)}: update the older of the two`);
  }
  return table;
}

/** Splits "/a/model.py:12". */
export function placeOf(source: unknown): Place | undefined {
  const found = typeof source === "string" ? /^(.+):(\d+)$/.exec(source) : null;
  return found ? { file: found[1]!, line: Number(found[2]) } : undefined;
}

/** The times of the lines of each file, of `etscope inspect --by source`. */
export function lineTimes(table: Table): Map<string, LineTime[]> {
  const unit = table.columns.find((column) => column.name === "avg")?.unit ?? "";
  const found = new Map<string, LineTime[]>();
  for (const row of table.rows) {
    const place = placeOf(row.source);
    if (place === undefined || typeof row.avg !== "number") continue;
    const lines = found.get(place.file) ?? [];
    found.set(place.file, lines);
    lines.push({
      line: place.line,
      method: String(row.method),
      time: row.avg,
      unit,
      share: number(row.share) ?? 0,
      events: number(row.events) ?? 0,
      flops: number(row.flops),
      bytes: number(row.bytes),
    });
  }
  return found;
}

function number(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

/** The lines of a file that a finding names, the longest first. Sites have a file's short name only: a line counts if
 * times of this file have it, so that a file of the same name elsewhere has none. */
export function linesOf(finding: Finding, file: string, times: LineTime[]): number[] {
  const known = new Set(times.map((one) => one.line));
  const lines = finding.explanation.sites.flatMap((site) => {
    const place = placeOf(site.line);
    return place !== undefined && isTail(place.file, file) && known.has(place.line) ? [place.line] : [];
  });
  return [...new Set(lines)];
}

function isTail(short: string, file: string): boolean {
  return file === short || file.endsWith(`/${short}`) || file.endsWith(`\\${short}`);
}

/** The edits of a remedy for one file: "# model.py:12", "- old", "+ new". */
export function editsOf(remedy: Remedy, file: string): Edit[] {
  const edits: Edit[] = [];
  let place: Place | undefined;
  let old: string | undefined;
  for (const text of remedy.paste.split("\n")) {
    if (text.startsWith("# ")) [place, old] = [placeOf(text.slice(2)), undefined];
    else if (text.startsWith("- ")) old = text.slice(2);
    else if (text.startsWith("+ ") && place !== undefined && old !== undefined && isTail(place.file, file)) {
      edits.push({ line: place.line, old, new: text.slice(2) });
      old = undefined;
    }
  }
  return edits;
}

/** The line, from 1, that an edit changes in a text: the one that it names, or the only one with its
 * old text; undefined if the text has changed. */
export function lineOfEdit(edit: Edit, lines: string[]): number | undefined {
  const has = (line: number) => lines[line - 1]?.trim() === edit.old.trim();
  if (has(edit.line)) return edit.line;
  const found = lines.flatMap((_, index) => (has(index + 1) ? [index + 1] : []));
  return found.length === 1 ? found[0] : undefined;
}

/** A time and its share, as a decoration shows them. */
export function shown(time: number, unit: string, share: number): string {
  return `${Number(time.toPrecision(3))} ${unit} · ${(100 * share).toFixed(1)}%`;
}
