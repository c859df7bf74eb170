// The memory of the program: its plan (what is alive when, what makes the peak), or its file's weights.

import { Fragment } from "preact";
import { useMemo } from "preact/hooks";
import uPlot from "uplot";
import type { Memory as MemoryDoc } from "../document";
import { filterRows } from "../filter";
import { formatBytes, visible } from "../format";
import { parseRowKey, rowsOf } from "../links";
import { control, indexControl, method, methodIndex, run, select, selection, selectRow } from "../store";
import { range, rowsIn, sortRows, tableFormats } from "../tables";
import { Chart, colour } from "../parts/chart";
import { useGrid } from "../parts/grid";
import { Nothing } from "../parts/nothing";
import { Plan } from "../parts/plan";
import { SimpleTable } from "../parts/simple";
import { useWidth } from "../parts/size";
import { DataTable } from "../parts/table";
import { ColumnChooser, CsvButton, FilterBox, Segments, Select, useFilter } from "../parts/toolbar";
import { sortKey } from "./events";
import { Weights } from "./weights";

const show = control("memory.show", "plan", ["plan", "weights"]);
const filter = control("memory.filter", "");
const chosen = control("memory.method", "");
/** A value of the plan, beside the instruction that is selected. */
const value = indexControl("memory.value");

export function Memory() {
  const now = run.value;
  const plans = now.memory;
  if (!plans.length)
    return <Nothing>Memory: unknown without the program. Add its .pte, or an ETRecord that stores it.</Nothing>;
  if (show.value === "weights" && now.weights) {
    return (
      <Weights key={now.id} run={now} table={now.weights}>
        <WhatIsShown />
      </Weights>
    );
  }
  const wanted = method.value?.name ?? chosen.value;
  const memory = plans.find((one) => one.method === wanted) ?? plans[0]!;
  return <Shown key={`${now.id}${memory.method}`} memory={memory} plans={plans} />;
}

function WhatIsShown() {
  return (
    <Segments
      label="What is shown"
      value={show.value}
      options={[
        ["plan", "Plan"],
        ["weights", "Weights"],
      ]}
      onChange={(next) => (show.value = next)}
      testId="memory-show"
    />
  );
}

function Shown({ memory, plans }: { memory: MemoryDoc; plans: MemoryDoc[] }) {
  const table = memory.values;
  const [place, width] = useWidth<HTMLDivElement>();
  const formats = useMemo(() => tableFormats(table), [table]);
  const grid = useGrid("memory", table, formats, width - 14);
  const { test, problem } = useFilter(filter.value, table);
  const rows = useMemo(
    () => sortRows(table, filterRows(table, range(0, rowsIn(table)), test), grid.sorting),
    [table, test, sortKey(grid.sorting)],
  );
  const instructions = useSelectedInstructions(memory);
  const selected = useMemo(
    () => valuesOf(memory, instructions, value.value),
    [memory, instructions, value.value],
  );
  const pickInstruction = (at: number): void => {
    value.value = null;
    const row = memory.rows[at];
    if (row !== null && row !== undefined) selectRow(row);
  };
  const pickValue = (at: number): void => {
    const first = Number(table.values["first"]?.[at]);
    const row = memory.rows[first];
    if (row !== null && row !== undefined) selectRow(row);
    else select(null);
    value.value = at;
  };
  const arenas = useMemo(
    () => [...new Set(table.values["memory"]?.map(Number))].sort((a, b) => a - b),
    [table],
  );
  return (
    <div class="view">
      <div class="toolbar">
        {run.value.weights && <WhatIsShown />}
        {plans.length > 1 && method.value === undefined && (
          <Select
            label="Method"
            value={memory.method}
            options={plans.map((one) => [one.method, one.method] as const)}
            onChange={(name) => (chosen.value = name)}
          />
        )}
        <FilterBox text={filter.value} onText={(text) => (filter.value = text)} problem={problem} />
        <span class="muted" title={`${memory.peak} bytes`} data-testid="peak" data-value={memory.peak}>
          peak {formatBytes(memory.peak)}
        </span>
        <span class="spacer" />
        <ColumnChooser grid={grid} />
        <CsvButton table={table} rows={rows} grid={grid} name={`${run.value.name}-${memory.method}-memory`} />
      </div>
      <div class="memory-top">
        <div class="memory-plots">
          <LiveChart memory={memory} instructions={instructions} onPick={pickInstruction} />
          {arenas.map((arena) => (
            <Plan
              key={arena}
              memory={memory}
              arena={arena}
              height={arenas.length > 1 ? 120 : 190}
              selected={selected}
              onPick={pickValue}
            />
          ))}
        </div>
        <div class="memory-facts">
          {memory.owners.map((one) => (
            <Fragment key={one.title}>
              <h3>{visible(one.title)}</h3>
              <SimpleTable table={one} testId="memory-owners" />
            </Fragment>
          ))}
          <h3>{visible(memory.summary.title)}</h3>
          <SimpleTable table={memory.summary} testId="memory-summary" />
          {table.notes.map((note) => (
            <p class="muted" key={note}>
              {visible(note)}
            </p>
          ))}
        </div>
      </div>
      <div class="fill" ref={place}>
        {width > 0 && (
          <DataTable
            grid={grid}
            formats={formats}
            rows={rows}
            selected={selected}
            onSelect={pickValue}
            label="Planned values"
            testId="memory-table"
            empty="No value matches the filter."
          />
        )}
      </div>
    </div>
  );
}

