"""The comparators; `tests/parity/test_numerics.py` holds them against upstream's."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from etscope.errors import ComparatorError, MissingDataError, UsageError
from etscope.inspector.numerical_comparator import (
    IntermediateOutputMapping,
    L1Comparator,
    MSEComparator,
    NumericalComparatorBase,
    SNRComparator,
)

NAN, INF = math.nan, math.inf
ALL = (L1Comparator, MSEComparator, SNRComparator)
COLUMNS = [
    "aot_debug_handle",
    "aot_ops",
    "aot_intermediate_output",
    "runtime_ops",
    "runtime_debug_handle",
    "runtime_intermediate_output",
    "gap",
]


class Value:
    """A value that can be the key of a mapping, as tensors of torch can and arrays cannot."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = np.array(numbers)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.numbers


def compared(
    mapping: IntermediateOutputMapping, comparator: NumericalComparatorBase | None = None
) -> list[list[float]]:
    frame = (comparator or MSEComparator()).compare(mapping, {}, {})
    return list(frame["gap"])


def test_distances() -> None:
    a, b = np.array([1.0, 2, 3]), np.array([1.0, 2, 5])
    assert L1Comparator().element_compare(a, b) == 2
    assert MSEComparator().element_compare(a, b) == pytest.approx(4 / 3)
    assert SNRComparator().element_compare(a, b) == pytest.approx(10 * math.log10(14 / 4))
    assert SNRComparator().element_compare(b, a) == pytest.approx(10 * math.log10(30 / 4))


@pytest.mark.parametrize("comparator", ALL)
def test_nan_is_not_0(comparator: type[NumericalComparatorBase]) -> None:
    broken = np.full(3, NAN)
    for pair in ((broken, broken), (np.zeros(3), broken), (np.ones(3), np.array([1, 1, NAN]))):
        assert math.isnan(comparator().element_compare(*pair))


@pytest.mark.parametrize("comparator", ALL)
def test_nothing_is_broadcast(comparator: type[NumericalComparatorBase]) -> None:
    with pytest.raises(ValueError, match="must have the same shape"):
        comparator().element_compare(np.ones(3), np.ones(1))
    with pytest.raises(UsageError, match="must have the same shape"):
        comparator().element_compare(np.ones((2, 3)), np.ones(3))


@pytest.mark.parametrize("comparator", ALL)
@pytest.mark.parametrize("value", [[1.0, 2.0], (1.0,), "text", None])
def test_what_is_no_tensor(comparator: type[NumericalComparatorBase], value: Any) -> None:
    with pytest.raises(ComparatorError, match="Cannot convert"):
        comparator().element_compare(value, value)


def test_the_table() -> None:
    first, second = Value(1, 2), Value(3, 4)
    mapping: IntermediateOutputMapping = {
        ((1, 2), first): ((1, 2, 3), Value(1, 2.5)),
        ((4,), second): ((4,), Value(3, 4)),
    }
    names = {(1,): ["a", "b"], (2,): ["c"], (3,): ["d"], (4,): ["e"], (1, 4): ["f"]}
    frame = L1Comparator().compare(mapping, names, {(1, 2, 3): ["call"], (4,): ["relu"]})

    assert list(frame.columns) == COLUMNS
    assert list(frame["aot_debug_handle"]) == [(1, 2), (4,)]
    assert list(frame["aot_ops"]) == [["a", "b", "c"], ["e"]]
    assert list(frame["aot_intermediate_output"]) == [first, second]
    assert list(frame["runtime_ops"]) == [["call"], ["relu"]]
    assert list(frame["runtime_debug_handle"]) == [(1, 2, 3), (4,)]
    assert list(frame["gap"]) == [[0.5], [0.0]]


def test_every_tensor_of_an_output_is_compared() -> None:
    """Upstream drops the outputs of split, topk and their like without a word."""
    one, two, other = np.array([1.0]), np.array([2.0]), np.array([5.0])
    mapping: IntermediateOutputMapping = {
        ((1,), (Value(1), Value(2))): ((1,), [one, other]),
        ((2,), (Value(2),)): ((2,), two),
        ((3,), Value(2)): ((3,), (two,)),
    }
    assert compared(mapping) == [[0, 9], [0], [0]]


