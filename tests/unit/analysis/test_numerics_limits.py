"""What an operator's error is held against."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from etscope.analysis.metrics import METRICS, Metric
from etscope.analysis.numerics.limits import (
    QUANTIZED_FACTOR,
    ROUNDING_FACTOR,
    TOLERANCES,
    Rules,
    difference,
    exceeds,
    judge,
    new_nan,
)

SQNR = METRICS["sqnr"]
REFERENCE = np.linspace(-2, 3, 101, dtype=np.float32)


def _is_wrong(value: Any, wide: Any = None, local: Any = REFERENCE, **options: Any) -> bool:
    metric = METRICS[options.pop("metric", "sqnr")]
    judged = judge(metric, local, value, wide, Rules(**options))
    return exceeds(metric, judged.error, judged.limit)


@pytest.mark.parametrize("metric", [name for name in METRICS if name != "out_of_tolerance"])
def test_the_tolerance_of_the_type_holds_in_each_metric(metric: str) -> None:
    rng = np.random.default_rng(0)
    signs = rng.choice([-1, 1], REFERENCE.shape)
    share = TOLERANCES["float32"]
    if metric == "sqnr":
        limit = judge(SQNR, REFERENCE, REFERENCE, None).limit
        assert limit == pytest.approx(-20 * math.log10(share), abs=0.01)
    inside = (REFERENCE * (1 + 0.5 * share * signs)).astype(np.float32)
    outside = (REFERENCE * (1 + 2 * share * signs)).astype(np.float32)
    assert not _is_wrong(inside, metric=metric)
    assert _is_wrong(outside, metric=metric)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_each_type_has_a_tolerance_above_its_own_rounding(dtype: Any) -> None:
    local = REFERENCE.astype(dtype)
    neighbour = (local.astype(np.float64) * (1 + float(ml_dtypes.finfo(dtype).eps) / 2)).astype(
        dtype
    )
    assert not _is_wrong(neighbour, local=local)
    assert _is_wrong(local * dtype(2), local=local)


def test_more_rounding_allows_more_error() -> None:
    wide = REFERENCE.astype(np.float64) + 1e-3
    error = 0.5 * ROUNDING_FACTOR * 1e-3
    assert _is_wrong(REFERENCE + np.float32(error))
    assert not _is_wrong(REFERENCE + np.float32(error), wide)
    assert _is_wrong(REFERENCE + np.float32(4 * error), wide)


def test_quantized_numbers_are_held_to_a_smaller_multiple() -> None:
    wide = REFERENCE.astype(np.float64) + 1e-3
    between = REFERENCE + np.float32(1e-3 * (QUANTIZED_FACTOR + ROUNDING_FACTOR) / 2)
    assert not _is_wrong(between, wide)
    assert _is_wrong(between, wide, quantized=True)


def test_a_tolerance_takes_the_place_of_the_types() -> None:
    value = REFERENCE * np.float32(1.01)
    assert not _is_wrong(value, tolerance=39.0)
    assert _is_wrong(value, tolerance=41.0)
    assert not _is_wrong(value, metric="max_abs", tolerance=0.031)
    assert _is_wrong(value, metric="max_abs", tolerance=0.029)


def test_integers_are_exact_unless_they_come_of_rounded_numbers() -> None:
    codes = np.arange(100, dtype=np.int8)
    other = codes.copy()
    other[7] += 1
    assert not _is_wrong(codes.copy(), codes.copy(), local=codes)
    assert _is_wrong(other, codes.copy(), local=codes)
    moved = codes.astype(np.float64)
    moved[::4] += 1
    assert not _is_wrong(other, moved, local=codes, quantized=True)
    flags = np.array([True, False, True])
    assert not _is_wrong(flags.copy(), flags.copy(), local=flags)
    assert _is_wrong(~flags, flags.copy(), local=flags)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_odd_numbers_are_wrong_unless_they_were_to_be_expected(odd: float) -> None:
    local = REFERENCE.copy()
    value = REFERENCE.copy()
    value[3] = odd
    assert _is_wrong(value, REFERENCE.astype(np.float64))
    assert judge(SQNR, local, value, None).excess == math.inf
    local[3] = odd
    assert not _is_wrong(value, local.astype(np.float64), local=local)
    assert _is_wrong(REFERENCE, local.astype(np.float64), local=local)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5, np.float32)])
def test_numbers_without_dimensions(value: Any) -> None:
    local = np.array(0.5, np.float32)
    assert not _is_wrong(value, np.array(0.5), local=local)
    assert _is_wrong(np.float32(0.6), np.array(0.5), local=local)


def test_nothing_is_neither_right_nor_wrong() -> None:
    empty = np.empty((0, 3), np.float32)
    judged = judge(SQNR, empty, empty, empty)
    assert judged.error is None and not exceeds(SQNR, judged.error, judged.limit)
    assert difference(SQNR, None, REFERENCE) is None
    assert difference(SQNR, empty, empty) is None
    assert difference(SQNR, REFERENCE[1:], REFERENCE) is None


def test_zeros() -> None:
    zeros = np.zeros(5, np.float32)
    assert not _is_wrong(zeros.copy(), np.zeros(5), local=zeros)
    assert _is_wrong(zeros + np.float32(1e-3), np.zeros(5), local=zeros)
    # What is zero by cancellation is not exact, and float64 tells how far.
    assert not _is_wrong(zeros + np.float32(1e-9), np.full(5, 1e-9), local=zeros)


NAN_REFERENCE = np.array([1.0, np.nan, 3.0], np.float32)
LENIENT = Metric("lenient", "lenient", "", "lower", 0.0, lambda one, other: 0.0)
ALWAYS_NAN = Metric("always_nan", "always NaN", "", "lower", 0.0, lambda one, other: math.nan)


def test_nan_of_the_reference_is_no_error() -> None:
    judged = judge(SQNR, NAN_REFERENCE, NAN_REFERENCE.copy(), NAN_REFERENCE.astype(np.float64))
    assert not judged.is_wrong and judged.error == math.inf
    assert difference(SQNR, NAN_REFERENCE, NAN_REFERENCE) == math.inf
    # A number in its place is one.
    assert judge(SQNR, NAN_REFERENCE, np.array([1.0, 2.0, 3.0], np.float32), None).is_wrong


@pytest.mark.parametrize("metric", [SQNR, METRICS["out_of_tolerance"], LENIENT])
@pytest.mark.parametrize("tolerance", [None, math.inf, -math.inf, 1e9])
def test_nan_in_place_of_a_number_is_wrong_whatever_the_metric_says(
    metric: Metric, tolerance: float | None
) -> None:
    for value in (
        np.array([np.nan, np.nan, 3.0], np.float32),  # as many as expected, and one more
        np.array([np.nan, 2.0, 3.0], np.float32),  # as many, elsewhere
        np.full(3, np.nan, np.float32),
    ):
        assert judge(metric, NAN_REFERENCE, value, None, Rules(tolerance=tolerance)).is_wrong
    assert new_nan(NAN_REFERENCE, np.array([np.nan, 2.0, 3.0])) == 1


@pytest.mark.parametrize("metric", [SQNR, METRICS["mse"], LENIENT])
def test_nothing_but_nan_has_the_error_nan_and_is_never_equal(metric: Metric) -> None:
    nan = np.full(4, np.nan, np.float32)
    judged = judge(metric, nan, nan.copy(), nan.astype(np.float64))
    assert judged.error is not None and math.isnan(judged.error)
    assert not judged.is_wrong  # it is what PyTorch makes of it, too
    assert math.isnan(difference(metric, nan, nan) or 0.0)
    wrong = judge(metric, REFERENCE[:4], nan, None)
    assert math.isnan(wrong.error or 0.0) and wrong.is_wrong


def test_a_limit_of_nan_allows_nothing() -> None:
    assert judge(ALWAYS_NAN, REFERENCE, REFERENCE.copy(), None).is_wrong
    assert exceeds(SQNR, 100.0, math.nan) and not exceeds(SQNR, math.inf, math.nan)
    # NaN that only float64 has, or that is left out, gives no room to the rest.
    wide = REFERENCE.astype(np.float64)
    wide[3] = np.nan
    assert not judge(SQNR, REFERENCE, REFERENCE.copy(), wide).is_wrong
    assert judge(SQNR, REFERENCE, REFERENCE * np.float32(1.5), wide).is_wrong
    value = NAN_REFERENCE * np.float32(1.5)
    assert judge(SQNR, NAN_REFERENCE, value, np.array([1.0, 50.0, 3.0])).is_wrong
