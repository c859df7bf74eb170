"""The state file of a search, and the states that it is not resumed from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import FormatError, MismatchError, UsageError
from etscope.search.trial import STATE_FILE, SearchOptions, SearchState, Trial, open_state

GIVEN: dict[str, object] = {"model": "1f2e", "limit": None}
WHOLE = {
    "version": 2,
    "given": GIVEN,
    "trials": {"0": {"error": "nan", "size": 7, "rounds": [], "failure": None, "detail": ""}},
}
FOUND = Trial(float("nan"), 7)


def opened(
    folder: Path,
    given: dict[str, object] = GIVEN,
    *,
    resume: bool = True,
    progress: Callable[[str, Trial], None] | None = None,
) -> SearchState[Trial]:
    return open_state(folder, given, Trial, SearchOptions(resume=resume, progress=progress), "hunt")


def test_trials_come_back_and_are_reported_once(tmp_path: Path) -> None:
    reported: list[tuple[str, Trial]] = []

    def report(name: str, trial: Trial) -> None:
        reported.append((name, trial))

    state = opened(tmp_path, resume=False, progress=report)
    assert state.trials == {}
    for _ in range(2):
        assert state.trial("0", lambda: FOUND) is FOUND
    assert json.loads((tmp_path / STATE_FILE).read_text()) == WHOLE
    again = opened(tmp_path, progress=report)
    assert str(again.trials) == str({"0": FOUND})  # NaN is not equal to itself
    again.trial("0", lambda: Trial(2.5))
    assert reported == [("0", FOUND)]


def test_an_earlier_state_is_not_lost(tmp_path: Path) -> None:
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
    trials: list[Any] = [[], {"0": "many"}, {"0": {"error": "many"}}, {"0": {"failure": "x"}}]
    trials += [{"0": {"size": 10**400}}, {"0": {"rounds": [[1, 10**400]]}}]
    damaged = [{"version": 1}, {"given": 3}, *({"trials": one} for one in trials)]
    for content in ("", "[]", '{"version": 2}', *(json.dumps({**WHOLE, **one}) for one in damaged)):
        (tmp_path / STATE_FILE).write_text(content)
        with pytest.raises(FormatError, match=r"state\.json"):
            opened(tmp_path)
