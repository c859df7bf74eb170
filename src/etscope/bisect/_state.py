"""What is known so far, in a file that a bisection can go on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etscope.bisect._answer import Answer
from etscope.errors import FormatError, MismatchError, MissingFileError, UsageError, reading
from etscope.formats.replacing import replacing
from etscope.model.pieces import Piece, written

NAME = "state.json"
VERSION = 1


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
        content = {
            "version": VERSION,
            "given": dict(self.given),
            "answers": {key: one.to_json() for key, one in self.answers.items()},
        }
        with replacing(self.path) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())


def open_state(folder: Path, given: Mapping[str, Any], *, resume: bool) -> State:
    """The state to begin with: that of the folder with `resume`, else an empty one.

    Raises `MismatchError` for a state of another model or other options, `UsageError` when a state
    is there that is not to be resumed.
    """
    path = folder / NAME
    if not resume:
        if path.exists():
            raise UsageError(
                f"{path} is of an earlier bisection",
                hint="go on with it (--resume), remove it, or name another folder",
            )
        return State(path, given)
    if not path.exists():
        raise MissingFileError(f"there is nothing to resume: {path} is not there")
    with reading("state of a bisection", path):
        content = json.loads(path.read_text())
        if content["version"] != VERSION:
            raise FormatError(f"it is of version {content['version']!r:.20}, not {VERSION}")
        known = dict(content["given"])
        answers = {key: Answer.of_json(one) for key, one in content["answers"].items()}
    for name in sorted({*known, *given}):
        if known.get(name) != given.get(name):
            raise MismatchError(
                f"{path} is of another {name}: {_short(known.get(name))}, and now it is "
                f"{_short(given.get(name))}",
                hint="resume with the model and the options that it began with, or start anew in "
                "another folder",
            )
    return State(path, given, answers)


def _short(value: object) -> str:
    return "none" if value is None else f"{value!s:.60}"
