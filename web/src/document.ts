// What the page shows: the one document that Python writes (`etscope.views.page`) and this front end
// reads. Both sides keep to this file; `tests/unit/views` holds Python's against it.
//
// Rules: columns, not rows; numbers are the Inspector's own, unrounded, in the unit that is named
// beside them (the page only formats); a missing value is null; infinities are the texts "Infinity"
// and "-Infinity", a metric that is not a number is "NaN"; indices are 0-based and point into the array that is named in the comment.

export const SCHEMA = "etscope.report/3";

export interface ReportDocument {
  schema: typeof SCHEMA;
  title: string;
  /** "etscope 0.1.0" */
  generator: string;
  /** One a dump, or one for a record or program without a dump. */
  runs: Run[];
  /** The profiles compared two by two; of many, each with the first. Then the same pairs swapped. */
  comparisons: ComparisonDoc[];
  /** The programs of later runs compared with that of the first run that has one. */
  programs: ProgramComparisonDoc[];
}

/** `etscope diff` of the programs of two runs. */
export interface ProgramComparisonDoc {
  /** Runs: the earlier program's and the later one's. */
  a: number;
  b: number;
  /** Byte by byte; nothing but `summary` is said then. */
  identical: boolean;
  /** Sentences, those first that break an app. */
  summary: string[];
  sections: Section[];
  /** The graphs that both sides have. */
  graphs: GraphPairDoc[];
}

/** Two graphs of one key, node by node: parallel lists, in the order of the later graph. */
export interface GraphPairDoc {
  /** Of the graphs of both runs. */
  key: string;
  title: string;
  /** Index of the node in the graph of each run, null where it is missing. */
  a: (number | null)[];
  b: (number | null)[];
  status: NodeStatus[];
  /** What differs in arguments, results and weights, in sentences. */
  what: string[][];
}

export type NodeStatus = "same" | "changed" | "moved" | "added" | "removed";

/** `etscope diff` of two profiles: the page adds nothing to its verdicts and rows. */
export interface ComparisonDoc {
  /** Run and method of each side: of what stands before and after. */
  a: [number, number];
  b: [number, number];
  /** On the method's time; null if the two cannot be compared. */
  verdict: "regressed" | "improved" | "no difference" | "cannot tell" | null;
  /** What changed, by how much, whether it can be told; or why the two cannot be compared. */
  headline: string[];
  notes: string[];
  /**
   * Operators, the largest change first, delegates' events below their call, "unaccounted" and "total"
   * (set apart).
   * `row_a` and `row_b` are rows of the methods. The changes of what stands at depth 0 add up.
   */
  table: TableDoc | null;
  /**
   * The changes by module (a tree), operator, kind, line and backend; the first column names the
   * group.
   */
  sums: TableDoc[];
}

/** All that is known of one dump (with its record and program), or of a record alone. */
export interface Run {
  /** Unique in the document; part of deep links. */
  id: string;
  name: string;
  /** "ms", "cycles", …: of all durations in this run. */
  unit: string;
  files: FileFact[];
  /** Sentences a reader must know: mismatches, guesses, missing data. */
  notes: string[];
  /** What matters and what to do, ranked: the findings of `etscope explain`, then those of `etscope inspect`. */
  insights: InsightDoc[];
  /** Tables and lists of facts of the Summary tab, in order. */
  summary: Section[];
  methods: Method[];
  graphs: GraphDoc[];
  source: SourceDoc;
  /**
   * null: no logged values, no reference, or no torch; `numericsNote` says which. With numerics it
   * says what they leave out.
   */
  numerics: Numerics | null;
  numericsNote: string | null;
  memory: Memory[];
  /**
   * The parts of the program's file, of which `size` adds up to its bytes: kind, module, dtype, content,
   * offset, size, as `etscope info --size` has them; with .ptd files, `file` and their parts, too. null without a
   * program.
   */
  weights: TableDoc | null;
  timeline: Timeline | null;
  /** null, or absent, of what is no language model. */
  generation?: GenerationDoc | null;
  /** null, or absent, where the work of what ran is not known. */
  roofline?: RooflineDoc | null;
}

/** Operators by arithmetic intensity and achieved GFLOP/s, as `etscope inspect --roofline` has them. */
export interface RooflineDoc {
  /** Names that `RooflinePoints.place` and `bound` are indices of. */
  places: string[];
  bounds: string[];
  /** Parallel to `Run.methods`; null where the work is not known. */
  methods: (RooflinePoints | null)[];
  /** null without a calibration of the machine. */
  ceilings: RooflineCeilings | null;
}

