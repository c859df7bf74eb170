"""The search among sets whose errors are known, against all sets tried."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from etscope.analysis.metrics import find_metric
from etscope.search import LOWER
from etscope.sensitivity._sensitivity import GroupSearch
from etscope.sensitivity.results import Key, Variant

SQNR, MSE = find_metric("sqnr"), find_metric("mse")


class Model:
    """Noise of each group goes when it is in float; of each pair, when both are. Some sets cannot
    be lowered."""

    def __init__(self, alone: list[float], pairs: dict[tuple[int, int], float]) -> None:
        self.alone, self.pairs = alone, pairs
        self.broken: set[Key] = set()
        self.asked = 0

    def noise(self, key: Key) -> float:
        alone = sum(one for index, one in enumerate(self.alone) if index not in key)
        return 1e-9 + alone + sum(one for pair, one in self.pairs.items() if not key >= set(pair))

    def ask(self, key: Key) -> Variant:
        self.asked += 1
        if key in self.broken:
            return Variant(failure=LOWER)
        return Variant(error=-10 * math.log10(self.noise(key)))

    def search(self, tolerance: float) -> GroupSearch:
        count = len(self.alone)
        keys = [frozenset([index]) for index in range(count)] + [*map(frozenset, self.pairs)]
        base, known = self.ask(frozenset()), {key: self.ask(key) for key in keys}
        return GroupSearch(
            SQNR, tolerance, base, count, known, self.ask, lambda key: float(min(key))
        )

    def smallest(self, tolerance: float) -> int | None:
        for size in range(len(self.alone) + 1):
            for chosen in itertools.combinations(range(len(self.alone)), size):
                answer = self.ask(frozenset(chosen))
                if answer.error is not None and answer.error >= tolerance:
                    return size
        return None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_is_enough_and_small(seed: int) -> None:
    chance = random.Random(seed)
    model = Model(
        [10 ** chance.uniform(-6, -1) for _ in range(8)],
        {(i, i + 1): 10 ** chance.uniform(-6, -1) for i in range(7)},
    )
    for tolerance in (10.0, 20.0, 30.0, 45.0):
        smallest = model.smallest(tolerance)
        found = model.search(tolerance).run()
        assert (found is None) == (smallest is None)
        if found is not None and smallest is not None:
            answer = model.ask(found)
            assert answer.error is not None and answer.error >= tolerance
            assert len(found) <= smallest + 2
            for index in found:  # none of it can be left out
                error = model.ask(found - {index}).error
                assert error is not None and error < tolerance


def test_what_needs_nothing_and_what_cannot_be_reached() -> None:
    assert Model([1e-5, 1e-5], {}).search(20).run() == frozenset()
    model = Model([0.1, 0.1], {(0, 1): 0.1})
    assert model.search(200).run() is None


def test_of_equal_sets_the_cheapest_is_taken() -> None:
    model = Model([1e-9, 1e-9, 1e-9], {(0, 1): 0.0, (1, 2): 0.1})
    assert model.search(40).run() == frozenset({1, 2})


def test_what_works_with_all_only_is_found() -> None:
    """All small sets fail; a large one does not."""
    model = Model([0.1, 0.1, 0.1], {})
    model.broken = {
        frozenset(one) for size in (1, 2) for one in itertools.combinations(range(3), size)
    }
    assert model.search(40).run() == frozenset({0, 1, 2})


def test_no_more_is_tried_than_needed() -> None:
    model = Model([0.5, *[1e-8] * 30], {})
    search = model.search(40)
    asked = model.asked
    assert search.run() == frozenset({0})
    assert model.asked == asked
