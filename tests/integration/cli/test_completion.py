"""Completion scripts, and the answers they ask for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from etscope.cli import COMMANDS, main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_the_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_ETSCOPE_COMPLETE={shell}_complete" in script


def test_an_unknown_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_accepts_its_script(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capfd.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def answered(words: str, position: int) -> str:
    """What bash is told at the word `position` of the line `words`."""
    done = subprocess.run(
        [sys.executable, "-m", "etscope"],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "_ETSCOPE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        },
    )
    return done.stdout


def completed(words: str, position: int) -> list[str]:
    """What bash would offer there."""
    return [line.partition(",")[2] for line in answered(words, position).splitlines()]


def test_verbs_are_completed() -> None:
    assert completed("etscope ", 1) == list(COMMANDS)
    assert completed("etscope comp", 1) == ["completion"]
    assert completed("etscope lab s", 2) == ["submit", "status", "serve", "sweep", "schema"]


def test_options_and_choices_are_completed() -> None:
    assert "--debug" in completed("etscope --", 1)
    assert completed("etscope completion f", 2) == ["fish"]


@pytest.mark.parametrize("words", ["etscope inspect ru", "etscope inspect --etrecord mo"])
def test_files_are_left_to_the_shell(words: str) -> None:
    assert answered(words, len(words.split()) - 1).startswith("file,")
