"""Where to look for a small set of groups that is good enough. Measuring one is another's matter.

Greedy: the best of what is known, joined with what helped most after it, until that is enough; if
it never is, all groups. Then without each part that is not needed. A small set, not provably the
smallest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from etscope.analysis.metrics import Metric
from etscope.errors import FormatError
from etscope.formats.bytes.atomic_write import make_folder
from etscope.formats.search_state import NAME, known_answers, write_state
from etscope.sensitivity._results import LOWER, RUN, Key, Variant, is_good

# What is known so far, in a folder that a search can go on from: answers, and the programs.


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


@dataclass(frozen=True, slots=True)
class Search:
    """int8: what nothing in float gives. count: how many groups there are. known: what was measured
    of sets of them. ask: measures a set. cost: to choose among sets of one size by, the smallest
    first."""

    metric: Metric
    tolerance: float
    int8: Variant
    count: int
    known: Mapping[Key, Variant]
    ask: Callable[[Key], Variant]
    cost: Callable[[Key], float]

    def found(self) -> Key | None:
        """A set that reaches the tolerance, or None."""
        enough = [key for key, one in self.known.items() if self._reaches(one)]
        if self._reaches(self.int8):
            return frozenset()
        if enough:
            return min(enough, key=lambda key: (len(key), self.cost(key), sorted(key)))
        ranked = sorted(self._helpful(), key=lambda key: (self._badness(key), len(key)))
        current: Key = frozenset()
        for key in ranked:
            union = current | key
            if union == current:
                continue
            answer = self.ask(union)
            if self._reaches(answer):
                return self._pruned(union)
            if not current or self.metric.badness(answer.error) < self._badness(current):
                current = union
        everything = frozenset(range(self.count))
        return self._pruned(everything) if self._reaches(self.ask(everything)) else None

    def _helpful(self) -> list[Key]:
        """The sets with which the error is smaller than with none of them."""
        worse = self.metric.badness(self.int8.error)
        return [
            key
            for key, one in self.known.items()
            if one.failure is None and self.metric.badness(one.error) < worse
        ]

    def _badness(self, key: Key) -> float:
        return self.metric.badness(self.ask(key).error)

    def _reaches(self, variant: Variant) -> bool:
        return is_good(self.metric, variant.error, self.tolerance)

    def _pruned(self, key: Key) -> Key:
        """Without what is not needed: halves of it first, single groups last."""
        size = max(1, len(key) // 2)
        while True:
            for part in _parts(key, size):
                rest = key - part
                if rest and part & key and self._reaches(self.ask(rest)):
                    key = rest
            if size == 1:
                return key
            size = max(1, min(size, len(key)) // 2)


def _parts(key: Key, size: int) -> Iterator[Key]:
    ordered = sorted(key)
    for start in range(0, len(ordered), size):
        yield frozenset(ordered[start : start + size])
