// The commands etscope and etdb of the workspace's Python.

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import * as path from "node:path";
import * as vscode from "vscode";

interface PythonExtension {
  environments?: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(of: { path: string }): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
  };
}

const MOST_BYTES = 256 << 20; // of what a command prints

/** The folder whose runs and Python are used for a file. */
export function folderOf(resource?: vscode.Uri): string {
  const folder = resource && vscode.workspace.getWorkspaceFolder(resource);
  const first = folder ?? vscode.workspace.workspaceFolders?.[0];
  return first?.uri.fsPath ?? (resource ? path.dirname(resource.fsPath) : homedir());
}

/** The Python that has etscope: the setting, the Python extension's, `.venv`, or `python3`. */
export async function pythonOf(resource?: vscode.Uri): Promise<string> {
  const set = vscode.workspace.getConfiguration("etscope", resource).get<string>("python");
  if (set) return set.replace("${workspaceFolder}", folderOf(resource)).replace(/^~(?=\/)/, homedir());
  const extension = vscode.extensions.getExtension<PythonExtension>("ms-python.python");
  const environments = extension && (await extension.activate())?.environments;
  if (environments) {
    const found = await environments.resolveEnvironment(environments.getActiveEnvironmentPath(resource));
    if (found?.executable.uri) return found.executable.uri.fsPath;
  }
  const own = path.join(folderOf(resource), ".venv", "bin", "python");
  return existsSync(own) ? own : "python3";
}

/** Runs `etscope ...` in the folder of a file and returns what it prints. Throws an Error with its
 * words if it fails. */
export async function etscope(
  words: string[],
  resource?: vscode.Uri,
  token?: vscode.CancellationToken,
): Promise<string> {
  const python = await pythonOf(resource);
  return new Promise((resolve, reject) => {
    const options = { cwd: folderOf(resource), maxBuffer: MOST_BYTES, env: { ...process.env, NO_COLOR: "1" } };
    const child = execFile(python, ["-m", "etscope", ...words], options, (error, output, said) => {
      watch?.dispose();
      if (error === null) resolve(output);
      else if (token?.isCancellationRequested) reject(new vscode.CancellationError());
      else reject(new Error(wordsOf(said, python) || `${python} cannot be started: set "etscope.python" (${error.message})`));
    });
    const watch = token?.onCancellationRequested(() => child.kill("SIGINT"));
  });
}

/** The error of a command, without the lines of its progress. */
function wordsOf(said: string, python: string): string {
  const begin = said.lastIndexOf("error: ");
  const words = said.slice(Math.max(begin, 0)).replace(/^error: /, "").trim();
  if (!/No module named '?(etscope|torch|executorch)/.test(said)) return words;
  return `${words}\nThis is ${python}. Install it there (pip install "etscope[torch]"), or set "etscope.python".`;
}

/** Shows an error of a command; a cancelled one is none. */
export function complain(error: unknown): void {
  if (error instanceof vscode.CancellationError) return;
  void vscode.window.showErrorMessage(error instanceof Error ? error.message : String(error));
}

/** Runs a slow command while a notification shows what it does. */
export function withProgress<T>(title: string, task: (token: vscode.CancellationToken) => Promise<T>): Thenable<T> {
  const options = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
  return vscode.window.withProgress(options, (_, token) => task(token));
}
