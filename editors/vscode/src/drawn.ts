// Reads the part of a tensor that a tab shows, through a debugger.

import { numberOf, type Part, partExpression, partOf, shapeOf } from "./tensor";

/** Asks the adapter: a request of the protocol and its arguments give the body of the answer. */
export type Ask = (command: string, args: object) => Thenable<unknown>;

interface Value {
  result: string;
  type?: string;
  variablesReference: number;
  indexedVariables?: number;
}

/** What the tab draws. */
export interface Drawn {
  title: string;
  statistics: string;
  part: Part;
  views: { name: string; values: number[] }[];
  note: string;
}

/** The part of a value at an index, PyTorch's value of it, and their difference. Throws an Error for
 * what is not a tensor. */
export async function drawn(ask: Ask, expression: string, index: number[]): Promise<Drawn> {
  const whole = await evaluated(ask, expression);
  const shape = shapeOf(whole.type);
  if (shape === undefined) throw new Error(`${expression} is ${whole.result}, not a tensor`);
  if (shape.sizes.includes(0)) throw new Error(`${expression} has no elements: ${whole.type}`);
  const part = partOf(shape, index);
  const read = async (of: string) => numbersOf(ask, await evaluated(ask, of));
  const [own, reference] = [expression, referenceOf(expression)].map((of) => partExpression(of, part));
  const views = [{ name: "value", values: await read(own!) }];
  let note = "";
  try {
    views.push({ name: "reference", values: await read(reference!) });
    // etdb subtracts: numbers as text are rounded.
    views.push({ name: "difference", values: await read(`${own} - ${reference}`) });
  } catch (error) {
    note = `Without PyTorch's value: ${error instanceof Error ? error.message : String(error)}`;
  }
  return { title: `${expression}: ${whole.type}`, statistics: whole.result, part, views, note };
}

/** PyTorch's value for an expression: `ref()` is of a stop or of a node, and comes before indices. */
function referenceOf(expression: string): string {
  const [, value, indices] = /^(\$|\w+)((?:\[[^\]]*\])*)$/.exec(expression) ?? [, expression, ""];
  return `ref(${value === "$" ? "" : value})${indices}`;
}

async function evaluated(ask: Ask, expression: string): Promise<Value> {
  return (await ask("evaluate", { expression, context: "watch" })) as Value;
}

/** The numbers of a value, row by row. */
async function numbersOf(ask: Ask, value: Value): Promise<number[]> {
  if (!value.variablesReference) return [numberOf(value.result)];
  const { variablesReference, indexedVariables: count } = value;
  const found = (await ask("variables", { variablesReference, filter: "indexed", start: 0, count })) as {
    variables: (Value & { value: string })[];
  };
  return (await Promise.all(found.variables.map((one) => numbersOf(ask, { ...one, result: one.value })))).flat();
}
