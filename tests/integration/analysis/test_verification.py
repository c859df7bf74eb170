from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.analysis.comparison import verification
from etscope.analysis.comparison.verification import (
    CaseCheck,
    OutputCheck,
    Verification,
    compare_outputs,
)
from etscope.errors import UsageError

NAN, INF = math.nan, math.inf
BASE = np.arange(6, dtype=np.float32).reshape(2, 3)


def check(expected: Any, actual: Any, **tolerances: float) -> OutputCheck:
    """The check of the only output."""
    (found,) = compare_outputs([expected], [actual], **tolerances)
    return found


def changed(array: np.ndarray, *index: int, to: Any) -> np.ndarray:
    copy = array.copy()
    copy[index] = to
    return copy


def test_a_wrong_element_is_found_and_shown() -> None:
    assert check(BASE, BASE.copy()) == OutputCheck(
        0, "float32", (2, 3), elements=6, max_abs_error=0.0, max_rel_error=0.0
    )
    found = check(BASE, changed(changed(BASE, 0, 1, to=1.5), 1, 2, to=7))
    assert not found.passed
    assert (found.mismatched, found.elements) == (2, 6)
    assert (found.max_abs_error, found.max_rel_error) == (2.0, 0.5)
    assert (found.worst, found.expected, found.actual) == ((1, 2), 5.0, 7.0)
    of_zero = check(np.zeros(2), np.array([0.0, 1.0]))
    assert (of_zero.max_abs_error, of_zero.max_rel_error) == (1.0, None)
    found = check(np.array([True, False]), np.array([True, True]))
    assert (found.mismatched, found.worst, found.expected, found.actual) == (1, (1,), False, True)


def test_within_tolerance_the_nearest_to_it_is_shown() -> None:
    found = check(BASE, changed(BASE, 1, 0, to=3.0001), rtol=1e-3)
    assert found.passed
    assert found.worst == (1, 0)
    assert found.max_abs_error == pytest.approx(1e-4, rel=1e-2)


def test_the_layout_in_memory_does_not_matter() -> None:
    image = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    other = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert check(image, other).passed
    assert check(image, changed(other, 0, 1, 2, 3, to=0)).worst == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("expected", "actual", "passed"),
    [
        ([NAN, 1.0], [NAN, 1.0], True),
        ([NAN, 1.0], [1.0, NAN], False),
        ([1.0, 1.0], [NAN, NAN], False),
        ([NAN], [1.0], False),
        ([INF, -INF], [INF, -INF], True),
        ([INF], [-INF], False),
        ([INF], [3e38], False),
        ([3e38], [INF], False),
        ([INF], [NAN], False),
        ([0.0], [-0.0], True),
        ([0.0], [1e-9], True),
        ([0.0], [1e-7], False),
        ([1e5], [1e5 + 0.9], True),
        ([1e5], [1e5 + 1.1], False),
    ],
)
def test_special_numbers(expected: list[float], actual: list[float], passed: bool) -> None:
    one, other = np.array(expected), np.array(actual)
    assert check(one, other, rtol=1e-5, atol=1e-8).passed is passed
    assert np.allclose(other, one, equal_nan=True) is passed


def test_an_unexpected_nan_is_infinitely_wrong() -> None:
    found = check(BASE, changed(changed(BASE, 0, 1, to=100), 1, 1, to=NAN))
    assert found.max_abs_error == found.max_rel_error == INF
    assert found.worst == (1, 1)
    assert math.isnan(found.actual)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(*[st.floats(width=32)] * 2), min_size=1, max_size=20),
    st.floats(0, 2),
    st.floats(0, 2),
    st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
)
def test_the_verdict_is_numpy_s(
    pairs: list[tuple[float, float]], rtol: float, atol: float, dtype: str
) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    with np.errstate(over="ignore"):
        expected, actual = np.array(pairs, np.float64).T.astype(kind)
    wide = [expected.astype(np.float64), actual.astype(np.float64)]
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.isclose(wide[1], wide[0], rtol=rtol, atol=atol, equal_nan=True)
    found = check(expected, actual, rtol=rtol, atol=atol)
    assert found.mismatched == np.count_nonzero(~close)


integers = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(
        st.tuples(integers, integers) | integers.map(lambda n: (n, min(n + 1, 2**63 - 1))),
        min_size=1,
    ),
    st.sampled_from([0.0, 1e-5, 1.0]),
    st.sampled_from([0.0, 1e-8, 1.0, 3.5, 1e19]),
)
def test_integers_are_compared_exactly(
    pairs: list[tuple[int, int]], rtol: float, atol: float
) -> None:
    expected, actual = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    found = check(expected, actual, rtol=rtol, atol=atol)
    # The tolerance is a float64, the difference is exact.
    wrong = [abs(a - e) > Fraction(atol + rtol * float(abs(e))) for e, a in pairs]
    assert found.mismatched == sum(wrong)
    assert found.max_abs_error == float(max(abs(a - e) for e, a in pairs))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint64", "int64"])
def test_no_integer_wraps_around(dtype: str) -> None:
    limits = np.iinfo(dtype)
    found = check(np.array([limits.min, 0], dtype), np.array([limits.max, 0], dtype))
    assert found.max_abs_error == float(int(limits.max) - int(limits.min))
    assert (found.expected, found.actual) == (limits.min, limits.max)
    assert found.mismatched == 1


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2])
def test_small_floats_are_compared_in_float64(kind: Any) -> None:
    found = check(np.array([1.0, 2.0], kind), np.array([1.0, 2.5], kind))
    assert (found.max_abs_error, found.max_rel_error, found.worst) == (0.5, 0.25, (1,))


