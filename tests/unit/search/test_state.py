"""The state file of a search, and the states that it is not resumed from."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import FormatError, MismatchError, MissingFileError, UsageError
from etscope.search import STATE_FILE, SearchState, open_state

GIVEN: dict[str, object] = {"model": "1f2e", "limit": None}
WHOLE = {"version": 1, "given": GIVEN, "answers": {"0": "1.5"}}


@dataclass(frozen=True)
class Number:
    value: float

    def to_json(self) -> Any:
        return str(self.value)

    @classmethod
    def of_json(cls, content: Any) -> Number:
        return cls(float(content))


def opened(
    folder: Path, given: dict[str, object] = GIVEN, *, resume: bool = True
) -> SearchState[Number]:
    return open_state(
        folder, given, Number.of_json, section="answers", search="hunt", resume=resume
    )


def test_results_come_back_and_are_reported_once(tmp_path: Path) -> None:
    reported: list[Number] = []
    state = opened(tmp_path, resume=False)
    assert state.results == {}
    for _ in range(2):
        assert state.result("0", lambda: Number(1.5), reported.append) == Number(1.5)
    assert json.loads((tmp_path / STATE_FILE).read_text()) == WHOLE
    again = opened(tmp_path)
    assert again.results == {"0": Number(1.5)}
    assert again.result("0", lambda: Number(2.5), reported.append) == Number(1.5)
    assert reported == [Number(1.5)]


def test_an_earlier_state_is_not_lost(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="nothing to resume"):
        opened(tmp_path)
    opened(tmp_path, resume=False).save()
    with pytest.raises(UsageError, match="from an earlier hunt"):
        opened(tmp_path, resume=False)


def test_answers_to_another_question_are_refused(tmp_path: Path) -> None:
    opened(tmp_path, resume=False).save()
    for given, words in (
        ({**GIVEN, "model": "3d4c"}, "another model: 1f2e, and now it is 3d4c"),
        ({**GIVEN, "limit": 0.5}, r"another limit: none, and now it is 0\.5"),
        ({**GIVEN, "seed": "x" * 100}, "another seed: none, and now it is x{60}$"),
        ({"limit": None}, "another model: 1f2e, and now it is none"),
    ):
        with pytest.raises(MismatchError) as raised:
            opened(tmp_path, given)
        assert re.search(words, raised.value.message)


def test_a_damaged_state(tmp_path: Path) -> None:
    answers: list[Any] = [[], {"0": "many"}, {"0": []}]
    damaged = [{"version": 2}, {"given": 3}, *({"answers": one} for one in answers)]
    for content in ("", "[]", '{"version": 1}', *(json.dumps({**WHOLE, **one}) for one in damaged)):
        (tmp_path / STATE_FILE).write_text(content)
        with pytest.raises(FormatError, match=r"state\.json"):
            opened(tmp_path)