/** Parallel columns, an element a point, the longest first; all time of the method is in one of them. */
export interface RooflinePoints {
  /** Of time outside the operators; null for the name of the first row. */
  name: (string | null)[];
  /** Rows of `Method.rows`. */
  rows: number[][];
  place: number[];
  /** Time of a run, and its part of the method's. */
  ns: number[];
  share: number[];
  /** Of a run; null where they are not known. */
  flops: (number | null)[];
  bytes: (number | null)[];
  /** The least time by the ceilings, ns. */
  roof: (number | null)[];
  bound: (number | null)[];
  dtype: (string | null)[];
  /** Level of memory that its working set fits. */
  level: (string | null)[];
  /** Points whose FLOPs are a lower bound. */
  partial: number[];
  /** Why it has no place in the picture. */
  reason: (string | null)[];
  notes: string[];
}

/** [dtype, GFLOP/s] and [level, GB/s]. */
export interface RooflineCeilings {
  compute: [string, number][];
  memory: [string, number][];
  table: TableDoc;
}

/** The calls of a language model. */
export interface GenerationDoc {
  /** What is left out, or joined. */
  note: string | null;
  /** Names that `calls.phase` and `calls.method` are indices of. */
  phases: string[];
  methods: string[];
  /** By phase and method, as `etscope inspect` has it. */
  table: TableDoc;
  /** Facts of the untraced pass: first token, time between tokens. */
  pace: Section | null;
  calls: GenerationCalls;
  /** "op", "module", "source" -> what the time of each call is made of. */
  groups: Record<string, GenerationGroups>;
  untraced: UntracedCalls | null;
}

/** Parallel columns, one element a call of the dump, or a few neighbours: `joined`; times are their mean. */
export interface GenerationCalls {
  /** Of all executions in the dump, as `--calls` counts; of the first. */
  number: number[];
  /** Index of the run in the dump. */
  run: number[];
  generation: number[];
  phase: number[];
  method: number[];
  /** Counts the calls of a phase and method in a generation. */
  step: number[];
  /** Of the first token, -1 where it is not known. */
  position: number[];
  /** Of all that are joined; 0 where it is not known. */
  tokens: number[];
  joined: number[];
  /** Chosen after the call; -1 for none. */
  token: number[];
  /** In the run's unit; of a call on the dump's clock, from the first one. */
  start: number[];
  time: number[];
}

/** times: [names][calls], which add up to the time of each call. */
export interface GenerationGroups {
  names: string[];
  times: number[][];
}

/** The calls of the pass without tracing, as `GenerationCalls`; times by the host's clock. */
export interface UntracedCalls {
  phases: string[];
  methods: string[];
  generation: number[];
  phase: number[];
  method: number[];
  position: number[];
  tokens: number[];
  joined: number[];
  /** From the beginning of the generation; `end` of the last that is joined. */
  start: number[];
  end: number[];
  /** Means: around the runtime's `execute`, and the choice of the next token. */
  execute: number[];
  sampling: number[];
}

/** A sentence with the number at stake, where it is seen, and the next command. */
export interface InsightDoc {
  kind: string;
  severity: "problem" | "cost" | "fact" | "unknown";
  sentence: string;
  method: string | null;
  /** Index into `methods`; null without a profile. */
  methodIndex: number | null;
  quantity: FindingQuantity | null;
  where: FindingPlace | null;
  /** A line for a shell. */
  next: string | null;
  /** null of a plain fact. */
  explanation: ExplanationDoc | null;
}

/** low, high: the 95 % interval of the time at stake, in the unit of the quantity; null of one run. */
export interface ExplanationDoc {
  sureness: "measured" | "likely" | "possible";
  evidence: string[];
  sites: SiteDoc[];
  remedies: RemedyDoc[];
  low: number | null;
  high: number | null;
}

/** Something to do. */
export interface RemedyDoc {
  text: string;
  change: string | null;
  /** A command or lines of code, to paste; "" without. */
  paste: string;
  arguments: Record<string, string | number>;
}

/** An operator that a finding is about, with the time of one run. */
export interface SiteDoc {
  name: string;
  instruction: number | null;
  time: number | null;
  module: string | null;
  line: string | null;
}

/** share: of the method's time, or of all its memory. */
export interface FindingQuantity {
  value: number;
  unit: string;
  share: number | null;
}

/** select: a filter of that tab; by and name: else a row of its groups; instruction: a row. */
export interface FindingPlace {
  view: "events" | "modules" | "timeline" | "generation" | "numerics" | "memory" | "compare";
  select: string | null;
  by: string | null;
  name: string | null;
  instruction: number | null;
}

export interface FileFact {
  role: "dump" | "record" | "program" | "external weights" | "debug buffer";
  name: string;
  bytes: number;
  sha256: string | null;
}

