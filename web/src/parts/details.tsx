// The pane at the side: all that is known of what is selected, in every dialect.

import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { partnersOf } from "../compared";
import type { GraphDoc, Measure, Method, Run } from "../document";
import { formatDuration, formatWithUnit, plainText, visible } from "../format";
import { linesOf, moduleOf, nodesOf, parseRowKey, rowsOf, stackOf } from "../links";
import {
  doc,
  method,
  run,
  runIndex,
  select,
  selection,
  showRun,
  tab,
  type Selection,
  type TabName,
} from "../store";
import { hasValues } from "../tables";
import { ofEachBlock } from "../drawings/graph/repeats";
import { eachText } from "../drawings/repeats";
import { Facts } from "./facts";
import { LineLink, NodeLink, RowLink, SelectLink } from "./links";
import { OutlierNote } from "./outlier";
import { Series } from "./series";
import { Text } from "./text";
import { Values } from "./values";
import { BOX_TIME, MODULE_TIME, NO_MODULE } from "../words";

export function Details() {
  const sel = selection.value;
  if (sel === null) return null;
  const now = run.value;
  const errorsFirst = tab.value === "numerics";
  return (
    <aside class="details" aria-label="Details of the selection" data-testid="details">
      <header>
        <span class="badge">{kindOf(now, sel)}</span>
        <h2>
          <Text text={titleOf(now, sel)} />
        </h2>
        <button
          class="icon"
          aria-label="Clear the selection"
          title="Clear the selection (Esc)"
          onClick={() => select(null)}
        >
          ✕
        </button>
      </header>
      <div class="details-body">
        <Views sel={sel} />
        {errorsFirst && <Errors run={now} sel={sel} />}
        <Compared sel={sel} />
        <About run={now} sel={sel} />
        <Walk run={now} sel={sel} />
        {!errorsFirst && <Errors run={now} sel={sel} />}
        <Planned run={now} sel={sel} />
        <Stack run={now} sel={sel} />
      </div>
    </aside>
  );
}

const SHOWN_IN: Record<NonNullable<Selection>["kind"], readonly TabName[]> = {
  row: ["events", "graph", "timeline", "roofline", "modules", "source"],
  node: ["graph", "events", "roofline", "source"],
  group: ["graph", "events", "roofline"],
  module: ["modules", "graph", "events", "roofline"],
  line: ["source", "events", "graph", "roofline"],
};

function Views({ sel }: { sel: NonNullable<Selection> }) {
  return (
    <div class="show-in">
      <span class="muted">Show in</span>
      {SHOWN_IN[sel.kind]
        .filter((name) => name !== tab.value && (name !== "roofline" || hasDot(run.value, sel)))
        .map((name) => (
          <button class="link" key={name} title={`Show in ${name}`} onClick={() => (tab.value = name)}>
            {name}
          </button>
        ))}
    </div>
  );
}

/** Whether an operator that the selection covers stands in the roofline of its method. */
function hasDot(now: Run, sel: NonNullable<Selection>): boolean {
  for (const key of rowsOf(now, sel)) {
    const [inMethod, row] = parseRowKey(key);
    if (now.roofline?.methods[inMethod]?.rows.some((rows) => rows.includes(row))) return true;
  }
  return false;
}

function kindOf(now: Run, sel: NonNullable<Selection>): string {
  if (sel.kind === "row") {
    const kind = plainText(now.methods[sel.method]?.rows.values["kind"]?.[sel.row]);
    return kind ? kind.replaceAll("_", " ") : "instruction";
  }
  if (sel.kind === "group") return graphOf(now, sel.graph)?.groups[sel.group]?.kind ?? "group";
  return sel.kind === "line" ? "source line" : sel.kind;
}

function titleOf(now: Run, sel: NonNullable<Selection>): string {
  switch (sel.kind) {
    case "row":
      return plainText(now.methods[sel.method]?.rows.values["event"]?.[sel.row]) || `row ${sel.row}`;
    case "node":
      return graphOf(now, sel.graph)?.nodes[sel.node]?.name ?? "";
    case "group":
      return graphOf(now, sel.graph)?.groups[sel.group]?.label ?? "";
    case "module":
      return now.methods[sel.method]?.modules[sel.module]?.path || "(root)";
    case "line": {
      const line = now.source.lines[sel.line];
      return line ? `${now.source.files[line.file] ?? ""}:${line.line}` : "";
    }
  }
}

