// Repeated blocks of graphs and module trees: numbered modules of equal structure, one after the other,
// stand in a box of their own, "layers.0–11 ×12".

import { median } from "../tables";

/** No fewer blocks than this are worth a box of their own. */
const FEWEST = 4;

export interface EachBlock {
  least: number;
  median: number;
  greatest: number;
}

/** The least, median and greatest of the numbers; null without any. */
export function eachBlock(numbers: readonly number[]): EachBlock | null {
  const middle = median(numbers);
  return middle === null
    ? null
    : { least: Math.min(...numbers), median: middle, greatest: Math.max(...numbers) };
}

/** "0.1 ms to 0.3 ms, median 0.2 ms". */
export const eachText = (each: EachBlock, text: (value: number) => string): string =>
  `${text(each.least)} to ${text(each.greatest)}, median ${text(each.median)}`;

/** Siblings that follow each other by the number that ends their names and are of equal structure, in
 * runs of at least `FEWEST`. */
export function equalRuns<T>(
  siblings: readonly T[],
  nameOf: (one: T) => string,
  structureOf: (one: T) => string,
): T[][] {
  const series = new Map<string, T[]>();
  for (const one of siblings) {
    const stem = /^(.*?)\d+$/.exec(nameOf(one))?.[1];
    if (stem !== undefined) series.set(stem, [...(series.get(stem) ?? []), one]);
  }
  const runs: T[][] = [];
  for (const long of [...series.values()].filter((one) => one.length >= FEWEST)) {
    let run: T[] = [];
    for (const one of long) {
      const last = run.at(-1);
      const follows =
        last !== undefined &&
        numberOf(nameOf(one)) === numberOf(nameOf(last)) + 1 &&
        structureOf(one) === structureOf(last);
      if (!follows) runs.push((run = []));
      run.push(one);
    }
  }
  return runs.filter((run) => run.length >= FEWEST);
}

const numberOf = (name: string): number => Number(/\d+$/.exec(name)![0]);

/** "0–11", after the first name of so many: its last number is that of the last name. */
export const upTo = (first: string, last: string): string => `${first}–${/\d+$/.exec(last)![0]}`;

/** The end of a path from its last part that is no number: "layer.0" of "encoder.layer.0". */
export const namedEnd = (path: string): string => /[^.]*[^.\d][^.]*(?:\.\d+)*$/.exec(path)?.[0] ?? path;
