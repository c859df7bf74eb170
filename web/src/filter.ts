// The filter box's language: what is typed becomes a test of a table's rows.
//
// It is the command line's selector language (`op:conv* and not module:head`) with what a search box
// needs besides: words are looked for anywhere in a row, and numbers are compared (`avg>0.1`).

import type { Cell, Column, TableDoc } from "./document";
import { asNumber, convertedTime, plainText } from "./format";

export type RowTest = (row: number) => boolean;

export class FilterError extends Error {}

/** What `parseFilter` understands, for the help next to the box. */
export const FILTER_HELP: readonly (readonly [string, string])[] = [
  ["conv relu", "rows with both words in any column"],
  ['"batch norm"', "the words as they stand"],
  ["op:conv*", "a key and a pattern: * any text, ? one character"],
  ["module:blocks.0", "a module and all below it"],
  ["delegate:*", "all that is delegated"],
  ["handle:3-7", "debug handles 3 to 7; id: the same of instructions"],
  ["shape:1x64x*  dtype:int8", "sizes or type of an input or output"],
  ["backend:xnn", "any column's name and a part of its text"],
  ["avg>0.1", "compare a number: > >= < <= = !="],
  ["share>5%  avg>20us  read>1MiB", "numbers with a unit"],
  ["not op:add  -op:add", "rows that do not match"],
  ["conv or (linear and avg>1)", "and binds tighter than or"],
];

// The selector language's keys: the columns each is held against (the first that are there).
const KEYS: Record<string, readonly string[]> = {
  name: ["event", "event_name"],
  op: ["op_types", "operator", "op"],
  module: ["module", "module_hierarchy"],
  type: ["module_type"],
  file: ["sources", "source", "stack_traces"],
  delegate: ["backend", "delegate_backend_name"],
  handle: ["debug_handles"],
  id: ["instruction", "instruction_id"],
  kind: ["kind"],
  shape: ["inputs", "outputs", "tensor"],
  dtype: ["inputs", "outputs", "tensor"],
};

/** Compile `text` for the rows of `table`; null if it is empty. Throws `FilterError`. */
export function parseFilter(text: string, table: TableDoc): RowTest | null {
  const tokens = tokenize(text);
  if (!tokens.length) return null;
  return new Parser(tokens, table).parse();
}

interface Token {
  text: string;
  /** "(" and ")" that are not in quotes. */
  paren: boolean;
  /** Begins with a quote: a word, whatever is in it. */
  quoted: boolean;
}

