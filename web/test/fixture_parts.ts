// The parts of the fixture that stand beside the profile: source, numerics, memory, timeline.

import type {
  Cell,
  Column,
  ComparisonDoc,
  GraphDoc,
  Kind,
  Memory,
  Method,
  Numerics,
  Run,
  SourceDoc,
  TableDoc,
  Timeline,
} from "../src/document";
import type { Step } from "./fixture";

export const UNIT = "ms";

export const SOURCE: SourceDoc = {
  files: ["/home/user/model.py", "/usr/lib/python3.11/site-packages/torch/nn/modules/container.py"],
  lines: [
    line(0, 41, "forward", "x = self.embed(tokens)"),
    line(0, 19, "forward", "normed = self.norm1(x)"),
    line(0, 20, "forward", "a = self.attention(normed)"),
    line(0, 8, "forward", "q = self.query(x)"),
    line(0, 9, "forward", "k = self.key(x)"),
    line(0, 10, "forward", "scores = q @ k.transpose(-1, -2)"),
    line(0, 11, "forward", "return torch.softmax(scores / self.scale, dim=-1) @ v"),
    line(0, 21, "forward", "x = x + a"),
    line(0, 22, "forward", "return x + self.mlp(self.norm2(x))"),
    line(0, 44, "forward", "return self.head(x)"),
    line(1, 250, "forward", "input = module(input)"),
    line(0, 42, "forward", "x = self.blocks(x)"),
  ],
};

export function line(file: number, at: number, name: string, text: string): SourceDoc["lines"][number] {
  return { file, line: at, function: name, text };
}

export function stackTo(innermost: number): number[] {
  if (innermost === 0 || innermost === 9) return [innermost];
  return innermost >= 3 && innermost <= 6 ? [11, 10, 2, innermost] : [11, 10, innermost];
}

/** What Python makes of two runs of the same rows: each took longer. */
export function makeComparison(a: Run, b: Run): ComparisonDoc {
  const [one, other] = [a.methods[0]!, b.methods[0]!];
  const rows = one.rows.values["event"]!.map((_, row) => row);
  const [before, after] = [one, other].map((each) => each.rows.values["avg"] as number[]);
  const change = rows.map((row) => after![row]! - before![row]!);
  const relative = rows.map((row) => (before![row] ? change[row]! / before![row]! : null));
  const verdict = rows.map((row) => (row < rows.length - 2 ? "regressed" : null));
  const changes: ColumnOf[] = [
    ["before", "duration", UNIT, before!],
    ["after", "duration", UNIT, after!],
    ["change", "duration", UNIT, change],
    ["relative", "share", null, relative],
    ["verdict", "text", null, verdict],
  ];
  const found = table("forward: regressed", [
    ["event", "text", null, one.rows.values["event"]!],
    ...changes,
    ["module", "path", null, one.rows.values["module"]!],
    ["reason", "text", null, rows.map(() => null)],
    ["row_a", "int", null, rows],
    ["row_b", "int", null, rows],
  ]);
  const modules = one.modules.map(({ total }) => total);
  const sum = table("forward: regressed · by module", [
    ["module", "path", null, one.modules.map(({ path }) => path || "(root)")],
    ["before", "duration", UNIT, modules],
    ["after", "duration", UNIT, modules.map((total) => 1.12 * total)],
    ["change", "duration", UNIT, modules.map((total) => 0.12 * total)],
    ["verdict", "text", null, modules.map(() => "regressed")],
  ]);
  return {
    a: [0, 0],
    b: [1, 0],
    verdict: "regressed",
    headline: ["forward takes 12 % longer.", "By operator: aten.linear +1 ms."],
    notes: ["Both dumps ran the same list of instructions."],
    table: { ...found, depth: one.rows.depth!, breaks: one.rows.breaks! },
    sums: [{ ...sum, depth: one.modules.map(({ depth }) => depth) }],
  };
}

export function makeNumerics(steps: Step[], graphs: GraphDoc[]): Numerics {
  const next = random(3);
  let error = 1e-13;
  const errors = steps.map((_, at) => (error *= at === 11 ? 4000 : 1 + next()));
  return {
    method: "forward",
    metric: "mse",
    largerIsWorse: true,
    fine: false,
    table: table("Numeric error of forward", [
      ["instruction", "int", null, steps.map((one) => one.handle)],
      ["event", "text", null, steps.map((one) => one.event)],
      ["error", "float", null, errors],
      ["jump", "float", null, errors.map((value, at) => (at ? value / errors[at - 1]! : null))],
      ["module", "path", null, steps.map((one) => one.module)],
    ]),
    rows: steps.map((_, at) => at),
    lines: steps.map((one) => one.line),
    nodes: Object.fromEntries(
      graphs.map((graph) => [
        graph.key,
        steps.map((one) => {
          const found = graph.nodes.findIndex((at) => at.handle === one.handle);
          return found < 0 ? null : found;
        }),
      ]),
    ),
    coverage: table("Coverage", [
      ["logged", "count", null, [steps.length + 3]],
      ["compared", "count", null, [steps.length]],
      ["without_reference", "count", null, [3]],
    ]),
    notes: ["The error grows 4,000 times at instruction 11."],
  };
}

