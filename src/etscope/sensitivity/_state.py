"""What is known so far, in a folder that a search can go on from: answers, and the programs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from etscope.errors import FormatError
from etscope.formats.bytes.atomic_write import make_folder
from etscope.formats.search_state import NAME, known_answers, write_state
from etscope.sensitivity._variant import LOWER, RUN, Variant

PROGRAMS = "programs"
_VARIANTS = "variants"


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
        content = {name: _to_json(one) for name, one in self.variants.items()}
        write_state(self.folder / NAME, self.given, content, name=_VARIANTS)


def key_of(names: Sequence[str]) -> str:
    """A name for files: of the nodes that are kept in float."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def open_state(folder: Path, given: Mapping[str, Any], *, resume: bool) -> State:
    """The state to begin with: that of the folder with `resume`, else an empty one.

    Raises what `known_answers` does, and `UsageError` for a folder that cannot be made.
    """
    variants = known_answers(
        folder / NAME, given, _of_json, name=_VARIANTS, search="search", resume=resume
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
