"""Write docs/cli.md from the help of every command. A test fails when the page is not current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etscope.cli import COMMANDS
from etscope.cli._app import cli

PAGE = Path(__file__).with_name("cli.md")

WIDTH: dict[str, Any] = {"terminal_width": 80, "max_content_width": 80}

HEAD = """\
# Commands

What `--help` says of every command; this page is generated. [Library and CLI](library-and-cli.md)
shows them at work.
"""


def page() -> str:
    """The text of docs/cli.md."""
    parent = cli.make_context("etscope", [], resilient_parsing=True, **WIDTH)
    parts = [HEAD, _section(parent)]
    for verb in COMMANDS:
        command = cli.get_command(parent, verb)
        assert command is not None
        parts.append(_section(click.Context(command, info_name=verb, parent=parent, **WIDTH)))
    return "\n".join(parts)


def _section(context: click.Context) -> str:
    return f"## {context.command_path}\n\n```text\n{context.get_help()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
