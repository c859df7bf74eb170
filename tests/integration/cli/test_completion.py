"""Completion scripts, and the answers they ask for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from etscope.cli import COMMANDS
from tests.support.cli.fixtures import Run


def test_scripts_name_the_command_and_bash_accepts_its_own(run: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        code, script, _ = run("--completion", shell)
        assert code == 0
        assert f"_ETSCOPE_COMPLETE={shell}_complete" in script
        if shell == "bash" and shutil.which("bash"):
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    code, _, err = run("--completion", "tcsh")
    assert code == 2 and "bash" in err


def answered(words: str, position: int) -> str:
    """What bash is told at the word `position` of the line `words`."""
    line = {"COMP_WORDS": words, "COMP_CWORD": str(position)}
    done = subprocess.run(
        [sys.executable, "-m", "etscope"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "_ETSCOPE_COMPLETE": "bash_complete", **line},
    )
    return done.stdout


def completed(words: str, position: int) -> list[str]:
    """What bash would offer there."""
    return [line.partition(",")[2] for line in answered(words, position).splitlines()]


def test_verbs_options_and_choices_are_completed() -> None:
    assert completed("etscope ", 1) == list(COMMANDS)
    assert completed("etscope export -X cal", 3) == ["calibration="]
    assert "--color" in completed("etscope --", 1)
    assert completed("etscope --completion f", 2) == ["fish"]


@pytest.mark.parametrize("words", ["etscope inspect ru", "etscope inspect --etrecord mo"])
def test_files_are_left_to_the_shell(words: str) -> None:
    assert answered(words, len(words.split()) - 1).startswith("file,")
