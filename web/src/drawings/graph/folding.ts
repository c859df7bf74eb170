// Which boxes are open, and the layout that belongs to it.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { controlOfEach } from "../../store";
import { layouts } from "../layout/client";
import type { Drawing } from "../layout/engine";
import { boxesAround, firstOpen } from "../layout/tree";
import type { GraphModel } from "./model";
import { isRepeat } from "./repeats";

/** Items that a graph may show at first sight. */
const FIRST_ROOM = 45;
/** Work that takes no longer than this is not announced, in milliseconds. */
const UNNOTICED = 150;

/** By graph key: the same boxes stay open in another run, and when a served report changes. As text:
 * the number of nodes and of boxes, then the groups whose boxes are open, "124.45:0-4,7". */
const openInside = controlOfEach("open");
const NONE: readonly number[] = [];
const names = new WeakMap<GraphModel, string>();
let count = 0;

export interface Folding {
  open: ReadonlySet<number>;
  setOpen: (open: ReadonlySet<number>) => void;
  toggle: (item: number) => void;
  /** Open all boxes around the items; whether any was closed, so that another layout will come. */
  openTo: (items: number[]) => boolean;
  drawing: Drawing | null;
  busy: boolean;
  failure: string | null;
}

/** shown: items whose boxes are open at first, too. */
export function useFolding(model: GraphModel, weights: boolean, shown: readonly number[] = NONE): Folding {
  const kept = openInside(model.doc.key);
  const open = useMemo(() => {
    const known = openOfText(model, kept.value);
    if (known) return known;
    const { tree } = model;
    const first = firstOpen(tree, FIRST_ROOM, (box) => isRepeat(model.doc.groups[box - tree.nodeCount]));
    return new Set([...first, ...shown.flatMap((item) => [...boxesAround(tree, item)])]);
  }, [model, kept.value, shown]);
  const [drawing, setDrawing] = useState<Drawing | null>(null);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  const latest = useRef(0);
  const openNow = useRef(open);
  openNow.current = open;

  useEffect(() => {
    const ticket = ++latest.current;
    const name = nameOf(model);
    layouts.addGraph(name, model.shape);
    const announce = setTimeout(() => setBusy(true), UNNOTICED);
    layouts.layout(name, { open, weights }).then(
      (laid) => finish(() => setDrawing(laid.drawing)),
      (error: unknown) => finish(() => setFailure(String(error))),
    );
    const finish = (take: () => void): void => {
      if (ticket !== latest.current) return;
      clearTimeout(announce);
      setBusy(false);
      setFailure(null);
      take();
    };
    return () => clearTimeout(announce);
  }, [model, open, weights]);

  // Layouts that come after the pane is gone find nobody.
  useEffect(() => () => void (latest.current = -1), []);

  return useMemo(() => {
    const setOpen = (next: ReadonlySet<number>): void => {
      openNow.current = next;
      kept.value = textOfOpen(model, next);
    };
    return {
      open,
      setOpen,
      toggle: (item) => {
        const next = new Set(openNow.current);
        if (!next.delete(item)) next.add(item);
        setOpen(next);
      },
      openTo: (items) => {
        const next = new Set(openNow.current);
        for (const item of items) for (const box of boxesAround(model.tree, item)) next.add(box);
        if (next.size === openNow.current.size) return false;
        setOpen(next);
        return true;
      },
      drawing,
      busy,
      failure,
    };
  }, [model, open, drawing, busy, failure]);
}

export function textOfOpen({ shape }: Pick<GraphModel, "shape">, open: ReadonlySet<number>): string {
  const groups = [...open].map((item) => item - shape.nodeCount).sort((a, b) => a - b);
  const ranges: [number, number][] = [];
  for (const group of groups) {
    const last = ranges.at(-1);
    if (last?.[1] === group - 1) last[1] = group;
    else ranges.push([group, group]);
  }
  const texts = ranges.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`));
  return `${shape.nodeCount}.${shape.groupCount}:${texts.join()}`;
}

/** Null for a text of another graph. */
export function openOfText(
  { shape }: Pick<GraphModel, "shape">,
  text: string,
): ReadonlySet<number> | null {
  const [of, groups] = text.split(":");
  if (of !== `${shape.nodeCount}.${shape.groupCount}`) return null;
  const open = new Set<number>();
  for (const [, first, last] of groups!.matchAll(/(\d+)(?:-(\d+))?/g)) {
    const to = Math.min(Number(last ?? first), shape.groupCount - 1);
    for (let group = Number(first); group <= to; group++) open.add(shape.nodeCount + group);
  }
  return open;
}

export function nameOf(model: GraphModel): string {
  let name = names.get(model);
  if (name === undefined) names.set(model, (name = `graph ${++count}`));
  return name;
}
