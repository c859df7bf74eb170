// The table of a part of time: what lies in it, by operator, module, type or line.

import { useMemo } from "preact/hooks";

import type { Run, Timeline } from "../../document";
import { formatShare, visible } from "../../format";
import { groupingsOf, groupRows } from "../../groups";
import { Select } from "../../parts/toolbar";
import { control } from "../../store";
import { bodyAndTotals } from "../../tables";
import { spanSums, type SpanSums } from "./sums";

const MOST_LISTED = 200;
const grouping = control("timeline.by", "op");

interface SpanTableProps {
  run: Run;
  timeline: Timeline;
  marked: { from: number; to: number };
  write: (value: number) => string;
  onClose: () => void;
}

export function SpanTable({ run, timeline, marked, write, onClose }: SpanTableProps) {
  const sums = useMemo(() => spanSums(run, timeline, marked.from, marked.to), [run, timeline, marked]);
  const groupings = run.methods[0] ? groupingsOf(run.methods[0].rows) : [];
  const by = groupings.some(({ key }) => key === grouping.value) ? grouping.value : "op";
  return (
    <section class="timeline-sums" data-testid="span-sums" aria-label="Sums of the marked time">
      <header class="toolbar">
        <b>
          {write(marked.from)} to {write(marked.to)}
        </b>
        <Select
          label="by"
          value={by}
          options={groupings.map(({ key, title }) => [key, title] as const)}
          onChange={(key) => (grouping.value = key)}
          testId="span-by"
        />
        <span class="spacer" />
        <button class="icon" aria-label="Close the sums" title="Close (x)" onClick={onClose}>
          ✕
        </button>
      </header>
      {sums.length === 0 && <p class="muted">No instruction of a method lies in this time.</p>}
      {sums.map((one) => (
        <MethodSums key={one.method.name} sums={one} by={by} write={write} named={run.methods.length > 1} />
      ))}
    </section>
  );
}

interface MethodSumsProps {
  sums: SpanSums;
  by: string;
  write: (value: number) => string;
  named: boolean;
}

function MethodSums({ sums, by, write, named }: MethodSumsProps) {
  const { method, runs, total, times } = sums;
  const groups = useMemo(() => {
    const { body, totals } = bodyAndTotals(method.rows);
    const table = { ...method.rows, values: { ...method.rows.values, avg: times } };
    const rows = body.filter((row) => times[row] !== null);
    const found = groupRows(table, rows, by, undefined).map(({ label, sums: { avg } }) => [label, avg ?? 0] as const);
    return [...found, ["(unaccounted)", times[totals[0]!] ?? 0] as const].filter(([, time]) => time > 0);
  }, [method, times, by]);
  return (
    <table class="simple">
      <thead>
        <tr>
          <th>
            {named && `${visible(method.name)}: `}
            {runs} {runs === 1 ? "run" : "runs"}
          </th>
          <th class="number">time</th>
          <th class="number">share</th>
        </tr>
      </thead>
      <tbody>
        <tr data-testid="span-total" data-value={total} data-runs={runs}>
          <td>
            <b>Method::execute</b>
          </td>
          <td class="number">{write(total)}</td>
          <td class="number" />
        </tr>
        {groups.slice(0, MOST_LISTED).map(([label, time]) => (
          <tr key={label} data-testid="span-row" data-value={time} data-label={label}>
            <td>
              <bdi dir="ltr">{visible(label)}</bdi>
            </td>
            <td class="number" title={String(time)}>
              {write(time)}
            </td>
            <td class="number">{total > 0 && formatShare(time / total)}</td>
          </tr>
        ))}
        {groups.length > MOST_LISTED && (
          <tr>
            <td class="muted">{groups.length - MOST_LISTED} more</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}
