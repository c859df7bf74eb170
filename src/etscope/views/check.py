"""Write a finished check as text, Markdown for a pull request, or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import IO, Any, TextIO

from etscope.analysis.check.compare import Outcome
from etscope.analysis.check.report import Checked
from etscope.model.table import Column, Table
from etscope.views import ViewSpec, write_table, writer_of
from etscope.views.tables.formats import escaped, write_folded, write_markdown
from etscope.views.tables.report import write_sentences

_HERE, _CI = "etscope.views.check", "etscope.views.check_ci"
CHECK_VIEWS: Mapping[str, ViewSpec] = {
    "table": ViewSpec(f"{_HERE}:write_text", ".txt", "for people", styled=True),
    "md": ViewSpec(f"{_HERE}:write_pull_request", ".md", "a comment on a pull request"),
    "json": ViewSpec(f"{_HERE}:write_json", ".json", "one versioned document, and a baseline"),
    "sarif": ViewSpec(f"{_CI}:write_sarif", ".sarif", "results at lines, for code scanning"),
    "junit": ViewSpec(f"{_CI}:write_junit", ".xml", "a test case for each quantity"),
    "github": ViewSpec(f"{_CI}:write_github", ".annotations", "annotations of GitHub Actions"),
}


def write_check(checked: Checked, format: str, out: IO[Any], *, color: bool | None = None) -> None:
    """Write a check to an open stream in a format of `CHECK_VIEWS`."""
    spec = CHECK_VIEWS[format]
    style = {"color": color} if spec.styled else {}
    writer_of(spec)(checked, out, **style)


_MARKS = {
    Outcome.WORSE: "❌",
    Outcome.CANNOT_TELL: "❔",
    Outcome.OK: "✅",
    Outcome.NOT_COMPARED: "⚪",
}


def write_text(
    checked: Checked, out: TextIO, *, width: int | None = None, color: bool | None = None
) -> None:
    """Write the headline, the rows, and what made them worse."""
    write_sentences([checked.headline], out, width=width)
    for table in (checked.table(), checked.causes()):
        if table is not None:
            out.write("\n")
            write_table(table, "table", out, width=width, color=color)
    commands = checked.commands()
    out.write("\n" if commands else "")
    out.writelines(f"More on {title}: {command}\n" for title, command in commands.items())


def write_pull_request(checked: Checked, out: TextIO) -> None:
    """Write the headline and the rows; what made them worse and the notes are folded away."""
    out.write(f"### {_MARKS[checked.outcome]} etscope check: {escaped(checked.headline)}\n")
    table = checked.table()
    if checked.base is not None:
        marked = [f"{_MARKS[row.outcome]} {row.outcome.value}" for row in checked.rows]
        table = replace(table, values={**table.values, "outcome": marked})
    out.write("\n")
    write_markdown(replace(table, notes=()), out)
    for folded in (checked.causes(), _commands(checked)):
        if folded is not None:
            out.write("\n")
            write_folded(folded, out)
    if table.notes:
        out.write("\n")
        write_folded(Table.of({Column("note"): table.notes}, title="How it was compared"), out)


def _commands(checked: Checked) -> Table | None:
    commands = checked.commands()
    if not commands:
        return None
    content = {Column("quantity"): [*commands], Column("command"): [*commands.values()]}
    return Table.of(content, title="Commands that show more")


def write_json(checked: Checked, out: TextIO) -> None:
    """Write the document, which is a baseline, too."""
    out.write(json.dumps(checked.to_json(), indent=1, allow_nan=False) + "\n")
