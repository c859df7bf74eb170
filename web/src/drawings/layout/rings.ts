// Rings of edges: some are turned round so that all edges can run downwards.

import { vertexCount } from "./placed";
import type { FlatGraph } from "./placed";

/** Marks edges that close a ring (depth first, without recursion). */
export function turnRings(graph: FlatGraph): Uint8Array {
  const count = vertexCount(graph);
  const turned = new Uint8Array(graph.from.length);
  const start = new Int32Array(count + 1);
  for (const vertex of graph.from) start[vertex + 1]!++;
  for (let vertex = 0; vertex < count; vertex++) start[vertex + 1]! += start[vertex]!;
  const edges = new Int32Array(graph.from.length);
  const next = start.slice(0, count);
  for (let edge = 0; edge < graph.from.length; edge++) edges[next[graph.from[edge]!]!++] = edge;
  const state = new Uint8Array(count);
  const at = start.slice(0, count);
  for (let root = 0; root < count; root++) {
    if (state[root]) continue;
    const stack = [root];
    state[root] = 1;
    while (stack.length > 0) {
      const vertex = stack[stack.length - 1]!;
      if (at[vertex] === start[vertex + 1]) {
        state[vertex] = 2;
        stack.pop();
        continue;
      }
      const edge = edges[at[vertex]!++]!;
      const to = graph.to[edge]!;
      if (state[to] === 1) turned[edge] = 1;
      else if (state[to] === 0) {
        state[to] = 1;
        stack.push(to);
      }
    }
  }
  return turned;
}

/** A route from its end to its start. */
export function reversed(points: number[]): number[] {
  const back: number[] = [];
  for (let index = points.length - 2; index >= 0; index -= 2) {
    back.push(points[index]!, points[index + 1]!);
  }
  return back;
}
