// Kept runs of etscope, and the run whose times the lines show.

import { statSync } from "node:fs";
import * as path from "node:path";
import * as vscode from "vscode";
import { complain, etscope, folderOf, withProgress } from "./etscope";
import { type Finding, type LineTime, lineTimes, parseTable } from "./tables";

/** Times and findings of one run. */
export interface Profile {
  folder: string;
  title: string;
  recordedAt: number; // ms since 1970
  times: Map<string, LineTime[]>; // by file
  findings: Finding[];
}

/** The folder of a run: of "@0", of a name, or the folder itself. */
export async function runFolder(run: string, resource?: vscode.Uri): Promise<string> {
  const text = await etscope(["runs", "show", run, "-f", "json"], resource);
  const { reports } = JSON.parse(text) as { reports: { file: string }[] };
  return path.resolve(folderOf(resource), reports[0]!.file);
}

const ran = new vscode.EventEmitter<void>(); // of this window; others are heard of by their files

function recordedAt(folder: string): number {
  return statSync(path.join(folder, "run.json")).mtimeMs;
}

async function timesOf(folder: string, resource?: vscode.Uri): Promise<[string, Map<string, LineTime[]>]> {
  const table = parseTable(await etscope(["inspect", folder, "--by", "source", "-f", "json"], resource));
  return [table.title, lineTimes(table)];
}

export async function profileOf(run: string, resource?: vscode.Uri): Promise<Profile> {
  const folder = await runFolder(run, resource);
  const [title, times] = await timesOf(folder, resource);
  const explained = parseTable(await etscope(["explain", folder, "-f", "json"], resource));
  return { folder, title, times, recordedAt: recordedAt(folder), findings: explained.findings ?? [] };
}

/** The last run of a model that is newer than its file; undefined without. */
async function freshRun(file: vscode.Uri, name: string): Promise<string | undefined> {
  const { rows, title } = parseTable(await etscope(["runs", "-f", "json"], file));
  const root = path.resolve(folderOf(file), / in (.+)$/.exec(title)?.[1] ?? ".etscope/runs");
  for (const row of rows) {
    const folder = path.join(root, String(row.folder));
    if (folder.replace(/.*[/\\]\d+-/, "") !== name) continue;
    const isFresh = recordedAt(folder) > statSync(file.fsPath).mtimeMs;
    return isFresh && (await timesOf(folder, file))[1].has(file.fsPath) ? folder : undefined;
  }
  return undefined;
}

/** Exports and runs "FILE.py:CLASS"; the run is kept. Returns its folder. */
export async function runModel(model: string, resource?: vscode.Uri): Promise<string> {
  await vscode.workspace.saveAll(false);
  await withProgress(`etscope run ${path.basename(model)}`, (token) => etscope(["run", model], resource, token));
  ran.fire();
  return runFolder("@0", resource);
}

/** The folder of a run of "FILE.py:CLASS": the last one, or a new one if the file is newer. */
export async function runOfModel(model: string, resource?: vscode.Uri): Promise<string> {
  const at = model.lastIndexOf(":");
  const file = vscode.Uri.file(path.resolve(folderOf(resource), model.slice(0, at)));
  const document = vscode.workspace.textDocuments.find((one) => one.uri.fsPath === file.fsPath);
  const fresh = document?.isDirty ? undefined : await freshRun(file, model.slice(at + 1)).catch(() => undefined);
  return fresh ?? runModel(model, file);
}

/** The profile of the setting `etscope.run`, loaded anew when a run has been kept. */
export class Profiles implements vscode.Disposable {
  current: Profile | undefined;
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onChange = this.changed.event;
  // A run that is kept is a folder of another name before: the editor hears of the folder alone.
  private readonly watchers = ["**/.etscope/runs/[0-9]*-*", "**/.etscope/runs/[0-9]*-*/run.json"].map((glob) =>
    vscode.workspace.createFileSystemWatcher(glob),
  );
  private loads = 0;

  constructor() {
    const reload = () => void this.load();
    ran.event(reload);
    for (const one of this.watchers)
      for (const event of [one.onDidCreate, one.onDidChange, one.onDidDelete]) event(reload);
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("etscope") && reload());
  }

  dispose(): void {
    for (const one of this.watchers) one.dispose();
    this.changed.dispose();
  }

  /** Loads the run. A workspace without runs, or without etscope, shows nothing and says nothing,
   * unless it is asked to. */
  async load(tells = false): Promise<void> {
    const load = ++this.loads;
    const run = vscode.workspace.getConfiguration("etscope").get<string>("run") || "@0";
    const found = await profileOf(run).catch((error: unknown) => {
      if (tells) complain(error);
      return undefined;
    });
    if (load !== this.loads) return; // a later one is on its way
    this.current = found;
    this.changed.fire();
  }
}
