"""Conditions that are looked at where the program runs, and tensors that stay there."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from etscope.errors import UsageError
from etscope.etdb.expression import evaluate, is_true, parse
from etscope.etdb.output import value_lines
from etscope.etdb.protocol.messages import Condition, Statistics, TensorInfo
from etscope.etdb.targets.remote_tensor import RemoteTensor, fetch_tensor, leading_part
from etscope.etdb.walk import number_tests

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


class Far:
    """A tensor that stays at a runner, which counts the elements that are fetched."""

    def __init__(self, array: npt.NDArray[Any], dim_order: tuple[int, ...] | None = None) -> None:
        order = tuple(range(array.ndim)) if dim_order is None else dim_order
        self._flat = np.ascontiguousarray(array.transpose(order)).reshape(-1)
        self.facts = TensorInfo(array.dtype, array.shape, order, array.nbytes)
        self.tensor = RemoteTensor(self._get, 0, self.facts)
        self.fetched = 0
        self.is_current = True

    def _get(self) -> Far:
        if not self.is_current:
            raise UsageError("this tensor is from another step")
        return self

    def read(
        self, value: int, facts: TensorInfo, first: int = 0, count: int | None = None
    ) -> npt.NDArray[Any]:
        part = self._flat[first : None if count is None else first + count]
        self.fetched += part.size
        return part.copy()

    def statistics(self, value: int) -> Statistics:
        wide = self._flat.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        if finite.size:
            numbers = (finite.min(), finite.max(), finite.mean(), finite.std())
        else:
            numbers = (np.nan,) * 4
        inf = np.isinf(wide)
        counts = (np.isnan(wide).sum(), (inf & (wide > 0)).sum(), (inf & (wide < 0)).sum())
        return Statistics(wide.size, *map(int, counts), *map(float, numbers))


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
        far = Far(array).tensor
        assert value_lines(far) == value_lines(array), (array.dtype, array.shape)
        assert value_lines(far, full=True) == value_lines(array, full=True)
        for name in ("min", "max", "mean", "std"):
            for text in (f"$.{name}()", f"{name}($)"):
                near, other = (evaluate(parse(text), Value(one)) for one in (array, far))
                assert np.asarray(near).dtype == np.asarray(other).dtype, (array.dtype, text)
                assert np.isclose(float(near), float(other), 1e-12, 1e-12, equal_nan=True)


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
        far = Far(large)
        near = evaluate(parse(text), Value(large))
        assert np.array_equal(evaluate(parse(text), Value(far.tensor)), near)
        assert far.fetched <= most, text
    far = Far(large)
    value_lines(far.tensor)
    assert far.fetched <= 6000
    assert np.array_equal(leading_part(far.tensor, 5).ravel()[:5], np.arange(5))
    for count in (0, 1, 999, 1001, 250_001, 2_000_000):
        found = leading_part(Far(large).tensor, count).ravel()[:count]
        assert np.array_equal(found, large.ravel()[:count])


ARRAY = np.arange(6 * 4 * 5, dtype=np.float32).reshape(6, 4, 5)


@pytest.mark.parametrize("dim_order", [(0, 1, 2), (0, 2, 1)])
def test_a_slice_fetches_what_it_picks_alone(dim_order: tuple[int, ...]) -> None:
    keys: list[tuple[Any, int]] = [
        (2, 20), (-1, 20), (np.int64(3), 20), (slice(1, 3), 40), ((slice(4, 9), 1), 40),
        ((slice(2), slice(None), 3), 40), (slice(None), 120), ((2, slice(1, 3)), 10),
        ((slice(3, 4), 2, slice(1, 3)), 2), ((0, 1, 2), 1), ((1, ..., 2), 20), ((1, None, 2), 20),
        ((5, [0, 2]), 20),
    ]  # fmt: skip
    for key, elements in keys:
        far = Far(ARRAY, dim_order)
        assert np.array_equal(far.tensor[key], ARRAY[key]), key
        # In another order of dimensions the rows are all that lies in one piece.
        assert far.fetched == (elements if dim_order == (0, 1, 2) else max(elements, 20)), key
    for key in (
        slice(None, None, 2), slice(3, 3), ..., (..., 0), [1, 2], None, ARRAY > 7, slice(5, 1),
    ):  # fmt: skip
        assert np.array_equal(Far(ARRAY, (1, 0, 2)).tensor[key], ARRAY[key]), key


def test_a_tensor_is_fetched_whole_once_and_then_stays() -> None:
    far = Far(ARRAY, (2, 0, 1))
    tensor = far.tensor
    assert (tensor.shape, tensor.ndim, tensor.size, tensor.nbytes) == ((6, 4, 5), 3, 120, 480)
    assert np.array_equal(np.asarray(tensor), ARRAY) and np.array_equal(tensor[1], ARRAY[1])
    assert far.fetched == 120
    far.is_current = False
    assert np.array_equal(tensor[2:4], ARRAY[2:4])
    packed = TensorInfo(np.dtype(np.uint8), (3, 2), (0, 1), 3)  # its bytes
    assert fetch_tensor(Far(np.arange(3, dtype=np.uint8)), 0, packed).tolist() == [0, 1, 2]


def test_a_tensor_of_another_step_is_refused() -> None:
    far = Far(ARRAY)
    far.is_current = False
    for use in (np.asarray, lambda of: of[1], lambda of: of.statistics()):
        with pytest.raises(UsageError, match="another step"):
            use(far.tensor)
    with pytest.raises(IndexError, match="out of bounds"):
        far.tensor[6]
