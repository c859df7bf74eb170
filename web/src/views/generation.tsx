// A language model's calls: the time of each token and what it is made of, the phases, what grows with
// the context, and a whole generation as it happened.

import { useMemo, useState } from "preact/hooks";
import type { Cell, GenerationDoc, Run } from "../document";
import { runToShow, Tracks } from "../drawings/TimelineView";
import { StackPanel } from "../drawings/generation/StackPanel";
import { panelsOf, sharesOf, typicalOf, type Over, type Panel } from "../drawings/generation/stack";
import { wholeOf } from "../drawings/generation/whole";
import { nameColours } from "../drawings/scale";
import { formatFloat, formatShare, plainText, visible } from "../format";
import { Facts } from "../parts/facts";
import { SelectLink } from "../parts/links";
import { Nothing } from "../parts/nothing";
import { Prose } from "../parts/prose";
import { SimpleTable } from "../parts/simple";
import { TermLink } from "../parts/term";
import { Figure, Text } from "../parts/text";
import { Segments, Select } from "../parts/toolbar";
import { control, indexControl, tab } from "../store";
import { theme } from "../theme";
import { GROWTH_MEANING } from "../words";

const GROUPINGS = [
  ["op", "Operator"],
  ["module", "Module"],
  ["source", "Line"],
] as const;

const by = control("generation.by", "");
const over = control<Over>("generation.over", "position", ["position", "call"]);
const which = control<"every" | "typical">("generation.calls", "every", ["every", "typical"]);
const generationShown = indexControl("generation.of");
const methodShown = indexControl("generation.method");

export function Generation({ run }: { run: Run }) {
  const doc = run.generation;
  if (!doc) return <Nothing>No generation: the run has no calls of a language model.</Nothing>;
  return (
    <div class="view scroll" data-testid="generation">
      <div class="cards-wide">
        <Stack run={run} doc={doc} />
        <section class="card" data-testid="generation-phases">
          <h3>{visible(doc.table.title)}</h3>
          <SimpleTable table={doc.table} testId="phase-table" />
          {doc.table.notes.map((note) => (
            <p class="muted" key={note}>
              <Prose text={note} terms />
            </p>
          ))}
        </section>
        {doc.pace && (
          <section class="card" data-testid="generation-pace">
            <h3>
              {visible(doc.pace.table.title)}, without <TermLink of="traced-run">tracing</TermLink>
            </h3>
            <Facts table={doc.pace.table} />
            {doc.pace.table.notes.map((note) => (
              <p class="muted" key={note}>
                <Prose text={note} terms />
              </p>
            ))}
          </section>
        )}
        <Growth run={run} />
        <WholeGeneration run={run} doc={doc} />
      </div>
    </div>
  );
}

/** The grouping that is chosen, or the first that tells groups apart. */
function groupingOf(doc: GenerationDoc): { key: string; known: (readonly [string, string])[] } {
  const known = GROUPINGS.filter(([key]) => (doc.groups[key]?.names.length ?? 0) > 0);
  const telling = known.filter(([key]) => named(doc, key).length > 1);
  const key = known.some(([one]) => one === by.value) ? by.value : (telling[0] ?? known[0]!)[0];
  return { key, known: telling.length ? telling : [...known] };
}

const named = (doc: GenerationDoc, key: string): string[] =>
  doc.groups[key]!.names.filter((name) => !name.startsWith("("));

