// Answers requests for layouts: in the worker, or on the page where there is no worker.

import { LayoutEngine } from "./engine";
import type { Reply, Request } from "./messages";

export class LayoutDesk {
  private readonly engines = new Map<string, LayoutEngine>();

  /** Null for requests that need no reply. */
  answer(request: Request): Reply | null {
    if (request.kind === "shape") {
      this.engines.set(request.graph, new LayoutEngine(request.shape));
      return null;
    }
    const { ticket } = request;
    try {
      const engine = this.engines.get(request.graph);
      if (engine === undefined) throw new Error(`no graph ${request.graph} to lay out`);
      const start = performance.now();
      const wish = { open: new Set(request.open), weights: request.weights };
      const drawing = engine.layout(wish);
      return { ticket, drawing, milliseconds: performance.now() - start };
    } catch (error) {
      return { ticket, error: String(error) };
    }
  }
}
