// The user's Python with time and error beside each line that is known.

import { useEffect, useMemo } from "preact/hooks";
import type { Run } from "../document";
import { errorCells } from "../errors";
import { cellFormat, fixed, durationDecimals, formatShare, visible } from "../format";
import { filesOf, lineErrors, lineTimes, type FileLines, type LineTimes } from "../lines";
import { linesOf, stackOf } from "../links";
import { takeKeys } from "../keys";
import { control, method, run, select, selection } from "../store";
import { Nothing } from "../parts/nothing";
import { baseName } from "../parts/links";
import { Text } from "../parts/text";

/** The path of the file that is shown; "" for the first. */
const chosenFile = control("source.file", "");
const words = control("source.find", "");

/** Part of the time from which on it is said that no file has it. */
const LEAST = 0.001;

export function Source() {
  const now = run.value;
  const of = method.value;
  const times = useMemo(() => (of ? lineTimes(of) : new Map<number, LineTimes>()), [of]);
  const files = useMemo(() => filesOf(now, of, chosenFile.value), [now, of, chosenFile.value]);
  const sel = selection.value;
  const lines = useMemo(() => linesOf(now, sel), [now, sel]);
  const stack = useMemo(() => new Set(stackOf(now, sel)), [now, sel]);
  const first = [...lines][0];

  // What is selected elsewhere is brought into view with its file.
  useEffect(() => {
    if (first === undefined) return;
    chosenFile.value = now.source.files[now.source.lines[first]!.file] ?? "";
    requestAnimationFrame(() =>
      document.getElementById(`line-${first}`)?.scrollIntoView({ block: "nearest" }),
    );
  }, [now, first]);

  const fileDecimals = durationDecimals(
    files.map((one) => one.self),
    now.unit,
  );
  const total = of ? of.totals.reduce((sum, one) => sum + one, 0) / of.totals.length : 0;
  const elsewhere = total - files.reduce((sum, one) => sum + one.self, 0);
  const file = files.find((one) => one.path === chosenFile.value) ?? files[0];
  const shown = useMemo(() => file && matching(now, file, words.value), [now, file, words.value]);
  useEffect(() =>
    takeKeys({
      move(by) {
        const all = shown?.functions.flatMap((one) => one.lines) ?? [];
        const at = all.findIndex((line) => lines.has(line));
        const next = by === -Infinity ? 0 : by === Infinity ? all.length - 1 : at < 0 ? 0 : at + by;
        if (all[next] !== undefined) select({ kind: "line", line: all[next] });
      },
    }),
  );
  if (!file || !shown)
    return (
      <Nothing>No stack trace names a line of Python: neither the record nor the dump holds any.</Nothing>
    );
  return (
    <div class="view columns" data-testid="source">
      <nav class="files" aria-label="Files">
        {files.map((one) => (
          <button
            key={one.file}
            class="file"
            aria-pressed={one === file}
            title={visible(one.path)}
            onClick={() => (chosenFile.value = one.path)}
          >
            <Text text={baseName(one.path)} />
            <span class="figure" data-value={one.self}>
              {one.self ? fixed(one.self, fileDecimals) : ""}
            </span>
            <span class="file-path muted">
              <Text text={one.path} end />
            </span>
          </button>
        ))}
        {elsewhere > LEAST * total && (
          <p class="file muted" data-testid="elsewhere" title="Of several files together, or without a line">
            <span>no single file</span>
            <span class="figure" data-value={elsewhere}>
              {fixed(elsewhere, fileDecimals)}
            </span>
          </p>
        )}
      </nav>
      <div class="view">
        <div class="toolbar">
          <input
            type="search"
            aria-label="Find in the lines"
            placeholder="Find in the lines"
            title="Find in the lines (/)"
            value={words.value}
            onInput={(event) => (words.value = event.currentTarget.value)}
          />
          <span class="spacer" />
          <span class="muted">
            {of && `${now.unit} per run`}
            {shown.shared > 0 && `; ${fixed(shown.shared, fileDecimals)} ${now.unit} shared by several lines`}
          </span>
        </div>
        <Listing now={now} file={shown} times={times} lines={lines} stack={stack} />
      </div>
    </div>
  );
}