export function makeMemory(steps: Step[]): Memory {
  const next = random(5);
  const sizes = steps.map(() => 4096 * Math.ceil(1 + 16 * next()));
  const last = steps.map((_, at) => Math.min(steps.length - 1, at + 1 + Math.floor(4 * next())));
  const live = steps.map((_, now) =>
    sizes.reduce((sum, size, at) => (at <= now && now <= last[at]! ? sum + size : sum), 0),
  );
  const peak = Math.max(...live);
  const at = live.indexOf(peak);
  let offset = 0;
  return {
    method: "forward",
    summary: table("Memory plan", [
      ["memory", "int", null, [1]],
      ["planned", "bytes", null, [peak + 8192]],
      ["peak_live", "bytes", null, [peak]],
    ]),
    owners: [
      table("Memory of forward by owner", [
        ["owner", "text", null, ["KV cache", "activations"]],
        ["size", "bytes", null, [8192, peak]],
      ]),
    ],
    live,
    labels: steps.map((one) => one.event),
    rows: steps.map((_, row) => row),
    peak,
    values: table("Values", [
      ["value", "int", null, steps.map((_, index) => index)],
      ["tensor", "text", null, steps.map(() => "float32[1, 128, 64]")],
      ["role", "text", null, steps.map(() => "intermediate")],
      ["op", "text", null, steps.map((one) => one.op)],
      ["memory", "int", null, steps.map(() => 1)],
      ["offset", "bytes", null, sizes.map((size) => ((offset += size) - size) % peak)],
      ["size", "bytes", null, sizes],
      ["first", "int", null, steps.map((_, index) => index)],
      ["last", "int", null, last],
      ["at_peak", "bool", null, steps.map((_, index) => index <= at && at <= last[index]!)],
    ]),
  };
}

/** A file of 5,000 bytes: two blocks, an embedding, a weight of the root, and what is not weights. */
export function makeWeights(): TableDoc {
  const parts = [
    ["tables", null, null, null, 600],
    ["weights", "embedding", "float32", "float32[16, 16]", 1024],
    ["weights", "blocks.layer.0.linear", "int8", "int8[32, 32]", 1024],
    ["weights", "blocks.layer.0.linear", "float32", "scales", 128],
    ["weights", "blocks.layer.1.linear", "int8", "int8[32, 32]", 1024],
    ["weights", "blocks.layer.1.linear", "float32", "scales", 128],
    ["weights", "(root)", "float32", "float32[64]", 256],
    ["weights", null, "float32", "float32[64]", 256],
    ["delegates' data", null, null, "XnnpackBackend", 500],
    ["padding", null, null, null, 60],
  ] as const;
  let end = 0;
  return table("Parts of the file", [
    ["kind", "text", null, parts.map(([kind]) => kind)],
    ["module", "path", null, parts.map(([, module]) => module)],
    ["dtype", "text", null, parts.map(([, , dtype]) => dtype)],
    ["content", "text", null, parts.map(([, , , content]) => content)],
    ["offset", "int", null, parts.map((part) => (end += part[4]) - part[4])],
    ["size", "bytes", null, parts.map((part) => part[4])],
  ]);
}

export function makeTimeline(steps: Step[], method: Method): Timeline {
  const timeline: Timeline = {
    note: "Runs 0 to 2 of 40",
    tracks: [
      { name: "Method forward", parent: null, note: null },
      { name: "XnnpackBackend", parent: 0, note: "events inside of the delegate, laid end to end" },
    ],
    names: ["Method::execute", ...steps.map((one) => one.event)],
    track: [],
    start: [],
    duration: [],
    name: [],
    level: [],
    row: [],
  };
  const push = (
    track: number,
    start: number,
    duration: number,
    name: number,
    level: number,
    row: [number, number] | null,
  ): void => {
    timeline.track.push(track);
    timeline.start.push(start);
    timeline.duration.push(duration);
    timeline.name.push(name);
    timeline.level.push(level);
    timeline.row.push(row);
  };
  let clock = 0;
  for (let run = 0; run < Math.min(3, method.runs); run++) {
    push(0, clock, method.totals[run]!, 0, 0, [0, steps.length + 1]);
    let inside = clock;
    let now = clock + 0.01;
    steps.forEach((one, row) => {
      const time = method.samples[row]![run]!;
      if (one.depth) {
        push(1, inside, time, row + 1, 0, [0, row]);
        inside += time;
      } else {
        push(0, now, time, row + 1, 1, [0, row]);
        inside = now + 0.01;
        now += time;
      }
    });
    clock += method.totals[run]! + 0.2;
  }
  return timeline;
}

/** As `Math.random`, the same every time. */
export function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export type ColumnOf = [name: string, kind: Kind, unit: string | null, values: Cell[]];

export function table(title: string, columns: ColumnOf[]): TableDoc {
  return {
    title,
    columns: columns.map(
      ([name, kind, unit], at): Column => ({
        name,
        title: name.replaceAll("_", " "),
        kind,
        unit,
        priority: at < 4 ? 0 : Math.min(9, at - 3),
      }),
    ),
    values: Object.fromEntries(columns.map(([name, , , values]) => [name, values])),
    notes: [],
  };
}

export const mean = (values: number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;
export const median = (values: number[]): number => quantile(values, 0.5);

export function quantile(values: number[], at: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const place = at * (sorted.length - 1);
  const low = sorted[Math.floor(place)]!;
  return low + (place % 1) * (sorted[Math.ceil(place)]! - low);
}

export function deviation(values: number[]): number {
  const average = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - average) ** 2)));
}
