// The worker that lays out graphs.

import { LayoutDesk } from "./desk";
import type { Reply, Request } from "./messages";

const desk = new LayoutDesk();
const page = self as unknown as {
  onmessage: ((event: MessageEvent<Request>) => void) | null;
  postMessage(reply: Reply, transfer: Transferable[]): void;
};

page.onmessage = (event) => {
  const reply = desk.answer(event.data);
  if (reply !== null) page.postMessage(reply, "drawing" in reply ? buffersOf(reply.drawing) : []);
};

function buffersOf(drawing: object): Transferable[] {
  return Object.values(drawing).flatMap((value: unknown) => {
    if (ArrayBuffer.isView(value)) return [value.buffer as ArrayBuffer];
    return value !== null && typeof value === "object" ? buffersOf(value) : [];
  });
}
