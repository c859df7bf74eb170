// The report of a file, which etscope writes as one HTML page, in a tab.

import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import * as path from "node:path";
import * as vscode from "vscode";
import { etscope, withProgress } from "./etscope";
import { closed, escaped } from "./page";

/** The HTML page of a run or file. */
async function reportOf(file: string, resource?: vscode.Uri): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), "etscope-"));
  try {
    const page = path.join(folder, "report.html");
    const name = path.basename(file);
    await withProgress(`etscope report ${name}`, (token) => etscope(["report", file, "-o", page], resource, token));
    return await readFile(page, "utf8");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function fill(webview: vscode.Webview, file: string, resource?: vscode.Uri): Promise<void> {
  webview.options = { enableScripts: true, localResourceRoots: [] };
  try {
    webview.html = closed(await reportOf(file, resource), randomBytes(16).toString("hex"));
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    webview.html = closed(`<!doctype html><head></head><body><pre>${escaped(words)}</pre></body>`, "");
  }
}

export async function showReport(folder: string): Promise<void> {
  const title = `Report of ${path.basename(folder)}`;
  const panel = vscode.window.createWebviewPanel("etscope.report", title, vscode.ViewColumn.Active, {
    retainContextWhenHidden: true,
  });
  await fill(panel.webview, folder, vscode.Uri.file(folder));
}

class ReportEditor implements vscode.CustomReadonlyEditorProvider {
  openCustomDocument(uri: vscode.Uri): vscode.CustomDocument {
    return { uri, dispose: () => undefined };
  }

  async resolveCustomEditor(document: vscode.CustomDocument, panel: vscode.WebviewPanel): Promise<void> {
    const file = document.uri.fsPath;
    // The dump of a run is shown with the run's other files.
    const isRun = file.endsWith(".etdp") && existsSync(path.join(path.dirname(file), "run.json"));
    const show = () => fill(panel.webview, isRun ? path.dirname(file) : file, document.uri);
    const pattern = new vscode.RelativePattern(vscode.Uri.file(path.dirname(file)), path.basename(file));
    const watcher = vscode.workspace.createFileSystemWatcher(pattern);
    watcher.onDidChange(show);
    panel.onDidDispose(() => watcher.dispose());
    await show();
  }
}

export function registerReports(): vscode.Disposable {
  return vscode.window.registerCustomEditorProvider("etscope.report", new ReportEditor(), {
    webviewOptions: { retainContextWhenHidden: true },
  });
}
