// The part of a roofline that is looked at. Both axes are logarithmic: a part is told by decimal logarithms.

/** From and to on each axis, as decimal logarithms. */
export interface View {
  across: readonly [number, number];
  up: readonly [number, number];
}

const CLOSEST = 0.25; // decades of an axis

/** The part that is `factor` times as close, with what stands at a place, in parts from the lower left
 * corner, where it is; null for the whole. */
export function zoomed(
  view: View,
  whole: View,
  factor: number,
  [x, y]: readonly [number, number],
): View | null {
  const axis = ([from, to]: View["up"], [least, most]: View["up"], at: number): View["up"] => {
    const length = Math.min(Math.max((to - from) / factor, CLOSEST), most - least);
    return within(from + (to - from - length) * at, length, least, most);
  };
  return unlessWhole({ across: axis(view.across, whole.across, x), up: axis(view.up, whole.up, y) }, whole);
}

/** The part beside, moved by parts of itself. */
export function panned(view: View, whole: View, x: number, y: number): View | null {
  const axis = ([from, to]: View["up"], [least, most]: View["up"], by: number): View["up"] =>
    within(from + (to - from) * by, to - from, least, most);
  return unlessWhole({ across: axis(view.across, whole.across, x), up: axis(view.up, whole.up, y) }, whole);
}

/** The part as far as there is something: dots come and go with a filter. */
export const inside = (view: View, whole: View): View => panned(view, whole, 0, 0) ?? whole;

function within(from: number, length: number, least: number, most: number): View["up"] {
  const size = Math.min(length, most - least);
  const start = Math.min(Math.max(from, least), most - size);
  return [start, start + size];
}

function unlessWhole(view: View, whole: View): View | null {
  const near = (one: View["up"], other: View["up"]): boolean =>
    Math.abs(one[0] - other[0]) + Math.abs(one[1] - other[1]) < 1e-9;
  return near(view.across, whole.across) && near(view.up, whole.up) ? null : view;
}
