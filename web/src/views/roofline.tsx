// What each operator achieves beside what the machine can do: the roofline of the method looked at, and
// the same as a table.

import { useMemo } from "preact/hooks";
import type { Method, RooflineDoc, Run } from "../document";
import { dotsOf, dotTable, type By, type Dot } from "../drawings/roofline/dots";
import { RooflinePlot } from "../drawings/roofline/RooflinePlot";
import { nameColours } from "../drawings/scale";
import { filterRows } from "../filter";
import { convertedTime, formatShare, visible } from "../format";
import { parseRowKey, rowsOf } from "../links";
import { useGrid } from "../parts/grid";
import { Nothing } from "../parts/nothing";
import { SimpleTable } from "../parts/simple";
import { useWidth } from "../parts/size";
import { DataTable } from "../parts/table";
import { ColumnChooser, CsvButton, FilterBox, Popover, Segments, useFilter } from "../parts/toolbar";
import { control, method, methodIndex, sameSelection, select, selection } from "../store";
import { range, sortRows, tableFormats } from "../tables";
import { theme } from "../theme";
import { sortKey } from "./events";

const by = control<By>("roofline.by", "each", ["each", "op", "module", "source"]);
const colouring = control<"" | "bound" | "backend">("roofline.colour", "", ["", "bound", "backend"]);
const filter = control("roofline.filter", "");

export function Roofline({ run }: { run: Run }) {
  const doc = run.roofline;
  const of = method.value;
  if (!doc || !of) {
    return (
      <Nothing>
        No roofline: the FLOPs and bytes of what ran are not known. They are told by the ETRecord or the
        program, and the dump has to hold times.
      </Nothing>
    );
  }
  const points = doc.methods[methodIndex.value];
  if (!points) return <Nothing>The FLOPs and bytes of this method are not known.</Nothing>;
  return <Shown key={methodIndex.value} run={run} doc={doc} of={of} notes={points.notes} />;
}

interface ShownProps {
  run: Run;
  doc: RooflineDoc;
  of: Method;
  notes: readonly string[];
}

function Shown({ run, doc, of, notes }: ShownProps) {
  const [place, width] = useWidth<HTMLDivElement>();
  const perNs = convertedTime(1, "ns", run.unit) ?? 1;
  const index = methodIndex.value;
  const all = useMemo(() => dotsOf(doc, index, of, by.value), [doc, index, of, by.value]);
  const table = useMemo(() => dotTable(all, run.unit, perNs, by.value), [all, run.unit]);
  const formats = useMemo(() => tableFormats(table), [table]);
  const grid = useGrid(`roofline-${by.value}`, table, formats, width - 14);
  const { test, problem } = useFilter(filter.value, table);
  const kept = useMemo(() => filterRows(table, range(0, all.length), test), [table, test]);
  const rows = useMemo(() => sortRows(table, kept, grid.sorting), [table, kept, sortKey(grid.sorting)]);
  const dots = useMemo(() => kept.map((at) => all[at]!), [all, kept]);
  const key = colouring.value || (doc.ceilings ? "bound" : "backend");
  const { colourOf, legend } = useColours(all, key);
  const selected = useSelected(run, index, all);
  const drawn = useMemo(
    () => new Set(kept.flatMap((at, position) => (selected.has(at) ? [position] : []))),
    [kept, selected],
  );
  const share = dots.reduce((sum, dot) => sum + dot.share, 0);
  return (
    <div class="view" data-testid="roofline">
      <div class="toolbar">
        <Segments
          label="A dot for"
          value={by.value}
          options={[
            ["each", "Each"],
            ["op", "Operator"],
            ["module", "Module"],
            ["source", "Line"],
          ]}
          onChange={(next) => (by.value = next)}
          testId="roofline-by"
        />
        <Segments
          label="Colour"
          value={key}
          options={[
            ["bound", "Bound"],
            ["backend", "Backend"],
          ]}
          onChange={(next) => (colouring.value = next)}
          testId="roofline-colour"
        />
        <FilterBox text={filter.value} onText={(text) => (filter.value = text)} problem={problem} />
        <span class="spacer" />
        <span class="muted" data-testid="roofline-count">
          {dots.length === all.length ? all.length : `${dots.length} of ${all.length}`} rows ·{" "}
          {formatShare(share)} of the time
        </span>
        {doc.ceilings && (
          <Popover label="Ceilings of the machine" button="Ceilings" testId="roofline-ceilings">
            <b>{visible(doc.ceilings.table.title)}</b>
            <SimpleTable table={doc.ceilings.table} testId="ceilings-table" />
          </Popover>
        )}
        <ColumnChooser grid={grid} />
        <CsvButton table={table} rows={rows} grid={grid} name={`${run.name}-${of.name}-roofline`} />
      </div>
      <RooflinePlot
        dots={dots}
        ceilings={doc.ceilings}
        height={HEIGHT}
        unit={run.unit}
        perNs={perNs}
        colourOf={colourOf}
        selected={drawn}
        onPick={(at) => select(dots[at]!.to)}
      />
      <p class="roofline-legend" data-testid="roofline-legend">
        {legend.map(([name, colour]) => (
          <span key={name}>
            <i style={{ background: colour }} /> {visible(name)}
          </span>
        ))}
        <span class="muted">area: time · ◂ only moves data, by its GB/s</span>
      </p>
      <div class="fill" ref={place}>
        {width > 0 && (
          <DataTable
            grid={grid}
            formats={formats}
            rows={rows}
            selected={selected}
            onSelect={(at) => select(all[at]!.to)}
            label="Operators of the roofline"
            testId="roofline-table"
            empty={test ? "No row matches the filter." : "No rows."}
          />
        )}
      </div>
      {notes.length > 0 && (
        <div class="notes" data-testid="roofline-notes">
          {notes.map((note) => (
            <p key={note}>{visible(note)}</p>
          ))}
        </div>
      )}
    </div>
  );
}

