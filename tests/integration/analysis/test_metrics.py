"""Metrics in cases that are no ordinary arrays, and the registry; tests/unit/analysis has their
properties, and other libraries' results."""

from __future__ import annotations

import math
import sys
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from etscope.analysis import metrics as package
from etscope.analysis.metrics import (
    DEFAULT_METRICS,
    METRICS,
    Metric,
    Quantization,
    arrays,
    find_metric,
    measure,
    measure_all,
    register_metric,
    tolerance_metric,
)
from etscope.errors import UsageError

NAN, INF = math.nan, math.inf
DECIBELS = ("snr", "sqnr", "psnr")
EVERY = sorted(METRICS)


@pytest.fixture(autouse=True)
def no_metrics_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    registered = dict(METRICS)
    monkeypatch.setattr(package, "_registered", registered)
    for module in (package, sys.modules[__name__]):
        monkeypatch.setattr(module, "METRICS", registered)


@pytest.fixture(params=[3, 1 << 16])
def part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Arrays in one part, and in many."""
    monkeypatch.setattr(arrays, "PART", request.param)
    return int(request.param)


@pytest.mark.parametrize("dtype", ["float64", "float16", ml_dtypes.bfloat16])
def test_parts_make_no_difference(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    random = np.random.default_rng(0)
    reference = (random.normal(size=(4, 5, 3)) + 3).astype(dtype)
    value = (reference.astype(np.float64) + random.normal(size=(4, 5, 3)) * 0.1).astype(dtype)
    whole = measure_all(EVERY, reference, value)
    for size in (1, 7, 59):
        monkeypatch.setattr(arrays, "PART", size)
        assert measure_all(EVERY, reference, value) == pytest.approx(whole, rel=1e-12)


def test_the_layout_in_memory_does_not_matter(part: int) -> None:
    image = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    other = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert measure_all(EVERY, image, other) == {m.name: m.perfect for m in METRICS.values()}
    assert measure("l1", image, other[..., ::-1]) == pytest.approx(48)
    assert measure("mse", image, image.byteswap().view(image.dtype.newbyteorder())) == 0
    assert measure("ulp", image, image.byteswap().view(image.dtype.newbyteorder())) == 0


# -- what is no ordinary number ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ([1, NAN, 2, 3], [1, 2, 2, 3]),
        ([1, 2, 2, 3], [1, 2, 2, NAN]),
        ([1, NAN, 2, 3], [1, NAN, 2, 3]),
        ([1, INF, 2, 3], [1, 2, NAN, 3]),
        ([NAN] * 4, [NAN] * 4),
        ([0.0] * 4, [NAN] * 4),
        ([INF] * 4, [NAN] * 4),
    ],
)
def test_nan_is_never_good(reference: Any, value: Any, part: int) -> None:
    broken = np.isnan(reference) | np.isnan(value) | (np.array(reference) != value)
    for dtype in ("float64", "float32", "float16", ml_dtypes.bfloat16):
        found = measure_all(EVERY, np.array(reference, dtype), np.array(value, dtype))
        assert found.pop("out_of_tolerance") == np.count_nonzero(broken) / 4 > 0
        assert all(number is not None and math.isnan(number) for number in found.values())


def test_the_same_infinity_is_no_error_and_hides_none(part: int) -> None:
    reference, value = np.array([INF, 1, -INF, 2]), np.array([INF, 1, -INF, 3])
    found = measure_all(EVERY, reference, value)
    # In powers the infinite elements count as 0 on both sides.
    finite = measure_all(EVERY, np.array([0.0, 1, 0, 2]), np.array([0.0, 1, 0, 3]))
    assert found == pytest.approx(finite, rel=1e-15)
    assert found["snr"] == pytest.approx(10 * math.log10(5))
    assert measure_all(EVERY, reference, reference) == {m.name: m.perfect for m in METRICS.values()}


EQUAL = [
    np.full((2, 3), 7.5),
    np.zeros(4, "f4"),
    np.float32(3.5),
    np.arange(-4, 4, dtype="i1"),
    np.array([True, False]),
    np.array([5e-324, -1e-310]),
    np.array([1.7e308, -1.7e308]),
]


@pytest.mark.parametrize("name", EVERY)
def test_equal_arrays_are_perfect(name: str) -> None:
    for array in EQUAL:
        assert measure(name, array, np.array(array)) == METRICS[name].perfect
    for dtype in ("f2", "f8", ml_dtypes.bfloat16):  # both zeros are the same
        zeros = np.array([0.0, -0.0, 1.0], dtype)
        assert measure(name, zeros, zeros[[1, 0, 2]]) == METRICS[name].perfect


def test_an_all_zero_reference_that_is_not_met() -> None:
    found = measure_all(EVERY, np.zeros(4), np.array([0.0, 0, 0, 2]))
    assert {found[name] for name in DECIBELS} == {-INF}
    assert found["mse"] == 1
    assert found["max_rel"] == INF
    assert found["cosine_similarity"] == 0
    assert measure("cosine_similarity", np.array([0.0, 2]), np.zeros(2)) == 0
    assert measure("snr", np.array([0.0, 2]), np.zeros(2)) == 0  # the noise is the signal


def test_numbers_whose_squares_are_no_floats() -> None:
    small, large = np.array([1e-200, 2e-200]), np.array([1e200, 2e200])
    for array in (small, large):
        worse = array * np.array([1, 1.01])
        ordinary = np.array([1, 2]), np.array([1, 2.02])
        for name in ("snr", "psnr", "cosine_similarity", "max_rel"):
            assert measure(name, array, worse) == pytest.approx(measure(name, *ordinary))
        assert measure("rms", array, worse) == pytest.approx(0.02 * array[0] / math.sqrt(2))
    # a difference beyond float64 is an infinite error, of opposite directions
    huge = np.array([1.7e308])
    assert measure("max_abs", huge, -huge) == INF
    assert measure("snr", huge, -huge) == -INF
    assert measure("cosine_similarity", huge, -huge) == -1


# -- types ------------------------------------------------------------------------------------


def test_integers_are_subtracted_exactly(part: int) -> None:
    large = np.array([2**62, -(2**63), 0, 2**53], "i8")
    assert measure("max_abs", large, large + np.array([1, 0, 0, 0])) == 1
    assert measure("l1", large, large + np.array([1, 3, 0, -1])) == 5
    ends = np.array([2**63 - 1], "i8"), np.array([-(2**63)], "i8")
    assert measure("max_abs", *ends) == measure("ulp", *ends) == 2.0**64
    bytes_ = np.array([0, 255], "u1")
    assert measure("max_abs", bytes_, bytes_[::-1]) == 255
    assert measure("l1", np.array([127], "i1"), np.array([-128], "i1")) == 255
    assert measure("max_abs", np.array([2**64 - 1], "u8"), np.array([2**64 - 2], "u8")) == 1
    assert measure("max_abs", np.array([2**64 - 1], "u8"), np.array([-1], "i8")) == 2.0**64
    assert measure("max_abs", np.array([2**63], "u8"), np.array([2**63 - 1], "i8")) == 1
    assert measure("out_of_tolerance", large, large + np.array([1, 0, 0, 0])) == 0  # within rtol
    exact = tolerance_metric(rtol=0, atol=0.5)
    assert measure(exact, large, large + np.array([1, 0, 0, 0])) == 0.25


def test_types_may_differ() -> None:
    wide = np.array([1.0, 2.0000001, 3])
    assert measure("max_abs", wide, wide.astype("f4")) == pytest.approx(0, abs=1e-7)
    assert measure("max_abs", wide, wide.astype("f2")) == pytest.approx(1e-7, rel=1e-6)
    assert measure("l1", np.array([1, 2], "i4"), np.array([1.5, 2])) == 0.5
    assert measure("l1", np.array([True, False]), np.array([1, 3], "u1")) == 3
    assert measure("l1", 3, np.float16(2.5)) == 0.5
    assert measure("mse", np.array([1, -2], ml_dtypes.int4), np.array([1, -3], "i1")) == 0.5
    assert measure("mae", np.array([1, 2], np.longdouble), np.array([1, 3])) == 0.5
    assert measure("ulp", np.array([1, 2], np.longdouble), np.array([1, 2], np.longdouble)) == 0


def test_shapes_are_never_broadcast() -> None:
    for name in EVERY:
        for other in (np.ones(1), np.ones((1, 3)), np.float64(1), np.ones(2)):
            with pytest.raises(UsageError, match=r"the same shape: the reference has \[3\]"):
                measure(name, np.ones(3), other)
        with pytest.raises(UsageError, match="same shape"):
            measure(name, np.ones((0, 2)), np.ones((2, 0)))


@pytest.mark.parametrize(
    "value", [None, "text", b"bytes", [1.0], (1.0,), {}, object(), np.array(["x"]), np.array([{}])]
)
def test_what_is_not_numeric_has_no_metric(value: Any) -> None:
    assert measure("mse", value, 1.0) is None
    assert measure_all(DEFAULT_METRICS, 1.0, value) == dict.fromkeys(DEFAULT_METRICS)


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    half = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    assert measure("l1", half, torch.tensor([1.0, 2.5])) == 0.5
    assert measure("ulp", half, torch.nextafter(half.detach(), torch.zeros(2).bfloat16())) == 1
    with pytest.raises(UsageError, match="complex"):
        measure("l1", torch.tensor([1j]), torch.tensor([1j]))
    with pytest.raises(UsageError, match="cannot be read as an array"):
        measure("l1", torch.ones(2).to_sparse(), torch.ones(2))
    with pytest.raises(UsageError, match="cannot be read as an array"):
        measure("l1", torch.ones(2, device="meta"), torch.ones(2))
    quantized = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.25, 3, torch.qint8)
    assert measure("l1", torch.tensor([0.5, 1.25]), quantized) == 0.25


def test_codes_are_integers_unless_a_scale_is_given() -> None:
    codes, reference = np.array([[10, 12], [-128, 127]], "i1"), np.array([[0.0, 1], [-69, 58.5]])
    assert measure("l1", codes, codes + np.int8(0)) == 0
    assert measure("l1", np.array([130], "u1"), np.array([128], "u1")) == 2
    quantization = Quantization(0.5, 10)
    assert measure("l1", reference, codes, value_quantization=quantization) == 0
    assert measure("l1", codes, reference, reference_quantization=quantization) == 0
    of_rows = Quantization([0.5, 1.0], [10, -1], axis=0)
    rows = np.array([[0.0, 1], [-127, 128]])
    assert measure("max_abs", rows, codes, value_quantization=of_rows) == 0
    of_columns = Quantization([1.0, 2.0], axis=-1)
    columns = np.array([[10.0, 24], [-128, 255]])
    assert measure("max_abs", columns, codes, value_quantization=of_columns) == 1


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        (Quantization([1.0, 2.0]), "axis= is missing"),
        (Quantization([1.0, 2.0], axis=2), "axis 2 is not one of the 2 dimensions"),
        (Quantization([1.0, 2.0], axis=1), "dimension 1 of the codes has 3 entries"),
    ],
)
def test_scales_that_do_not_fit(quantization: Quantization, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        measure("mse", np.ones((2, 3)), np.ones((2, 3), "i1"), value_quantization=quantization)


# -- ulp and tolerance ------------------------------------------------------------------------


def test_ulp_of_narrow_types_by_counting() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        width = np.dtype(dtype).itemsize * 8
        every = np.arange(1 << width, dtype=f"u{width // 8}").view(dtype)
        in_order = np.unique(every[np.isfinite(every.astype("f4"))].astype("f4"))
        for a, b in ((0, -1), (3, 4), (len(in_order) // 2, 7), (len(in_order) // 2, -9)):
            steps = abs(a % len(in_order) - b % len(in_order))
            first, second = in_order[[a]].astype(dtype), in_order[[b]].astype(dtype)
            assert measure("ulp", first, second) == steps, dtype


def test_ulp_is_of_the_type_of_the_value() -> None:
    reference = np.array([1.0, 1 / 3], "f8")
    assert measure("ulp", reference, reference.astype("f4")) == 0  # rounded as well as can be
    assert measure("ulp", reference, np.nextafter(reference.astype("f2"), np.float16(9))) == 1
    assert measure("ulp", reference.astype("f4"), reference) > 1e7
    assert measure("ulp", np.array([1e10]), np.array([65504], "f2")) == INF
    assert measure("ulp", np.array([1e10]), np.array([INF], "f2")) == INF
    assert measure("ulp", np.array([2.5]), np.array([4])) == 1.5
    assert measure("ulp", np.array([NAN]), np.array([4])) != 0


# -- the registry -----------------------------------------------------------------------------


def test_every_metric_says_what_is_perfect_and_what_is_worse() -> None:
    assert tuple(METRICS)[:3] == DEFAULT_METRICS == ("snr", "mse", "cosine_similarity")
    array = np.arange(1, 5, dtype="f4")
    for metric in METRICS.values():
        assert metric.function(array, array) == metric.perfect
        worse = metric.function(array, array + np.float32(0.5))
        assert metric.badness(metric.perfect) < metric.badness(worse)
        assert metric.badness(NAN) == metric.badness(None) == INF


def test_a_metric_of_ones_own() -> None:
    def median(reference: np.ndarray, value: np.ndarray) -> float:
        """Median absolute error."""
        return np.median(np.abs(reference - value))

    metric = register_metric("median", median, unit="V")
    assert isinstance(metric, Metric)
    assert METRICS["median"] is find_metric("median") is metric
    assert (metric.title, metric.unit, metric.doc) == ("median", "V", "Median absolute error.")
    assert measure("median", np.array([1.0, 2, 3]), np.array([1.0, 2.5, 5])) == 0.5
    assert measure_all(["mse", "median"], np.zeros(2), np.ones(2)) == {"mse": 1.0, "median": 1.0}
    strict = register_metric(tolerance_metric(rtol=0, atol=0, name="differing"))
    assert measure("differing", np.array([1, 2]), np.array([1, 3])) == 0.5
    assert "0 + 0 * |ref|" in strict.doc


def test_what_cannot_be_registered() -> None:
    with pytest.raises(UsageError, match="metric 'mse' already"):
        register_metric("mse", lambda a, b: 0.0)
    for name in ("", "My metric", "../x", "9lives"):
        with pytest.raises(UsageError, match="is not a name for a metric"):
            register_metric(name, lambda a, b: 0.0)
    with pytest.raises(UsageError, match="needs a function"):
        register_metric("nothing")
    with pytest.raises(UsageError, match='must be "lower" or "higher"'):
        register_metric("odd", lambda a, b: 0.0, better="bigger")  # type: ignore[arg-type]
    for wrong in ({"rtol": -1.0}, {"atol": NAN}, {"atol": INF}):
        with pytest.raises(UsageError, match="must be a number from 0 on"):
            tolerance_metric(**wrong)  # type: ignore[arg-type]
    register_metric("wordy", lambda a, b: "much")  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError, match="'wordy' returned a str, not a number"):
        measure("wordy", 1, 2)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UsageError, match="unknown metric 'l7'") as caught:
        measure("l7", 1.0, 1.0)
    assert all(name in str(caught.value.hint) for name in EVERY)
    with pytest.raises(UsageError, match="unknown metric"):
        find_metric(["mse"])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EVERY)
def test_memory_is_that_of_a_part(name: str) -> None:
    reference = np.ones((1 << 21, 2), "f4")[:, 0]  # strided: every second of 16 MB
    value = np.full(reference.shape, 1.5, "f4")
    tracemalloc.start()
    try:
        measure(name, reference, value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8e6  # a float64 copy would be 16.8e6