/** A table, as `etscope.table/1` but by columns. */
export interface TableDoc {
  title: string;
  columns: Column[];
  /** By column name; all of the same length. */
  values: Record<string, Cell[]>;
  notes: string[];
  /** Level of each row, when rows hang below others. */
  depth?: number[];
  /** Rows set apart from the one before (totals). */
  breaks?: number[];
}

export type Cell = string | number | boolean | null | (string | number)[];

export type Kind =
  | "text" | "path" | "int" | "count" | "float" | "duration" | "share" | "bytes" | "bool" | "list";

export interface Column {
  name: string;
  title: string;
  kind: Kind;
  unit: string | null;
  /** 0 is always shown; the higher, the sooner a narrow page hides it. */
  priority: number;
}

export interface Section {
  name: string;
  table: TableDoc;
  /** One row, of which each column is a fact on its own. */
  facts: boolean;
}

/** One method's profile. */
export interface Method {
  name: string;
  runs: number;
  /** Indices of the runs in the dump, and the total of each, in the run's unit. */
  runIndex: number[];
  totals: number[];
  /** Warm-up and disturbed runs, which are in nothing else here; null if all runs count. */
  excluded: ExcludedRuns | null;
  /**
   * `profile_table` in run order: one row an instruction, delegates' events below their call
   * (depth 1), then "unaccounted" and "total" (set apart).
   */
  rows: TableDoc;
  /**
   * Samples of each row, an element a run (null where it did not run), in the run's unit. Absent
   * rows (too many numbers: see `samplesNote`) are null.
   */
  samples: ((number | null)[] | null)[];
  samplesNote: string | null;
  links: RowLinks;
  /** All events with upstream's `to_dataframe` columns, and the `inputs` and `outputs` of `rows`. */
  events: TableDoc;
  /** For each row of `events`: the row of `rows` it belongs to, or null. */
  eventRow: (number | null)[];
  /** Module tree in pre-order with totals, for the icicle. */
  modules: ModuleNode[];
}

export interface ExcludedRuns {
  /** "13 of 20 runs (7 excluded: …)". */
  words: string;
  /** As `Method.runIndex` and `Method.totals`. */
  runIndex: number[];
  totals: number[];
}

/** What is behind each row of `Method.rows`; arrays parallel to its rows. */
export interface RowLinks {
  /** By graph key: for each row, indices into that graph's `nodes`. */
  nodes: Record<string, number[][]>;
  /** Innermost lines, best first: indices into `source.lines`. */
  lines: number[][];
  /** Whole Python stack, outermost first: indices into `source.lines`. */
  stack: number[][];
  /** Index into `modules`, or null. */
  module: (number | null)[];
}

export interface ModuleNode {
  /** "" is the root, "blocks.0.conv" a module, "(no module)" what has none. */
  path: string;
  name: string;
  type: string | null;
  /** Index of the module around, null for roots. */
  parent: number | null;
  depth: number;
  /** Average time per run with and without the modules below. */
  total: number;
  self: number;
  /** Rows of `Method.rows` that count for this module itself. */
  rows: number[];
}

/** A graph of one dialect, flat: parents stand before children. */
export interface GraphDoc {
  /** "exported/forward", "edge/forward", "executed/forward", …: the key of `RowLinks.nodes`. */
  key: string;
  title: string;
  dialect: string;
  method: string | null;
  nodes: GraphNode[];
  /** Flat triples: from node, to node, index into `edgeLabels` (-1: none). */
  edges: number[];
  /** "float32[1, 8]" */
  edgeLabels: string[];
  /** Boxes: modules, delegates, branches. A node's `group` points here. */
  groups: GraphGroup[];
  /**
   * For each node: the nodes of the method's edge graph ("edge/forward") that it is or becomes. Absent
   * for that graph itself, and without one.
   */
  edgeNodes?: number[][];
  /** Columns by node: measure key -> values (null: not measured). The same for groups (sums). */
  measures: Measure[];
}

export interface GraphNode {
  name: string;
  /** fx's word: "placeholder", "call_function", "get_attr", "output". */
  kind: string;
  op: string;
  handle: number | null;
  /** Index into `groups`, null at the top. */
  group: number | null;
  /** Index into `source.lines` of the user's innermost line, or null. */
  line: number | null;
  /** Whole stack, outermost first. */
  stack: number[];
  outputs: string[];
  /** [name, text] of the arguments, cut to a few hundred characters each. */
  args: [string, string][];
  backend: string | null;
  instructions: number[];
  /** Fully qualified name of the weight behind a placeholder. */
  weight: string | null;
  /**
   * [backend, why] of those that did not take it, in the order in which they were asked. Absent of nodes
   * that nobody refused, or where the record does not tell.
   */
  refusals?: [string, string][];
}

