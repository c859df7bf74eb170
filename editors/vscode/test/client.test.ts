// A client of the protocol's authors at a running adapter, of which the environment tells. It reads
// tensors as the viewer does.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DebugClient } from "@vscode/debugadapter-testsupport";
import { drawn } from "../src/drawn";

interface Story {
  port: number;
  files: string[];
  source: string;
  line: number;
  inputs: number[][];
}

const story = JSON.parse(process.env.ETSCOPE_STORY!) as Story;

test("a breakpoint in the source, and tensors beside PyTorch's", async (context) => {
  const client = new DebugClient("", "", "etdb");
  await client.start(story.port);
  context.after(() => client.stop()); // else the open socket would keep a failed test from ending
  const ask = async (command: string, args: object) => (await client.customRequest(command, args)).body as unknown;
  await client.hitBreakpoint({ files: story.files } as never, { path: story.source, line: story.line });

  const inputs = await drawn(ask, "pressures", []);
  assert.deepEqual(inputs.part.shape, { dtype: "float32", sizes: [4, 64] });
  const wanted = story.inputs.flat();
  const [values, reference, difference] = inputs.views.map((view) => view.values);
  assert.equal(values!.length, wanted.length);
  values!.forEach((value, at) => assert.ok(Math.abs(value - wanted[at]!) < 0.01));
  assert.deepEqual(reference, values);
  assert.ok(difference!.every((value) => value === 0));

  const normed = await drawn(ask, "$[0]", []);
  assert.equal(normed.views.length, 3, normed.note);
  const [given, right] = normed.views.map((view) => view.values);
  assert.ok(given!.some(Number.isNaN) && !right!.some(Number.isNaN));
  await assert.rejects(drawn(ask, "gap(sqnr)", []), /not a tensor/);
});
