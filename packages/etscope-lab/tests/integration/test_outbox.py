"""What is left to write while the database is away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from etscope.errors import LabError
from etscope_lab.outbox import Change, Outbox


@pytest.mark.parametrize("error", [LabError("away"), OSError("away"), ValueError("a bug")])
def test_nothing_is_lost_or_overtakes(error: Exception) -> None:
    said: list[str] = []
    failures = [error, error]

    def second() -> None:
        if failures:
            raise failures.pop()
        said.append("second")

    def together(changes: Sequence[Change]) -> list[Any]:
        before = [*said]
        try:
            return [change() for change in changes]
        except Exception:
            said[:] = before  # as a database takes back what was not committed
            raise

    outbox = Outbox(together, lambda: said.append("rest"))
    for change in (lambda: said.append("first"), second, lambda: said.append("third")):
        outbox.add(change, lambda _: said.append("then"))
    assert [outbox.save() for _ in range(4)] == [False, False, True, True]
    assert said == ["rest", "rest", "first", "second", "third", *["then"] * 3]


def test_the_same_trouble_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def fails(text: str) -> None:
        raise LabError(text)

    outbox = Outbox(lambda changes: [change() for change in changes], lambda: None)
    for text in ("away", "away", "full"):
        assert not outbox.attempt(fails, text)
    assert outbox.attempt(lambda: None)
    assert not outbox.attempt(fails, "full")
    told = [record.getMessage().rpartition(" ")[2] for record in caplog.records]
    assert told == ["away", "full", "full"]
