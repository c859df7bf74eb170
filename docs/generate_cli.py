"""Write docs/reference/cli.md from the help of every command. A test fails if it is not current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etscope.cli import COMMANDS
from etscope.cli._app import cli
from etscope.cli.verb import all_help

PAGE = Path(__file__).with_name("reference") / "cli.md"

WIDTH: dict[str, Any] = {"terminal_width": 80, "max_content_width": 80}

HEAD = """\
# Commands

What `--help-all` says of every command; this page is generated.
The [how-to guides](../how-to/run.md) show them at work.
"""


def page() -> str:
    """The text of docs/reference/cli.md."""
    parent = cli.make_context("etscope", [], resilient_parsing=True, **WIDTH)
    parts = [HEAD, _section(parent)]
    for verb in COMMANDS:
        command = cli.get_command(parent, verb)
        assert command is not None
        context = click.Context(command, info_name=verb, parent=parent, **WIDTH)
        parts.append(_section(context))
        if isinstance(command, click.Group):  # with commands of its own
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                below = click.Context(inner, info_name=name, parent=context, **WIDTH)
                parts.append(_section(below))
    return "\n".join(parts)


def _section(context: click.Context) -> str:
    return f"## {context.command_path}\n\n```text\n{all_help(context)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
