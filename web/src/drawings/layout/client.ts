// Layouts from the worker; from this thread where a page may not start workers.

import LayoutWorker from "./worker?worker&inline";
import { LayoutDesk } from "./desk";
import type { Drawing, LayoutWish } from "./engine";
import type { Reply, Request } from "./messages";
import type { GraphShape } from "./tree";

interface Waiting {
  request: Request;
  done: (layout: Laid) => void;
  failed: (error: Error) => void;
}

export interface Laid {
  drawing: Drawing;
  /** What the layout itself took. */
  milliseconds: number;
}

class LayoutClient {
  private worker: Worker | null = null;
  private desk: LayoutDesk | null = null;
  private readonly shapes = new Map<string, GraphShape>();
  private readonly waiting = new Map<number, Waiting>();
  private tickets = 0;

  /** Make a graph known, once, under a name of its own. */
  addGraph(graph: string, shape: GraphShape): void {
    if (this.shapes.has(graph)) return;
    this.shapes.set(graph, shape);
    this.send({ kind: "shape", graph, shape });
  }

  layout(graph: string, wish: LayoutWish): Promise<Laid> {
    const ticket = ++this.tickets;
    const open = Int32Array.from(wish.open);
    const request: Request = { kind: "layout", graph, ticket, open, weights: wish.weights };
    return new Promise((done, failed) => {
      this.waiting.set(ticket, { request, done, failed });
      this.send(request);
    });
  }

  private send(request: Request): void {
    if (this.worker === null && this.desk === null) this.start();
    if (this.worker !== null) {
      this.worker.postMessage(request);
      return;
    }
    const desk = this.desk!;
    setTimeout(() => {
      const reply = desk.answer(request);
      if (reply !== null) this.take(reply);
    });
  }

  private start(): void {
    try {
      this.worker = new LayoutWorker();
      this.worker.onmessage = (event: MessageEvent<Reply>) => this.take(event.data);
      this.worker.onerror = (event) => {
        event.preventDefault();
        this.goWithout();
      };
    } catch {
      this.desk = new LayoutDesk();
    }
  }

  /** The worker did not start or died: what was asked is done here. */
  private goWithout(): void {
    this.worker?.terminate();
    this.worker = null;
    this.desk = new LayoutDesk();
    for (const [graph, shape] of this.shapes) this.send({ kind: "shape", graph, shape });
    for (const { request } of this.waiting.values()) this.send(request);
  }

  private take(reply: Reply): void {
    const waiting = this.waiting.get(reply.ticket);
    this.waiting.delete(reply.ticket);
    if ("error" in reply) waiting?.failed(new Error(reply.error));
    else waiting?.done({ drawing: reply.drawing, milliseconds: reply.milliseconds });
  }
}

export const layouts = new LayoutClient();
