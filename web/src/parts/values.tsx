// The values behind an error: the device's beside what is expected.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Numerics, RowValues, ValueDoc } from "../document";
import { asNumber, formatCount, formatFloat, formatShare, plainText } from "../format";
import { control } from "../store";
import { Facts } from "./facts";
import { SimpleTable } from "./simple";
import { Segments } from "./toolbar";

const against = control("numerics.against", "", ["", "local", "total"]);

const AGAINST = [
  ["local", "Own error", "PyTorch's result from the device's inputs"],
  ["total", "To the reference", "the reference"],
] as const;

const MARK = "Its values are in the report: choose the row to see them";

/** The sign at a row whose values are in the report. */
export function ValuesMark() {
  return (
    <span class="values-mark" role="img" aria-label={MARK} title={MARK}>
      ▥
    </span>
  );
}

/** The values of a row of the numerics; a sentence where they are not in the report. */
export function Values({ numerics, row }: { numerics: Numerics; row: number }) {
  const found = numerics.values?.find((one) => one.row === row);
  if (!found) {
    if (!numerics.values?.length) return null;
    const count = numerics.values.length;
    const name = plainText(numerics.table.values["node"]?.[row]) || "NODE";
    return (
      <p class="muted" data-testid="no-values">
        The report has the values of {count === 1 ? "one row" : `${count} rows`} only, the worst and the
        outputs (▥); those of this one: <code>etscope numerics --values {name}</code>
      </p>
    );
  }
  return <Compared found={found} />;
}

function Compared({ found }: { found: RowValues }) {
  const wanted = against.value || found.shown;
  const chosen = wanted === "total" && found.total ? "total" : "local";
  const shown = chosen === "total" ? found.total! : found.local;
  const tables = new Map(shown.sections.map((section) => [section.name, section.table]));
  const facts = tables.get("value");
  return (
    <div class="values" data-testid="values" data-against={chosen}>
      {found.total && (
        <Segments
          label="What the device's values are compared with"
          value={chosen}
          options={AGAINST.map(([key, text]) => [key, text] as const)}
          onChange={(key) => (against.value = key === found.shown ? "" : key)}
          testId="values-against"
        />
      )}
      <p class="muted">
        Compared with {AGAINST.find(([key]) => key === chosen)![2]}
        {found.total ? "." : ", which has the same values as the reference."}
      </p>
      <Histogram shown={shown} />
      <Channels shown={shown} />
      {facts && <Facts table={facts} />}
      {["spread", "channels", "elements"].map((name) => {
        const table = tables.get(name);
        return (
          table && (
            <div key={name} class="values-table">
              <h4>{table.title}</h4>
              <SimpleTable table={table} testId={`values-${name}`} />
            </div>
          )
        );
      })}
    </div>
  );
}

// Drawings in a box of these units, stretched to the width there is.
const WIDTH = 400;
const HEIGHT = 120;

/** Both distributions in the same bins: the reference filled, the device as a line. */
function Histogram({ shown: { histogram, range } }: { shown: ValueDoc }) {
  const paths = useMemo(() => {
    if (!histogram) return null;
    const most = Math.max(1, ...histogram.reference, ...histogram.device);
    const step = WIDTH / histogram.reference.length;
    const line = (counts: readonly number[]): string =>
      `M0,${HEIGHT}` +
      counts
        .map((count, at) => {
          const y = (HEIGHT * (1 - count / most)).toFixed(2);
          return `L${(at * step).toFixed(2)},${y}L${((at + 1) * step).toFixed(2)},${y}`;
        })
        .join("") +
      `L${WIDTH},${HEIGHT}`;
    return { reference: line(histogram.reference), device: line(histogram.device), most };
  }, [histogram]);
  if (!histogram || !paths) return <p class="muted">There are no finite numbers.</p>;
  const { low, high, clippedShare } = histogram;
  const ends = (range ?? []).filter((end): end is number => end !== null && low <= end && end <= high);
  const label =
    `Distribution from ${formatFloat(low)} to ${formatFloat(high)}: reference and device in ` +
    `${histogram.reference.length} bins, at most ${formatCount(paths.most)} elements in one`;
  return (
    <figure>
      <figcaption>
        Distribution <span class="values-key values-reference">reference</span>{" "}
        <span class="values-key values-device">device</span>
        {ends.length > 0 && <span class="values-key values-range">quantized range</span>}
      </figcaption>
      <Drawing label={label} testId="values-histogram">
        <path class="values-reference" d={paths.reference} />
        <path class="values-device" d={paths.device} vector-effect="non-scaling-stroke" />
        {ends.map((end) => {
          const x = (WIDTH * (end - low)) / (high - low);
          return (
            <line
              key={end}
              class="values-range"
              x1={x}
              x2={x}
              y1={0}
              y2={HEIGHT}
              vector-effect="non-scaling-stroke"
            />
          );
        })}
      </Drawing>
      <Scale from={formatFloat(low)} to={formatFloat(high)} />
      {clippedShare > 0 && <p class="muted">{formatShare(clippedShare)} of the elements are outside.</p>}
    </figure>
  );
}

/** The error of each channel in order; what is not a number, or infinite, is drawn in full. */
function Channels({ shown: { channels, sections } }: { shown: ValueDoc }) {
  const table = sections.find((section) => section.name === "channels")?.table;
  const worst = asNumber(table?.values["channel"]?.[0]);
  if (!channels || worst === null) return null;
  const numbers = channels.rms.map((one) => (typeof one === "number" ? one : null));
  const most = Math.max(...numbers.map((one) => one ?? 0)) || 1;
  const step = WIDTH / numbers.length;
  const share = formatShare(asNumber(table?.values["share"]?.[0]));
  const marked = Math.floor(worst / channels.perEntry);
  const label =
    `Root mean square error of ${formatCount(channels.count)} channels (dimension ${channels.axis}): ` +
    `channel ${worst} has ${share} of the error`;
  return (
    <figure>
      <figcaption>
        Error by channel <span class="values-key values-worst">{`channel ${worst}: ${share}`}</span>
      </figcaption>
      <Drawing label={label} testId="values-channels">
        {numbers.map((one, at) => {
          const height = one === null ? HEIGHT : (HEIGHT * one) / most;
          return height > 0 ? (
            <rect
              key={at}
              class={at === marked || one === null ? "values-worst" : "values-device"}
              x={at * step + 0.08 * step}
              y={HEIGHT - height}
              width={0.84 * step}
              height={height}
            />
          ) : null;
        })}
      </Drawing>
      <Scale from="channel 0" to={String(channels.count - 1)} />
      {channels.perEntry > 1 && (
        <p class="muted">Each bar is the worst of {channels.perEntry} neighbouring channels.</p>
      )}
    </figure>
  );
}

/** The plane of a figure; its label tells what it shows. */
function Drawing({ label, testId, children }: { label: string; testId: string; children: ComponentChildren }) {
  return (
    <svg
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
      data-testid={testId}
    >
      <title>{label}</title>
      {children}
    </svg>
  );
}

function Scale({ from, to }: { from: string; to: string }) {
  return (
    <div class="values-scale">
      <span>{from}</span>
      <span>{to}</span>
    </div>
  );
}
