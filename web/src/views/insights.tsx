// What matters in a run and what to do about it: the first thing that the page shows.

import { useMemo } from "preact/hooks";
import type { ComparisonDoc, ExplanationDoc, FindingPlace, InsightDoc, Run, SiteDoc } from "../document";
import { formatDuration, formatShare, visible } from "../format";
import { baseName, LineLink } from "../parts/links";
import { Command, Prose } from "../parts/prose";
import { doc, hashOf, type Place, type Selection } from "../store";
import { CHANGES, SEVERITIES, SURENESS } from "../words";

/** Insights that are shown at first, when so many cost time. */
const MOST = 5;
/** Facts take the place of costs where there are few. */
const LEAST = 3;

export function Insights({ now, method }: { now: Run; method: number }) {
  const comparisons = comparisonsOf(now, method);
  const [first, rest] = useMemo(() => {
    const shown = now.insights.filter((one) => one.methodIndex === null || one.methodIndex === method);
    const costs = shown.filter((one) => one.severity === "problem" || one.explanation).slice(0, MOST);
    const facts = shown.filter((one) => !costs.includes(one));
    const room = Math.max(0, LEAST - costs.length);
    return [[...costs, ...facts.slice(0, room)], facts.slice(room)];
  }, [now, method]);
  if (!first.length && !comparisons.length) return null;
  return (
    <section class="card" data-testid="insights">
      <h3>What matters</h3>
      <ol class="insights">
        {comparisons.map((one) => (
          <li key={`${one.a} ${one.b}`} data-kind="changed">
            <span class={one.verdict === "regressed" ? "severity severity-problem" : "severity"}>
              {CHANGES[one.verdict ?? "cannot tell"]}
            </span>
            <div>
              <a class="insight-headline" href={hashOf(placeOfComparison(now, method, one))}>
                {visible(`${nameOf(one.a)} → ${nameOf(one.b)}: ${one.headline[0]}`)}
              </a>
            </div>
          </li>
        ))}
        {first.map((one) => (
          <Insight key={one.kind + one.sentence} now={now} one={one} />
        ))}
      </ol>
      {rest.length > 0 && (
        <details class="more-insights" data-testid="more-insights">
          <summary>{rest.length} more</summary>
          <ol class="insights" start={first.length + comparisons.length + 1}>
            {rest.map((one) => (
              <Insight key={one.kind + one.sentence} now={now} one={one} />
            ))}
          </ol>
        </details>
      )}
    </section>
  );
}

function Insight({ now, one }: { now: Run; one: InsightDoc }) {
  const share = one.quantity?.unit === "bytes" ? null : (one.quantity?.share ?? null);
  return (
    <li data-kind={one.kind} data-value={one.quantity?.value}>
      <span class={`severity severity-${one.severity}`}>
        {share === null ? SEVERITIES[one.severity] : formatShare(share)}
        {share !== null && <i class="share" style={{ "--share": `${100 * Math.min(1, share)}%` }} />}
      </span>
      <div>
        <div class="insight-headline">
          {one.where ? (
            <a href={hashOf(placeOf(now, one, one.where))}>
              <Prose text={one.sentence} />
            </a>
          ) : (
            <p>
              <Prose text={one.sentence} />
            </p>
          )}
          {one.next !== null && one.where !== null && <Command text={one.next} short />}
        </div>
        {one.explanation && <Explanation now={now} found={one.explanation} of={one.sentence} />}
        {one.next !== null && one.where === null && <Command text={one.next} />}
      </div>
    </li>
  );
}

