// What `vite dev` and `npm run sample` show: the document that REPORT names (JSON, or a page with one
// in it), else the fixture.

import { readFile } from "node:fs/promises";
import { fixture } from "./fixture";

export async function sampleText(): Promise<string> {
  const path = process.env["REPORT"];
  if (!path) return JSON.stringify(fixture({ events: Number(process.env["EVENTS"] ?? 400) }));
  const text = await readFile(path, "utf8");
  const found = /<script type="application\/json" id="etscope-data">([^]*?)<\/script>/.exec(text);
  return found ? found[1]! : text;
}
