// Sessions of the debugger etdb: what a configuration means, and how the adapter starts.

import { readFileSync } from "node:fs";
import * as path from "node:path";
import * as vscode from "vscode";
import { complain, folderOf, pythonOf } from "./etscope";
import { modelAt, modelsOf } from "./models";
import { runFolder, runModel, runOfModel } from "./runs";

/** "FILE:CLASS" of the model at the cursor. */
function modelAtCursor(): string | undefined {
  const editor = vscode.window.activeTextEditor;
  if (editor?.document.languageId !== "python") return undefined;
  const model = modelAt(modelsOf(editor.document.getText()), editor.selection.active.line);
  return model && `${editor.document.uri.fsPath}:${model.name}`;
}

function uriOf(model: string): vscode.Uri {
  return vscode.Uri.file(model.slice(0, model.lastIndexOf(":")));
}

interface Kept {
  debug_level?: string;
  inputs?: string;
  calls?: { inputs_from: string }[];
}

/** The fields of a session on a kept run. If the values of its operators were not recorded, the
 * program runs again, with the same inputs. */
function launchOf(folder: string): Partial<vscode.DebugConfiguration> {
  const kept = JSON.parse(readFileSync(path.join(folder, "run.json"), "utf8")) as Kept;
  if (kept.debug_level !== "none") return { files: [folder] };
  const own = kept.inputs && kept.calls?.some((call) => call.inputs_from !== "record");
  const inputs = own ? { inputs: [path.join(folder, kept.inputs!)] } : {};
  return { files: [folder], target: "runtime", ...inputs };
}

class Configurations implements vscode.DebugConfigurationProvider {
  /** F5 without a launch.json debugs the model at the cursor, else the last run. */
  resolveDebugConfiguration(
    _: vscode.WorkspaceFolder | undefined,
    config: vscode.DebugConfiguration,
  ): vscode.DebugConfiguration {
    if (config.type) return config;
    const model = modelAtCursor();
    const what = model ? { name: `Debug ${path.basename(model)}`, model } : { name: "Debug the last run", run: "@0" };
    return { type: "etdb", request: "launch", ...what };
  }

  /** Turns `model`, `run` and `server` into the files and the target that the adapter takes. */
  async resolveDebugConfigurationWithSubstitutedVariables(
    folder: vscode.WorkspaceFolder | undefined,
    config: vscode.DebugConfiguration,
  ): Promise<vscode.DebugConfiguration | undefined> {
    const { model, run, server, ...rest } = config;
    try {
      if (model) return { ...launchOf(await runOfModel(model, folder?.uri)), ...rest } as vscode.DebugConfiguration;
      if (run) return { ...launchOf(await runFolder(run, folder?.uri)), ...rest } as vscode.DebugConfiguration;
    } catch (error) {
      complain(error);
      return undefined; // no session
    }
    return { ...(server ? { target: `remote ${server}` } : {}), ...rest } as vscode.DebugConfiguration;
  }
}

class Adapters implements vscode.DebugAdapterDescriptorFactory {
  async createDebugAdapterDescriptor(session: vscode.DebugSession): Promise<vscode.DebugAdapterDescriptor> {
    const resource = session.workspaceFolder?.uri;
    const python = await pythonOf(resource);
    return new vscode.DebugAdapterExecutable(python, ["-m", "etscope.etdb", "--dap"], { cwd: folderOf(resource) });
  }
}

export function registerDebugger(): vscode.Disposable[] {
  const command = (name: string, run: (...words: string[]) => unknown) =>
    vscode.commands.registerCommand(name, async (...words: string[]) => {
      try {
        await run(...words);
      } catch (error) {
        complain(error);
      }
    });
  const chosen = (model?: string) => {
    const found = model ?? modelAtCursor();
    if (found === undefined) throw new Error("This file has no class that derives from torch.nn.Module.");
    return found;
  };
  return [
    vscode.debug.registerDebugConfigurationProvider("etdb", new Configurations()),
    vscode.debug.registerDebugAdapterDescriptorFactory("etdb", new Adapters()),
    command("etscope.debugModel", (given) => {
      const model = chosen(given);
      const folder = vscode.workspace.getWorkspaceFolder(uriOf(model));
      const name = `Debug ${path.basename(model)}`;
      // Without a breakpoint the run would end before anything is seen.
      const stopOnEntry = !vscode.debug.breakpoints.some((one) => one.enabled);
      return vscode.debug.startDebugging(folder, { type: "etdb", request: "launch", name, model, stopOnEntry });
    }),
    command("etscope.runModel", (given) => runModel(chosen(given), uriOf(chosen(given)))),
    command("etscope.typeInTerminal", (words) => {
      const terminal = vscode.window.createTerminal({ name: "etscope", cwd: folderOf() });
      terminal.show();
      terminal.sendText(words!, false); // the user looks at it first
    }),
  ];
}
