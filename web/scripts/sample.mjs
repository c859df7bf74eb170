// Writes the built page with sample data in it: node scripts/sample.mjs OUT.html
// (REPORT=file: that document in place of the fixture).

import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "vite";

const [out] = process.argv.slice(2);
if (!out) throw new Error("usage: node scripts/sample.mjs OUT.html");
const page = await readFile(
  new URL("../../src/etscope/views/page/_built/page.html", import.meta.url),
  "utf8",
);
const server = await createServer({ server: { middlewareMode: true, ws: false }, logLevel: "error" });
const { sampleText } = await server.ssrLoadModule("/test/sample.ts");
const data = (await sampleText()).replaceAll("<", "\\u003c");
await server.close();
const [before, after] = page.split("<!--etscope-data-->");
await writeFile(out, `${before}<script type="application/json" id="etscope-data">${data}</script>${after}`);
