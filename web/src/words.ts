// What the columns mean, for the titles of their heads; what words of the page and of notes mean.

const PAGE = "https://etscope.github.io/etscope/reference/glossary/";

/** Definitions in docs/reference/glossary.md, by anchor and word for word: a contract test compares them. */
export const GLOSSARY = {
  instruction:
    "One step of a program: the call of a kernel, the call of a delegate, a move or a jump. # numbers it in a method.",
  "delegate-call": "An instruction that hands a part of the graph to a backend, such as XNNPACK.",
  handle:
    "A number that ties a node of the edge program to instructions, and to events inside delegates.",
  "delegate-map": "The part of an ETRecord that maps a delegate's own identifiers to debug handles.",
  leaf: "A row with time of its own, counted once.",
  "counted-runs":
    "The runs in tables and findings: all except a cold first run and runs that other programs disturbed.",
  unaccounted:
    "Time of a method in none of its instructions: the runtime's work between them, and tracing.",
  "traced-run": "A run that records events. Recording takes time, so latencies come from untraced runs.",
  phase:
    "The kind of a language model's call: prefill takes the prompt, decode one token, an encoder an image or sound.",
  "device-clock":
    "A clock of a delegate, such as the GPU's. Its times are not added to times of the runtime's clock.",
  bound: "The limit of an operator by the roofline: compute, memory, or the overhead of the call.",
  sqnr:
    "Signal-to-quantization-noise ratio, 20 log10(‖reference‖ / ‖error‖), in dB. More is better: 20 dB is an error of 10 %, " +
    "40 dB of 1 %, and float32 rounding gives about 140 dB.",
  "local-error":
    "An operator's own error: the device's value, compared with PyTorch's result from the device's inputs.",
  "inherited-error": "The part of an error that comes from wrong inputs.",
  "noise-floor": "The error that rounding alone makes in an operator, measured against float64.",
  "by-design": "A difference that a backend makes on purpose, such as rounded scales. It is not a fault.",
};

export type Term = keyof typeof GLOSSARY;

export const glossary = (term?: Term): string => (term ? `${PAGE}#${term}` : PAGE);

/** Columns that a term of the glossary explains. */
const TERMS: Record<string, Term> = {
  instruction: "instruction",
  instruction_id: "instruction",
  debug_handles: "handle",
  handles: "handle",
  leaf: "leaf",
  phase: "phase",
  bound: "bound",
  local: "local-error",
  inherited: "inherited-error",
  noise: "noise-floor",
  sqnr: "sqnr",
};

/** Words of notes that are linked to the glossary. */
const SPELLED: readonly [RegExp, Term][] = [
  [/counted runs/, "counted-runs"],
  [/\bdelegate calls?\b/, "delegate-call"],
  [/\bdebug handles?\b/, "handle"],
  [/\bdelegate map\b/, "delegate-map"],
  [/\bunaccounted\b/i, "unaccounted"],
  [/\bdevice clock\b/, "device-clock"],
  [/\bSQNR\b/, "sqnr"],
  [/\bnoise floor\b/, "noise-floor"],
  [/\bby design\b/, "by-design"],
];

/** The text in parts, with the term of a part that spells one; each term once. */
export function termsIn(text: string): { text: string; term?: Term }[] {
  let parts: { text: string; term?: Term }[] = [{ text }];
  for (const [spelled, term] of SPELLED) {
    const at = parts.findIndex((part) => !part.term && spelled.test(part.text));
    if (at < 0) continue;
    const whole = parts[at]!.text;
    const found = spelled.exec(whole)!;
    parts = [
      ...parts.slice(0, at),
      { text: whole.slice(0, found.index) },
      { text: found[0], term },
      { text: whole.slice(found.index + found[0].length) },
      ...parts.slice(at + 1),
    ];
  }
  return parts.filter((part) => part.text);
}

