// The picture of a roofline, with what is said of the dot under the pointer or the keys.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RooflineCeilings } from "../../document";
import { formatDuration, formatShare, visible } from "../../format";
import { useWidth } from "../../parts/size";
import { Figure } from "../../parts/text";
import { gbpsOf, gflopsOf, intensityOf, peakOf, type Dot } from "./dots";
import { dotAt, pictureOf, type Line, type Picture, type Placed } from "./plot";
import { panned, zoomed, type View } from "./zoom";

interface RooflinePlotProps {
  dots: readonly Dot[];
  ceilings: RooflineCeilings | null;
  height: number;
  unit: string;
  /** Of a nanosecond, in `unit`. */
  perNs: number;
  colourOf(dot: Dot): string;
  selected: ReadonlySet<number>;
  onPick(at: number): void;
}

export function RooflinePlot(props: RooflinePlotProps) {
  const { dots, ceilings, height, colourOf, selected, onPick } = props;
  const [place, width] = useWidth<HTMLDivElement>();
  const [hover, setHover] = useState<number | null>(null);
  const [seen, setSeen] = useState<View | null>(null);
  const picture = useMemo(
    () => pictureOf(dots, ceilings, width, height, seen),
    [dots, ceilings, width, height, seen],
  );
  const zoom = useZoom(picture, width > 0, setSeen);
  const order = useMemo(() => [...picture.dots].sort((one, other) => one.x - other.x), [picture]);
  const now = hover === null ? null : (picture.dots.find(({ at }) => at === hover) ?? null);
  const under = (event: MouseEvent): Placed | null => {
    const area = (event.currentTarget as Element).getBoundingClientRect();
    return dotAt(picture, event.clientX - area.left, event.clientY - area.top);
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (zoom.onKey(event, now)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    const from = now === null ? -1 : order.indexOf(now);
    const to = {
      ArrowLeft: from < 0 ? order.length - 1 : Math.max(0, from - 1),
      ArrowRight: Math.min(order.length - 1, from + 1),
      Home: 0,
      End: order.length - 1,
    }[event.key];
    if (to !== undefined) setHover(order[to]?.at ?? null);
    else if (event.key === "Enter" && now) onPick(now.at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="roofline-plot" ref={place}>
      {width > 0 && (
        <div
          role="application"
          aria-roledescription="chart"
          aria-label={`Roofline: ${picture.dots.length} operators by arithmetic intensity and achieved GFLOP/s. Left and right arrow keys go from operator to operator, Enter selects; plus and minus zoom, Shift and an arrow key pans, 0 shows all. The table below has the same.`}
          tabIndex={0}
          data-testid="roofline-plot"
          onKeyDown={onKey}
        >
          {seen !== null && (
            <button class="button roofline-whole" data-testid="roofline-whole" onClick={() => setSeen(null)}>
              Show all
            </button>
          )}
          <svg
            ref={zoom.place}
            width={width}
            height={height}
            onPointerDown={zoom.onDown}
            onPointerMove={(event) => {
              if (!zoom.onMove(event)) setHover(under(event)?.at ?? null);
            }}
            onPointerUp={zoom.onUp}
            onPointerCancel={zoom.onUp}
            onPointerLeave={() => setHover(null)}
            onDblClick={() => setSeen(null)}
            onClick={(event) => {
              const found = zoom.dragged() ? null : under(event);
              if (found) onPick(found.at);
            }}
          >
            <Frame picture={picture} />
            <Dots picture={picture} colourOf={colourOf} selected={selected} />
            <Names lines={picture.lines} />
            {now && <Mark placed={now} colour="var(--text)" />}
          </svg>
        </div>
      )}
      <DotText {...props} dot={now?.dot ?? null} />
    </div>
  );
}

const STEP = 1.5; // of a key
const PAN = 0.2; // of what is seen
const SLACK = 4; // pixels that a click may move

/** The wheel and the pointer on the picture, and keys. */
function useZoom(picture: Picture, isShown: boolean, setSeen: (view: View | null) => void) {
  const place = useRef<SVGSVGElement>(null);
  const now = useRef(picture);
  now.current = picture;
  const drag = useRef<{ x: number; y: number; view: View; moved: boolean } | null>(null);
  const moved = useRef(false);
  /** A place of the picture in parts, from the lower left corner. */
  const partsOf = (x: number, y: number): [number, number] => {
    const { box } = now.current;
    const within = (part: number): number => Math.min(Math.max(part, 0), 1);
    return [
      within((x - box.left) / (box.right - box.left)),
      within((box.bottom - y) / (box.bottom - box.top)),
    ];
  };
  const by = (factor: number, x: number, y: number): void =>
    setSeen(zoomed(now.current.view, now.current.whole, factor, partsOf(x, y)));
  useEffect(() => {
    const svg = place.current;
    const onWheel = (event: WheelEvent): void => {
      const area = svg!.getBoundingClientRect();
      const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
      by(Math.exp(-pixels * 0.002), event.clientX - area.left, event.clientY - area.top);
      event.preventDefault(); // which a listener of Preact could not
    };
    svg?.addEventListener("wheel", onWheel, { passive: false });
    return () => svg?.removeEventListener("wheel", onWheel);
  }, [isShown]);
  return {
    place,
    /** True if the click that comes is the end of a drag. */
    dragged: () => moved.current,
    onDown: (event: PointerEvent): void => {
      moved.current = false;
      if (event.button !== 0) return;
      drag.current = { x: event.clientX, y: event.clientY, view: now.current.view, moved: false };
    },
    /** True while the picture is dragged. */
    onMove: (event: PointerEvent): boolean => {
      const from = drag.current;
      if (!from) return false;
      const [x, y] = [event.clientX - from.x, event.clientY - from.y];
      if (!from.moved && Math.hypot(x, y) < SLACK) return false;
      if (!from.moved) (event.currentTarget as Element).setPointerCapture(event.pointerId);
      from.moved = moved.current = true;
      const { box, whole } = now.current;
      setSeen(panned(from.view, whole, -x / (box.right - box.left), y / (box.bottom - box.top)));
      return true;
    },
    onUp: (): void => {
      drag.current = null;
    },
    /** True if the key was one of these. at: the dot that is pointed at, which stays where it is. */
    onKey: (event: KeyboardEvent, at: Placed | null): boolean => {
      const { box, view, whole } = now.current;
      const [x, y] = at ? [at.x, at.y] : [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
      const pan = {
        ArrowLeft: [-PAN, 0],
        ArrowRight: [PAN, 0],
        ArrowUp: [0, PAN],
        ArrowDown: [0, -PAN],
      }[event.key];
      if (event.shiftKey && pan) setSeen(panned(view, whole, pan[0]!, pan[1]!));
      else if (event.key === "+" || event.key === "=") by(STEP, x, y);
      else if (event.key === "-") by(1 / STEP, x, y);
      else if (event.key === "0") setSeen(null);
      else return false;
      return true;
    },
  };
}

/** Axes and ceilings. */
function Frame({ picture }: { picture: Picture }) {
  const { box, across, up, lines } = picture;
  return (
    <g class="roofline-frame">
      {across.map(({ at, text }) => (
        <g key={text}>
          <line x1={at} x2={at} y1={box.top} y2={box.bottom} />
          <text x={at} y={box.bottom + 14} text-anchor="middle">
            {text}
          </text>
        </g>
      ))}
      {up.map(({ at, text }) => (
        <g key={text}>
          <line x1={box.left} x2={box.right} y1={at} y2={at} />
          <text x={box.left - 6} y={at + 4} text-anchor="end">
            {text}
          </text>
        </g>
      ))}
      <text x={(box.left + box.right) / 2} y={box.bottom + 30} text-anchor="middle">
        FLOP/byte
      </text>
      <text transform={`translate(13 ${(box.top + box.bottom) / 2}) rotate(-90)`} text-anchor="middle">
        GFLOP/s
      </text>
      {lines.map((line) => (
        <line
          key={line.name}
          class={`ceiling ${line.used ? "" : "unused"}`}
          data-ceiling={line.name}
          x1={line.from[0]}
          y1={line.from[1]}
          x2={line.to[0]}
          y2={line.to[1]}
        />
      ))}
    </g>
  );
}

/** Above the dots: a name is read, a dot is seen through. */
function Names({ lines }: { lines: readonly Line[] }) {
  return (
    <g class="roofline-frame">
      {lines.map(({ name, text, at: [x, y] }) => (
        <g key={name}>
          <rect x={x - text.length * 3.2} y={y - 7} width={text.length * 6.4} height={14} />
          <text class="ceiling-name" x={x} y={y + 4} text-anchor="middle">
            {visible(text)}
          </text>
        </g>
      ))}
    </g>
  );
}

function Dots({
  picture,
  colourOf,
  selected,
}: {
  picture: Picture;
  colourOf(dot: Dot): string;
  selected: ReadonlySet<number>;
}) {
  const drawn = useMemo(
    () =>
      picture.dots.map((one) => {
        const shape = { fill: colourOf(one.dot), "data-dot": one.at };
        return one.moves ? (
          <path key={one.at} class="dot" {...shape} d={triangle(one)} />
        ) : (
          <circle
            key={one.at}
            class={one.dot.partial ? "dot partial" : "dot"}
            {...shape}
            cx={one.x}
            cy={one.y}
            r={one.radius}
          />
        );
      }),
    [picture, colourOf],
  );
  return (
    <g>
      {drawn}
      {picture.dots
        .filter(({ at }) => selected.has(at))
        .map((one) => (
          <Mark key={one.at} placed={one} colour="var(--chosen-line)" />
        ))}
    </g>
  );
}

const Mark = ({ placed: { x, y, radius }, colour }: { placed: Placed; colour: string }) => (
  <circle class="dot-mark" cx={x} cy={y} r={radius + 3} stroke={colour} />
);

/** To the left of the border: it would be further out. */
function triangle({ x, y, radius }: Placed): string {
  const half = Math.max(3.5, radius);
  return `M ${x - half} ${y} L ${x + half * 0.6} ${y - half} L ${x + half * 0.6} ${y + half} Z`;
}

function DotText({ dot, unit, perNs }: RooflinePlotProps & { dot: Dot | null }) {
  if (dot === null) {
    return (
      <p class="roofline-text muted">
        Point at an operator for its numbers; a click selects it everywhere. The wheel zooms, a double click
        shows all.
      </p>
    );
  }
  const [intensity, gflops, gbps, peak] = [intensityOf(dot), gflopsOf(dot), gbpsOf(dot), peakOf(dot)];
  const facts = [
    formatShare(dot.share),
    gflops !== null && `${dot.partial ? "at least " : ""}${figures(gflops)} GFLOP/s`,
    intensity !== null && `${figures(intensity)} FLOP/byte`,
    gbps !== null && `${figures(gbps)} GB/s`,
    peak !== null && `${formatShare(peak)} of the peak`,
    dot.bound !== null && `bound by ${dot.bound}`,
    dot.level,
    dot.dtype,
  ].filter(Boolean);
  const where = [dot.module, dot.source].filter((one) => one && one !== dot.name);
  return (
    <p class="roofline-text" aria-live="polite" data-testid="roofline-point">
      <b>
        <bdi dir="ltr">{visible(dot.name)}</bdi>
      </b>{" "}
      <Figure text={`${formatDuration(dot.ns * perNs, unit)} ${unit}`} value={dot.ns * perNs} />
      <span class="muted"> · {facts.join(" · ")}</span>
      {where.length > 0 && <span> · {visible(where.join(" · "))}</span>}
    </p>
  );
}

const figures = (value: number): string => String(Number(value.toPrecision(3)));