const graphOf = (now: Run, key: string) => now.graphs.find((graph) => graph.key === key);

function About({ run: now, sel }: { run: Run; sel: NonNullable<Selection> }) {
  switch (sel.kind) {
    case "row": {
      const of = now.methods[sel.method];
      return of ? <AboutRow run={now} method={of} row={sel.row} /> : null;
    }
    case "node":
      return <AboutNode run={now} graph={sel.graph} node={sel.node} />;
    case "module":
      return <AboutModule run={now} method={sel.method} module={sel.module} />;
    case "group":
      return <AboutGroup run={now} graph={sel.graph} group={sel.group} />;
    case "line":
      return null;
  }
}

/** The node in the program of another run: what differs, and the way there. */
function Compared({ sel }: { sel: NonNullable<Selection> }) {
  const { runs } = doc.value;
  return (
    <>
      {partnersOf(doc.value, runIndex.value, sel).map(({ run: other, node, status, what }) => {
        const partner =
          node === null ? undefined : graphOf(runs[other]!, (sel as { graph: string }).graph)?.nodes[node];
        return (
          <Block key={other} title={`Compared with ${runs[other]!.name}`} testId="compared">
            <p>
              <b data-testid="compared-status" data-status={status}>
                {partner ? status : "not there"}
              </b>
              {partner && node !== null && (
                <>
                  {": "}
                  <button
                    class="link"
                    data-testid="compared-partner"
                    title={`Show it in ${visible(runs[other]!.name)}`}
                    onClick={() => {
                      showRun(other);
                      select({ kind: "node", graph: (sel as { graph: string }).graph, node });
                    }}
                  >
                    {visible(partner.name)}
                  </button>
                </>
              )}
            </p>
            {what.length > 0 && (
              <ul class="compared-what">
                {what.map((text) => (
                  <li key={text}>{visible(text)}</li>
                ))}
              </ul>
            )}
          </Block>
        );
      })}
    </>
  );
}

const STATISTICS = ["avg", "p50", "p90", "p10", "min", "max", "std", "first", "kernel", "share", "calls"];
const SAID_ELSEWHERE = ["method", "event", "kind", "cumulative", "sources", "source"];

function AboutRow({ run: now, method: of, row }: { run: Run; method: Method; row: number }) {
  const { columns } = of.rows;
  const statistics = columns.filter((column) => STATISTICS.includes(column.name));
  const rest = columns.filter(({ name }) => !STATISTICS.includes(name) && !SAID_ELSEWHERE.includes(name));
  return (
    <>
      <Facts table={of.rows} row={row} columns={statistics} />
      <OutlierNote run={now} method={of} row={row} />
      <Series run={now} method={of} row={row} />
      <Facts table={of.rows} row={row} columns={rest} />
    </>
  );
}

function AboutNode({ run: now, graph, node }: { run: Run; graph: string; node: number }) {
  const dialect = graphOf(now, graph);
  const found = dialect?.nodes[node];
  if (!dialect || !found) return null;
  const facts: [string, string][] = [
    ["graph", dialect.title],
    ["op", found.op],
    ["kind", found.kind],
    ["debug handle", found.handle === null ? "" : String(found.handle)],
    ["outputs", found.outputs.join(", ")],
    ["weight", found.weight ?? ""],
    ["backend", found.backend ?? ""],
    ["instructions", found.instructions.join(", ")],
  ];
  return (
    <>
      <TextFacts facts={facts} />
      <Measures measures={dialect.measures} valueOf={(measure) => measure.nodes[node]} node={node} />
      {found.refusals && (
        <Block title={found.backend === null ? "Why it is not delegated" : "Who refused it before"}>
          <div data-testid="refusals">
            <TextFacts facts={found.refusals} />
          </div>
        </Block>
      )}
      {found.args.length > 0 && (
        <Block title="Arguments">
          <TextFacts facts={found.args} />
        </Block>
      )}
    </>
  );
}

interface MeasuresProps {
  measures: readonly Measure[];
  valueOf(measure: Measure): number | string | null | undefined;
  /** The node that the values are of; a box has none. */
  node?: number;
}

