"""Where to look for a small set of groups that is good enough. Measuring one is another's matter.

Greedy: the best of what is known, joined with what helped most after it, until that is enough; if
it never is, all groups. Then without each part that is not needed. A small set, not provably the
smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from etscope.analysis.metrics import Metric
from etscope.sensitivity._variant import Key, Variant, is_good


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
