// A small document made by hand, for development and tests of the front end. Python's documents are
// held against the same contract by its own tests.

import {
  SCHEMA,
  type Cell,
  type InsightDoc,
  type GraphDoc,
  type GraphNode,
  type Measure,
  type Method,
  type ModuleNode,
  type ReportDocument,
  type Run,
} from "../src/document";
import {
  deviation,
  makeComparison,
  makeMemory,
  makeNumerics,
  makeTimeline,
  makeWeights,
  mean,
  median,
  quantile,
  random,
  SOURCE,
  stackTo,
  table,
  UNIT,
  type ColumnOf,
} from "./fixture_parts";

export interface FixtureOptions {
  /** Rows of the table of all events. */
  events?: number;
  /** Transformer blocks of the model. */
  blocks?: number;
  /** Runs in each dump. */
  samples?: number;
}

/** Text that would do harm if it were ever taken for markup, or turn the line around. */
export const HOSTILE = "<script>document.title='hacked'</script>\u202Eevil\u0007\u0000";

/** Two runs of a model of `blocks` blocks, the second somewhat slower, with all that a page can show. */
export function fixture(options: FixtureOptions = {}): ReportDocument {
  const runs = [
    makeRun("run0", "timing.etdp", 1, options),
    makeRun("run1", "timing-after.etdp", 1.12, options),
  ];
  return {
    schema: SCHEMA,
    title: "tiny transformer · two dumps",
    generator: "etscope 0.1.0",
    runs,
    comparisons: [makeComparison(runs[0]!, runs[1]!)],
    programs: [],
  };
}

export interface Step {
  event: string;
  op: string;
  module: string;
  type: string;
  line: number;
  mean: number;
  depth: number;
  handle: number;
  backend: string | null;
}

const BLOCK: [string, string, string, string, number, number, string | null][] = [
  ["native_call_layer_norm.out", "aten.layer_norm", "norm1", "LayerNorm", 0.041, 2, null],
  ["DELEGATE_CALL", "delegate", "attention", "Attention", 1.92, 3, "XnnpackBackend"],
  ["Fully Connected (NC, F32) GEMM #1", "aten.linear", "attention.query", "Linear", 0.61, 4, "x"],
  ["Fully Connected (NC, F32) GEMM #2", "aten.linear", "attention.key", "Linear", 0.59, 5, "x"],
  ["Batch Matrix Multiply (NC, F32) GEMM #1", "aten.bmm", "attention", "Attention", 0.44, 6, "x"],
  ["Softmax (NC, F32) #1", "aten.softmax", "attention", "Attention", 0.11, 7, "x"],
  ["native_call_add.out", "aten.add", "", "", 0.021, 8, null],
  ["native_call_gelu.out", "aten.gelu", "mlp.act", "GELU", 0.083, 9, null],
];

function makeSteps(blocks: number): Step[] {
  const steps: Step[] = [
    step("native_call_embedding.out", "aten.embedding", "embed", "Embedding", 0.01, 0, 0, 0, null),
  ];
  for (let block = 0; block < blocks; block++) {
    for (const [event, op, module, type, mean, line, backend] of BLOCK) {
      const path = module ? `blocks.${block}.${module}` : `blocks.${block}`;
      const inside = backend === "x";
      steps.push(
        step(
          event,
          op,
          path,
          type || "Block",
          mean,
          line - 1,
          inside ? 1 : 0,
          steps.length,
          inside ? "XnnpackBackend" : backend,
        ),
      );
    }
  }
  steps.push(step(HOSTILE, "aten.add", "head", "Linear", 0.012, 9, 0, steps.length, null));
  return steps;
}

function step(
  event: string,
  op: string,
  module: string,
  type: string,
  mean: number,
  line: number,
  depth: number,
  handle: number,
  backend: string | null,
): Step {
  return { event, op, module, type, line, mean, depth, handle, backend };
}