function matching(now: Run, file: FileLines, text: string): FileLines {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return file;
  const functions = file.functions
    .map((one) => ({
      ...one,
      lines: one.lines.filter((line) =>
        `${one.name} ${now.source.lines[line]!.text}`.toLowerCase().includes(wanted),
      ),
    }))
    .filter((one) => one.lines.length > 0);
  return { ...file, functions };
}

interface ListingProps {
  now: Run;
  file: FileLines;
  times: ReadonlyMap<number, LineTimes>;
  lines: ReadonlySet<number>;
  stack: ReadonlySet<number>;
}

function Listing({ now, file, times, lines, stack }: ListingProps) {
  const errors = useMemo(() => lineErrors(now.numerics), [now]);
  const values = useMemo(() => (now.numerics ? errorCells(now.numerics) : []), [now]);
  const most = Math.max(...[...times.values()].map((one) => one.total), 0);
  const all = Math.max(most, Number.MIN_VALUE);
  const decimals = durationDecimals([most], now.unit);
  const timed = times.size > 0;
  const errorText = cellFormat(
    { kind: "float", unit: null },
    [...errors.values()].map((at) => values[at] ?? null),
  );
  return (
    <div class="scroll listing">
      <table class="listing-table">
        <thead>
          <tr>
            {timed && (
              <th class="number" title="Time of everything that this line calls">
                total
              </th>
            )}
            {timed && (
              <th class="number" title="Time of this line alone, without what it shares with other lines">
                self
              </th>
            )}
            {now.numerics && (
              <th class="number" title={visible(`Worst ${now.numerics.metric} at the line`)}>
                {visible(now.numerics.metric)}
              </th>
            )}
            <th class="number">line</th>
            <th title={visible(file.path)}>
              <Text text={file.path} end />
            </th>
          </tr>
        </thead>
        {file.functions.map((one) => (
          <tbody key={`${one.name}${one.lines[0]}`}>
            <tr class="function">
              <td colSpan={1 + (timed ? 2 : 0) + (now.numerics ? 1 : 0)} />
              <td>
                <span class="muted">def</span> <bdi dir="ltr">{visible(one.name)}</bdi>
              </td>
            </tr>
            {one.lines.map((line) => {
              const found = now.source.lines[line]!;
              const time = times.get(line);
              const error = errors.get(line);
              const share = (time?.total ?? 0) / all;
              return (
                <tr
                  key={line}
                  id={`line-${line}`}
                  class={lines.has(line) ? "chosen" : stack.has(line) ? "in-stack" : ""}
                  data-line={found.line}
                  onClick={() => select({ kind: "line", line })}
                >
                  {timed && (
                    <td
                      class="number"
                      data-value={time?.total ?? ""}
                      style={{ "--share": `${100 * share}%` }}
                      title={time ? `${time.total} ${now.unit} in ${time.rows} rows` : undefined}
                    >
                      {time ? fixed(time.total, decimals) : ""}
                    </td>
                  )}
                  {timed && (
                    <td
                      class="number"
                      data-value={time?.self ?? ""}
                      title={
                        time
                          ? `${time.self} ${now.unit}, ${formatShare(time.self / all)} of the longest line`
                          : undefined
                      }
                    >
                      {time?.self ? fixed(time.self, decimals) : ""}
                    </td>
                  )}
                  {now.numerics && (
                    <td class="number" title={error === undefined ? undefined : String(values[error])}>
                      {error === undefined ? "" : errorText(values[error] ?? null)}
                    </td>
                  )}
                  <td class="number muted">{found.line}</td>
                  <td>
                    <code title={visible(found.text)}>{visible(found.text)}</code>
                  </td>
                </tr>
              );
            })}
          </tbody>
        ))}
      </table>
    </div>
  );
}
