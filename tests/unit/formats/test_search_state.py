"""What a search keeps, and what it does not go on from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from etscope.errors import FormatError, MismatchError, MissingFileError, UsageError
from etscope.formats.search_state import NAME, known_answers, write_state

GIVEN: dict[str, object] = {"model": "1f2e", "limit": None}
WHOLE = {"version": 1, "given": GIVEN, "answers": {"0": "1.5"}}


def known(path: Path, given: dict[str, object] = GIVEN, *, resume: bool = True) -> dict[str, float]:
    return known_answers(path, given, float, name="answers", search="hunt", resume=resume)


def test_answers_come_back(tmp_path: Path) -> None:
    path = tmp_path / NAME
    assert known(path, resume=False) == {}
    write_state(path, GIVEN, {"0": "1.5", "1": "nan"}, name="answers")
    write_state(path, GIVEN, {"0": "1.5"}, name="answers")
    assert json.loads(path.read_text()) == WHOLE
    assert known(path) == {"0": 1.5}


def test_an_earlier_state_is_not_lost(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="nothing to resume"):
        known(tmp_path / NAME)
    write_state(tmp_path / NAME, GIVEN, {}, name="answers")
    with pytest.raises(UsageError, match="of an earlier hunt"):
        known(tmp_path / NAME, resume=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**GIVEN, "model": "3d4c"}, "another model: 1f2e, and now it is 3d4c"),
        ({**GIVEN, "limit": 0.5}, r"another limit: none, and now it is 0\.5"),
        ({**GIVEN, "seed": "x" * 100}, "another seed: none, and now it is x{60}$"),
        ({"limit": None}, "another model: 1f2e, and now it is none"),
    ],
)
def test_answers_to_another_question_are_refused(
    tmp_path: Path, given: dict[str, object], words: str
) -> None:
    write_state(tmp_path / NAME, GIVEN, {"0": "1.5"}, name="answers")
    with pytest.raises(MismatchError) as raised:
        known(tmp_path / NAME, given)
    assert re.search(words, raised.value.message)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"version": 1}',
        json.dumps({**WHOLE, "version": 2}),
        json.dumps({**WHOLE, "given": 3}),
        json.dumps({**WHOLE, "answers": []}),
        json.dumps({**WHOLE, "answers": {"0": "many"}}),
        json.dumps({**WHOLE, "answers": {"0": []}}),
    ],
)
def test_a_damaged_state(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    with pytest.raises(FormatError, match=r"state\.json"):
        known(tmp_path / NAME)
