// Times, findings and actions at the lines of a model.

import { statSync } from "node:fs";
import * as vscode from "vscode";
import { pythonOf } from "./etscope";
import { modelsOf } from "./models";
import type { Profile, Profiles } from "./runs";
import { editsOf, type Finding, type LineTime, lineOfEdit, linesOf, type Remedy, shown } from "./tables";

const PYTHON: vscode.DocumentSelector = { language: "python", scheme: "file" };
const SOURCE = "etscope";

interface Found extends vscode.Diagnostic {
  finding?: Finding;
}

/** Decorations, diagnostics, quick fixes and lenses of Python files. */
export class Lines
  implements vscode.Disposable, vscode.CodeLensProvider, vscode.CodeActionProvider, vscode.HoverProvider
{
  private readonly decoration = vscode.window.createTextEditorDecorationType({
    after: { margin: "0 0 0 3em", color: new vscode.ThemeColor("editorCodeLens.foreground") },
  });
  // The lines that take most have a mark in the ruler, too.
  private readonly heavy = vscode.window.createTextEditorDecorationType({
    overviewRulerColor: new vscode.ThemeColor("charts.orange"),
    overviewRulerLane: vscode.OverviewRulerLane.Right,
    after: { margin: "0 0 0 3em", color: new vscode.ThemeColor("charts.orange") },
  });
  private readonly problems = vscode.languages.createDiagnosticCollection(SOURCE);
  private readonly lenses = new vscode.EventEmitter<void>();
  readonly onDidChangeCodeLenses = this.lenses.event;
  private readonly parts: vscode.Disposable[];

  constructor(private readonly profiles: Profiles) {
    this.parts = [
      this.decoration,
      this.heavy,
      this.problems,
      this.lenses,
      profiles.onChange(() => this.refresh()),
      vscode.window.onDidChangeVisibleTextEditors(() => this.refresh()),
      vscode.workspace.onDidSaveTextDocument(() => this.refresh()),
      vscode.languages.registerCodeLensProvider(PYTHON, this),
      vscode.languages.registerHoverProvider(PYTHON, this),
      vscode.languages.registerCodeActionsProvider(PYTHON, this, {
        providedCodeActionKinds: [vscode.CodeActionKind.QuickFix],
      }),
    ];
  }

  dispose(): void {
    for (const part of this.parts) part.dispose();
  }

  private timesOf(document: vscode.TextDocument): { profile?: Profile; times: LineTime[] } {
    const shows = vscode.workspace.getConfiguration("etscope", document).get<boolean>("showTimes");
    const profile = shows ? this.profiles.current : undefined;
    return { profile, times: profile?.times.get(document.uri.fsPath) ?? [] };
  }

  private refresh(): void {
    this.problems.clear();
    for (const editor of vscode.window.visibleTextEditors) {
      if (editor.document.languageId !== "python") continue;
      const { profile, times } = this.timesOf(editor.document);
      const decorated = (isHeavy: boolean) =>
        times
          .filter((one) => one.line <= editor.document.lineCount && one.share >= 0.2 === isHeavy)
          .map((one) => ({
            range: editor.document.lineAt(one.line - 1).range,
            renderOptions: { after: { contentText: shown(one.time, one.unit, one.share) } },
          }));
      editor.setDecorations(this.decoration, decorated(false));
      editor.setDecorations(this.heavy, decorated(true));
      if (profile) this.problems.set(editor.document.uri, problemsOf(profile, editor.document, times));
    }
    this.lenses.fire();
  }

  provideHover(document: vscode.TextDocument, position: vscode.Position): vscode.Hover | undefined {
    const { profile, times } = this.timesOf(document);
    const here = times.filter((one) => one.line === position.line + 1);
    if (!profile || !here.length) return undefined;
    const facts = here.map((one) => {
      const work = [
        one.flops === null ? "" : `${one.flops.toLocaleString("en")} FLOPs`,
        one.bytes === null ? "" : `${one.bytes.toLocaleString("en")} bytes`,
      ];
      const words = [`${one.events} instruction${one.events === 1 ? "" : "s"}`, ...work].filter(Boolean).join(", ");
      return `**${shown(one.time, one.unit, one.share)}** of \`${one.method}\`: ${words}`;
    });
    return new vscode.Hover(new vscode.MarkdownString([...facts, `Run: ${profile.folder}`].join("\n\n")));
  }

  provideCodeLenses(document: vscode.TextDocument): vscode.CodeLens[] {
    const models = modelsOf(document.getText());
    const { profile, times } = this.timesOf(document);
    const lenses = models.flatMap(({ name, line }) => {
      const range = new vscode.Range(line, 0, line, 0);
      const model = `${document.uri.fsPath}:${name}`;
      return [
        new vscode.CodeLens(range, { title: "Debug this model", command: "etscope.debugModel", arguments: [model] }),
        new vscode.CodeLens(range, { title: "Run", command: "etscope.runModel", arguments: [model] }),
      ];
    });
    if (profile && times.length) {
      const isOld = document.isDirty || profile.recordedAt < statSync(document.uri.fsPath).mtimeMs;
      const title = `${profile.title.split(" · ").find((part) => part.startsWith("p50")) ?? "Report"} in the last run`;
      lenses.push(
        new vscode.CodeLens(new vscode.Range(0, 0, 0, 0), {
          title: isOld ? `${title}, before the last change` : title,
          tooltip: profile.title,
          command: "etscope.showReport",
        }),
      );
    }
    return lenses;
  }

  async provideCodeActions(
    document: vscode.TextDocument,
    _: vscode.Range,
    context: vscode.CodeActionContext,
  ): Promise<vscode.CodeAction[]> {
    const python = await pythonOf(document.uri);
    const actions = new Map<string, vscode.CodeAction>();
    for (const problem of context.diagnostics as Found[]) {
      for (const remedy of problem.finding?.explanation.remedies ?? []) {
        const action = actionOf(remedy, document, python);
        if (action === undefined) continue;
        action.diagnostics = [problem];
        actions.set(action.title, action);
      }
    }
    return [...actions.values()];
  }
}

