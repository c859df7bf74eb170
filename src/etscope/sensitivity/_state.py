"""What is known so far, in a folder that a search can go on from: answers, and the programs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from etscope.errors import FormatError, MismatchError, MissingFileError, UsageError, reading
from etscope.formats.replacing import make_folder, replacing
from etscope.sensitivity._variant import LOWER, RUN, Variant

NAME, PROGRAMS = "state.json", "programs"
VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Variants by the names of the nodes kept in float. given: what they depend on (the model's
    fingerprint, the options)."""

    folder: Path
    given: Mapping[str, Any]
    variants: dict[str, Variant] = field(default_factory=dict)

    def program(self, key: str) -> Path:
        """Where the program of a variant is kept."""
        return self.folder / PROGRAMS / f"{key}.pte"

    def get(self, key: str) -> Variant | None:
        """What is known of a variant whose program is still there, or could not be made."""
        found = self.variants.get(key)
        if found is None or found.failure == LOWER or self.program(key).is_file():
            return found
        return None

    def add(self, key: str, variant: Variant) -> None:
        """Keep an answer; the file is written whole."""
        self.variants[key] = variant
        content = {
            "version": VERSION,
            "given": dict(self.given),
            "variants": {name: _to_json(one) for name, one in self.variants.items()},
        }
        with replacing(self.folder / NAME) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())


def key_of(names: Sequence[str]) -> str:
    """A name for files: of the nodes that are kept in float."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def open_state(folder: Path, given: Mapping[str, Any], *, resume: bool) -> State:
    """The state to begin with: that of the folder with `resume`, else an empty one.

    Raises `MismatchError` for a state of another model or other options, `UsageError` when a state
    is there that is not to be resumed.
    """
    path = folder / NAME
    if not resume:
        if path.exists():
            raise UsageError(
                f"{path} is of an earlier search",
                hint="go on with it (--resume), remove it, or name another folder",
            )
        make_folder(folder / PROGRAMS)
        return State(folder, given)
    if not path.exists():
        raise MissingFileError(f"there is nothing to resume: {path} is not there")
    with reading("state of a search", path):
        content = json.loads(path.read_text())
        if content["version"] != VERSION:
            raise FormatError(f"it is of version {content['version']!r:.20}, not {VERSION}")
        known = dict(content["given"])
        variants = {str(key): _of_json(one) for key, one in content["variants"].items()}
    for name in sorted({*known, *given}):
        if known.get(name) != given.get(name):
            raise MismatchError(
                f"{path} is of another {name}: {known.get(name)!s:.60}, and now it is "
                f"{given.get(name)!s:.60}",
                hint="resume with the model and the options that it began with, or start anew in "
                "another folder",
            )
    make_folder(folder / PROGRAMS)
    return State(folder, given, variants)


def _to_json(variant: Variant) -> dict[str, Any]:
    content = asdict(variant)
    for name in ("error", "worst"):  # JSON has no NaN
        content[name] = None if content[name] is None else str(content[name])
    return content


def _of_json(content: dict[str, Any]) -> Variant:
    if content["failure"] not in (None, LOWER, RUN):
        raise FormatError(f"there is no failure {content['failure']!r:.40}")
    numbers = {
        name: None if content[name] is None else float(content[name]) for name in ("error", "worst")
    }
    return Variant(
        error=numbers["error"],
        worst=numbers["worst"],
        worst_sample=None if content["worst_sample"] is None else int(content["worst_sample"]),
        size=None if content["size"] is None else int(content["size"]),
        failure=content["failure"],
        detail=str(content["detail"]),
    )