function makeRun(id: string, name: string, factor: number, options: FixtureOptions): Run {
  const steps = makeSteps(options.blocks ?? 3);
  const graphs = [
    makeGraph("exported/forward", "ATen dialect", "exported", steps),
    makeGraph("edge/forward", "Edge dialect", "edge", steps),
    makeGraph("executed/forward", "Executed program", "executed", steps),
  ];
  const method = makeMethod(steps, graphs, factor, options);
  return {
    id,
    name,
    unit: UNIT,
    files: [
      {
        role: "dump",
        name,
        bytes: 83_032,
        sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
      },
      {
        role: "record",
        name: "etrecord.bin",
        bytes: 2_517_401,
        sha256: "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
      },
      { role: "program", name: "program.pte", bytes: 2_402_118, sha256: null },
    ],
    notes: ["Runs of forward cannot be told from those of prefill: modules and lines are those of forward."],
    summary: [
      {
        name: "profile",
        facts: true,
        table: table("Profile", [
          ["method", "text", null, ["forward"]],
          ["runs", "count", null, [method.runs]],
          ["load", "duration", UNIT, [12.25]],
          ["first_run", "duration", UNIT, [method.totals[0] ?? null]],
          ["p50", "duration", UNIT, [median(method.totals)]],
          ["unaccounted", "share", null, [0.021]],
        ]),
      },
      {
        name: "by_op",
        facts: false,
        table: table("Time by op", byOp(steps, factor)),
      },
    ],
    insights: [makeExplanation(steps, factor), ...makeFindings(steps, factor)],
    methods: [method],
    graphs,
    source: SOURCE,
    numerics: makeNumerics(steps, graphs),
    numericsNote: null,
    memory: [makeMemory(steps)],
    weights: makeWeights(),
    timeline: makeTimeline(steps, method),
  };
}

function makeExplanation(steps: Step[], factor: number): InsightDoc {
  const longest = steps.reduce((most, one) => (one.mean > most.mean ? one : most));
  const value = longest.mean * factor;
  return {
    kind: "not-delegated",
    severity: "cost",
    sentence: "Nothing is delegated.",
    method: "forward",
    methodIndex: 0,
    quantity: { value, unit: UNIT, share: 0.5 },
    where: { view: "events", select: "kind:kernel", by: null, name: null, instruction: null },
    next: "etscope inspect run.etdp --select kind:kernel",
    explanation: {
      sureness: "measured",
      evidence: ["No delegate call ran."],
      sites: [{ name: longest.op, instruction: 0, time: value, module: "stem", line: "model.py:3" }],
      remedies: [
        {
          text: "Lower the model to a backend.",
          change: "backend",
          arguments: { backend: "xnnpack" },
          paste: "etscope export model.py:make --backend xnnpack",
        },
      ],
      low: value * 0.9,
      high: value * 1.1,
    },
  };
}

function makeFindings(steps: Step[], factor: number): InsightDoc[] {
  const longest = steps.reduce((most, one) => (one.mean > most.mean ? one : most));
  const finding = {
    method: "forward",
    methodIndex: 0,
    quantity: null,
    where: null,
    next: null,
    explanation: null,
  } as const;
  return [
    {
      ...finding,
      kind: "slowest-operator",
      severity: "fact",
      sentence: `The operator that takes most time is ${longest.op}.`,
      quantity: { value: longest.mean * factor, unit: UNIT, share: null },
      where: { view: "events", select: `name:${longest.op}`, by: null, name: null, instruction: null },
    },
    {
      ...finding,
      kind: "no-values",
      severity: "unknown",
      sentence: "No values were logged.",
      next: "etscope run",
    },
  ];
}

function byOp(steps: Step[], factor: number): ColumnOf[] {
  const sums = new Map<string, number>();
  for (const one of steps) if (!one.depth) sums.set(one.op, (sums.get(one.op) ?? 0) + one.mean * factor);
  const sorted = [...sums].sort((a, b) => b[1] - a[1]);
  const total = sorted.reduce((sum, [, value]) => sum + value, 0);
  return [
    ["op", "text", null, sorted.map(([op]) => op)],
    ["avg", "duration", UNIT, sorted.map(([, value]) => value)],
    ["share", "share", null, sorted.map(([, value]) => value / total)],
  ];
}

