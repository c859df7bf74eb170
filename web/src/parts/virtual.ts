import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import { useLayoutEffect, useReducer, useState } from "preact/hooks";

/** Pixels of a row; the same in styles.css. */
export const ROW = 26;

/** Which rows are in view, by TanStack Virtual. `head` and `foot` are pixels that cover the ends. */
export function useVirtual(
  element: { current: HTMLDivElement | null },
  count: number,
  head: number,
  foot: number,
) {
  const [, again] = useReducer((now: number) => now + 1, 0);
  const [virtual] = useState(
    () =>
      new Virtualizer<HTMLDivElement, Element>({
        count,
        getScrollElement: () => element.current,
        estimateSize: () => ROW,
        scrollToFn: elementScroll,
        observeElementRect,
        observeElementOffset,
      }),
  );
  virtual.setOptions({
    count,
    getScrollElement: () => element.current,
    estimateSize: () => ROW,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    overscan: 12,
    scrollMargin: head,
    scrollPaddingStart: head,
    scrollPaddingEnd: foot,
    onChange: () => again(0),
  });
  useLayoutEffect(() => virtual._didMount(), []);
  useLayoutEffect(() => virtual._willUpdate());
  return virtual;
}
