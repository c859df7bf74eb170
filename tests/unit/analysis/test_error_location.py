"""A fault in a part of a value is told, and rounding in none of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from etscope.analysis.metrics import find_metric
from etscope.analysis.numerics.error_location import FALSE_ALARMS, Rounding, WrongPart, wrong_part
from etscope.analysis.numerics.limits import QUANTIZED_FACTOR, ROUNDING_FACTOR, Judged, Rules, judge

SQNR = find_metric("sqnr")
Float64 = npt.NDArray[np.float64]


def product(rows: int = 64, channels: int = 64, inner: int = 128) -> tuple[Any, Float64]:
    """A product of matrices in float32 and in float64; the channel 7 is 30,000 times as large."""
    chance = np.random.default_rng(0)
    left = chance.standard_normal((rows, inner), np.float32)
    right = chance.standard_normal((inner, channels), np.float32)
    right[:, 7] *= 30_000
    return left @ right, left.astype(np.float64) @ right.astype(np.float64)


def judged(change: Any, **options: Any) -> Judged:
    """What is said of the product after `change` has changed it in place."""
    local, wide = product()
    value = local.copy()
    change(value)
    return judge(SQNR, local, value, wide, Rules(**options))


def small_channels(value: Any) -> None:
    value[:, np.arange(64) != 7] *= 1.01


def one_channel(value: Any) -> None:
    value[:, 20] *= 1.001


@pytest.mark.parametrize("change", [small_channels, one_channel])
def test_a_part_that_the_whole_hides(change: Any) -> None:
    found = judged(change)
    assert found.error > found.limit, "decibels: the whole passes"
    assert found.is_wrong and found.part is not None
    assert found.excess == found.part.excess > 1
    if change is one_channel:
        assert (found.part.axis, found.part.index, found.part.size) == (1, (20,), 64)


def test_a_rounding_of_0_in_one_element_is_no_evidence() -> None:
    # Means of three rows that were centred before, by a kernel that adds up in turn (seed 61).
    wide = np.array([[1e-9], [-1.9073486e-06], [2e-9]])
    local = np.array([[4e-7], [-1.9073486e-06], [-3e-7]], np.float32)
    value = local + np.array([[3e-7], [-4.2e-7], [2e-7]], np.float32)
    assert not judge(SQNR, local, value, wide).is_wrong


def test_one_element_or_row_of_many() -> None:
    local = np.random.default_rng(1).standard_normal((512, 512), np.float32)
    wide = local.astype(np.float64) * (1 + 1e-8)
    value = local.copy()
    value[100, 200] += 0.01
    part = judge(SQNR, local, value, wide).part
    assert (part.axis, part.index, part.size) == (None, (100, 200), 512 * 512)
    assert str(part).startswith("element [100, 200] is off by 0.01, and ")
    value = local.copy()
    value[511] *= 1.0002
    found = judge(SQNR, local, value, wide)
    assert found.error > 90
    assert (found.part.axis, found.part.index) == (0, (511,))


def test_a_tolerance_that_is_given_is_all_that_counts() -> None:
    assert not judged(one_channel, tolerance=60.0).is_wrong


@pytest.mark.parametrize("exact", [False, True])
def test_a_moved_number_has_to_be_the_same(exact: bool) -> None:
    local = np.linspace(1, 2, 100, dtype=np.float32)
    value = np.nextafter(local, np.float32(3))
    assert judge(SQNR, local, value, local.astype(np.float64), Rules(exact=exact)).is_wrong is exact
    assert not judge(
        SQNR, local, local.copy(), local.astype(np.float64), Rules(exact=True)
    ).is_wrong


def test_numbers_that_are_not_finite_are_left_out() -> None:
    local, wide = product()
    for value in (np.nan, np.inf, -np.inf):
        local[3, 3] = wide[3, 3] = value
        assert not judge(SQNR, local, local.copy(), wide).is_wrong
        changed = local.copy()
        changed[:, 20] *= 1.001
        assert judge(SQNR, local, changed, wide).part is not None


@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (1, 1), (2,), (3, 1, 1)])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    local = np.ones(shape, np.float32)
    wide = local.astype(np.float64)
    assert judge(SQNR, local, local.copy(), wide).part is None
    assert judge(SQNR, local, local * np.float32(1 + 1e-6), wide).part is None


def test_huge_numbers() -> None:
    local = np.full((4, 4), 1e200)
    value = local * (1 + 1e-3)
    rounding = Rounding(np.zeros((4, 4)), ROUNDING_FACTOR, 0.0, 0.0, is_even=False)
    assert wrong_part(local, value, rounding, 1) is None  # the whole tells that


@pytest.mark.parametrize("is_even", [False, True])
@pytest.mark.parametrize("shape", [(8, 8), (64,), (2, 16, 4, 4), (3, 200), (256, 64)])
def test_rounding_is_no_fault_of_a_part(shape: tuple[int, ...], is_even: bool) -> None:
    """The device's rounding is as large as it may be, everywhere, and nothing is tolerated."""
    chance = np.random.default_rng(2)
    factor = QUANTIZED_FACTOR if is_even else ROUNDING_FACTOR
    runs, alarms = 100, 0
    for _ in range(runs):
        scales = 10 ** chance.uniform(-3, 3, shape[-1])  # channels of other sizes
        if is_even:
            scales = np.ones(shape[-1])
        expected = chance.standard_normal(shape) * scales
        noise = 1e-6 * chance.standard_normal(shape) * scales
        found = expected + factor * 1e-6 * chance.standard_normal(shape) * scales
        rounding = Rounding(noise, factor, 0.0, 1e-12, is_even)
        alarms += wrong_part(expected, found, rounding, 1) is not None
    assert FALSE_ALARMS * runs < 1
    assert alarms == 0


