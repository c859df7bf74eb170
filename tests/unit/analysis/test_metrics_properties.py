"""What holds for the metrics of any arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from etscope.analysis.metrics import METRICS, measure, measure_all

SHAPES = arrays.array_shapes(max_dims=3, max_side=5)


def pairs(elements: st.SearchStrategy[float], dtype: str = "f4") -> st.SearchStrategy:
    """Two arrays of one shape."""
    return SHAPES.flatmap(
        lambda shape: st.tuples(*(arrays.arrays(dtype, shape, elements=elements),) * 2)
    )


ANY = pairs(st.floats(width=32))


@given(st.one_of(ANY, pairs(st.floats(), "f8"), pairs(st.floats(0, 1e-300), "f8")))
def test_only_equal_arrays_are_perfect_by_one_metric_or_by_many_at_once(
    pair: tuple[np.ndarray, np.ndarray],
) -> None:
    a, b = pair
    together = measure_all(METRICS, a, b)
    broken = np.isnan(a).any() or np.isnan(b).any()
    equal = bool(np.array_equal(a, b))
    # The cosine sees no scale, the tolerance no small errors.
    for name in set(METRICS) - {"cosine_similarity", "out_of_tolerance"}:
        found = measure(name, a, b)
        assert (found == METRICS[name].perfect) == equal, name
        assert math.isnan(found) == bool(broken), name
    for name, metric in METRICS.items():
        assert measure(name, a, b) == pytest.approx(together[name], nan_ok=True)
        if not np.isnan(a).any():
            assert measure(name, a, a.copy()) == metric.perfect


@given(pairs(st.integers(-(2**63), 2**63 - 1), "i8"))
def test_integers_do_not_overflow(pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = pair
    exact = [abs(int(x) - int(y)) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
    assert measure("max_abs", a, b) == float(max(exact))
    assert measure("l1", a, b) == pytest.approx(float(sum(exact)), rel=1e-12)
