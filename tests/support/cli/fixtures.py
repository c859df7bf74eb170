"""Fixtures for the tests of the command line: no width, colour or verbosity from outside."""

from __future__ import annotations

import pytest

_SAID = (
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
    *("ETSCOPE_DEBUG", "ETSCOPE_LAB", "ETSCOPE_LAB_SERVER", "ETSCOPE_LAB_TOKEN"),
)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _SAID:
        monkeypatch.delenv(name, raising=False)