@pytest.mark.parametrize("shape", [(64, 64), (4096,)])
def test_a_rounding_that_floors(shape: tuple[int, ...]) -> None:
    """A backend may round anywhere within half a step, but not always down."""
    chance = np.random.default_rng(3)
    exact = chance.uniform(-100, 100, shape)
    expected, moved = np.round(exact), np.round(exact + chance.uniform(-0.5, 0.5, shape))
    rounding = Rounding(expected - moved, QUANTIZED_FACTOR, 0.0, 0.0, is_even=True)
    part = wrong_part(expected, np.floor(exact), rounding, 100)
    assert part is not None and part.is_mean
    assert (part.axis, part.index) == (None, ())
    assert part.error == pytest.approx(0.5, abs=0.05)
    assert str(part).startswith("the mean of the whole of 4096 elements is off by 0.")
    up_and_down = np.where(chance.random(shape) < 0.5, np.floor(exact), np.ceil(exact))
    assert wrong_part(expected, up_and_down, rounding, 100) is None


def test_a_channel_that_floors() -> None:
    chance = np.random.default_rng(4)
    exact = chance.uniform(-100, 100, (1000, 8))
    expected, moved = np.round(exact), np.round(exact + chance.uniform(-0.5, 0.5, exact.shape))
    found = expected.copy()
    found[:, 5] = np.floor(exact[:, 5])
    rounding = Rounding(expected - moved, QUANTIZED_FACTOR, 0.0, 0.0, is_even=True)
    part = wrong_part(expected, found, rounding, 100)
    assert part is not None and part.is_mean
    assert (part.axis, part.index) == (1, (5,))


def test_the_words_for_a_part() -> None:
    slice_ = WrongPart(1, (20,), 64, 0.005, 0.0002, math.log(1e-30))
    assert str(slice_) == (
        "index 20 of 64 in dimension 1 is off by 0.005, and 0.0002 is allowed there (p < 1e-29)"
    )
    assert slice_.excess == 25
    assert WrongPart(None, (0,), 9, 1.0, 0.0, -math.inf).excess == math.inf
    assert "p < 1e-299" in str(WrongPart(None, (0,), 9, 1.0, 0.0, -math.inf))
