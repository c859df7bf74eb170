"""Fixtures for the tests of the command line: no width, colour or verbosity from outside."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etscope.cli import main
from tests.support.schemas import validate_output

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
    """Runs a command of etscope in this process: its exit code, its output and its errors. JSON has
    its published form."""

    def command(*words: object) -> tuple[int, str, str]:
        texts = [str(word) for word in words]
        code = main(texts)
        said = capsys.readouterr()
        validate_output(texts, said.out)
        return code, said.out, said.err

    return command
