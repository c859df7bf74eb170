"""The commands are called where nothing says how wide, how coloured or how talkative they are."""

from __future__ import annotations

import pytest

_SAID = (
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
    *("ETSCOPE_DEBUG", "ETSCOPE_LAB", "ETSCOPE_LAB_SERVER", "ETSCOPE_LAB_TOKEN"),
)


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _SAID:
        monkeypatch.delenv(name, raising=False)