/** A finding is at its longest line and at the lines that a fix changes; the others are related. */
function problemsOf(profile: Profile, document: vscode.TextDocument, times: LineTime[]): Found[] {
  const file = document.uri.fsPath;
  const rangeOf = (line: number) => {
    const { firstNonWhitespaceCharacterIndex: begin, range } = document.lineAt(line - 1);
    return range.with(range.start.translate(0, begin));
  };
  return profile.findings.flatMap((finding) => {
    const { remedies } = finding.explanation;
    const lines = linesOf(finding, file, times).filter((line) => line <= document.lineCount);
    const edited = remedies.flatMap((remedy) => editsOf(remedy, file).map((edit) => edit.line));
    const level =
      finding.severity === "problem" ? vscode.DiagnosticSeverity.Warning : vscode.DiagnosticSeverity.Information;
    const text = [finding.sentence, ...remedies.map((remedy) => `Fix: ${remedy.text}`)].join("\n");
    return lines
      .filter((line, at) => at === 0 || edited.includes(line))
      .map((line) => {
        const found: Found = new vscode.Diagnostic(rangeOf(line), text, level);
        found.source = SOURCE;
        found.code = finding.kind;
        found.finding = finding;
        found.relatedInformation = lines
          .filter((other) => other !== line)
          .map(
            (other) =>
              new vscode.DiagnosticRelatedInformation(new vscode.Location(document.uri, rangeOf(other)), "also here"),
          );
        return found;
      });
  });
}

/** A remedy as an edit of the file, or as a command that is put into a terminal. */
function actionOf(remedy: Remedy, document: vscode.TextDocument, python: string): vscode.CodeAction | undefined {
  const lines = document.getText().split(/\r?\n/);
  const edits = editsOf(remedy, document.uri.fsPath);
  if (edits.length) {
    const edit = new vscode.WorkspaceEdit();
    for (const one of edits) {
      const at = lineOfEdit(one, lines);
      if (at === undefined) return undefined; // of an older text
      const { range, firstNonWhitespaceCharacterIndex: begin } = document.lineAt(at - 1);
      edit.replace(document.uri, range.with(range.start.translate(0, begin)), one.new.trim());
    }
    const action = new vscode.CodeAction(remedy.text, vscode.CodeActionKind.QuickFix);
    action.edit = edit;
    return action;
  }
  if (!remedy.paste.startsWith("etscope ")) return undefined;
  const action = new vscode.CodeAction(`In a terminal: ${remedy.paste}`, vscode.CodeActionKind.QuickFix);
  const words = `"${python}" -m ${remedy.paste}`;
  action.command = { title: action.title, command: "etscope.typeInTerminal", arguments: [words] };
  return action;
}
