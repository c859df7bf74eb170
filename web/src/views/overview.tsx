// Where the time goes, as a picture: the parts of a run by backend, operator and module.

import { useMemo } from "preact/hooks";
import type { Method, Run } from "../document";
import { nameColours } from "../drawings/scale";
import { formatDuration, formatShare, visible } from "../format";
import { groupRows } from "../groups";
import { doc, hashOf, type Place } from "../store";
import { TermLink } from "../parts/term";
import { bodyAndTotals, median } from "../tables";
import { theme } from "../theme";

/** One part of a bar. */
interface Part {
  name: string;
  time: number;
  /** Where it is shown; null of all others together. */
  place: Pick<Place, "tab" | "selection" | "controls"> | null;
}

/** Parts of a bar that have a colour of their own. */
const MOST = 7;
/** Smaller parts of the time are shown together. */
const LEAST = 0.01;
/** A module that takes more of the time is shown as those in it. */
const DIVIDED = 0.3;

export function TimePicture({ now, of, method }: { now: Run; of: Method; method: number }) {
  const bars = useMemo(
    () => [
      { title: "Backend", parts: groupedParts(of, "delegate") },
      { title: "Operator", parts: groupedParts(of, "op") },
      { title: "Module", parts: moduleParts(of, method) },
    ],
    [of],
  );
  const total = of.totals.reduce((sum, one) => sum + one, 0) / Math.max(1, of.totals.length);
  const middle = median(of.totals);
  const text = (time: number): string => `${formatDuration(time, now.unit)} ${now.unit}`;
  return (
    <section class="card" data-testid="time-picture">
      <h3>
        Where the time goes <small>{visible(of.name)}</small>
      </h3>
      <p>
        {middle !== null && (
          <b class="headline" data-value={middle}>
            {text(middle)}
          </b>
        )}{" "}
        <span class="muted">
          {of.totals.length > 1 && `median; mean ${text(total)}, `}
          <TermLink of="counted-runs">
            {visible(of.excluded?.words ?? (of.totals.length === 1 ? "one run" : `${of.totals.length} runs`))}
          </TermLink>
        </span>
      </p>
      {bars.map(({ title, parts }) => (
        <ShareBar
          key={title}
          now={now}
          method={method}
          title={title}
          parts={withRest(parts, total)}
          total={total}
        />
      ))}
    </section>
  );
}

interface ShareBarProps {
  now: Run;
  method: number;
  title: string;
  parts: Part[];
  total: number;
}

function ShareBar({ now, method, title, parts, total }: ShareBarProps) {
  if (parts.length < 2) return null;
  const colours = nameColours(
    parts.map(({ name }) => name),
    theme.value,
  );
  const run = doc.value.runs.indexOf(now);
  return (
    <figure class="share-bar" data-testid={`time-by-${title.toLowerCase()}`}>
      <figcaption>{title}</figcaption>
      <div class="share-parts" aria-hidden="true">
        {parts.map(({ name, time, place }) => (
          <i
            key={name}
            style={{ flexGrow: time / total, ...(place && { background: colours(name) }) }}
            title={`${visible(name)}: ${formatDuration(time, now.unit)} ${now.unit}`}
          />
        ))}
      </div>
      <ul>
        {parts.map(({ name, time, place }) => (
          <li key={name} data-value={time}>
            <i style={place ? { background: colours(name) } : {}} />
            {place ? <a href={hashOf({ run, method, ...place })}>{visible(name)}</a> : name}{" "}
            <b>{formatShare(time / total)}</b>
          </li>
        ))}
      </ul>
    </figure>
  );
}

function groupedParts({ rows }: Method, by: "delegate" | "op"): Part[] {
  return groupRows(rows, bodyAndTotals(rows).body, by, undefined).map(({ label, sums }) => ({
    name: label,
    time: sums["avg"] ?? 0,
    place: { tab: "events", selection: null, controls: { "events.group": by, "events.filter": "" } },
  }));
}

/** The modules below the root; the longest ones are divided as long as there is room. */
export function moduleParts({ modules }: Method, method: number): Part[] {
  const inside = modules.map((): number[] => []);
  const roots: number[] = [];
  modules.forEach(({ parent }, at) => (parent === null ? roots : inside[parent]!).push(at));
  const whole = roots.reduce((sum, at) => sum + modules[at]!.total, 0);
  const shown = [...roots];
  const left: Part[] = [];
  const isDivided = (at: number): boolean =>
    inside[at]!.length > 0 &&
    modules[at]!.total > DIVIDED * whole &&
    shown.length + inside[at]!.length <= MOST;
  for (let next = shown.findIndex(isDivided); next >= 0; next = shown.findIndex(isDivided)) {
    const [at] = shown.splice(next, 1);
    shown.push(...inside[at!]!);
    left.push(partOf(at!, modules[at!]!.self));
  }
  return [...shown.map((at) => partOf(at, modules[at]!.total)), ...left];

  function partOf(module: number, time: number): Part {
    const { path } = modules[module]!;
    return {
      name: path || "(root)",
      time,
      place: { tab: "modules", selection: { kind: "module", method, module }, controls: {} },
    };
  }
}

/** The longest parts, and all others as one: with what no instruction accounts for, the whole time. */
function withRest(parts: readonly Part[], total: number): Part[] {
  const shown = parts
    .filter(({ time }) => time >= LEAST * total)
    .sort((a, b) => b.time - a.time)
    .slice(0, MOST);
  const time = total - shown.reduce((sum, one) => sum + one.time, 0);
  return time > LEAST * total ? [...shown, { name: "other", time, place: null }] : shown;
}