def test_large_arrays_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_CHUNK", 4)
    expected = np.arange(1, 23, dtype=np.float32)
    actual = changed(changed(changed(expected, 3, to=5), 13, to=16), 21, to=22.5)
    found = check(expected, actual)
    assert (found.elements, found.mismatched, found.worst) == (22, 3, (13,))
    assert (found.max_abs_error, found.max_rel_error) == (2.0, 0.25)


@pytest.mark.parametrize("array", [np.zeros((0, 3), np.float32), np.zeros(0, np.int64)])
def test_empty_tensors_are_compared_by_shape(array: np.ndarray) -> None:
    found = check(array, array)
    assert found.passed
    assert (found.elements, found.max_abs_error, found.worst) == (0, None, None)
    assert check(array, array.reshape(0, 1, 1)).problem is not None


@pytest.mark.parametrize(
    ("expected", "actual", "problem"),
    [
        (BASE, BASE.astype(np.float64), "expected float32, the run has float64"),
        (BASE, BASE[:1], "expected shape [2, 3], the run has [1, 3]"),
        (BASE, BASE.ravel(), "the run has [6]"),
        (np.zeros(1, bool), np.zeros(1, np.uint8), "expected bool, the run has uint8"),
        (BASE, 1.0, "expected a tensor, the run has a number"),
        (1, np.array(1), "expected a number, the run has a tensor"),
        (1, True, "expected int, the run has bool"),
        (1, 1.0, "expected int, the run has float"),
        ("a", 1, "expected a text"),
        (BASE, None, "the run's output is None"),
        (None, None, "the expected output is None"),
        (BASE, BASE.astype(complex), "complex128"),
        (BASE, object(), "type object cannot be compared"),
        (1, 1 << 64, "does not fit"),
    ],
)
def test_what_cannot_be_compared_does_not_pass(expected: Any, actual: Any, problem: str) -> None:
    found = check(expected, actual)
    assert (found.passed, found.status) == (False, "not comparable")
    assert found.problem is not None
    assert problem in found.problem


def test_numbers_and_texts() -> None:
    found = compare_outputs([3, 0.5, True, "a", "a"], [3, 0.75, True, "a", "b"])
    assert [one.passed for one in found] == [True, False, True, True, False]
    assert [one.dtype for one in found] == ["int", "float", "bool", "str", "str"]
    assert found[1].worst == ()
    assert (found[4].expected, found[4].actual) == ("a", "b")


def test_outputs_that_only_one_side_has() -> None:
    found = compare_outputs([BASE, BASE], [BASE])
    assert [one.problem for one in found] == [None, "the run has no such output"]
    found = compare_outputs([BASE], [BASE, BASE])
    assert [one.problem for one in found] == [None, "no such output is expected"]


def test_nothing_expected_is_nothing_compared() -> None:
    assert compare_outputs([], [BASE]) == ()
    case = CaseCheck("forward", 1, ())
    assert not case.passed
    for cases in ((), (case,)):
        found = Verification(cases)
        assert (found.passed, found.status) == (False, "nothing to compare")
    # Nor does it make the others fail.
    good = CaseCheck("forward", 0, compare_outputs([BASE], [BASE]))
    assert Verification((good, case)).passed


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    expected = torch.ones(2, 2, dtype=torch.bfloat16, requires_grad=True)
    assert check(expected, np.ones((2, 2), ml_dtypes.bfloat16)).passed
    assert check(expected, torch.ones(2, 2) * 2).problem == "expected bfloat16, the run has float32"


def test_wrong_use() -> None:
    for name in ("rtol", "atol"):
        for tolerance in (-1.0, NAN, INF):
            with pytest.raises(UsageError, match=f"{name} must be a number from 0 on"):
                compare_outputs([BASE], [BASE], **{name: tolerance})
    with pytest.raises(UsageError, match="give a list of outputs"):
        compare_outputs(BASE, [BASE])  # type: ignore[arg-type]


def test_a_verification_as_a_table() -> None:
    found = Verification(
        (
            CaseCheck("forward", 0, compare_outputs([BASE, 1], [changed(BASE, 0, 0, to=1), 2.0])),
            CaseCheck("forward", 1, ()),
        ),
        rtol=1e-3,
    )
    assert found.status == "failed"
    table = found.table()
    assert table.values["case"] == [0, 0, 1]
    assert table.values["output"] == [0, 1, None]
    assert table.values["status"] == ["failed", "not comparable", "nothing to compare"]
    assert table.values["max_abs_error"] == [1.0, None, None]
    assert table.values["mismatched"] == [1, None, None]
    assert table.values["actual"] == ["1", None, None]
    assert table.notes == (
        "1 failed, 1 not comparable, 1 nothing to compare; within atol + 0.001 * |expected|.",
    )
    assert Verification(()).table().notes == ("There is nothing to compare.",)


@pytest.mark.parametrize(("dtype", "error"), [("float16", 2e-3), ("bfloat16", 0.02)])
def test_narrow_types_have_wider_tolerances(dtype: str, error: float) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    one, other = np.ones(4, kind), (np.ones(4) + error).astype(kind)
    assert check(one, other).passed
    assert not check(one, other, rtol=1e-3, atol=1e-5).passed
    assert not check(np.ones(4, np.float32), np.ones(4, np.float32) + np.float32(error)).passed
