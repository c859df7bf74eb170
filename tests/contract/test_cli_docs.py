"""docs/reference/cli.md is what `--help` says."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from etscope.cli import COMMANDS
from etscope.cli._app import cli
from tests.contract.source_tree import ROOT


def generated() -> str:
    """The page, by a process of its own: a command keeps the help option that it was first asked
    for, which depends on the tests before."""
    code = "import generate_cli; print(generate_cli.page(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "docs", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_is_current() -> None:
    current = (ROOT / "docs/reference/cli.md").read_text()
    assert current == generated(), "run: python docs/generate_cli.py"


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_is_a_command_with_help(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    assert command.help
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []
    line = COMMANDS[verb].help  # in the list of commands
    assert line.endswith((".", "…")) and len(line) < 64
