"""Conditions that are looked at where the program runs, and tensors that stay there."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from etscope.etdb.expressions.expression import evaluate, is_true, parse
from etscope.etdb.expressions.predicate_pushdown import number_tests
from etscope.etdb.output import value_lines
from etscope.etdb.protocol.messages import Condition, Statistics, TensorInfo
from etscope.etdb.targets.remote_tensor import RemoteTensor, leading_part

PUSHED = (
    "$ > 1.3", "$ >= 0.7", "$.max() > 0.7", "$.max() >= 0.7", "max($) > 1e-3", "$.min() < -0.3",
    "$ <= -0.7", "0.7 <= $.max()", "-0.3 > $", "$.abs() > 1.1", "$.abs().max() >= 0.7",
    "abs($).max() > 2", "isnan($)", "isnan($).any()", "$.isinf().sum()",
    "$.max() > 1.5 or $.min() < -1.5", "$.max() > 0.1 and $.mean() > 0.2", "$.max() > 65504",
)  # fmt: skip
NOT_PUSHED = (
    "$.max() < 1", "$.min() > -1", "$.mean() > 1", "$ == 1", "$.max() > $.min()",
    "$1 > 3", "aten_relu > 3", "gap(sqnr) < 20", "not $.max() > 3", "$.max() > 3 or $.mean() > 1",
    "$.max(1) > 3", "$.max() > 1e999", "isnan($) == 0", "0 < $ < 1",
)  # fmt: skip


class Value:
    """The scope of one array, `$`."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def value(self, name: str) -> Any:
        return self._value

    def function(self, name: str) -> None:
        return None


class Reader:
    """Reads an array, and counts the elements that are fetched."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._array, self.fetched = array, 0

    def read(
        self, value: int, info: TensorInfo, first: int = 0, count: int | None = None
    ) -> npt.NDArray[Any]:
        flat = self._array.reshape(-1)
        found = flat[first : flat.size if count is None else first + count]
        self.fetched += found.size
        return found.copy()

    def statistics(self, value: int) -> Statistics:
        wide = self._array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        if finite.size:
            numbers = (finite.min(), finite.max(), finite.mean(), finite.std())
        else:
            numbers = (np.nan,) * 4
        inf = np.isinf(wide)
        counts = (np.isnan(wide).sum(), (inf & (wide > 0)).sum(), (inf & (wide < 0)).sum())
        return Statistics(wide.size, *map(int, counts), *map(float, numbers))


def remote(array: npt.NDArray[Any], reader: Reader | None = None) -> RemoteTensor:
    found = reader or Reader(array)
    order = tuple(range(array.ndim))
    return RemoteTensor(lambda: found, 0, TensorInfo(array.dtype, array.shape, order, array.nbytes))


def arrays() -> list[npt.NDArray[Any]]:
    rng = np.random.default_rng(3)
    shapes = [(1,), (40,), (41,), (7, 7), (5, 8), (2, 30), (30, 2), (2, 3, 4), (3, 2, 9, 11)]
    types = [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, np.int32, np.int64, np.uint8]
    found = [(rng.normal(size=s) * 3).astype(t) for s in shapes for t in types]
    found += [rng.random(shape) > 0.3 for shape in shapes]
    for value in (np.nan, np.inf, -np.inf):
        odd = rng.normal(size=(4, 12)).astype(np.float32)
        odd[1, 3] = value
        found += [odd, np.full((50,), value, np.float32)]
    return [*found, np.array([[np.inf, -np.inf]], np.float32)]


@pytest.mark.parametrize("text", PUSHED)
def test_where_a_condition_holds_one_of_its_tests_does(text: str) -> None:
    expression = parse(text)
    tests = number_tests(expression)
    assert tests
    rng = np.random.default_rng(1)
    edges = [0.7, -0.7, 1e-3, -0.3, np.nan, np.inf, -np.inf, 65504.0]
    held = 0
    for dtype in (np.float32, np.float16, np.float64, ml_dtypes.bfloat16):
        for value in [*edges, *rng.normal(size=40)]:
            array = np.array([[value, 0.0]]).astype(dtype)
            if is_true(evaluate(expression, Value(array))):
                held += 1
                assert any(_holds(test, array) for test in tests), (text, value, dtype)
    assert held


def _holds(test: tuple[Condition, float], array: npt.NDArray[Any]) -> bool:
    wide = array.astype(np.float64)
    found = {
        Condition.NAN: np.isnan(wide),
        Condition.INF: np.isinf(wide),
        Condition.BELOW: wide < test[1],
        Condition.ABOVE: wide > test[1],
    }[test[0]]
    return bool(found.any())


@pytest.mark.parametrize("text", NOT_PUSHED)
def test_what_no_test_of_numbers_covers_is_looked_at_in_etdb(text: str) -> None:
    assert number_tests(parse(text)) is None


def test_a_tensor_that_is_far_is_shown_as_one_that_is_here() -> None:
    for array in arrays():
        assert value_lines(remote(array)) == value_lines(array), (array.dtype, array.shape)
        assert value_lines(remote(array), full=True) == value_lines(array, full=True)


@pytest.mark.parametrize("name", ["min", "max", "mean", "std"])
def test_reductions_are_those_of_numpy(name: str) -> None:
    for array in arrays():
        for text in (f"$.{name}()", f"{name}($)"):
            near, far = (evaluate(parse(text), Value(one)) for one in (array, remote(array)))
            assert np.asarray(near).dtype == np.asarray(far).dtype, (array.dtype, text)
            assert np.isclose(float(near), float(far), rtol=1e-12, atol=1e-12, equal_nan=True)


def test_no_more_is_fetched_than_is_shown() -> None:
    large = np.arange(1_000_000, dtype=np.float32).reshape(4, 250, 1000)
    for text, most in (
        ("$.max() > 3", 0),
        ("$.mean() + $.std()", 0),
        ("$.shape", 0),
        ("$.numel()", 0),
        ("$[1, 2, :8]", 8),
        ("$[0]", 250_000),
        ("$.sum()", 1_000_000),
    ):
        reader = Reader(large)
        far = remote(large, reader)
        near = evaluate(parse(text), Value(large))
        assert np.array_equal(evaluate(parse(text), Value(far)), near)
        assert reader.fetched <= most, text
    reader = Reader(large)
    far = remote(large, reader)
    value_lines(far)
    assert reader.fetched <= 6000
    assert np.array_equal(leading_part(far, 5).ravel()[:5], np.arange(5))
    for count in (0, 1, 999, 1001, 250_001, 2_000_000):
        found = leading_part(remote(large), count).ravel()[:count]
        assert np.array_equal(found, large.ravel()[:count])
