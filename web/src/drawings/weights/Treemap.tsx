// The bytes of a program's file as a treemap, nested by module.

import { useMemo, useState } from "preact/hooks";

import type { TableDoc } from "../../document";
import type { RowTest } from "../../filter";
import { formatBytes, formatShare, plainText, visible } from "../../format";
import { useWidth } from "../../parts/size";
import { pathTo } from "../modules/frames";
import { inkOn } from "../scale";
import { drawnBoxes } from "./tree";
import type { Box, Leaf, WeightNode } from "./tree";

/** Of a line of words, in pixels. */
const LINE = 14;
const LETTER = 6.4;
const MARGIN = 4;

interface TreemapProps {
  table: TableDoc;
  nodes: readonly WeightNode[];
  focus: number;
  height: number;
  colourOf(part: number): string;
  /** A part, or a node, that is looked at. */
  chosen: { part: number } | { node: number } | null;
  /** Leaves without a part that it keeps step back. */
  test: RowTest | null;
  label: string;
  testId: string;
  onPick(leaf: Leaf): void;
  onHover(leaf: Leaf | null): void;
}

export function Treemap({ table, nodes, focus, height, colourOf, chosen, test, label, testId, onPick, onHover }: TreemapProps) {
  const [stage, width] = useWidth<HTMLDivElement>();
  const [hover, setHover] = useState<Leaf | null>(null);
  const sizes = table.values["size"] as number[];
  const { leaves, modules } = useMemo(
    () => (width > 0 ? drawnBoxes(nodes, sizes, focus, width, height) : { leaves: [], modules: [] }),
    [nodes, sizes, focus, width, height],
  );
  const depth = pathTo(nodes, focus).length;
  const isChosen = (leaf: Leaf): boolean =>
    chosen !== null && ("part" in chosen ? leaf.parts.includes(chosen.part) : leaf.whole && leaf.node === chosen.node);
  const outlined =
    chosen && "node" in chosen ? modules.find(({ node }) => node === chosen.node) : leaves.find(isChosen);
  const show = (leaf: Leaf | null): void => {
    setHover(leaf);
    onHover(leaf);
  };
  return (
    <div class="treemap" ref={stage} style={{ height: `${height}px` }} onMouseLeave={() => show(null)}>
      <svg width={width} height={height} role="img" aria-label={label} data-testid={testId}>
        {leaves.map((leaf) => {
          const colour = colourOf(leaf.parts[0]!);
          const [wide, high] = [leaf.x1 - leaf.x0, leaf.y1 - leaf.y0];
          return (
            <g
              key={`${leaf.node}:${leaf.parts[0]}`}
              class={classOf(leaf === hover, test === null || leaf.parts.some(test))}
              transform={`translate(${leaf.x0},${leaf.y0})`}
              data-testid="weights-leaf"
              data-path={nodes[leaf.node]!.path}
              data-bytes={leaf.bytes}
              data-parts={leaf.parts.length}
              onClick={() => onPick(leaf)}
              onMouseEnter={() => show(leaf)}
            >
              <title>{titleOf(table, nodes, leaf)}</title>
              <rect width={wide} height={high} fill={colour} />
              {wide > 30 && high > LINE && (
                <Words lines={linesOf(table, nodes, leaf, modules)} wide={wide} high={high} ink={inkOn(colour)} />
              )}
            </g>
          );
        })}
        {modules.map((one) => (
          <rect
            key={one.node}
            class="treemap-module"
            {...placeOf(one)}
            stroke-width={Math.max(1, 4 - (pathTo(nodes, one.node).length - depth))}
          />
        ))}
        {outlined && <rect class="treemap-chosen" {...placeOf(outlined)} data-testid="weights-chosen" />}
      </svg>
    </div>
  );
}

const classOf = (isUnderPointer: boolean, isKept: boolean): string =>
  `treemap-leaf${isUnderPointer ? " hover" : ""}${isKept ? "" : " dim"}`;

const placeOf = ({ x0, x1, y0, y1 }: Box) => ({ x: x0, y: y0, width: x1 - x0, height: y1 - y0 });

interface Line {
  text: string;
  strong: boolean;
}

interface WordsProps {
  /** The names of modules, the leaf's name, its bytes. */
  lines: Line[];
  wide: number;
  high: number;
  ink: string;
}

function Words({ lines, wide, high, ink }: WordsProps) {
  const letters = Math.floor((wide - 2 * MARGIN) / LETTER);
  const room = Math.floor((high - 2) / LINE);
  const joined = lines.slice(0, -1).map(({ text }) => text);
  const shown = lines.length <= room ? lines : [{ text: joined.join(" › "), strong: true }, lines.at(-1)!];
  return (
    <>
      {shown.slice(0, room).map(({ text, strong }, at) => (
        <text key={at} x={MARGIN} y={LINE * (at + 1) - 2} fill={ink} font-weight={strong ? 600 : 400}>
          {text.length > letters ? `${text.slice(0, Math.max(letters - 1, 1))}…` : text}
        </text>
      ))}
    </>
  );
}

/** The names of the modules that begin at this corner, then the leaf's own. */
function linesOf(table: TableDoc, nodes: readonly WeightNode[], leaf: Leaf, modules: readonly Box[]): Line[] {
  const around = modules
    .filter(({ x0, y0, x1, y1 }) => x0 === leaf.x0 && y0 === leaf.y0 && x1 >= leaf.x1 && y1 >= leaf.y1)
    .map(({ node }) => ({ text: visible(nodes[node]!.name), strong: true }));
  const own = leaf.whole ? nodes[leaf.node]!.name : contentOf(table, leaf);
  return [...around, { text: visible(own), strong: leaf.whole }, { text: formatBytes(leaf.bytes), strong: false }];
}

/** "weight: float32[64, 8]", "float32[64, 8]" where no name is known, "3 parts". */
export function contentOf(table: TableDoc, { parts }: Pick<Leaf, "parts">): string {
  if (parts.length > 1) return `${parts.length} parts`;
  const text = (name: string): string => plainText(table.values[name]?.[parts[0]!]);
  const content = text("content") || text("dtype") || text("kind");
  const [name, module] = [text("name"), text("module")];
  const own = name.startsWith(`${module}.`) ? name.slice(module.length + 1) : name;
  return own ? `${own}: ${content}` : content;
}

function titleOf(table: TableDoc, nodes: readonly WeightNode[], leaf: Leaf): string {
  const share = formatShare(leaf.bytes / nodes[0]!.total);
  return `${visible(nodes[leaf.node]!.path) || "(root)"}\n${contentOf(table, leaf)}\n${formatBytes(leaf.bytes)} (${share} of ${nodes[0]!.name})`;
}