export interface GraphGroup {
  kind: "module" | "delegate" | "branch";
  name: string;
  /** Module path, "xnnpack", "true branch of cond". */
  label: string;
  type: string | null;
  parent: number | null;
  backend: string | null;
}

export interface Measure {
  /**
   * "avg", "p50", "p90", "min", "max", "first" (times), "memory" (bytes of the results), "live"
   * (planned bytes alive meanwhile), "error" (to the reference), "local_error" (the node's own),
   * "change" (of "avg" from the first run to the second, if there are two).
   * Of a group: the sum of times and bytes, the largest "live", the worst error.
   */
  key: string;
  title: string;
  unit: string | null;
  kind: Kind;
  /** For errors: whether larger is worse (mse) or better (sqnr). */
  largerIsWorse: boolean;
  nodes: (number | string | null)[];
  groups: (number | string | null)[];
  /** Nodes whose value is of several nodes together (stands at the first of them). */
  shared: number[];
}

/** The lines of the user's Python that stack traces name; the files themselves are not read. */
export interface SourceDoc {
  files: string[];
  lines: SourceLine[];
}

export interface SourceLine {
  /** Index into `files`. */
  file: number;
  line: number;
  function: string;
  text: string;
}

export interface Numerics {
  method: string;
  metric: string;
  largerIsWorse: boolean;
  fine: boolean;
  /** The diagnosis: one row a compared value, in order of execution. */
  table: TableDoc;
  /** For each row: index of the method's row, or null. */
  rows: (number | null)[];
  /** For each row: index into `source.lines`, or null. */
  lines: (number | null)[];
  /** For each row by graph key: node index or null. */
  nodes: Record<string, (number | null)[]>;
  /** Of some rows, in their order: the values behind the errors. */
  values?: RowValues[];
  coverage: TableDoc;
  /** One of the notes: the verdict; doubts about the inputs stand before it. */
  verdict?: string;
  /** Rows of the table that notes describe, with the words that do. */
  named?: { row: number; text: string }[];
  notes: string[];
}

/** The device's value of a row beside what is expected. */
export interface RowValues {
  /** Of the table of `Numerics`. */
  row: number;
  /** What tells most: of a wrong row "local". */
  shown: "local" | "total";
  /** Beside what PyTorch computes from the device's own inputs. */
  local: ValueDoc;
  /** Beside the reference; null where that is the same, or did not run. */
  total: ValueDoc | null;
}

export interface ValueDoc {
  /** "value" (facts), "spread", "channels" and "elements" (the worst of each). */
  sections: Section[];
  /** Finite elements of both in bins of equal width; null without any. */
  histogram: {
    low: number;
    high: number;
    reference: number[];
    device: number[];
    /** Of the elements of both that no bin has. */
    clippedShare: number;
  } | null;
  /** Root mean square error by channel in order, of `perEntry` neighbours the worst; null for NaN. */
  channels: {
    axis: number;
    count: number;
    perEntry: number;
    rms: (number | string | null)[];
  } | null;
  /** Ends of the quantized range (null: not known); null for a value that is not quantized. */
  range: (number | null)[] | null;
}

export interface Memory {
  method: string;
  summary: TableDoc;
  /** Who needs the method's memory, and its KV cache by context length, if it has one. */
  owners: TableDoc[];
  /** Planned bytes alive at each instruction, with its label. */
  live: number[];
  labels: string[];
  /** Row of `Method.rows` for each instruction, or null. */
  rows: (number | null)[];
  peak: number;
  /** One row a planned value: value, tensor, role, op, memory, offset, size, first, last, at_peak. */
  values: TableDoc;
}

/**
 * The runs of the dump as they happened: loading, and the runs of each method. A run is a track
 * without spans of its own, with the tracks of its clocks below it; each run's spans start at 0, so
 * that runs can be compared. Where all would be too many spans, the first, the median and the slowest
 * run of each method have all of theirs, and those after the first ones are one span on their track.
 */
export interface Timeline {
  /** Which runs are shown, and what is left out. */
  note: string | null;
  tracks: { name: string; parent: number | null; note: string | null }[];
  /** Index in the dump of the run that each track is of. */
  runs?: (number | null)[];
  names: string[];
  /** Parallel columns; times in the run's unit. */
  track: number[];
  start: number[];
  duration: number[];
  name: number[];
  /** Nesting level on its track. */
  level: number[];
  /** [method index, row index] or null. */
  row: ([number, number] | null)[];
}