const WORDS: Record<string, string> = {
  event: "What the runtime called the event; events of a delegate stand below its call",
  kind: "Kernel, delegate call, event of a delegate, …",
  calls: "How often it ran in a run, on average",
  avg: "Mean time over the counted runs; this column adds up to Method::execute",
  p10: "A tenth of the runs took at most this long",
  p50: "Median time over the runs in which it ran",
  p90: "Nine tenths of the runs took at most this long",
  min: "Fastest run",
  max: "Slowest run",
  std: "Standard deviation over the runs in which it ran",
  first: "First run in which it ran, which includes warm-up",
  kernel: "Time in the kernel itself, if the dump logs it inside the call",
  value: "Number that the event reports instead of a time",
  unit: "Unit of that number; estimated: the time is divided by the costs that a compiler expects",
  derived: "Cycles in microseconds, if the accelerator logs its time in both",
  share: "Part of Method::execute's mean time",
  growth: "Time added by each earlier token of context; empty if uncertain",
  growth_low: "Lower end of the interval of growth",
  growth_high: "Upper end of the interval of growth",
  tokens: "New tokens of the calls",
  call_mean: "Mean time of a call",
  token_mean: "Time for each token",
  rate_mean: "Tokens a second, counting only time in the runtime",
  place: "Computes, only moves data, no work, unknown, or outside the operators",
  cumulative: "Sum of the shares of the rows up to this one",
  op_types: "Operators of the graph that the event computes",
  module: "The innermost module that holds all of its nodes",
  module_type: "Class of that module",
  source: "Line of Python behind all of its nodes, if it is one line",
  sources: "All lines of Python behind it",
  operator: "Name of the kernel in the program",
  inputs: "Types and shapes of its inputs; events inside a delegate use the delegate's order of dimensions",
  outputs:
    "Types and shapes of its outputs; events inside a delegate use the delegate's order of dimensions",
  bytes_read: "Bytes of its tensor inputs",
  bytes_written: "Bytes of its tensor outputs",
  flops: "Operations on numbers in a run; a multiply-add is two",
  bytes: "Bytes read and written, each tensor once; for a delegate call, its inputs, outputs and weights",
  intensity: "FLOPs for each byte",
  gflops: "10⁹ FLOPs a second, in the mean time",
  gbps: "10⁹ bytes a second, in the mean time",
  peak: "Share of the calibrated peak of the machine at these FLOPs for each byte",
  memory_level: "The smallest memory level that holds all its reads and writes",
  number_types: "Number types of its arithmetic",
  work_sizes: "largest: the run's sizes are unknown, so these are the largest that the program allows",
  unknown_work: "Operators with unknown FLOPs",
  backend: "Backend of the delegate that ran it",
  delegate_debug_identifier: "The delegate's own identifier of the event",
  event_name: "Name of the event in the dump",
  event_block_name: "Block of the dump that holds the event",
  raw: "The time in each run",
  stack_traces: "Lines of Python, by node",
  module_hierarchy: "Modules around the nodes",
  is_delegated_op: "Whether a delegate logged the event",
  delegate_backend_name: "Backend of the delegate",
  before: "Mean time over the counted runs of A; this column adds up",
  after: "Mean time over the counted runs of B; this column adds up",
  change: "Time that B takes longer; all rows, with those of only one side, add up to Method::execute",
  of_change: "Part of the change of Method::execute",
  relative:
    "Relative change of the trimmed means, as for the interval; empty for times of a few clock ticks",
  interval: "Confidence interval of the relative change; unknown: the runs vary too much",
  verdict:
    "Of two times: regressed, improved, no difference, or cannot tell. Of values: fine, by design, inherited, or wrong",
  status: "Only on one side, moved in the model, or run by another kernel",
  reason: "Why the comparison cannot tell",
  saved_by_float16: "Bytes that float16 would save for a float32 weight",
  saved_by_int8: "Bytes that int8 would save, with a float32 scale for each channel; none for biases and norms",
  saved_by_sharing: "Bytes saved by keeping one copy of equal weights",
  allocations: "Allocations recorded in the event's block",
};

export const SEVERITIES = { problem: "Problem", cost: "Cost", fact: "Fact", unknown: "Unknown" };

/** By the verdict of a comparison. */
export const CHANGES = {
  regressed: "Slower",
  improved: "Faster",
  "no difference": "Compared",
  "cannot tell": "Compared",
};

export const SURENESS = {
  measured: "Measured in this run",
  likely: "Likely: the time is measured, the cause comes from the program",
  possible: "Possible: other causes would look the same",
};

// A time that several nodes share counts once in the module tree and once in a graph, but at different
// places. So a module and its box in a graph can have different times.
export const MODULE_TIME =
  "A module's time is the sum of the rows with all nodes in it; delegate calls count event by event. In a graph, a time of several " +
  "nodes stands at the first node, so the sum of the module's box can differ.";
export const NO_MODULE = "rows without a node of any module.";
export const BOX_TIME =
  "A box's time is the sum of its nodes' times. A time of several nodes stands at the first node; " +
  "the module tree counts it for the module that holds all of them, so its sum can differ.";
export const SHARED_TIME = "Σ: time of several nodes, shown at the first";

export const GROWTH_MEANING =
  "Growth is the time that each earlier token of context adds, with its 99 % interval. It is shown only if " +
  "it is certain and at least 2 % of the time.";

export const meaningOf = (name: string): string | undefined =>
  TERMS[name] ? GLOSSARY[TERMS[name]] : WORDS[name];