function tokenize(text: string): Token[] {
  const tokens: Token[] = [];
  const pattern = /\s*(?:([()])|((?:[^\s()"]|"[^"]*"?)+))/gy;
  for (let found = pattern.exec(text); found; found = pattern.exec(text)) {
    const raw = found[1] ?? found[2]!;
    if ((raw.split('"').length - 1) % 2) throw new FilterError("a quote is not closed");
    tokens.push({
      text: raw.replaceAll('"', ""),
      paren: found[1] !== undefined,
      quoted: raw.startsWith('"'),
    });
  }
  return tokens.filter((token) => token.paren || token.text !== "");
}

class Parser {
  private at = 0;

  constructor(
    private readonly tokens: Token[],
    private readonly table: TableDoc,
  ) {}

  parse(): RowTest {
    const test = this.either();
    const left = this.tokens[this.at];
    if (left) throw new FilterError(`"${left.text}" stands where nothing is expected`);
    return test;
  }

  private either(): RowTest {
    let test = this.all();
    while (this.word("or")) {
      const [one, other] = [test, this.all()];
      test = (row) => one(row) || other(row);
    }
    return test;
  }

  private all(): RowTest {
    let test = this.term();
    for (;;) {
      const next = this.tokens[this.at];
      const ends = !next || (next.paren && next.text === ")") || isWord(next, "or");
      if (!this.word("and") && ends) return test;
      const [one, other] = [test, this.term()];
      test = (row) => one(row) && other(row);
    }
  }

  private term(): RowTest {
    const token = this.tokens[this.at];
    if (!token) throw new FilterError("something is missing at the end");
    if (this.word("not")) return not(this.term());
    this.at++;
    if (token.paren) {
      if (token.text === ")") throw new FilterError('")" without "("');
      const test = this.either();
      const close = this.tokens[this.at++];
      if (!close?.paren || close.text !== ")") throw new FilterError('")" is missing');
      return test;
    }
    if (!token.quoted && /^[-!]./.test(token.text) && !/^-[\d.]/.test(token.text)) {
      return not(atom({ ...token, text: token.text.slice(1) }, this.table));
    }
    return atom(token, this.table);
  }

  private word(word: string): boolean {
    const token = this.tokens[this.at];
    if (!token || !isWord(token, word)) return false;
    this.at++;
    return true;
  }
}

const isWord = (token: Token, word: string): boolean =>
  !token.paren && !token.quoted && token.text.toLowerCase() === word;

const not =
  (test: RowTest): RowTest =>
  (row) =>
    !test(row);

function atom(token: Token, table: TableDoc): RowTest {
  if (token.quoted) return anywhere(token.text, table);
  const compared = /^([^<>=!:]+)(>=|<=|!=|<>|==|=|>|<)(.*)$/s.exec(token.text);
  if (compared) return comparison(table, compared[1]!, compared[2]!, compared[3]!);
  const keyed = /^([A-Za-z_][\w ]*):(?!:)(.*)$/s.exec(token.text);
  if (keyed) {
    const columns = columnsOf(table, keyed[1]!);
    // "aten::add" and "Method: x" are words, not keys.
    if (columns) return matching(table, keyed[1]!.toLowerCase(), columns, keyed[2]!);
    if (!keyed[2]) return anywhere(token.text, table);
    throw unknownColumn(keyed[1]!, table);
  }
  return anywhere(token.text, table);
}

/** The columns behind a key of the selector language, or the one column with this name or title. */
function columnsOf(table: TableDoc, key: string): Column[] | null {
  const wanted = key.trim().toLowerCase().replaceAll("_", " ");
  const names = KEYS[wanted];
  if (names) {
    const found = table.columns.filter((column) => names.includes(column.name));
    if (found.length) return found;
  }
  const words = (column: Column): string[] =>
    [column.name, column.title].map((text) => text.toLowerCase().replaceAll("_", " ").replace(/\.$/, ""));
  const exact = table.columns.find((column) => words(column).includes(wanted));
  if (exact) return [exact];
  const begun = table.columns.filter((column) => words(column).some((word) => word.startsWith(wanted)));
  return begun.length === 1 ? begun : null;
}

function unknownColumn(name: string, table: TableDoc): FilterError {
  const names = table.columns.map((column) => column.name).join(", ");
  return new FilterError(`no column "${name}": there are ${names}`);
}

/** A word is looked for in all texts and identifiers, not among measured numbers. */
function anywhere(word: string, table: TableDoc): RowTest {
  const test = textTest(word, false);
  const columns = table.columns
    .filter((column) => holdsText(table, column))
    .map((column) => textsOf(table, column));
  return (row) => columns.some((texts) => test(texts[row] ?? ""));
}

function holdsText(table: TableDoc, column: Column): boolean {
  if (column.kind !== "list") return ["text", "path", "int"].includes(column.kind);
  const some = table.values[column.name]!.find((value) => Array.isArray(value) && value.length > 0);
  return !Array.isArray(some) || typeof some[0] === "string" || column.name === "debug_handles";
}

const lowercased = new WeakMap<TableDoc, Map<string, string[]>>();

/** The cells of a column as lower-case texts, made once. */
function textsOf(table: TableDoc, column: Column): string[] {
  let columns = lowercased.get(table);
  if (!columns) lowercased.set(table, (columns = new Map()));
  let texts = columns.get(column.name);
  if (!texts) columns.set(column.name, (texts = table.values[column.name]!.map(lowered)));
  return texts;
}

function matching(table: TableDoc, key: string, columns: Column[], pattern: string): RowTest {
  if (pattern === "") throw new FilterError(`what should "${key}" be?`);
  const all = columns.map((column) => table.values[column.name]!);
  if (key === "handle" || key === "id") {
    const range = /^(\d+)(?:-(\d+))?$/.exec(pattern);
    if (!range) throw new FilterError(`${key}: is a number or a range such as 3-7`);
    const [low, high] = [Number(range[1]), Number(range[2] ?? range[1])];
    return (row) => all.some((values) => numbersIn(values[row]).some((n) => n >= low && n <= high));
  }
  if (key === "module" && !/[*?]/.test(pattern)) {
    const path = `.${pattern.toLowerCase()}.`;
    return (row) => all.some((values) => `.${lowered(values[row])}.`.includes(path));
  }
  if (key === "shape" || key === "dtype") {
    // As on the command line: the whole shape of one of the tensors, or its whole type.
    const test = textTest(pattern, true, true);
    const part = key === "shape" ? sizesOf : dtypeOf;
    return (row) => all.some((values) => textsOfCell(values[row]).some((text) => test(part(text))));
  }
  // "delegate" is a kind, and so is "delegated".
  const whole = key === "kind" && !/[*?]/.test(pattern);
  const test = whole ? (text: string) => text === pattern.toLowerCase() : textTest(pattern, true);
  if (columns.every((column) => column.kind === "text" || column.kind === "path")) {
    const texts = columns.map((column) => textsOf(table, column));
    return (row) => texts.some((column) => column[row] !== "" && test(column[row]!));
  }
  return (row) =>
    all.some((values) => {
      const value = values[row];
      if (value === null || value === undefined) return false;
      return Array.isArray(value) ? value.some((one) => test(lowered(one))) : test(lowered(value));
    });
}

/** Whether a text holds `pattern`, or is it, if `exact`; a pattern with * or ? is held against all of it, or against the
 * op without its namespace and overload. */
function textTest(pattern: string, globs: boolean, exact = false): (text: string) => boolean {
  const wanted = pattern.toLowerCase();
  if (exact && !/[*?]/.test(wanted)) return (text) => text === wanted;
  if (!globs || !/[*?]/.test(wanted)) return (text) => text.includes(wanted);
  const source = wanted
    .replace(/[.+^${}()|[\]\\]/g, "\\$&")
    .replaceAll("*", "[^]*")
    .replaceAll("?", "[^]");
  const whole = new RegExp(`^${source}$`, "u");
  return (text) => {
    if (text === "") return false;
    if (whole.test(text)) return true;
    const bare = /^(?:\w+(?:::|\.))?(\w+?)(?:\.\w+)?$/.exec(text);
    return bare !== null && whole.test(bare[1]!);
  };
}

/** "1x64" of "float32[1, 64]"; "scalar" of one without sizes. A bound ("<=") is not part of it. */
const sizesOf = (text: string): string =>
  /\[[<=?]*(.*)\]$/.exec(text)?.[1]!.replaceAll(", ", "x") || "scalar";

const dtypeOf = (text: string): string => text.split("[", 1)[0]!;

const textsOfCell = (value: Cell | undefined): string[] =>
  Array.isArray(value) ? value.map(lowered) : value === null || value === undefined ? [] : [lowered(value)];

const lowered = (value: Cell | undefined): string =>
  typeof value === "string" ? value.toLowerCase() : plainText(value).toLowerCase();

function numbersIn(value: Cell | undefined): number[] {
  if (Array.isArray(value)) return value.map(Number).filter((number) => !Number.isNaN(number));
  return typeof value === "number" ? [value] : [];
}

const BYTES: Record<string, number> = {
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
};

function comparison(table: TableDoc, name: string, sign: string, text: string): RowTest {
  const column = columnsOf(table, name)?.[0];
  if (!column) throw unknownColumn(name, table);
  const values = table.values[column.name]!;
  const numeric = !["text", "path", "list", "bool"].includes(column.kind);
  if (!numeric) {
    if (sign !== "=" && sign !== "==" && sign !== "!=" && sign !== "<>") {
      throw new FilterError(`${column.name} holds text: it cannot be compared with ${sign}`);
    }
    const wanted = text.toLowerCase();
    const equal: RowTest = (row) => {
      const value = values[row];
      return Array.isArray(value) ? value.some((one) => lowered(one) === wanted) : lowered(value) === wanted;
    };
    return sign.includes("!") || sign === "<>" ? not(equal) : equal;
  }
  const wanted = quantity(text, column);
  const compare = COMPARE[sign]!;
  return (row) => {
    const number = asNumber(values[row]);
    return number !== null && compare(number, wanted);
  };
}

const COMPARE: Record<string, (a: number, b: number) => boolean> = {
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  "=": (a, b) => a === b,
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "<>": (a, b) => a !== b,
};

function quantity(text: string, column: Column): number {
  const found = /^(-?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?|-?inf(?:inity)?)\s*([a-zµ%]*)$/i.exec(
    text.trim(),
  );
  if (!found) throw new FilterError(`"${text}" is not a number to compare ${column.name} with`);
  const number = /inf/i.test(found[1]!)
    ? found[1]!.startsWith("-")
      ? -Infinity
      : Infinity
    : Number(found[1]!.replaceAll(",", ""));
  const unit = found[2]!.toLowerCase();
  if (unit === "") return number;
  if (unit === "%" && column.kind === "share") return number / 100;
  if (column.kind === "bytes" && BYTES[unit]) return number * BYTES[unit];
  if (column.kind === "duration" && column.unit !== null) {
    const converted = convertedTime(number, unit === "µs" ? "us" : unit, column.unit);
    if (converted !== null) return converted;
  }
  throw new FilterError(`${column.name} is not in ${found[2]}${column.unit ? ` but in ${column.unit}` : ""}`);
}

/** Rows of a table with levels: those below another that match, with that one; all below it, if only it
 * matches itself. */
export function filterRows(table: TableDoc, rows: readonly number[], test: RowTest | null): number[] {
  if (test === null) return [...rows];
  const depth = table.depth;
  if (!depth) return rows.filter(test);
  const kept: number[] = [];
  for (let at = 0; at < rows.length; ) {
    let end = at + 1;
    while (end < rows.length && depth[rows[end]!]! > depth[rows[at]!]!) end++;
    const group = rows.slice(at, end);
    const below = group.slice(1).filter(test);
    if (below.length) kept.push(group[0]!, ...below);
    else if (test(group[0]!)) kept.push(...group);
    at = end;
  }
  return kept;
}
