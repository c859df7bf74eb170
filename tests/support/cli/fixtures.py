"""Fixtures for the tests of the command line: no width, colour or verbosity from outside."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etscope.cli import main

_SAID = (
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
    *("ETSCOPE_DEBUG", "ETSCOPE_LAB", "ETSCOPE_LAB_SERVER", "ETSCOPE_LAB_TOKEN"),
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _SAID:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command of etscope in this process: its exit code, its output and its errors."""

    def command(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command