function makeMethod(steps: Step[], graphs: GraphDoc[], factor: number, options: FixtureOptions): Method {
  const runs = options.samples ?? 40;
  const next = random(7 * factor);
  const samples: number[][] = steps.map((one) =>
    Array.from({ length: runs }, (_, at) => one.mean * factor * (1 + 0.08 * next() + (at === 0 ? 0.6 : 0))),
  );
  // What is inside a delegate cannot take longer than the call.
  const undivided = steps.map((one, row) => (one.depth ? -1 : row)).filter((row) => row >= 0);
  const unaccounted = Array.from({ length: runs }, () => 0.05 + 0.01 * next());
  const totals = unaccounted.map((rest, at) =>
    undivided.reduce((sum, row) => sum + samples[row]![at]!, rest),
  );
  const all = [...samples, unaccounted, totals];
  const total = mean(totals);
  const stat = (of: (values: number[]) => number): number[] => all.map(of);
  const depth = [...steps.map((one) => one.depth), 0, 0];
  let cumulative = 0;
  const cumulatives = all.map((values, row) => {
    if (depth[row]) return null;
    if (row === all.length - 1) return 1;
    return (cumulative += mean(values) / total);
  });
  const text = (of: (one: Step) => Cell): Cell[] => [...steps.map(of), null, null];
  const rows = table("forward · 40 runs", [
    ["instruction", "int", null, text((one) => (one.depth ? null : undivided.indexOf(one.handle)))],
    ["event", "text", null, [...steps.map((one) => one.event), "unaccounted", "Method::execute"]],
    [
      "kind",
      "text",
      null,
      [
        ...steps.map((one) => (one.depth ? "delegate_event" : one.backend ? "delegate_call" : "kernel")),
        "unaccounted",
        "total",
      ],
    ],
    ["leaf", "bool", null, all.map((_, row) => !depth[row] && row < all.length - 1)],
    ["calls", "float", null, all.map(() => 1)],
    ["avg", "duration", UNIT, stat(mean)],
    ["p50", "duration", UNIT, stat(median)],
    ["p90", "duration", UNIT, stat((values) => quantile(values, 0.9))],
    ["min", "duration", UNIT, stat((values) => Math.min(...values))],
    ["max", "duration", UNIT, stat((values) => Math.max(...values))],
    ["std", "duration", UNIT, stat(deviation)],
    ["first", "duration", UNIT, stat((values) => values[0]!)],
    ["share", "share", null, stat((values) => mean(values) / total)],
    ["cumulative", "share", null, cumulatives],
    ["op_types", "list", null, text((one) => [one.op])],
    ["module", "path", null, text((one) => one.module)],
    ["module_type", "text", null, text((one) => one.type)],
    ["source", "path", null, text((one) => `model.py:${SOURCE.lines[one.line]!.line}`)],
    ["operator", "text", null, text((one) => (one.backend ? null : one.op.replace("aten.", "aten::")))],
    ["outputs", "list", null, text(() => ["float32[1, 128, 64]"])],
    ["bytes_read", "bytes", null, text((one) => (one.depth ? null : 65536 * (1 + (one.handle % 3))))],
    ["bytes_written", "bytes", null, text((one) => (one.depth ? null : 32768))],
    ["backend", "text", null, text((one) => one.backend)],
    ["debug_handles", "list", null, text((one) => [one.handle])],
  ]);
  rows.depth = depth;
  rows.breaks = [steps.length];
  const modules = makeModules(steps, samples);
  const none: number[][] = [[], []];
  return {
    name: "forward",
    runs,
    runIndex: totals.map((_, at) => at),
    totals,
    excluded: null,
    rows,
    samples: all,
    samplesNote: null,
    links: {
      nodes: Object.fromEntries(
        graphs.map((graph) => [
          graph.key,
          [
            ...steps.map((one) => graph.nodes.flatMap((node, at) => (covers(one, node, steps) ? [at] : []))),
            ...none,
          ],
        ]),
      ),
      lines: [...steps.map((one) => [one.line]), ...none],
      stack: [...steps.map((one) => stackTo(one.line)), ...none],
      module: [...steps.map((one) => modules.findIndex((at) => at.path === one.module)), null, null],
    },
    ...makeEvents(steps, samples, options.events ?? 400),
    modules,
  };
}

/** A call covers what its delegate holds: the steps below it. */
function covers(one: Step, node: GraphNode, steps: Step[]): boolean {
  if (node.handle === one.handle) return true;
  if (one.event !== "DELEGATE_CALL" || node.handle === null) return false;
  for (let at = one.handle + 1; steps[at]?.depth; at++) if (at === node.handle) return true;
  return false;
}

function makeEvents(steps: Step[], samples: number[][], count: number): Pick<Method, "events" | "eventRow"> {
  const at = Array.from({ length: count }, (_, index) => index % steps.length);
  const values = at.map((row) => samples[row]!);
  const cells = (of: (one: Step) => Cell): Cell[] => at.map((row) => of(steps[row]!));
  return {
    events: table("Events", [
      ["event_block_name", "text", null, at.map(() => "Execute")],
      ["event_name", "text", null, cells((one) => one.event)],
      ["raw", "list", null, values.map((all) => (count > 10_000 ? all.slice(0, 5) : all))],
      ["p10", "duration", UNIT, values.map((all) => quantile(all, 0.1))],
      ["p50", "duration", UNIT, values.map(median)],
      ["p90", "duration", UNIT, values.map((all) => quantile(all, 0.9))],
      ["avg", "duration", UNIT, values.map(mean)],
      ["min", "duration", UNIT, values.map((all) => Math.min(...all))],
      ["max", "duration", UNIT, values.map((all) => Math.max(...all))],
      ["op_types", "list", null, cells((one) => [one.op])],
      ["delegate_debug_identifier", "text", null, cells((one) => (one.depth ? one.event : null))],
      ["stack_traces", "text", null, cells((one) => `File "model.py", line ${one.line}`)],
      ["module_hierarchy", "text", null, cells((one) => one.module)],
      ["is_delegated_op", "bool", null, cells((one) => one.depth === 1)],
      ["delegate_backend_name", "text", null, cells((one) => one.backend)],
      ["instruction_id", "int", null, cells((one) => one.handle)],
    ]),
    eventRow: at,
  };
}

