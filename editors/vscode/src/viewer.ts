// The tensor viewer: reads a part of a tensor through the debugger, and shows it in a tab.

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import { closed, escaped } from "./page";
import { difference, numberOf, type Part, partExpression, partOf, shapeOf } from "./tensor";

/** What the debug view says of the variable whose menu was opened. */
interface Chosen {
  variable: { name: string; evaluateName?: string; type?: string };
}

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

export class TensorViewer implements vscode.Disposable {
  private readonly parts: vscode.Disposable[];
  private readonly open = new Set<() => void>();

  constructor(private readonly extension: vscode.Uri) {
    this.parts = [
      vscode.commands.registerCommand("etscope.viewTensor", (chosen?: Chosen) => this.view(chosen)),
      // A value that is shown is that of the current stop.
      vscode.debug.registerDebugAdapterTrackerFactory("etdb", {
        createDebugAdapterTracker: () => ({
          onDidSendMessage: (message: { type: string; event?: string }) => {
            if (message.event === "stopped" || message.event === "invalidated") for (const draw of this.open) draw();
          },
        }),
      }),
    ];
  }

  dispose(): void {
    for (const part of this.parts) part.dispose();
  }

  private async view(chosen?: Chosen): Promise<void> {
    const session = vscode.debug.activeDebugSession;
    if (session?.type !== "etdb") {
      void vscode.window.showErrorMessage("No model is being debugged: start a session of etdb first.");
      return;
    }
    const prompt = "The value to show, as at the prompt of etdb: $, a node, or an expression";
    const expression = chosen
      ? (chosen.variable.evaluateName ?? chosen.variable.name)
      : await vscode.window.showInputBox({ prompt, value: "$" });
    if (expression) this.show(session, expression);
  }

  private show(session: vscode.DebugSession, expression: string): void {
    const media = vscode.Uri.joinPath(this.extension, "dist");
    const panel = vscode.window.createWebviewPanel("etscope.tensor", expression, vscode.ViewColumn.Beside, {
      enableScripts: true,
      localResourceRoots: [media],
    });
    panel.webview.html = pageOf(panel.webview, media, expression);
    let index: number[] = [];
    const draw = async () => {
      try {
        void panel.webview.postMessage(await drawn(session, expression, index));
      } catch (error) {
        const words = error instanceof Error ? error.message : String(error);
        void panel.webview.postMessage({ error: words });
      }
    };
    panel.webview.onDidReceiveMessage((message: { index: number[] }) => {
      index = message.index;
      void draw();
    });
    const redraw = () => void draw();
    this.open.add(redraw);
    panel.onDidDispose(() => this.open.delete(redraw));
  }
}

async function evaluated(session: vscode.DebugSession, expression: string): Promise<Value> {
  return (await session.customRequest("evaluate", { expression, context: "watch" })) as Value;
}

/** The numbers of a value, row by row. */
async function numbersOf(session: vscode.DebugSession, value: Value): Promise<number[]> {
  if (!value.variablesReference) return [numberOf(value.result)];
  const found = (await session.customRequest("variables", {
    variablesReference: value.variablesReference,
    filter: "indexed",
    start: 0,
    count: value.indexedVariables,
  })) as { variables: { value: string; type?: string; variablesReference: number; indexedVariables?: number }[] };
  const rows = found.variables.map((one) => numbersOf(session, { ...one, result: one.value }));
  return (await Promise.all(rows)).flat();
}

async function drawn(session: vscode.DebugSession, expression: string, index: number[]): Promise<Drawn> {
  const whole = await evaluated(session, expression);
  const shape = shapeOf(whole.type);
  if (shape === undefined) throw new Error(`${expression} is ${whole.result}, not a tensor`);
  if (shape.sizes.includes(0)) throw new Error(`${expression} has no elements: ${whole.type}`);
  const part = partOf(shape, index);
  const read = async (of: string) => numbersOf(session, await evaluated(session, partExpression(of, part)));
  const values = await read(expression);
  const views = [{ name: "value", values }];
  let note = "";
  try {
    const reference = await read(`ref(${expression === "$" ? "" : expression})`);
    views.push({ name: "reference", values: reference }, { name: "difference", values: difference(values, reference) });
  } catch (error) {
    note = `Without PyTorch's value: ${error instanceof Error ? error.message : String(error)}`;
  }
  return { title: `${expression}: ${whole.type}`, statistics: whole.result, part, views, note };
}

function pageOf(webview: vscode.Webview, media: vscode.Uri, title: string): string {
  const nonce = randomBytes(16).toString("hex");
  const script = webview.asWebviewUri(vscode.Uri.joinPath(media, "tensor_page.js"));
  return closed(
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${escaped(title)}</title></head>
<body><main></main><script src="${script}"></script></body></html>`,
    nonce,
  );
}
