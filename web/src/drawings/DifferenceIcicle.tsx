// The modules of two profiles as an icicle: as wide as the time of one side, coloured by the change.

import { useMemo } from "preact/hooks";

import type { ModuleNode, TableDoc } from "../document";
import { asNumber, formatDurations, visible } from "../format";
import { Nothing } from "../parts/nothing";
import { useWidth } from "../parts/size";
import { Segments } from "../parts/toolbar";
import { control } from "../store";
import { bodyAndTotals } from "../tables";
import { theme } from "../theme";
import { FrameBox, NARROWEST, ROW } from "./modules/frame";
import { frames } from "./modules/frames";
import { changeRamp } from "./scale";
import "./drawings.css";

/** The side whose time is the width. */
const width = control("compare.width", "after", ["after", "before"]);
/** What is zoomed into: the path of a module, "" for all. */
const zoom = control("compare.zoom", "");

/** Verdicts that show no change for certain. */
const UNSURE = ["cannot tell", "no difference"];

interface Changed extends ModuleNode {
  before: number;
  after: number;
  verdict: string;
}

/** The sums by module, which stand before those inside them. */
export function changedModules(table: TableDoc, wide: string): Changed[] {
  const above: number[] = [];
  const number = (name: string, row: number): number => asNumber(table.values[name]?.[row]) ?? 0;
  return bodyAndTotals(table).body.map((row) => {
    const depth = table.depth?.[row] ?? 0;
    above.splice(depth, above.length, row);
    const path = String(table.values["module"]![row]);
    return {
      path,
      name: path.slice(path.lastIndexOf(".") + 1),
      type: null,
      parent: above[depth - 1] ?? null,
      depth,
      total: number(wide, row),
      self: 0,
      rows: [],
      before: number("before", row),
      after: number("after", row),
      verdict: String(table.values["verdict"]?.[row] ?? table.values["status"]?.[row] ?? ""),
    };
  });
}

export function DifferenceIcicle({ table, unit }: { table: TableDoc; unit: string }) {
  const [stage, pixels] = useWidth<HTMLDivElement>();
  const modules = useMemo(() => changedModules(table, width.value), [table, width.value]);
  const zoomed = modules.findIndex(({ path }) => path === zoom.value);
  const focus = zoomed < 0 ? null : zoomed;
  const shown = useMemo(() => frames(modules, focus, NARROWEST / Math.max(pixels, 1)), [modules, focus, pixels]);
  const most = Math.max(...modules.map(({ before, after }) => Math.abs(after - before)), 0);
  const colour = changeRamp(theme.value);
  if (modules.length === 0) return <Nothing>No modules: the report was made without a record to name them.</Nothing>;
  const rows = shown.reduce((deepest, frame) => Math.max(deepest, frame.row + 1), 0);
  return (
    <>
      <div class="toolbar">
        <span class="muted">Width: time in</span>
        <Segments
          label="Width: time in"
          value={width.value}
          options={[
            ["before", "A"],
            ["after", "B"],
          ]}
          onChange={(next) => (width.value = next)}
          testId="compare-width"
        />
        <span class="muted">Red is slower in B, green is faster; hatched: no certain change. A click zooms in.</span>
        <button class="button" disabled={focus === null} onClick={() => (zoom.value = "")}>
          all modules
        </button>
      </div>
      <div class="icicle-stage" ref={stage}>
        <div class="icicle" role="tree" aria-label="Modules by change of time" style={{ height: `${rows * ROW}px` }}>
          {shown.map((frame) => {
            const module = modules[frame.module]!;
            const change = module.after - module.before;
            const isSure = !UNSURE.includes(module.verdict);
            const [a, b, by] = formatDurations([module.before, module.after, change], unit);
            const words = `${change > 0 ? "+" : ""}${by} ${unit}`;
            return (
              <FrameBox
                key={frame.module}
                frame={frame}
                width={pixels}
                row={frame.row}
                colour={frame.around ? null : colour(isSure && most > 0 ? change / most : 0)}
                name={module.name}
                time={words}
                class={isSure ? "frame-box" : "frame-box unsure"}
                aria-label={`${visible(module.path)}, ${words}`}
                data-testid="difference-frame"
                data-path={module.path}
                data-change={change}
                title={`${visible(module.path)}\n${a} → ${b} ${unit} (${words})\n${visible(module.verdict)}`}
                onClick={() => (zoom.value = frame.module === focus ? "" : module.path)}
              />
            );
          })}
        </div>
      </div>
    </>
  );
}
