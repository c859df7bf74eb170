// etscope in Visual Studio Code.

import * as vscode from "vscode";
import { registerDebugger } from "./debug";
import { complain } from "./etscope";
import { Lines } from "./lines";
import { registerReports, showReport } from "./report";
import { profileOf, Profiles } from "./runs";
import { TensorViewer } from "./viewer";

export function activate(context: vscode.ExtensionContext): void {
  const profiles = new Profiles();
  const settings = () => vscode.workspace.getConfiguration("etscope");
  context.subscriptions.push(
    profiles,
    new Lines(profiles),
    new TensorViewer(context.extensionUri),
    registerReports(),
    ...registerDebugger(),
    vscode.commands.registerCommand("etscope.showReport", async () => {
      try {
        const { folder } = profiles.current ?? (await profileOf(settings().get<string>("run") || "@0"));
        await showReport(folder);
      } catch (error) {
        complain(error);
      }
    }),
    vscode.commands.registerCommand("etscope.toggleTimes", async () => {
      const shows = !settings().get<boolean>("showTimes");
      await settings().update("showTimes", shows, vscode.ConfigurationTarget.Workspace);
      if (shows) await profiles.load(true);
    }),
  );
  void profiles.load();
}
