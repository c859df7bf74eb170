// What the columns mean, for the titles of their heads. Columns not named here speak for themselves.

const WORDS: Record<string, string> = {
  instruction: "Index of the instruction in the program's chain",
  event: "What the runtime called the event; events of a delegate stand below its call",
  kind: "Kernel, delegate call, event of a delegate, …",
  calls: "How often it ran in a run, on average",
  avg: "Mean time over the runs that count: this column adds up to Method::execute",
  p10: "A tenth of the runs took at most this long",
  p50: "Median time over the runs in which it ran",
  p90: "Nine tenths of the runs took at most this long",
  min: "Fastest run",
  max: "Slowest run",
  std: "Standard deviation over the runs in which it ran",
  first: "First run in which it ran: holds warm-up",
  kernel: "Time in the kernel itself, where it is logged within its call",
  value: "Number of an event that is no measured time",
  unit: "Unit of that number; estimated: not measured, but divided by costs that a compiler expects",
  derived: "Microseconds of cycles, where the accelerator's time is logged in both",
  share: "Part of Method::execute's mean time",
  growth: "Time for each token of context before it, where that is certain",
  growth_low: "Lower end of its interval",
  growth_high: "Upper end of its interval",
  phase: "Prefill, decode, or the name of an encoder",
  tokens: "Tokens that the calls took",
  call_mean: "Mean time of a call",
  token_mean: "Time for each token",
  rate_mean: "Tokens a second of the runtime alone",
  place: "Computes, only moves data, no work, unknown, or outside the operators",
  cumulative: "Shares of the rows shown added up to this one",
  op_types: "Operators of the graph that the event computes",
  module: "The innermost module that holds all of its nodes",
  module_type: "Class of that module",
  source: "Line of Python that made it, where one is behind all of its nodes",
  sources: "All lines of Python behind it",
  operator: "Name of the kernel in the program",
  inputs: "Type and shape of what it reads; of a delegate's events in the delegate's own order of dimensions",
  outputs:
    "Type and shape of what it computes; of a delegate's events in the delegate's own order of dimensions",
  bytes_read: "Bytes of its tensor inputs",
  bytes_written: "Bytes of its tensor outputs",
  flops: "Operations on numbers in a run; a multiply-add is two",
  bytes: "Read and written, each tensor once; of a delegate's call what crosses its border, with its weights",
  intensity: "FLOPs for each byte",
  gflops: "10⁹ FLOPs a second, in the mean time",
  gbps: "10⁹ bytes a second, in the mean time",
  peak: "Part of what the machine can do at these FLOPs for each byte, by its calibration",
  bound: "The limit that it would run into first: compute, memory, or the overhead of the call",
  memory_level: "The smallest memory that all it reads and writes fits in",
  number_types: "Types of numbers that it computes in",
  work_sizes: "largest: the sizes of the run are not known, and these are the most that the program allows",
  unknown_work: "Operators whose FLOPs are not known",
  backend: "Backend of the delegate that ran it",
  delegate_debug_identifier: "The delegate's own identifier of the event",
  debug_handles: "Handles that tie the event to nodes of the exported graph",
  event_name: "Name of the event in the dump",
  event_block_name: "Block of the dump that holds the event",
  raw: "The time in each run",
  stack_traces: "Lines of Python, by node",
  module_hierarchy: "Modules around the nodes",
  is_delegated_op: "Whether the event is of a delegate",
  delegate_backend_name: "Backend of the delegate",
  instruction_id: "Index of the instruction in the program's chain",
  before: "Average over the runs of A that count: this column adds up",
  after: "Average over the runs of B that count: this column adds up",
  change: "What B takes longer; the rows, with what only one side has, add up to Method::execute's",
  of_change: "Part of the change of Method::execute",
  relative:
    "Of the trimmed means of its own runs, as the interval is; none for times of a few ticks of the clock",
  interval: "Confidence interval of the relative change; unknown: the runs are too unsteady to bound it",
  verdict: "What its runs tell: regressed, improved, no difference, or cannot tell",
  status: "Only on one side, elsewhere in the model, or by another kernel",
  reason: "Why it cannot be told",
  saved_by_float16: "What float16 would save of a float32 weight",
  saved_by_int8: "What int8 would save, with a float32 scale for each channel; nothing of biases and norms",
  saved_by_sharing: "What it saves to keep only the first of equal weights",
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

// A module's time in the module tree and that of its box in a graph are not the same where a time is
// of several nodes: it counts once in both, but at different places.
export const MODULE_TIME =
  "A module's time is of the rows whose nodes are all in it, of a delegate's call event by event. In a graph, a time of several nodes " +
  "stands at the first of them, so that the module's box may have another sum.";
export const NO_MODULE = "rows without a node of any module.";
export const BOX_TIME =
  "A box's time is that of the nodes in it. A time of several nodes stands at the first of them: " +
  "the module tree counts it for the module that holds all of them, so that its sum may be another.";
export const SHARED_TIME = "Σ: of several nodes, at the first of them";

export const GROWTH_MEANING =
  "Growth is the time for each token of context before it, with its 99 % interval; it is told only where " +
  "that is certain, and at least 2 % of the time.";

export const meaningOf = (name: string): string | undefined => WORDS[name];