function Stack({ run, doc }: { run: Run; doc: GenerationDoc }) {
  const { key, known } = groupingOf(doc);
  const generations = useMemo(() => [...new Set(doc.calls.generation)].sort((a, b) => a - b), [doc]);
  const generation = generations.includes(generationShown.value ?? -1) ? generationShown.value : null;
  const method = doc.methods[methodShown.value ?? -1] === undefined ? null : methodShown.value;
  const panels = useMemo(
    () => panelsOf(doc, { by: key, over: over.value, generation, method }),
    [doc, key, over.value, generation, method],
  );
  const isMany = panels.some(({ points }) => points.length > 2 * MOST_TYPICAL);
  const drawn = useMemo(
    () =>
      panels.map((panel) =>
        panel.decode && which.value === "typical" ? typicalOf(panel, MOST_TYPICAL) : panel,
      ),
    [panels, which.value],
  );
  const names = doc.groups[key]!.names.map(short);
  const colours = useMemo(() => {
    const colour = nameColours(names, theme.value);
    return names.map((name) => (name === "(the rest)" ? REST[theme.value] : colour(name)));
  }, [doc, key, theme.value]);
  const tracks = useMemo(() => new Set(run.timeline?.runs ?? []), [run]);
  const linkOf = (call: number): (() => void) | null => {
    const at = doc.calls.run[call]!;
    if (!tracks.has(at)) return null;
    return () => {
      runToShow.value = at;
      tab.value = "timeline";
    };
  };
  const hasLine = panels.some((one) => one.points.some(({ untraced }) => untraced !== null));
  return (
    <section class="card" data-testid="generation-stack">
      <h3>Time of each call, in {run.unit}</h3>
      <div class="stack-controls" role="toolbar" aria-label="What is drawn">
        <Segments
          label="Stacked by"
          value={key}
          options={known}
          onChange={(next) => (by.value = next)}
          testId="stack-by"
        />
        <Segments
          label="Over"
          value={over.value}
          options={[
            ["position", "Over position"],
            ["call", "Call by call"],
          ]}
          onChange={(next) => (over.value = next)}
          testId="stack-over"
        />
        {isMany && (
          <Segments
            label="Calls"
            value={which.value}
            options={[
              ["every", "Every call"],
              ["typical", "Typical calls"],
            ]}
            onChange={(next) => (which.value = next)}
            testId="stack-calls"
          />
        )}
        {generations.length > 1 && (
          <Select
            label="Generation"
            value={generation === null ? "" : String(generation)}
            options={[
              ["", over.value === "position" ? "mean of all" : "all"],
              ...generations.map((one) => [String(one), String(one)] as const),
            ]}
            onChange={(next) => (generationShown.value = next === "" ? null : Number(next))}
            testId="stack-generation"
          />
        )}
        {doc.methods.length > 1 && (
          <Select
            label="Method"
            value={method === null ? "" : String(method)}
            options={[
              ["", "all together"],
              ...doc.methods.map((one, at) => [String(at), visible(one)] as const),
            ]}
            onChange={(next) => (methodShown.value = next === "" ? null : Number(next))}
            testId="stack-method"
          />
        )}
      </div>
      <div class={panels.length > 1 ? "stack-panels two" : "stack-panels"}>
        {drawn.map((panel) => (
          <StackPanel
            key={String(panel.decode)}
            doc={doc}
            panel={panel}
            names={names}
            colours={colours}
            unit={run.unit}
            over={over.value}
            title={titleOf(doc, panel)}
            linkOf={linkOf}
          />
        ))}
      </div>
      <Legend panels={panels} names={names} full={doc.groups[key]!.names} colours={colours} doc={doc} />
      {hasLine && <p class="muted">The line, of single calls the dot, is the time without tracing.</p>}
      {isMany && which.value === "typical" && (
        <p class="muted">
          Of neighbouring decode calls the one with the median time is drawn; shares are of all.
        </p>
      )}
      {doc.note && <p class="muted">{visible(doc.note)}</p>}
    </section>
  );
}

/** Calls that are drawn where typical ones stand for the others. */
const MOST_TYPICAL = 48;

const REST = { light: "#c5cad3", dark: "#4a515e" } as const;