function makeModules(steps: Step[], samples: number[][]): ModuleNode[] {
  const paths = new Set<string>([""]);
  for (const one of steps) {
    const parts = one.module.split(".");
    parts.forEach((_, at) => paths.add(parts.slice(0, at + 1).join(".")));
  }
  const key = (path: string): string =>
    path
      .split(".")
      .map((part) => part.padStart(8, "0"))
      .join(".");
  const sorted = [...paths].sort((a, b) => (a === "" ? -1 : b === "" ? 1 : key(a) < key(b) ? -1 : 1));
  const time = (row: number): number => (steps[row]!.event === "DELEGATE_CALL" ? 0.1 : mean(samples[row]!));
  return sorted.map((path) => {
    const rows = steps.flatMap((one, row) => (one.module === path ? [row] : []));
    const below = steps.flatMap((one, row) =>
      path === "" || one.module === path || one.module.startsWith(path + ".") ? [row] : [],
    );
    const above = path === "" ? null : sorted.indexOf(path.split(".").slice(0, -1).join("."));
    return {
      path,
      name: path.split(".").at(-1)! || "forward",
      type: steps.find((one) => one.module === path)?.type ?? null,
      parent: above,
      depth: path === "" ? 0 : path.split(".").length,
      total: below.reduce((sum, row) => sum + time(row), 0),
      self: rows.reduce((sum, row) => sum + time(row), 0),
      rows,
    };
  });
}

function makeGraph(key: string, title: string, dialect: string, steps: Step[]): GraphDoc {
  const groups: GraphDoc["groups"] = [];
  const groupOf = new Map<string, number>();
  const enter = (path: string): number | null => {
    if (path === "") return null;
    const known = groupOf.get(path);
    if (known !== undefined) return known;
    const parts = path.split(".");
    const parent = enter(parts.slice(0, -1).join("."));
    groups.push({ kind: "module", name: parts.at(-1)!, label: path, type: null, parent, backend: null });
    groupOf.set(path, groups.length - 1);
    return groups.length - 1;
  };
  const nodes: GraphNode[] = [node("tokens", "placeholder", "placeholder", null, null, null)];
  const edges: number[] = [];
  let delegate: number | null = null;
  for (const one of steps) {
    let group = enter(one.module);
    if (dialect === "executed" && one.event === "DELEGATE_CALL") {
      groups.push({
        kind: "delegate",
        name: `delegate ${one.handle}`,
        label: "xnnpack",
        type: null,
        parent: group,
        backend: "XnnpackBackend",
      });
      delegate = groups.length - 1;
    }
    if (dialect === "executed" && one.depth) group = delegate;
    if (dialect !== "executed" && one.event === "DELEGATE_CALL") continue;
    const op = dialect === "exported" ? `${one.op}.default` : `${one.op.replace("aten.", "aten_")}_default`;
    nodes.push({
      ...node(`${op.replaceAll(".", "_")}_${one.handle}`, "call_function", op, one.handle, group, one.line),
      backend: one.backend,
      instructions: one.depth ? [] : [one.handle],
    });
    edges.push(nodes.length - 2, nodes.length - 1, 0);
  }
  nodes.push(node("output", "output", "output", null, null, null));
  edges.push(nodes.length - 2, nodes.length - 1, 0);
  const time: Measure = {
    key: "avg",
    title: "avg",
    unit: UNIT,
    kind: "duration",
    largerIsWorse: true,
    nodes: nodes.map((one) => (one.handle === null ? null : (steps[one.handle]?.mean ?? null))),
    groups: groups.map(() => null),
    shared: [],
  };
  time.groups = groups.map((_, at) => {
    const inside = (group: number | null): boolean =>
      group !== null && (group === at || inside(groups[group]!.parent));
    return nodes.reduce(
      (sum, one, index) => (inside(one.group) ? sum + Number(time.nodes[index] ?? 0) : sum),
      0,
    );
  });
  return {
    key,
    title,
    dialect,
    method: "forward",
    nodes,
    edges,
    edgeLabels: ["float32[1, 128, 64]"],
    groups,
    measures: [time],
  };
}

function node(
  name: string,
  kind: string,
  op: string,
  handle: number | null,
  group: number | null,
  line: number | null,
): GraphNode {
  return {
    name,
    kind,
    op,
    handle,
    group,
    line,
    stack: line === null ? [] : stackTo(line),
    outputs: ["float32[1, 128, 64]"],
    args:
      kind === "call_function"
        ? [
            ["input", "tokens"],
            ["other", "1e-05"],
          ]
        : [],
    backend: null,
    instructions: [],
    weight: null,
  };
}
