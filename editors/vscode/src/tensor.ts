// Parts of a tensor: what is read of it, and what the heat map and the histogram show.

export interface Shape {
  dtype: string;
  sizes: number[];
}

/** What a tab shows: rows and columns of the last two dimensions, at `index` of the others. */
export interface Part {
  shape: Shape;
  index: number[];
  rows: Axis;
  columns: Axis;
}

interface Axis {
  size: number;
  step: number; // each such row is read; 1: all
}

const MOST = 128; // rows and columns that are read, and drawn

/** Reads "float32[2, 8]"; undefined for what is not a tensor. */
export function shapeOf(type: string | undefined): Shape | undefined {
  const found = /^([a-z]\w*)\[([\d, ]*)\]$/.exec(type ?? "");
  if (!found) return undefined;
  const sizes = found[2]!.split(",").flatMap((size) => (size.trim() ? [Number(size)] : []));
  return { dtype: found[1]!, sizes };
}

/** The part that is shown of a tensor. At most 128 rows and columns are read, evenly. */
export function partOf(shape: Shape, index: number[]): Part {
  const outer = shape.sizes.slice(0, -2);
  const [rows, columns] = shape.sizes.length > 1 ? shape.sizes.slice(-2) : [1, shape.sizes[0] ?? 1];
  const axis = (size: number): Axis => ({ size, step: Math.max(1, Math.ceil(size / MOST)) });
  const within = outer.map((size, at) => Math.min(Math.max(index[at] ?? 0, 0), size - 1));
  return { shape, index: within, rows: axis(rows!), columns: axis(columns!) };
}

/** The expression of etdb for a part: "x[0, 0:256:2, 0:8]". */
export function partExpression(expression: string, part: Part): string {
  const slice = ({ size, step }: Axis) => (step === 1 ? `0:${size}` : `0:${size}:${step}`);
  const two = part.shape.sizes.length > 1 ? [slice(part.rows), slice(part.columns)] : [slice(part.columns)];
  return `(${expression})[${[...part.index, ...two].join(", ")}]`;
}

/** A number as etdb writes it: "1,013.25", "-inf", "True". */
export function numberOf(text: string): number {
  const word = text.trim().toLowerCase().replaceAll(",", "");
  if (word === "true" || word === "false") return Number(word === "true");
  if (/^[+-]?inf(inity)?$/.test(word)) return word.startsWith("-") ? -Infinity : Infinity;
  return word === "" ? NaN : Number(word);
}

export interface Histogram {
  least: number;
  greatest: number;
  counts: number[];
  nan: number;
  infinite: number;
}

/** How many of the finite values are in each of equal intervals. */
export function histogram(values: ArrayLike<number>, bins = 48): Histogram {
  const all = Array.from(values);
  const finite = all.filter(Number.isFinite);
  const least = finite.reduce((a, b) => Math.min(a, b), Infinity);
  const greatest = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  const counts = new Array<number>(bins).fill(0);
  const width = (greatest - least) / bins;
  for (const value of finite) {
    counts[width > 0 ? Math.min(Math.floor((value - least) / width), bins - 1) : 0]! += 1;
  }
  const nan = all.filter(Number.isNaN).length;
  return { least, greatest, counts, nan, infinite: all.length - finite.length - nan };
}

/** A colour from blue through grey to red for -1 to 1, magenta for NaN, white or black for infinities. */
export function colour(value: number, most: number): [number, number, number] {
  if (Number.isNaN(value)) return [255, 0, 255];
  if (!Number.isFinite(value)) return value > 0 ? [255, 255, 255] : [0, 0, 0];
  const at = most > 0 ? Math.max(-1, Math.min(1, value / most)) : 0;
  const [end, grey, weight] = [at < 0 ? [33, 102, 212] : [209, 52, 43], 128, Math.abs(at)];
  return end.map((one) => Math.round(grey + (one - grey) * weight)) as [number, number, number];
}