/** "…/sdpa_attention.py:193" as "sdpa_attention.py:193": the whole is in the title. */
const short = (name: string): string => visible(name.replace(/[^\s(]*[\\/]([^\\/\s]+:\d+)/g, "$1"));

function titleOf(doc: GenerationDoc, panel: Panel): string {
  const phases = [...new Set(panel.points.map(({ phase }) => doc.phases[phase] ?? "?"))];
  return visible(phases.join(", "));
}

/** The groups with their share of each panel: the text of the picture. */
function Legend({
  panels,
  names,
  full,
  colours,
  doc,
}: {
  panels: readonly Panel[];
  names: readonly string[];
  full: readonly string[];
  colours: readonly string[];
  doc: GenerationDoc;
}) {
  const shares = useMemo(() => panels.map(sharesOf), [panels]);
  return (
    <table class="simple stack-legend" data-testid="stack-legend">
      <thead>
        <tr>
          <th>from below</th>
          {panels.map((panel) => (
            <th class="number" key={String(panel.decode)}>
              {titleOf(doc, panel)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {names.map((name, at) => (
          <tr key={full[at]}>
            <td title={visible(full[at]!)}>
              <i style={{ background: colours[at]! }} /> {name}
            </td>
            {shares.map((each, panel) => (
              <td class="number" key={panel} data-value={each[at]}>
                {formatShare(each[at]!)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

interface GrownRow {
  method: number;
  row: number;
  growth: number;
}

/** The rows of which it is sure that they grow, as the tables of the methods have them. */
function grownRows(run: Run): GrownRow[] {
  const found = run.methods.flatMap((method, at) =>
    (method.rows.values["growth"] ?? []).flatMap((growth, row) =>
      typeof growth === "number" ? [{ method: at, row, growth }] : [],
    ),
  );
  return found.sort((one, other) => other.growth - one.growth);
}

function Growth({ run }: { run: Run }) {
  const [all, setAll] = useState(false);
  const rows = useMemo(() => grownRows(run), [run]);
  const told = run.methods.filter(({ rows: { values } }) => values["growth"] !== undefined);
  if (!told.length) return null;
  const unit = told[0]!.rows.columns.find(({ name }) => name === "growth")?.unit ?? "";
  const cell = ({ method, row }: GrownRow, name: string): Cell =>
    run.methods[method]!.rows.values[name]?.[row] ?? null;
  return (
    <section class="card" data-testid="generation-growth">
      <h3>What grows with the context</h3>
      {rows.length === 0 ? (
        <p class="muted">Of no row is it certain that it takes longer with more tokens before it.</p>
      ) : (
        <div class="simple-wrap">
          <table class="simple" data-testid="growth-table">
            <thead>
              <tr>
                <th>event</th>
                <th class="number">growth ({visible(unit)})</th>
                <th class="number">interval</th>
                <th>module</th>
                <th>source</th>
                <th>method</th>
              </tr>
            </thead>
            <tbody>
              {rows.slice(0, all ? rows.length : AT_ONCE).map((one) => (
                <tr key={`${one.method} ${one.row}`}>
                  <td>
                    <SelectLink
                      to={{ kind: "row", method: one.method, row: one.row }}
                      text={plainText(cell(one, "event"))}
                      show="events"
                    />
                  </td>
                  <td class="number">
                    <Figure text={formatFloat(one.growth)} value={one.growth} />
                  </td>
                  <td class="number">
                    {formatFloat(cell(one, "growth_low") as number)} to{" "}
                    {formatFloat(cell(one, "growth_high") as number)}
                  </td>
                  <td>
                    <Text text={plainText(cell(one, "module"))} end />
                  </td>
                  <td>
                    <Text text={plainText(cell(one, "source"))} end />
                  </td>
                  <td>{visible(run.methods[one.method]!.name)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!all && rows.length > AT_ONCE && (
        <button class="link more" onClick={() => setAll(true)}>
          all {rows.length} rows
        </button>
      )}
      <p class="muted">{GROWTH_MEANING}</p>
    </section>
  );
}

const AT_ONCE = 12;
const wholeShown = indexControl("generation.whole");

function WholeGeneration({ run, doc }: { run: Run; doc: GenerationDoc }) {
  const from = doc.untraced ?? doc.calls;
  const generations = useMemo(() => [...new Set(from.generation)].sort((a, b) => a - b), [from]);
  const shown = generations.includes(wholeShown.value ?? -1) ? wholeShown.value! : generations[0]!;
  const whole = useMemo(() => wholeOf(doc, shown), [doc, shown]);
  return (
    <section class="card" data-testid="generation-whole">
      <h3>The whole generation{doc.untraced ? ", without tracing" : ""}</h3>
      {generations.length > 1 && (
        <div>
          <Select
            label="Generation"
            value={String(shown)}
            options={generations.map((one) => [String(one), String(one)] as const)}
            onChange={(next) => (wholeShown.value = Number(next))}
            testId="whole-generation"
          />
        </div>
      )}
      <div class="whole" style={{ "--lanes": String(Math.min(whole.timeline.tracks.length, 12)) }}>
        <Tracks
          key={`${run.id} ${shown}`}
          run={run}
          timeline={whole.timeline}
          name="whole"
          describe={(span) => whole.names[span] ?? ""}
        />
      </div>
    </section>
  );
}
