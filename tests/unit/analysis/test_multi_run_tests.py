"""Evidence of many runs: what it tells, that it raises no alarm, and how many runs are missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from etscope.analysis.numerics import multi_run_tests
from etscope.analysis.numerics.limits import Rules, rounding_of
from etscope.analysis.numerics.multi_run_tests import MEAN, SCALE, SQUARE, AddedRuns, Evidence

Array = npt.NDArray[np.float64]
SHAPE = (4, 6, 8)
FLOAT = rounding_of(np.dtype(np.float32), np.empty(0), Rules())
QUANTIZED = rounding_of(np.dtype(np.float32), np.empty(0), Rules(quantized=True))


def added(
    fault: Callable[[Array], Array] = lambda value: value,
    *,
    samples: int = 64,
    quantized: bool = False,
    seed: int = 0,
    shape: tuple[int, ...] = SHAPE,
    repeats: float = 0.0,
) -> Evidence:
    """Evidence of runs on random values. repeats: part of the rounding that is the same in each."""
    random, runs = np.random.default_rng(seed), AddedRuns()
    size = 0.03 if quantized else 1e-7
    same = [random.normal(size=shape) * size * repeats for _ in range(2)]
    for _ in range(samples):
        value = random.normal(size=shape)
        rounding, own = (random.normal(size=shape) * size + one for one in same)
        rules = QUANTIZED if quantized else FLOAT
        runs.add("value", value, fault(value + own), partial(np.subtract, value, rounding), rules)
    return runs.evidence()["value"]


def changed(
    place: tuple[object, ...], change: Callable[[Array], Array]
) -> Callable[[Array], Array]:
    def fault(value: Array) -> Array:
        value = value.copy()
        value[place] = change(value[place])
        return value

    return fault


EVERY = slice(None)


@pytest.mark.parametrize(
    ("fault", "quantized", "test", "axis", "index"),
    [
        (changed((1, 2, 3), lambda x: x + 5e-4), False, MEAN, None, (1, 2, 3)),
        (changed((EVERY, 4), lambda x: x * 1.00005), False, SCALE, 1, (4,)),
        (changed((EVERY, 4), lambda x: x * 1.02), True, SCALE, 1, (4,)),
        (changed((EVERY,), lambda x: x + 0.02), True, MEAN, None, ()),
        (changed((2,), lambda x: x * (1 + 0.1 * np.sign(np.sin(1e4 * x)))), True, SQUARE, 0, (2,)),
    ],
)
def test_a_part_that_is_off(
    fault: Callable[[Array], Array],
    quantized: bool,
    test: str,
    axis: int | None,
    index: tuple[int, ...],
) -> None:
    found = added(fault, quantized=quantized, samples=256).wrong
    assert (found.test, found.axis, found.index) == (test, axis, index)
    assert found.log_p < math.log(1e-4) and found.excess > 1
    assert f"over 256 samples the {test} of {found.where}" in str(found)


@pytest.mark.parametrize("repeats", [0.0, 1.0])
@pytest.mark.parametrize("quantized", [False, True])
def test_rounding_alone_is_no_finding(quantized: bool, repeats: float) -> None:
    """Also where the same is rounded in each run."""
    for seed in range(30):
        shape = SHAPE if seed % 2 else (2, 5)
        options = {"samples": 16, "quantized": quantized, "shape": shape, "repeats": repeats}
        assert added(seed=seed, **options).wrong is None, seed


def test_the_number_of_missing_samples_is_enough() -> None:
    fault = changed((EVERY, 4), lambda x: x * 1.02)
    found = (added(fault, quantized=True, samples=count) for count in range(8, 40))
    few = next(one for one in found if one.nearest is not None)
    assert few.wrong is None and few.nearest is not None and few.nearest.more is not None
    count, seen = few.samples + few.nearest.more, few.nearest.error
    same = changed((EVERY, few.nearest.index[0]), lambda x: x * (1 + seen))
    enough = [
        added(same, quantized=True, samples=count, seed=seed).wrong is not None
        for seed in range(1, 21)
    ]
    assert sum(enough) >= 16  # the power is 0.9


def test_what_is_told_is_told() -> None:
    told = added(quantized=True).told
    fault = changed((EVERY, 4), lambda x: x + told)
    found = [added(fault, quantized=True, seed=seed).wrong is not None for seed in range(1, 21)]
    assert sum(found) >= 16
    less = changed((EVERY, 4), lambda x: x + told / 10)
    assert added(less, quantized=True).wrong is None


def test_too_few_samples_conclude_nothing() -> None:
    found = added(lambda value: value * 2, samples=7)
    assert not found.is_enough and found.wrong is None and found.told is None
    assert added(lambda value: value * 2, samples=8).wrong is not None


def test_large_values_are_not_kept_by_element(monkeypatch: pytest.MonkeyPatch) -> None:
    assert added(changed((1, 2, 3), lambda x: x + 1e-4)).wrong is not None
    monkeypatch.setattr(multi_run_tests, "MOST_ELEMENTS", math.prod(SHAPE) - 1)
    assert not added().by_element
    assert added(changed((1, 2, 3), lambda x: x + 1e-4)).wrong is None
    found = added(changed((EVERY, 4), lambda x: x + 5e-4)).wrong
    assert found is not None and (found.axis, found.index) == (1, (4,))


def test_what_cannot_be_added_up() -> None:
    runs, ones = AddedRuns(), np.ones(3)
    runs.add("zeros", ones * 0, ones, ones.copy, FLOAT)
    runs.add("empty", ones[:0], ones[:0], ones.copy, FLOAT)
    runs.add("shapes", ones, ones[:2], ones.copy, FLOAT)
    runs.add("infinite", ones * math.inf, ones, ones.copy, FLOAT)
    runs.add("not computed", ones, ones * 2, lambda: None, FLOAT)
    assert runs.evidence() == {}
    for _ in range(9):
        runs.add("part", np.array([1.0, math.nan, 2.0]), ones * [1.0, 5.0, 2.0], ones.copy, FLOAT)
    assert runs.evidence()["part"].wrong is None


def test_values_of_other_shapes_are_apart() -> None:
    runs, random = AddedRuns(), np.random.default_rng(0)
    for number in range(32):
        value = random.normal(size=(4, 3 + number % 2))
        wrong = value * (1.1 if number % 2 else 1.0)
        runs.add("value", value, wrong, value.copy, FLOAT)
    found = runs.evidence()["value"]
    assert found.samples == 16 and found.wrong is not None
