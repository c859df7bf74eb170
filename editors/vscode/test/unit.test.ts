import assert from "node:assert/strict";
import { test } from "node:test";
import { modelAt, modelsOf } from "../src/models";
import { closed, escaped } from "../src/page";
import { editsOf, type Finding, lineOfEdit, linesOf, lineTimes, parseTable, placeOf, shown } from "../src/tables";
import { colour, histogram, numberOf, partExpression, partOf, shapeOf } from "../src/tensor";

const TABLE = JSON.stringify({
  schema: "etscope.table/1",
  title: "forward",
  columns: [{ name: "avg", unit: "ms" }],
  rows: [
    { method: "forward", source: "/w/a/model.py:27", events: 3, avg: 0.375, share: 0.64, flops: 36864, bytes: null },
    { method: "forward", source: "/w/b/model.py:9", events: 1, avg: 0.0125, share: 0.02, flops: 1, bytes: 2 },
    { method: "forward", source: "unaccounted", events: null, avg: 0.005, share: 0.01 },
    { method: "forward", source: "/w/a/model.py:30", events: 1, avg: null, share: null },
  ],
});

test("times are by file and line; rows without a line or a time have none", () => {
  const times = lineTimes(parseTable(TABLE));
  assert.deepEqual([...times.keys()], ["/w/a/model.py", "/w/b/model.py"]);
  assert.deepEqual(times.get("/w/a/model.py"), [
    { line: 27, method: "forward", time: 0.375, unit: "ms", share: 0.64, events: 3, flops: 36864, bytes: null },
  ]);
  assert.equal(shown(0.375123, "ms", 0.64), "0.375 ms · 64.0%");
  assert.equal(placeOf("C:\\w\\model.py:3")?.file, "C:\\w\\model.py");
});

test("what is not a table is refused with a reason", () => {
  assert.throws(() => parseTable("usage: python"), /did not print JSON/);
  assert.throws(() => parseTable('{"schema": "etscope.table/2", "rows": []}'), /etscope.table\/2: update/);
});

test("a finding is at the lines of its file only", () => {
  const sites = ["model.py:27", "model.py:27", "model.py:9", "other.py:27", null].map((line) => ({ name: "", time: 1, line }));
  const finding: Finding = {
    kind: "x",
    severity: "cost",
    sentence: "",
    explanation: { evidence: [], sites, remedies: [] },
  };
  const times = lineTimes(parseTable(TABLE));
  assert.deepEqual(linesOf(finding, "/w/a/model.py", times.get("/w/a/model.py")!), [27]);
  assert.deepEqual(linesOf(finding, "/w/b/model.py", times.get("/w/b/model.py")!), [9]);
});

test("edits of a remedy find their line, also after lines were added above", () => {
  const paste = "# model.py:2\n- return torch.roll(x, 1, 1)\n+ return torch.cat([x[:, -1:], x[:, :-1]], 1)\n# other.py:1\n- a\n+ b";
  const edits = editsOf({ text: "", paste }, "/w/model.py");
  assert.equal(edits.length, 1);
  const lines = ["def f(x):", "    return torch.roll(x, 1, 1)"];
  assert.equal(lineOfEdit(edits[0]!, lines), 2);
  assert.equal(lineOfEdit(edits[0]!, ["import torch", ...lines]), 3);
  assert.equal(lineOfEdit(edits[0]!, ["import torch", ...lines, lines[1]!]), undefined); // which of two?
  assert.equal(lineOfEdit(edits[0]!, ["def f(x):", "    return x"]), undefined);
  assert.deepEqual(editsOf({ text: "", paste: "etscope export model.py:Net" }, "/w/model.py"), []);
});

test("models are the classes that derive from Module", () => {
  const text = `import torch
class Block(torch.nn.Module):
    pass
class Options:
    pass
class Net(
    Block, Mixin
):
    class Inner(nn.Module): ...
# class Old(nn.Module):
class Error(Exception): ...
`;
  const models = modelsOf(text);
  assert.deepEqual(models, [
    { name: "Block", line: 1 },
    { name: "Net", line: 5 },
  ]);
  assert.equal(modelAt(models, 2)?.name, "Block");
  assert.equal(modelAt(models, 0)?.name, "Net");
  assert.equal(modelAt([], 0), undefined);
});

test("a part of a tensor is at most 128 rows and columns", () => {
  assert.deepEqual(shapeOf("float32[2, 300, 64]"), { dtype: "float32", sizes: [2, 300, 64] });
  assert.deepEqual(shapeOf("bool[]"), { dtype: "bool", sizes: [] });
  assert.equal(shapeOf("float"), undefined);
  const part = partOf(shapeOf("float32[2, 300, 64]")!, [7]);
  assert.equal(partExpression("x + y", part), "(x + y)[1, 0:300:3, 0:64]");
  assert.equal(partExpression("$", partOf(shapeOf("int8[1000]")!, [])), "($)[0:1000:8]");
});

test("numbers as etdb writes them", () => {
  const words = ["1.5e-05", "1,013.25", "-inf", "inf", "nan", "True", "0", ""];
  assert.deepEqual(words.map(numberOf), [1.5e-5, 1013.25, -Infinity, Infinity, NaN, 1, 0, NaN]);
});

test("a histogram counts the finite values, and the others apart", () => {
  const found = histogram([0, 1, 2, 4, NaN, Infinity], 4);
  assert.deepEqual(found, { least: 0, greatest: 4, counts: [1, 1, 1, 1], nan: 1, infinite: 1 });
  assert.deepEqual(histogram([3, 3], 2).counts, [2, 0]);
  assert.deepEqual(histogram([NaN], 2).counts, [0, 0]);
});

test("colours tell the sign, NaN and infinities apart", () => {
  assert.deepEqual(colour(0, 1), [128, 128, 128]);
  assert.deepEqual(colour(1, 1), [209, 52, 43]);
  assert.deepEqual(colour(-2, 1), [33, 102, 212]);
  assert.deepEqual(new Set([NaN, Infinity, -Infinity].map((value) => String(colour(value, 1)))).size, 3);
});

test("a page runs its own scripts only, and reaches nothing", () => {
  const html = '<html><head lang="en"><script type="module">a()</script></head><script type="application/json">1</script>';
  const page = closed(html, "n1");
  assert.match(page, /^<html><head lang="en"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; /);
  assert.match(page, /<script nonce="n1" type="module">/);
  assert.match(page, /<script type="application\/json">/);
  assert.doesNotMatch(page, /connect-src|https?:|'unsafe-eval'|script-src[^;]*unsafe/);
  assert.match(closed(html, ""), /script-src 'none'/);
  assert.throws(() => closed("text", "n1"), /without a head/);
  assert.equal(escaped('<a b="c">&'), "&#60;a b=&#34;c&#34;&#62;&#38;");
});
