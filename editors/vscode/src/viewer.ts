// The tensor viewer: reads a part of a tensor through the debugger, and shows it in a tab.

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import { type Ask, drawn } from "./drawn";
import { closed, escaped } from "./page";

/** What the debug view says of the variable whose menu was opened. */
interface Chosen {
  variable: { name: string; evaluateName?: string; type?: string };
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
    const ask: Ask = (command, args) => session.customRequest(command, args);
    let index: number[] = [];
    const draw = async () => {
      try {
        void panel.webview.postMessage(await drawn(ask, expression, index));
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

function pageOf(webview: vscode.Webview, media: vscode.Uri, title: string): string {
  const nonce = randomBytes(16).toString("hex");
  const script = webview.asWebviewUri(vscode.Uri.joinPath(media, "tensor_page.js"));
  return closed(
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${escaped(title)}</title></head>
<body><main></main><script src="${script}"></script></body></html>`,
    nonce,
  );
}
