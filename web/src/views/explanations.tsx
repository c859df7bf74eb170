// Why a run takes its time, and what to do: the findings of `etscope explain`.

import type { ExplainedDoc, Run, SiteDoc } from "../document";
import { formatDuration, formatShare, visible } from "../format";
import { hashOf } from "../store";
import { placeOf } from "./findings";

export function Explanations({ now, method }: { now: Run; method: number }) {
  const shown = now.explanations.filter((one) => one.methodIndex === method);
  if (!shown.length) return null;
  return (
    <section class="card" data-testid="explanations">
      <h3>Why it takes this time, and what to do</h3>
      <ol class="findings">
        {shown.map((one) => (
          <li key={one.kind + one.sentence} data-kind={one.kind} data-value={one.quantity?.value}>
            <span class={`severity severity-${one.severity}`}>
              {one.quantity?.share == null ? "" : formatShare(one.quantity.share)}
            </span>
            <div>
              {one.where ? (
                <a href={hashOf(placeOf(now, one, one.where))} title={visible(one.next ?? "")}>
                  {visible(one.sentence)}
                </a>
              ) : (
                visible(one.sentence)
              )}
              {one.explanation.remedies.map((remedy) => (
                <p key={remedy.text}>To do: {visible(remedy.text)}</p>
              ))}
              <Evidence now={now} one={one} />
            </div>
          </li>
        ))}
      </ol>
    </section>
  );
}

const SURENESS = {
  measured: "Measured: this run shows it",
  likely: "Likely: the time is measured, its reason is told from the program",
  possible: "Possible: other reasons would look the same",
};

function Evidence({ now, one }: { now: Run; one: ExplainedDoc }) {
  const { evidence, sites, sureness, low, high } = one.explanation;
  return (
    <details>
      <summary>{SURENESS[sureness]}</summary>
      <ul>
        {evidence.map((text) => (
          <li key={text}>{visible(text)}</li>
        ))}
        {low !== null && high !== null && (
          <li>
            {`The average is between ${formatDuration(low, now.unit)} and ${formatDuration(high, now.unit)} (95 %).`}
          </li>
        )}
        {sites.map((site) => (
          <li key={`${site.instruction} ${site.name}`}>{visible(siteText(site, now.unit))}</li>
        ))}
      </ul>
    </details>
  );
}

const siteText = ({ name, instruction, module, line, time }: SiteDoc, unit: string): string =>
  [
    name,
    instruction === null ? null : `instruction ${instruction}`,
    module,
    line,
    time === null ? null : formatDuration(time, unit),
  ]
    .filter((text) => text !== null)
    .join(", ");