/** What was measured of a node or a box of a graph; the exact numbers are in the titles. */
function Measures({ measures, valueOf, node }: MeasuresProps) {
  const shown = measures.flatMap((measure) => {
    const value = valueOf(measure) ?? null;
    return value === null ? [] : [{ measure, value }];
  });
  const isShared = shown.some(({ measure }) => node !== undefined && measure.shared.includes(node));
  if (!shown.length) return null;
  return (
    <div data-testid="measures">
      <dl class="facts">
        {shown.map(({ measure, value }) => (
          <div class="fact" key={measure.key} data-fact={measure.key}>
            <dt>{visible(measure.title)}</dt>
            <dd data-value={value} title={visible(String(value))}>
              <bdi dir="ltr">{formatWithUnit(value, measure)}</bdi>
            </dd>
          </div>
        ))}
      </dl>
      {isShared && (
        <p class="muted" data-testid="shared-note">
          The time is of several nodes together, and stands at this one, the first of them.
        </p>
      )}
    </div>
  );
}

function TextFacts({ facts }: { facts: [string, string][] }) {
  return (
    <dl class="facts">
      {facts
        .filter(([, text]) => text !== "")
        .map(([name, text]) => (
          <div class="fact fact-text" key={name}>
            <dt>{visible(name)}</dt>
            <dd title={visible(text)}>
              <bdi dir="ltr">{visible(text)}</bdi>
            </dd>
          </div>
        ))}
    </dl>
  );
}

function AboutModule({ run: now, method: at, module }: { run: Run; method: number; module: number }) {
  const found = now.methods[at]?.modules[module];
  if (!found) return null;
  const time = (value: number): string => `${formatDuration(value, now.unit)} ${now.unit}`;
  return (
    <>
      <TextFacts
        facts={[
          ["type", found.type ?? ""],
          ["total", time(found.total)],
          ["without the modules below", time(found.self)],
        ]}
      />
      <p class="muted" data-testid="module-note">
        {found.path === "(no module)" ? `Here are ${NO_MODULE}` : MODULE_TIME}
      </p>
    </>
  );
}

function AboutGroup({ run: now, graph, group }: { run: Run; graph: string; group: number }) {
  const dialect = graphOf(now, graph);
  const found = dialect?.groups[group];
  if (!dialect || !found) return null;
  const isTimed = dialect.measures.some((one) => one.kind === "duration" && one.groups[group] != null);
  return (
    <>
      <TextFacts
        facts={[
          ["graph", dialect.title],
          ["name", found.name],
          ["type", found.type ?? ""],
          ["backend", found.backend ?? ""],
          ["nodes", String(nodesOf(now, { kind: "group", graph, group }, graph).size)],
        ]}
      />
      <Measures measures={dialect.measures} valueOf={(measure) => measure.groups[group]} />
      <TextFacts facts={ofBlocks(dialect, group)} />
      {isTimed && found.kind === "module" && (
        <p class="muted" data-testid="box-note">
          {BOX_TIME}
        </p>
      )}
    </>
  );
}

/** What each of a box's repeated blocks takes, by measure; empty for other boxes. */
function ofBlocks(graph: GraphDoc, group: number): [string, string][] {
  return graph.measures.flatMap((measure): [string, string][] => {
    const each = ofEachBlock(graph, measure, group);
    return each
      ? [[`${measure.title} of each block`, eachText(each, (value) => formatWithUnit(value, measure))]]
      : [];
  });
}

/** The same computation in each dialect, down to the instruction and the delegate's events. */
function Walk({ run: now, sel }: { run: Run; sel: NonNullable<Selection> }) {
  const rows = [...rowsOf(now, sel)].map(parseRowKey);
  const below = rows.length === 1 ? rowsBelow(now, rows[0]!) : [];
  const around = rows.length === 1 ? rowAround(now, rows[0]!) : null;
  const module = moduleOf(now, sel);
  const path = module && now.methods[module.method]?.modules[module.module]?.path;
  const shown: [number, number][] = [...(around ? [around] : []), ...rows, ...below];
  const nameless =
    around !== null &&
    now.graphs.length > 0 &&
    now.graphs.every((graph) => !nodesOf(now, sel, graph.key).size);
  return (
    <>
      {now.graphs.map((graph) => {
        const nodes = [...nodesOf(now, sel, graph.key)];
        return nodes.length > 0 ? (
          <Block key={graph.key} title={graph.title} count={nodes.length} testId={`walk-${graph.key}`}>
            <Listed
              items={nodes}
              draw={(node) => <NodeLink key={node} run={now} graph={graph.key} node={node} />}
            />
          </Block>
        ) : null;
      })}
      {nameless && (
        <p class="muted">
          Nothing tells which nodes this event of the delegate computes; those of its call are known.
        </p>
      )}
      {shown.length > 0 && (
        <Block
          title={below.length ? "Instruction and the delegate's events" : "Instructions and events"}
          count={shown.length}
          testId="walk-rows"
        >
          <Listed
            items={shown}
            draw={([at, row]) => <RowLink key={`${at}:${row}`} run={now} method={at} row={row} />}
          />
        </Block>
      )}
      {module && path !== undefined && sel.kind !== "module" && (
        <Block title="Module">
          <SelectLink to={{ kind: "module", ...module }} text={path || "(root)"} />
        </Block>
      )}
    </>
  );
}

