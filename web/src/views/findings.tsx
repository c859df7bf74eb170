// What matters in a run, in sentences: the first thing that the page shows.

import type { ComparisonDoc, FindingDoc, FindingPlace, Run } from "../document";
import { visible } from "../format";
import { doc, hashOf, type Place, type Selection } from "../store";

const TITLES: Record<FindingDoc["severity"], string> = {
  problem: "Problem",
  cost: "Cost",
  fact: "Fact",
  unknown: "Not known",
};

export function Findings({ now, method }: { now: Run; method: number }) {
  const shown = now.findings.filter((one) => one.methodIndex === null || one.methodIndex === method);
  if (!shown.length && !comparisonsOf(now, method).length) return null;
  return (
    <section class="card" data-testid="findings">
      <h3>What matters</h3>
      <ol class="findings">
        {comparisonsOf(now, method).map((one) => (
          <li key={`${one.a} ${one.b}`} data-kind="changed">
            <span class={one.verdict === "regressed" ? "severity severity-problem" : "severity"}>
              Changed
            </span>
            <a href={hashOf(placeOfComparison(now, method, one))}>
              {visible(`${nameOf(one.a)} → ${nameOf(one.b)}: ${one.headline.join(" ")}`)}
            </a>
          </li>
        ))}
        {shown.map((one) => (
          <li key={one.kind + one.sentence} data-kind={one.kind} data-value={one.quantity?.value}>
            <span class={`severity severity-${one.severity}`}>{TITLES[one.severity]}</span>
            {one.where ? (
              <a href={hashOf(placeOf(now, one, one.where))} title={visible(one.next ?? "")}>
                {visible(one.sentence)}
              </a>
            ) : (
              <span>
                {visible(one.sentence)} {one.next !== null && <code>{visible(one.next)}</code>}
              </span>
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}

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
export function placeOf(now: Run, one: FindingDoc, where: FindingPlace): Place {
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
