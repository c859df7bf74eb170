"""state.json: what a search knows so far, for another one to go on from.

    {"version": 1, "given": {…}, "answers": {key: answer, …}}

given: what the answers depend on, plain values. The answers stand under a name of the search's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from etscope.errors import FormatError, MismatchError, MissingFileError, UsageError, reading
from etscope.formats.bytes.atomic_write import replacing

NAME = "state.json"
VERSION = 1

_Answer = TypeVar("_Answer")


def write_state(
    path: Path, given: Mapping[str, Any], answers: Mapping[str, Any], *, name: str
) -> None:
    """Write the file whole. answers: by their keys, as plain values."""
    content = {"version": VERSION, "given": dict(given), name: dict(answers)}
    with replacing(path) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


def known_answers(
    path: Path,
    given: Mapping[str, Any],
    of_json: Callable[[Any], _Answer],
    *,
    name: str,
    search: str,
    resume: bool,
) -> dict[str, _Answer]:
    """The answers to begin with: those of the file with `resume`, else none.

    search: what it is, in a word for people. Raises `MismatchError` for a state of another model or
    other options, `UsageError` when a state is there that is not to be resumed, `MissingFileError`
    when one is to be and is not there, `FormatError` for a damaged one.
    """
    if not resume:
        if path.exists():
            raise UsageError(
                f"{path} is of an earlier {search}",
                hint="go on with it (--resume), remove it, or name another folder",
            )
        return {}
    if not path.exists():
        raise MissingFileError(f"there is nothing to resume: {path} is not there")
    with reading(f"state of a {search}", path):
        content = json.loads(path.read_text())
        if content["version"] != VERSION:
            raise FormatError(f"it is of version {content['version']!r:.20}, not {VERSION}")
        known = dict(content["given"])
        answers = {str(key): of_json(one) for key, one in content[name].items()}
    for what in sorted({*known, *given}):
        if known.get(what) != given.get(what):
            raise MismatchError(
                f"{path} is of another {what}: {_short(known.get(what))}, and now it is "
                f"{_short(given.get(what))}",
                hint="resume with the model and the options that it began with, or start anew in "
                "another folder",
            )
    return answers


def _short(value: object) -> str:
    return "none" if value is None else f"{value!s:.60}"