/** Pixels of the picture; the table has the rest. */
const HEIGHT = Math.round(Math.min(460, Math.max(240, innerHeight * 0.42)));

const BOUNDS = {
  light: { compute: "#d9692b", memory: "#2f7ad1", overhead: "#8a4fa3" },
  dark: { compute: "#f08a4b", memory: "#5f9df0", overhead: "#c084dd" },
} as const;
const UNKNOWN = { light: "#8a92a0", dark: "#7b8494" } as const;

function useColours(
  dots: readonly Dot[],
  key: "bound" | "backend",
): { colourOf(dot: Dot): string; legend: [string, string][] } {
  return useMemo(() => {
    const nameOf = (dot: Dot): string =>
      key === "bound"
        ? dot.bound === null
          ? "bound not known"
          : `bound by ${dot.bound}`
        : dot.backend || "not delegated";
    const names = [...new Set(dots.filter(({ bytes }) => bytes !== null).map(nameOf))];
    const rank = (name: string): number => Number(name === "bound not known");
    names.sort((one, other) => rank(one) - rank(other) || one.localeCompare(other));
    const categories = nameColours(names, theme.value);
    const colour = (name: string): string => {
      if (key === "backend") return categories(name);
      const bound = name.replace("bound by ", "") as keyof (typeof BOUNDS)["light"];
      return BOUNDS[theme.value][bound] ?? UNKNOWN[theme.value];
    };
    return { colourOf: (dot) => colour(nameOf(dot)), legend: names.map((name) => [name, colour(name)]) };
  }, [dots, key, theme.value]);
}

/** The dots that what is selected covers. */
function useSelected(run: Run, index: number, dots: readonly Dot[]): ReadonlySet<number> {
  const now = selection.value;
  return useMemo(() => {
    const found = new Set<number>();
    const rows = new Set<number>();
    for (const key of rowsOf(run, now)) {
      const [inMethod, row] = parseRowKey(key);
      if (inMethod === index) rows.add(row);
    }
    dots.forEach((dot, at) => {
      const is = now !== null && sameSelection(dot.to, now);
      if (is || (dot.to !== null && dot.rows.some((row) => rows.has(row)))) found.add(at);
    });
    return found;
  }, [run, index, dots, now]);
}