function Explanation({ now, found, of }: { now: Run; found: ExplanationDoc; of: string }) {
  const { evidence, sites, sureness, remedies, low, high } = found;
  const [fix, ...others] = remedies;
  const line = lineOf(now, of, sites);
  return (
    <>
      {line !== null && <LineLink run={now} line={line} show="source" />}
      {fix && (
        <p>
          <b>Fix:</b> <Prose text={fix.text} />
        </p>
      )}
      {fix?.paste && <pre class="paste">{visible(fix.paste)}</pre>}
      <details>
        <summary>{SURENESS[sureness]}</summary>
        <ul>
          {evidence.map((text) => (
            <li key={text}>
              <Prose text={text} />
            </li>
          ))}
          {low !== null && high !== null && (
            <li>{`The average is ${formatDuration(low, now.unit)} to ${formatDuration(high, now.unit)} ${now.unit} (95 % interval).`}</li>
          )}
          {others.map(({ text, paste }) => (
            <li key={text}>
              <b>Or:</b> <Prose text={text} />
              {paste && <pre class="paste">{visible(paste)}</pre>}
            </li>
          ))}
          {sites.map((site) => (
            <li key={`${site.instruction} ${site.name}`}>{visible(siteText(site, now.unit))}</li>
          ))}
        </ul>
      </details>
    </>
  );
}

/** The line of Python that a sentence names, else the one of the longest operator, as an index into the source. */
function lineOf({ source }: Run, sentence: string, sites: readonly SiteDoc[]): number | null {
  const name = /[^\s(]+\.py:\d+/.exec(sentence)?.[0] ?? sites[0]?.line;
  if (!name) return null;
  const at = source.lines.findIndex(
    ({ file, line }) => `${baseName(source.files[file] ?? "")}:${line}` === name,
  );
  return at < 0 ? null : at;
}

const siteText = ({ name, instruction, module, line, time }: SiteDoc, unit: string): string =>
  [
    name,
    instruction === null ? null : `instruction ${instruction}`,
    module,
    line,
    time === null ? null : `${formatDuration(time, unit)} ${unit}`,
  ]
    .filter((text) => text !== null)
    .join(", ");

/** What changed between this profile and others, each pair once, the earlier run first: the verdicts are
 * those of `etscope diff`. */
const comparisonsOf = (now: Run, method: number): ComparisonDoc[] => {
  const here = [doc.value.runs.indexOf(now), method].join();
  const isForward = ({ a, b }: ComparisonDoc): boolean => (a[0] - b[0] || a[1] - b[1]) < 0;
  return doc.value.comparisons.filter(
    (one) => isForward(one) && (one.a.join() === here || one.b.join() === here),
  );
};

const nameOf = ([at]: [number, number]): string => doc.value.runs[at]?.name ?? "";

const placeOfComparison = (now: Run, method: number, { a, b }: ComparisonDoc): Place => ({
  run: doc.value.runs.indexOf(now),
  tab: "compare",
  method,
  controls: { "compare.a": a.join(":"), "compare.b": b.join(":") },
  selection: null,
});

/** Where a finding is seen in the page. */
function placeOf(now: Run, one: InsightDoc, where: FindingPlace): Place {
  const method = one.methodIndex ?? 0;
  const controls: Record<string, string> = {};
  if (where.view === "events") {
    controls["events.show"] = "";
    controls["events.filter"] = where.select ?? "";
    controls["events.group"] = where.by ?? "";
  }
  if (where.view === "numerics") controls["numerics.filter"] = where.select ?? "";
  if (where.view === "memory") {
    controls["memory.method"] = one.method ?? "";
    controls["memory.show"] = one.kind === "weights" ? "weights" : "";
  }
  return {
    run: Math.max(0, doc.value.runs.indexOf(now)),
    tab: where.view,
    method,
    controls,
    selection: selected(now, method, where),
  };
}

function selected(now: Run, method: number, where: FindingPlace): Selection {
  const of = now.methods[method];
  if (!of) return null;
  if (where.view === "modules") {
    const module = of.modules.findIndex(({ path }) => path === where.name);
    return module < 0 ? null : { kind: "module", method, module };
  }
  if (where.instruction === null) return null;
  const head = (of.rows.values["instruction"] ?? []).indexOf(where.instruction);
  if (head < 0) return null;
  let row = head;
  for (let at = head; at === head || of.rows.depth?.[at]; at++) {
    if (of.rows.values["event"]?.[at] === where.name) row = at;
  }
  return { kind: "row", method, row };
}