function useSelectedInstructions(memory: MemoryDoc): ReadonlySet<number> {
  const now = run.value;
  const sel = selection.value;
  const at = methodIndex.value;
  return useMemo(() => {
    const rows = new Set<number>();
    for (const key of rowsOf(now, sel)) {
      const [inMethod, row] = parseRowKey(key);
      if (inMethod === at) rows.add(row);
    }
    const found = new Set<number>();
    memory.rows.forEach((row, instruction) => {
      if (row !== null && rows.has(row)) found.add(instruction);
    });
    return found;
  }, [memory, now, sel, at]);
}

/** The value chosen, or those that begin at a selected instruction. */
function valuesOf(
  memory: MemoryDoc,
  instructions: ReadonlySet<number>,
  one: number | null,
): ReadonlySet<number> {
  const first = memory.values.values["first"] ?? [];
  if (one !== null && (!instructions.size || instructions.has(Number(first[one])))) return new Set([one]);
  return new Set(first.flatMap((at, index) => (instructions.has(Number(at)) ? [index] : [])));
}

function LiveChart({
  memory,
  instructions,
  onPick,
}: {
  memory: MemoryDoc;
  instructions: ReadonlySet<number>;
  onPick(at: number): void;
}) {
  const chart = useMemo(
    () => ({
      data: [
        range(0, memory.live.length + 1),
        [...memory.live, memory.live.at(-1) ?? null],
      ] as uPlot.AlignedData,
      options: options(memory, instructions),
    }),
    [memory, instructions],
  );
  if (memory.live.length < 2) return null;
  return (
    <Chart
      {...chart}
      height={150}
      label="Planned bytes alive at each instruction"
      testId="live-chart"
      onPick={(at) => onPick(Math.min(at, memory.live.length - 1))}
    />
  );
}

const BYTE_STEPS = range(0, 50).map((power) => 2 ** power);

function options(
  memory: MemoryDoc,
  instructions: ReadonlySet<number>,
): Omit<uPlot.Options, "width" | "height"> {
  return {
    scales: {
      x: { time: false, range: (_, min, max) => [min, max] },
      y: { range: (_, __, max) => [0, max * 1.05] },
    },
    cursor: { y: false, points: { size: 6 } },
    padding: [8, 8, 0, 0],
    axes: [
      { size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
      {
        size: 64,
        incrs: BYTE_STEPS,
        values: (_, splits) => splits.map((one) => formatBytes(one)),
        space: 34,
      },
    ],
    series: [
      {
        label: "instruction",
        value: (_, at) => (at === null ? "–" : `${at} ${visible(memory.labels[at] ?? "")}`),
      },
      {
        label: "alive",
        stroke: () => colour("accent"),
        fill: () => colour("accent-soft"),
        width: 1.2,
        paths: uPlot.paths.stepped!({ align: 1 }),
        points: { show: false },
        value: (_, bytes) => (bytes === null ? "–" : formatBytes(bytes)),
      },
    ],
    hooks: {
      draw: [
        (plot) => {
          plot.ctx.save();
          plot.ctx.fillStyle = colour("chosen-line");
          for (const at of instructions) {
            const left = plot.valToPos(at, "x", true);
            plot.ctx.globalAlpha = 0.35;
            plot.ctx.fillRect(
              left,
              plot.bbox.top,
              Math.max(2, plot.valToPos(at + 1, "x", true) - left),
              plot.bbox.height,
            );
          }
          plot.ctx.restore();
        },
      ],
    },
  };
}
