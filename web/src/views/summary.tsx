// What was run, on what, and how long it took.

import { useMemo } from "preact/hooks";
import type { FileFact, Method, Numerics, Run, Section, TableDoc } from "../document";
import { formatBytes, visible } from "../format";
import { doc, method, methodIndex, run, tab } from "../store";
import { bodyAndTotals, leavesOf, rowsIn, sortRows } from "../tables";
import { Facts } from "../parts/facts";
import { RowLink } from "../parts/links";
import { OUTLIER, outlierOf } from "../parts/outlier";
import { SampleChart } from "../parts/series";
import { SimpleTable } from "../parts/simple";
import { Prose } from "../parts/prose";
import { Figure, Text } from "../parts/text";
import { TermLink } from "../parts/term";
import { Insights } from "./insights";
import { Finding, Verdict } from "./numerics";
import { TimePicture } from "./overview";

export function Summary() {
  const now = run.value;
  const of = method.value;
  const sections = useMemo(() => now.summary.map(shaped), [now]);
  const matrix = sections.filter((one) => one.name === "matrix"); // of all runs
  const narrow = sections.filter((one) => !one.wide);
  return (
    <div class="view scroll" data-testid="summary">
      {now.notes.length > 0 && (
        <div class="card warning" role="note">
          <ul>
            {now.notes.map((note) => (
              <li key={note}>
                <Prose text={note} terms />
              </li>
            ))}
          </ul>
        </div>
      )}
      {matrix.map((one) => (
        <SectionCard key={one.name} {...one} />
      ))}
      <div class={of ? "first-screen" : "cards-wide"}>
        {of && <TimePicture now={now} of={of} method={methodIndex.value} />}
        <Insights now={now} method={methodIndex.value} />
        {of && <RunTimes now={now} of={of} />}
      </div>
      <div class="cards">
        {narrow.filter(isOfTimes).map((one) => (
          <SectionCard key={one.name} {...one} />
        ))}
        {now.numerics && <NumericsCard numerics={now.numerics} now={now} />}
        {of && <Longest now={now} of={of} />}
        <Files files={now.files} />
        {narrow
          .filter((one) => !isOfTimes(one))
          .map((one) => (
            <SectionCard key={one.name} {...one} />
          ))}
      </div>
      <div class="cards-wide">
        {sections
          .filter((one) => one.wide && one.name !== "matrix")
          .map((one) => (
            <SectionCard key={one.name} {...one} />
          ))}
      </div>
      <footer class="muted">{visible(doc.value.generator)}</footer>
    </div>
  );
}

/** What the values say, with what makes that doubtful. */
function NumericsCard({ now, numerics }: { now: Run; numerics: Numerics }) {
  const last = numerics.notes.indexOf(numerics.verdict ?? "");
  return (
    <section class={numerics.fine ? "card" : "card warning"} data-testid="numerics-card">
      <h3>
        Numerics of {visible(numerics.method)} <Verdict numerics={numerics} />
      </h3>
      {numerics.notes.slice(0, last + 1).map((note) => (
        <Finding key={note} now={now} numerics={numerics} text={note} />
      ))}
      <button class="link more" onClick={() => (tab.value = "numerics")}>
        all compared values
      </button>
    </section>
  );
}

function RunTimes({ now, of }: { now: Run; of: Method }) {
  const { runIndex, totals, excluded } = of;
  if (totals.length + (excluded?.totals.length ?? 0) < 2) return null;
  return (
    <section class="card" data-testid="run-times">
      <h3>Time of each run</h3>
      <SampleChart
        runIndex={runIndex}
        samples={totals}
        excluded={excluded}
        unit={now.unit}
        label="Time of each run"
        testId="totals-chart"
        height={150}
      />
    </section>
  );
}

const SHOWN = 8;

function Longest({ now, of }: { now: Run; of: Method }) {
  const rows = useMemo(() => {
    const isLeaf = leavesOf(of.rows);
    const leaves = bodyAndTotals(of.rows).body.filter((row) => isLeaf[row]);
    return sortRows({ ...of.rows, depth: undefined } as typeof of.rows, leaves, [
      { column: "avg", descending: true },
    ]).slice(0, SHOWN);
  }, [of]);
  const share = of.rows.values["share"];
  return (
    <section class="card" data-testid="longest">
      <h3>
        Longest <TermLink of="leaf">parts</TermLink> of {visible(of.name)}
      </h3>
      <div class="bars">
        {rows.map((row) => (
          <div class="bar" key={row} style={{ "--share": `${100 * Number(share?.[row] ?? 0)}%` }}>
            <RowLink run={now} method={now.methods.indexOf(of)} row={row} place show="events" />
          </div>
        ))}
      </div>
      {rows.some((row) => outlierOf(of, row)) && <p class="muted">{OUTLIER}</p>}
      <button class="link more" onClick={() => (tab.value = "events")}>
        all instructions
      </button>
    </section>
  );
}

function Files({ files }: { files: FileFact[] }) {
  if (!files.length) return null;
  return (
    <section class="card" data-testid="files">
      <h3>Files</h3>
      <table class="simple">
        <tbody>
          {files.map((file) => (
            <tr key={file.role + file.name}>
              <td class="muted">{visible(file.role)}</td>
              <td>
                <Text text={file.name} />
              </td>
              <td class="number">
                <Figure text={formatBytes(file.bytes)} value={file.bytes} />
              </td>
              <td class="mono muted" title={file.sha256 ? visible(`SHA-256 ${file.sha256}`) : undefined}>
                {file.sha256 ? visible(`${file.sha256.slice(0, 12)}…`) : ""}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface Shaped {
  name: string;
  table: TableDoc;
  facts: boolean;
  wide: boolean;
}

/** How long it took comes before what the files hold. */
const isOfTimes = ({ name }: Shaped): boolean => name === "profile";

function shaped(section: Section): Shaped {
  const table = withoutConstantMethod(section.table);
  const facts = section.facts || (rowsIn(table) === 1 && table.columns.length > 4);
  return { name: section.name, table, facts, wide: !facts && table.columns.length > 6 };
}

function SectionCard({ name, table, facts }: Shaped) {
  return (
    <section class="card" data-testid={`section-${name}`}>
      <h3>{visible(table.title || name.replaceAll("_", " "))}</h3>
      {facts ? <Facts table={table} /> : <SimpleTable table={table} />}
      {table.notes.map((note) => (
        <p class="muted" key={note}>
          <Prose text={note} terms />
        </p>
      ))}
    </section>
  );
}

/** A column that names the same method in every row says nothing. */
function withoutConstantMethod(table: TableDoc): TableDoc {
  if (table.columns.length < 2 || new Set(table.values["method"]).size !== 1) return table;
  return { ...table, columns: table.columns.filter((column) => column.name !== "method") };
}