def test_different_numbers_of_tensors() -> None:
    mapping: IntermediateOutputMapping = {((7,), (Value(1), Value(2))): ((7,), Value(1))}
    with pytest.raises(ComparatorError, match=r"2 tensors at debug handle \(7,\), the run 1"):
        compared(mapping)


def test_cells_stay_what_they_are() -> None:
    arrays = [np.ones((2, 2)), np.zeros((2, 2))]
    mapping: IntermediateOutputMapping = {
        ((at,), (Value(1), Value(1))): ((at,), [array[0, :1], array[1, :1]])
        for at, array in enumerate(arrays)
    }
    frame = MSEComparator().compare(mapping, {}, {})
    assert [type(cell) for cell in frame["aot_intermediate_output"]] == [tuple, tuple]
    assert list(frame["gap"]) == [[0, 0], [1, 1]]
    tensors: IntermediateOutputMapping = {((at,), at): ((at,), a) for at, a in enumerate((3.0, 4))}
    assert compared(tensors) == [[9.0], [9.0]]


def test_nothing_compared_is_an_error() -> None:
    class Empty(MSEComparator):
        def preprocessing(self, mapping: IntermediateOutputMapping) -> IntermediateOutputMapping:
            return {}

    missing: IntermediateOutputMapping = {((1,), Value(1)): ((1,), None)}
    for mapping, comparator, words in (
        ({}, MSEComparator(), "no value has a counterpart"),
        (missing, MSEComparator(), "one value is None"),
        (missing, Empty(), r"preprocessing\(\) left no pair"),
    ):
        with pytest.raises(MissingDataError, match=f"nothing to compare: .*{words}"):
            compared(mapping, comparator)
    assert compared({**missing, ((2,), Value(1)): ((2,), Value(1))}) == [[0.0]]


def test_a_comparator_of_ones_own() -> None:
    class Largest(NumericalComparatorBase):
        def preprocessing(self, mapping: IntermediateOutputMapping) -> IntermediateOutputMapping:
            scale = self.inspector.scale  # type: ignore[union-attr]
            return {key: (handle, run * scale) for key, (handle, run) in mapping.items()}

        def element_compare(self, a: Any, b: Any) -> float:
            return float(np.max(np.abs(np.asarray(a) - b)))

    class FakeInspector:
        scale = 2.0

    comparator = Largest(FakeInspector())  # type: ignore[arg-type]
    assert compared({((1,), Value(2, 5)): ((1,), np.array([1.0, 2]))}, comparator) == [[1.0]]
    comparator.inspector = None
    assert comparator.inspector is None
    with pytest.raises(TypeError, match="abstract"):
        NumericalComparatorBase()  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("processed", "words", "parent"),
    [
        ([1], r"preprocessing\(\) must return a dict, got list", TypeError),
        (None, r"preprocessing\(\) must return a dict, got NoneType", TypeError),
        ({1: ((1,), 2)}, "Invalid key format in preprocessed mapping: 1 ", ValueError),
        ({((1,), 2, 3): ((1,), 2)}, "Invalid key format", ValueError),
        ({((1,), 2): [(1,), 2]}, "Invalid value format", ValueError),
        ({(1, 2): ((1,), 2)}, "Invalid AOT debug handle in key: 1 ", ValueError),
        ({((1,), 2): (("a",), 2)}, "Invalid runtime debug handle in value", ValueError),
    ],
)
def test_what_preprocessing_must_return(
    processed: Any, words: str, parent: type[Exception]
) -> None:
    class Odd(MSEComparator):
        def preprocessing(self, mapping: IntermediateOutputMapping) -> IntermediateOutputMapping:
            return processed  # type: ignore[no-any-return]

    with pytest.raises(ComparatorError, match=words) as caught:
        compared({}, Odd())
    assert isinstance(caught.value, parent)


def test_torch_is_not_needed() -> None:
    program = (
        "import sys\n"
        "from etscope.inspector.numerical_comparator import SNRComparator\n"
        "assert SNRComparator().element_compare(1.0, 2.0) == 0\n"
        "assert SNRComparator().compare({((1,), 1.0): ((1,), 2.0)}, {}, {}).shape == (1, 7)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
