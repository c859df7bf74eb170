"""All metrics against scikit-learn, scipy and numpy, on arrays of each type with any content."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from etscope.analysis.metrics import METRICS, measure, measure_all, tolerance_metric
from etscope.errors import UsageError

distance = pytest.importorskip("scipy.spatial.distance")
sklearn = pytest.importorskip("sklearn.metrics")

Array = npt.NDArray[Any]
Pair = tuple[Array, Array]

FLOATS = ("f2", "f4", "f8", "bfloat16")
INTEGERS = ("i1", "u1", "i2", "i4", "u4", "?")
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, max_side=4)
MODERATE = st.one_of(st.just(0.0), st.floats(-1e3, 1e3, width=16))
ANY = st.one_of(MODERATE, st.sampled_from([math.nan, math.inf, -math.inf, -0.0]))


@st.composite
def pairs(draw: st.DrawFn, elements: st.SearchStrategy[float]) -> Pair:
    """Two arrays of one shape; of one type, or of two."""
    shape = draw(SHAPES)
    found = []
    for _ in range(2):
        name = draw(st.sampled_from(FLOATS))
        wide = draw(arrays.arrays("f8", shape, elements=elements))
        dtype = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
        found.append(np.asarray(wide).astype(dtype))
    return found[0], found[1]


@st.composite
def integers(draw: st.DrawFn) -> Pair:
    shape, name = draw(SHAPES), draw(st.sampled_from(INTEGERS))
    one, other = (draw(arrays.arrays(name, shape)) for _ in range(2))
    return one, other


def by_libraries(reference: Array, value: Array) -> dict[str, float]:
    """What others make of finite numbers."""
    r, v = (np.asarray(x, np.float64).reshape(-1) for x in (reference, value))
    mse = sklearn.mean_squared_error(r, v)
    with np.errstate(divide="ignore", invalid="ignore"):
        snr = 10 * np.log10(np.mean(r**2) / mse) if mse else math.inf
        psnr = 10 * np.log10(np.max(r**2) / mse) if mse else math.inf
        relative = np.where(r == v, 0.0, np.abs(r - v) / np.abs(r))
    if np.array_equal(r, v):
        cosine = 1.0
    elif not r.any() or not v.any():
        cosine = float(sklearn.pairwise.cosine_similarity([r], [v])[0, 0])
    else:
        cosine = 1 - distance.cosine(r, v)
    return {
        "snr": snr,
        "sqnr": snr,
        "psnr": psnr,
        "mse": mse,
        "rms": sklearn.root_mean_squared_error(r, v),
        "l1": distance.cityblock(r, v),
        "mae": sklearn.mean_absolute_error(r, v),
        "max_abs": sklearn.max_error(r, v),
        "max_rel": float(relative.max()),
        "cosine_similarity": cosine,
        "out_of_tolerance": 1 - float(np.mean(np.isclose(v, r))),
    }


@given(st.one_of(pairs(MODERATE), integers()))
@example((np.zeros(3, np.float32), np.zeros(3, np.float32)))
@example((np.zeros(3, np.float32), np.array([0, 1e-30, 0], np.float64)))
@example((np.array([True, False]), np.array([True, True])))
def test_finite_numbers(pair: Pair) -> None:
    found, expected = measure_all(METRICS, *pair), by_libraries(*pair)
    assert set(found) - set(expected) == {"ulp"}
    for name, number in expected.items():
        assert found[name] == pytest.approx(number, rel=1e-6, abs=1e-9), name


@given(pairs(ANY))
def test_nan_and_infinities(pair: Pair) -> None:
    r, v = (np.asarray(x, np.float64) for x in pair)
    found = measure_all(METRICS, *pair)
    assert found.pop("out_of_tolerance") == pytest.approx(1 - float(np.mean(np.isclose(v, r))))
    if np.isnan(r).any() or np.isnan(v).any():
        assert all(math.isnan(number or 0.0) for number in found.values())
        return
    infinite = np.isinf(r) | np.isinf(v)
    if np.any(r[infinite] != v[infinite]):
        assert math.isnan(found.pop("cosine_similarity") or 0.0)
        for name, number in found.items():
            assert number == (math.inf if METRICS[name].better == "lower" else -math.inf), name
        return
    # The same infinities are left out of sums, and count as elements.
    expected = by_libraries(np.where(infinite, 0.0, r), np.where(infinite, 0.0, v))
    del expected["out_of_tolerance"]
    for name, number in expected.items():
        assert found[name] == pytest.approx(number, rel=1e-6, abs=1e-9), name


@given(pairs(ANY), st.floats(0, 1), st.floats(0, 10), st.booleans())
def test_tolerances_of_numpy(pair: Pair, rtol: float, atol: float, equal_nan: bool) -> None:
    r, v = (np.asarray(x, np.float64) for x in pair)
    metric = tolerance_metric(rtol=rtol, atol=atol, equal_nan=equal_nan)
    close = np.isclose(v, r, rtol=rtol, atol=atol, equal_nan=equal_nan)
    assert measure(metric, *pair) == pytest.approx(1 - float(np.mean(close)))


@given(pairs(MODERATE))
def test_ulp_is_that_of_numpy(pair: Pair) -> None:
    reference, value = (np.abs(array) for array in pair)  # across 0 its integers overflow
    if value.dtype.name == "bfloat16":  # numpy counts its own types only
        value = value.astype(np.float32)
    rounded = reference.astype(value.dtype)
    # numpy rounds the count to the type.
    steps = np.testing.assert_array_max_ulp(rounded, value, math.inf)
    found = measure("ulp", reference, value)
    assert found == pytest.approx(float(np.max(steps)), rel=2**-10)


@pytest.mark.parametrize("dtype", [*FLOATS[:3], ml_dtypes.bfloat16, *INTEGERS])
@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_nothing_is_no_number(dtype: Any, shape: tuple[int, ...]) -> None:
    empty = np.zeros(shape, dtype)
    assert all(math.isnan(x or 0.0) for x in measure_all(METRICS, empty, empty).values())


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers_are_refused(dtype: Any) -> None:
    value = np.ones(2, dtype)
    for one, other in ((value, value), (value.real, value), (value, value.real)):
        with pytest.raises(UsageError, match="complex numbers cannot be compared"):
            measure_all(METRICS, one, other)
    with pytest.raises(UsageError, match="complex"):
        measure("mse", 1j, 1j)