function rowsBelow(now: Run, [at, row]: [number, number]): [number, number][] {
  const depth = now.methods[at]?.rows.depth ?? [];
  const below: [number, number][] = [];
  for (let next = row + 1; (depth[next] ?? 0) > (depth[row] ?? 0); next++) below.push([at, next]);
  return below;
}

function rowAround(now: Run, [at, row]: [number, number]): [number, number] | null {
  const depth = now.methods[at]?.rows.depth ?? [];
  if (!depth[row]) return null;
  let above = row;
  while (above > 0 && depth[above]! >= depth[row]!) above--;
  return [at, above];
}

/** The row of the method looked at that is selected, alone; else null. */
function onlyRow(now: Run, sel: NonNullable<Selection>): number | null {
  const rows = [...rowsOf(now, sel)]
    .map(parseRowKey)
    .filter(([at]) => now.methods[at]?.name === method.value?.name);
  return rows.length === 1 ? rows[0]![1] : null;
}

/** Numeric errors of the selected row, and the values behind them. */
function Errors({ run: now, sel }: { run: Run; sel: NonNullable<Selection> }) {
  const row = onlyRow(now, sel);
  const numerics = now.numerics?.method === method.value?.name ? now.numerics : null;
  if (row === null || !numerics) return null;
  const compared = numerics.rows.flatMap((one, at) => (one === row ? [at] : []));
  if (!compared.length) return null;
  return (
    <Block title="Numeric error" count={compared.length} testId="numeric-error">
      {compared.slice(0, 5).map((at) => (
        <div key={at}>
          <Values numerics={numerics} row={at} />
          <Facts table={numerics.table} row={at} />
        </div>
      ))}
    </Block>
  );
}

/** Planned memory that begins at the selected row. */
function Planned({ run: now, sel }: { run: Run; sel: NonNullable<Selection> }) {
  const row = onlyRow(now, sel);
  const memory = now.memory.find((one) => one.method === method.value?.name);
  const instruction = row === null ? -1 : (memory?.rows.indexOf(row) ?? -1);
  const values = memory?.values;
  if (!values || instruction < 0 || !hasValues(values.values["first"])) return null;
  const made = values.values["first"]!.flatMap((first, at) => (first === instruction ? [at] : []));
  if (!made.length) return null;
  return (
    <Block title="Memory that begins here" count={made.length}>
      {made.slice(0, 5).map((at) => (
        <Facts key={at} table={values} row={at} />
      ))}
    </Block>
  );
}

function Stack({ run: now, sel }: { run: Run; sel: NonNullable<Selection> }) {
  const stack = stackOf(now, sel);
  const lines = stack.length ? [...stack].reverse() : [...linesOf(now, sel)];
  if (!lines.length) return null;
  const title = stack.length > 1 ? "Stack, innermost first" : "Source lines";
  return (
    <Block title={title} count={lines.length} testId="stack">
      <Listed items={lines} draw={(line) => <LineLink key={line} run={now} line={line} />} />
    </Block>
  );
}

function Block({
  title,
  count,
  testId,
  children,
}: {
  title: string;
  count?: number;
  testId?: string;
  children: ComponentChildren;
}) {
  return (
    <section class="block" data-testid={testId}>
      <h3>
        {visible(title)}
        {count !== undefined && count > 1 && <small> {count}</small>}
      </h3>
      {children}
    </section>
  );
}

const AT_ONCE = 12;

function Listed<T>({ items, draw }: { items: readonly T[]; draw(item: T): ComponentChildren }) {
  const [count, setCount] = useState(AT_ONCE);
  const left = items.length - count;
  return (
    <>
      {items.slice(0, count).map(draw)}
      {left > 0 && (
        <button class="link more" onClick={() => setCount(count + 200)}>
          {Math.min(left, 200)} more
        </button>
      )}
    </>
  );
}
