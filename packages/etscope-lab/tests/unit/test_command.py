"""`etscope lab` as a command of the core."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from etscope.cli import CommandSpec
from etscope_lab.cli import COMMANDS
from tests.support.cli.fixtures import Run


def test_help_lists_the_commands_and_imports_none(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "broken", CommandSpec("no.such.module", "Cannot be imported."))
    code, listed, _ = run("lab", "--help")
    assert code == 0
    assert all(f"  {name}" in listed for name in COMMANDS)
    code, _, err = run("lab", "sbumit")
    assert code == 2 and "Did you mean 'submit'?" in err


def test_commands_are_completed() -> None:
    words = {"COMP_WORDS": "etscope lab s", "COMP_CWORD": "2", "_ETSCOPE_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "etscope"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **words},
    )
    found = [line.partition(",")[2] for line in done.stdout.splitlines()]
    assert found == ["submit", "status", "sql", "serve", "sweep", "schema"]


@pytest.mark.parametrize(
    ("command", "option", "form"),
    [
        (["lab", "list"], "--label", "KEY=VALUE"),
        (["lab", "submit", "net.pte"], "--label", "KEY=VALUE"),
        (["lab", "collect", "run.etdp", "-o", "dataset"], "--label", "KEY=VALUE"),
        (["lab", "sql", "dataset", "select 1"], "--param", "NAME=VALUE"),
    ],
)
def test_every_command_refuses_alike(run: Run, command: list[str], option: str, form: str) -> None:
    code, _, err = run(*command, option, "nothing")
    assert code == 2 and f"{option} 'nothing' is not {form}" in err
