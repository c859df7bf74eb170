"""Values that are told to be fine without a result in float64 are so with any."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from etscope.analysis.metrics import METRICS, find_metric
from etscope.analysis.metrics.arrays import PART
from etscope.analysis.numerics.limits import Judged, Rules, judge, screened

SQNR = find_metric("sqnr")
SMALL = [(), (1,), (7,), (64, 33), (1, 5, 1, 40), (3, 8, 9, 10)]
LARGE = [(2, PART + 1), (PART + 3,)]


def values(shape: tuple[int, ...], dtype: Any, error: float) -> tuple[Any, Any]:
    """A value, and one with relative errors of one size."""
    chance = np.random.default_rng(len(shape))
    numbers = chance.standard_normal(shape)
    found = numbers * (1 + error * np.sign(chance.standard_normal(shape)))
    return np.asarray(numbers.astype(dtype)), np.asarray(found.astype(dtype))


def assert_same(one: Judged, other: Judged) -> None:
    for name in ("error", "limit", "excess", "share"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9), name
    assert not one.is_wrong and not other.is_wrong


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_numbers_are_those_of_the_whole_judgement(metric: str, dtype: Any) -> None:
    for shape in SMALL + LARGE if dtype == np.float32 else SMALL:
        local, value = values(shape, dtype, 1e-12)
        assert local.dtype == dtype
        found = screened(METRICS[metric], local, value, Rules())
        whole = judge(METRICS[metric], local, value, None, Rules())
        if metric == "cosine_similarity" and dtype == np.float64:  # it is 1 - 1e-16 of either
            assert found is None or not whole.is_wrong
            continue
        assert found is not None and found.noise is None
        assert_same(found, whole)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_any_layout(order: tuple[int, ...]) -> None:
    local, value = (one.transpose(order) for one in values((6, 7, 8), np.float32, 1e-6))
    found = screened(SQNR, local, value, Rules())
    assert_same(found, judge(SQNR, local, value, None, Rules()))


def test_what_is_screened_is_fine_with_any_noise() -> None:
    chance = np.random.default_rng(0)
    told = 0
    for _ in range(300):
        shape = tuple(chance.integers(1, 30, chance.integers(0, 4)).tolist())
        local, value = values(shape, np.float32, 10 ** chance.uniform(-8, -3))
        if value.size:  # one part is off by more
            where = tuple(int(chance.integers(size)) for size in shape[: chance.integers(0, 4)])
            value[where] *= np.float32(1 + 10 ** chance.uniform(-8, -3))
        rules = Rules(exact=bool(chance.random() < 0.1), quantized=bool(chance.random() < 0.2))
        found = screened(SQNR, local, value, rules)
        noise = chance.standard_normal(shape) * 10 ** chance.uniform(-12, -4)
        whole = judge(SQNR, local, value, local.astype(np.float64) + noise, rules)
        assert found is None or not whole.is_wrong
        told += found is not None
    assert 50 < told < 250


@pytest.mark.parametrize("part", [(slice(None), 20), (5,), (5, 20)])
def test_a_part_beyond_its_tolerance_is_not_told_to_be_fine(part: Any) -> None:
    local, value = values((64, 64), np.float32, 1e-7)
    local[:, 7] *= 30_000
    value[:, 7] *= 30_000
    assert screened(SQNR, local, value, Rules()) is not None
    value[part] *= np.float32(1.01)
    assert screened(SQNR, local, value, Rules()) is None
    assert screened(SQNR, local, value, Rules(tolerance=20.0)) is not None


def test_equal_integers_are_fine_and_others_are_looked_at() -> None:
    codes = np.arange(100, dtype=np.int64).reshape(4, 25)
    found = screened(SQNR, codes, codes.copy(), Rules())
    assert (found.error, found.limit, found.excess, found.share) == (math.inf, math.inf, 0.0, 0.0)
    assert screened(SQNR, codes, codes + 1, Rules()) is None
    assert screened(SQNR, codes > 3, codes > 3, Rules()) is not None
    given = screened(SQNR, codes, codes.copy(), Rules(tolerance=40.0))
    assert given is not None and given.limit == 40.0


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_looked_at(odd: float) -> None:
    local, value = values((8, 8), np.float32, 0.0)
    value[3, 3] = odd
    assert screened(SQNR, local, value, Rules()) is None
    assert screened(SQNR, value, local, Rules()) is None


@pytest.mark.parametrize(
    ("local", "value"),
    [
        (np.empty((0, 3), np.float32), np.empty((0, 3), np.float32)),
        (np.ones(3, np.float32), np.ones(4, np.float32)),
        (np.array(["a"]), np.array(["a"])),
        (np.ones(3, np.complex64), np.ones(3, np.complex64)),
        (np.full(3, 1e-160), np.full(3, 1.1e-160)),
        (np.full(3, 1e160), np.full(3, 1.1e160)),
    ],
)
def test_what_cannot_be_screened(local: Any, value: Any) -> None:
    assert screened(SQNR, local, value, Rules()) is None
