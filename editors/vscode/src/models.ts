// Models in the text of a Python file.

export interface Model {
  name: string;
  line: number; // from 0
}

const CLASS = /^class[ \t]+(\w+)[ \t]*\(([^()]*)\)[ \t]*:/gm;

/** The classes of a module that derive from torch's Module, or from one of these. */
export function modelsOf(text: string): Model[] {
  const found: Model[] = [];
  const names = new Set(["Module"]);
  for (const match of text.matchAll(CLASS)) {
    const bases = match[2]!.split(",").map((base) => base.trim().split(".").pop()!);
    if (!bases.some((base) => names.has(base))) continue;
    names.add(match[1]!);
    found.push({ name: match[1]!, line: text.slice(0, match.index).split("\n").length - 1 });
  }
  return found;
}

/** The model that a line is in, else the last one of the file: it is often made of the others. */
export function modelAt(models: Model[], line: number): Model | undefined {
  return models.filter((one) => one.line <= line).pop() ?? models[models.length - 1];
}
