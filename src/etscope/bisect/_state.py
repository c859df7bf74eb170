"""What is known so far, in a file that a bisection can go on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etscope.bisect._answer import Answer
from etscope.formats.search_state import NAME, known_answers, write_state
from etscope.model.pieces import Piece, written

_ANSWERS = "answers"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Answers by piece. `given`: what they depend on (the model's fingerprint, the options)."""

    path: Path
    given: Mapping[str, Any]
    answers: dict[str, Answer] = field(default_factory=dict)

    def get(self, piece: Piece) -> Answer | None:
        return self.answers.get(written(piece))

    def add(self, piece: Piece, answer: Answer) -> None:
        """Keep an answer; the file is written whole."""
        self.answers[written(piece)] = answer
        content = {key: one.to_json() for key, one in self.answers.items()}
        write_state(self.path, self.given, content, name=_ANSWERS)


def open_state(folder: Path, given: Mapping[str, Any], *, resume: bool) -> State:
    """The state to begin with: that of the folder with `resume`, else an empty one.

    Raises what `known_answers` does.
    """
    path = folder / NAME
    answers = known_answers(
        path, given, Answer.of_json, name=_ANSWERS, search="bisection", resume=resume
    )
    return State(path, given, answers)
