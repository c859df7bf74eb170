"""Compare a run's outputs with the expected ones, within tolerances.

An element passes when ``|actual - expected| <= atol + rtol * |expected|``, as in `numpy.allclose`
and `torch.allclose`. NaN equals NaN, and an infinity the same infinity, at the same place only.
Floats of all widths are compared in float64. Integers and booleans follow the same formula with
exact differences: nothing wraps around, and two int64 never become equal by rounding.

If a program chooses scales of int8 values as it runs, a backend may choose them for each row, the
reference for the whole tensor. Outputs then differ by one or two steps of their range; the limit is
four.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.formats.program.scalar_type import as_numpy, scalar_type_of
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown

__all__ = ["CaseCheck", "Verification", "compare_outputs"]

# Other orders of addition stay within these in float32, in usual networks.
RTOL, ATOL = 1e-3, 1e-5
# Types with wider steps: about ten steps.
TOLERANCES = {"float16": (1e-2, 1e-3), "bfloat16": (5e-2, 1e-2)}

# The tolerance of programs that quantize dynamically, in steps of int8 over the range of an output.
DYNAMIC_STEPS = 4

PASSED, FAILED, NOT_COMPARABLE, NOTHING = "passed", "failed", "not comparable", "nothing to compare"

Number = int | float | bool | str

_CHUNK = 1 << 20  # elements at a time, to bound the float64 copies of large outputs
_LARGEST_BELOW_2_64 = 2.0**64 - 2048  # of float64
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """The difference between an output and the expected one.

    index: the position of the output. dtype, shape: the type and shape of the expected output; a
    number has the dtype "int", "bool", "float" or "str", and the shape (). elements, mismatched:
    the number of compared elements, and the number of those out of tolerance. max_abs_error: the
    largest ``|actual - expected|``; infinite where only one is NaN or infinite. max_rel_error: the
    largest ``|actual - expected| / |expected|`` where expected is not 0. worst: the index of the
    element that is farthest out of tolerance (or nearest to it, if all are within), and its two
    values. None when all elements are equal. problem: why the two cannot be compared; the numbers
    are None then.

    Two empty tensors of one shape pass.
    """

    index: int
    dtype: str
    shape: tuple[int, ...]
    elements: int = 0
    mismatched: int = 0
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    worst: tuple[int, ...] | None = None
    expected: Number | None = None
    actual: Number | None = None
    problem: str | None = None

    @property
    def passed(self) -> bool:
        return self.problem is None and self.mismatched == 0

    @property
    def status(self) -> str:
        """ "passed", "failed" or "not comparable"."""
        if self.problem is not None:
            return NOT_COMPARABLE
        return PASSED if self.passed else FAILED

    @classmethod
    def of(
        cls,
        index: int,
        expected: Any,
        actual: Any,
        rtol: float | None,
        atol: float | None,
        *,
        dynamic: bool,
    ) -> OutputCheck:
        """Compare two outputs; see `compare_outputs`."""
        check = cls(index, "", ())
        try:
            wanted = _described(expected)
            check = cls(index, wanted.dtype, wanted.shape)
            found = _described(actual)
        except UsageError as error:
            return replace(check, problem=error.message)
        problem = wanted.difference(found)
        if problem is not None:
            return replace(check, problem=problem)
        if wanted.array is None or found.array is None:
            same = expected == actual
            values = {} if same else {"worst": (), "expected": expected, "actual": actual}
            return replace(check, elements=1, mismatched=int(not same), **values)
        usual = TOLERANCES.get(wanted.dtype, (RTOL, ATOL))
        if dynamic and wanted.array.dtype.kind not in "biu":
            finite = wanted.array[np.isfinite(wanted.array)]
            # The range includes 0, as for quantized values.
            low, high = (
                float(bound(finite, initial=0)) if finite.size else 0.0
                for bound in (np.min, np.max)
            )
            usual = usual[0], max(usual[1], DYNAMIC_STEPS * (high - low) / 255)
        return check._measured(
            wanted.array,
            found.array,
            usual[0] if rtol is None else rtol,
            usual[1] if atol is None else atol,
        )

    def _measured(
        self,
        expected: npt.NDArray[Any],
        actual: npt.NDArray[Any],
        rtol: float,
        atol: float,
    ) -> OutputCheck:
        errors = _integer_errors if expected.dtype.kind in "biu" else _float_errors
        flat_expected, flat_actual = expected.reshape(-1), actual.reshape(-1)
        mismatched, largest, relative = 0, 0.0, 0.0
        any_relative, worst, worst_excess = False, -1, -math.inf
        for start in range(0, flat_expected.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            error, size, close, excess = errors(flat_expected[part], flat_actual[part], rtol, atol)
            mismatched += int(np.count_nonzero(~close))
            largest = max(largest, float(error.max()))
            nonzero = size > 0
            if nonzero.any():
                any_relative = True
                with np.errstate(over="ignore"):
                    ratios = error[nonzero].astype(np.float64) / size[nonzero].astype(np.float64)
                relative = max(relative, float(np.max(ratios)))
            # Elements that are equal are never the worst.
            excess = np.where(error > 0, excess, -np.inf)
            place = int(np.argmax(excess))
            if float(excess[place]) > worst_excess:
                worst, worst_excess = start + place, float(excess[place])
        values: dict[str, Any] = {}
        if worst >= 0:
            values = {
                "worst": tuple(map(int, np.unravel_index(worst, expected.shape))),
                "expected": _number(flat_expected[worst]),
                "actual": _number(flat_actual[worst]),
            }
        return replace(
            self,
            elements=int(flat_expected.size),
            mismatched=mismatched,
            max_abs_error=largest if flat_expected.size else None,
            max_rel_error=relative if any_relative else None,
            **values,
        )

    def cells(self) -> dict[str, Any]:
        known = self.problem is None
        return {
            "output": self.index,
            "dtype": self.dtype,
            "shape": self.shape,
            "status": self.status,
            "max_abs_error": self.max_abs_error,
            "max_rel_error": self.max_rel_error,
            "mismatched": self.mismatched if known else None,
            "elements": self.elements if known else None,
            "worst": self.worst,
            "expected": _text(self.expected),
            "actual": _text(self.actual),
            "problem": self.problem,
        }


class CaseCheck(NamedTuple):
    """The outputs of one test case of a method. `checks` is empty without expected outputs."""

    method: str
    case: int
    checks: tuple[OutputCheck, ...]

    @property
    def passed(self) -> bool:
        """Return whether all outputs passed; False without expected outputs."""
        return bool(self.checks) and all(check.passed for check in self.checks)


@dataclass(frozen=True, slots=True)
class Verification(Shown):
    """The outcome of comparing the outputs of test cases with the expected ones.

    rtol, atol: as given. dynamic: the methods that quantize dynamically, with a wider tolerance.
    """

    cases: tuple[CaseCheck, ...]
    rtol: float | None = None
    atol: float | None = None
    dynamic: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Return whether all outputs of all cases passed; False if nothing was compared."""
        return self.status == PASSED

    @property
    def status(self) -> str:
        """ "passed", "failed", or "nothing to compare" if no case has expected outputs.

        Otherwise, cases without expected outputs do not count.
        """
        compared = [case for case in self.cases if case.checks]
        if not compared:
            return NOTHING
        return PASSED if all(case.passed for case in compared) else FAILED

    def table(self) -> Table:
        """One row for each output, and one for each case without expected outputs."""
        rows = [(case, check) for case in self.cases for check in case.checks or (None,)]
        statuses = Counter(NOTHING if check is None else check.status for _, check in rows)
        columns = (
            Column("method"),
            Column("case", Kind.INT),
            Column("output", Kind.INT),
            Column("dtype", priority=2),
            Column("shape", Kind.LIST, priority=2),
            Column("status"),
            Column("max_abs_error", Kind.FLOAT),
            Column("max_rel_error", Kind.FLOAT, priority=1),
            Column("mismatched", Kind.COUNT, priority=1),
            Column("elements", Kind.COUNT, priority=3),
            Column("worst", Kind.LIST, priority=3),
            Column("expected", priority=4),
            Column("actual", priority=4),
            Column("problem", priority=1),
        )
        empty: dict[str, Any] = {**dict.fromkeys(one.name for one in columns), "status": NOTHING}
        within = f"within {_named(self.atol, 'atol')} + {_named(self.rtol, 'rtol')} * |expected|"
        notes = (
            ", ".join(f"{count} {status}" for status, count in statuses.items())
            + f"; {within}"
            + ("." if self.rtol is not None else ", as usual for the type."),
            *(
                f"{method} chooses scales of int8 values as it runs: atol is at least "
                f"{DYNAMIC_STEPS} steps of int8 over the range of the expected output; -X atol "
                "sets another."
                for method in self.dynamic
            ),
        )
        cells = [
            {
                **(empty if check is None else check.cells()),
                "method": case.method,
                "case": case.case,
            }
            for case, check in rows
        ]
        notes = notes if rows else ("There is nothing to compare.",)
        return Table.of_cells(columns, cells, title="Verification", notes=notes)


def _named(tolerance: float | None, name: str) -> str:
    return name if tolerance is None else f"{tolerance:g}"


def _text(number: Number | None) -> str | None:
    """Format with the digits that distinguish float32 numbers."""
    if isinstance(number, float):
        return f"{number:.9g}"
    return None if number is None else str(number)


def compare_outputs(
    expected: Sequence[Any],
    actual: Sequence[Any],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    dynamic: bool = False,
) -> tuple[OutputCheck, ...]:
    """Compare the outputs of a run with the expected ones, in order: one check for each.

    Outputs are arrays, tensors of torch, numbers or texts. An output of only one side is a failed
    check. Without any expected output the result is empty.

    rtol, atol: None takes `TOLERANCES` for the type of each expected output. dynamic: the program
    chooses scales of int8 values as it runs. With atol None, a float output then has an atol of at
    least `DYNAMIC_STEPS` 255ths of the expected output's range.

    Raises `UsageError` for a tolerance that is negative or not finite.
    """
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and not 0 <= tolerance < math.inf:
            raise UsageError(f"{name} must be a number from 0 on, not {tolerance}")
    for outputs in (expected, actual):
        if isinstance(outputs, str) or hasattr(outputs, "__array__"):
            raise UsageError(f"give a list of outputs, not a {type(outputs).__name__}")
    if len(expected) == 0:
        return ()
    pairs = zip_longest(expected, actual, fillvalue=_ABSENT)
    return tuple(
        OutputCheck.of(index, *pair, rtol, atol, dynamic=dynamic)
        for index, pair in enumerate(pairs)
    )


@dataclass(frozen=True, slots=True)
class _Described:
    """An output: its kind, its type, and its values unless it is a text or None."""

    kind: str
    dtype: str
    shape: tuple[int, ...] = ()
    array: npt.NDArray[Any] | None = None

    def difference(self, actual: _Described) -> str | None:
        """Describe why the values cannot be compared; None if they can."""
        if actual.kind == "absent":
            return "the run has no such output"
        if self.kind == "absent":
            return "no such output is expected"
        if self.kind == "none" or actual.kind == "none":
            side = "expected output" if self.kind == "none" else "run's output"
            return f"the {side} is None"
        if self.kind != actual.kind:
            return f"expected a {self.kind}, the run has a {actual.kind}"
        if self.dtype != actual.dtype:
            return f"expected {self.dtype}, the run has {actual.dtype}"
        if self.shape != actual.shape:
            return f"expected shape {list(self.shape)}, the run has {list(actual.shape)}"
        return None


def _described(value: Any) -> _Described:
    if value is _ABSENT:
        return _Described("absent", "none")
    if value is None:
        return _Described("none", "none")
    if isinstance(value, str):
        return _Described("text", "str")
    if isinstance(value, (bool, np.bool_)):
        return _Described("number", "bool", array=np.array(value))
    if isinstance(value, (int, np.integer)):
        if not -(1 << 63) <= value < 1 << 63:
            raise UsageError(f"{value} does not fit in 64 bits")
        return _Described("number", "int", array=np.array(value, np.int64))
    if isinstance(value, (float, np.floating)):
        return _Described("number", "float", array=np.array(value, np.float64))
    if not hasattr(value, "__array__"):
        raise UsageError(f"a value of type {type(value).__name__} cannot be compared")
    array = as_numpy(value)
    return _Described("tensor", scalar_type_of(array.dtype).torch_name, array.shape, array)


_Errors = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_], npt.NDArray[Any]]


def _float_errors(
    expected: npt.NDArray[Any], actual: npt.NDArray[Any], rtol: float, atol: float
) -> _Errors:
    """Return, for each element, its error, |expected|, whether it passes, and its distance from the
    tolerance."""
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        same = (e == a) | (np.isnan(e) & np.isnan(a))
        comparable = np.isfinite(e) & np.isfinite(a)
        error = np.where(same, 0.0, np.where(comparable, np.abs(a - e), np.inf))
        size = np.where(np.isfinite(e), np.abs(e), 0.0)
        tolerance = atol + rtol * size
        close = same | (comparable & (error <= tolerance))
        excess = np.where(np.isfinite(error), error - tolerance, np.inf)
    return error, size, close, excess


def _integer_errors(
    expected: npt.NDArray[Any], actual: npt.NDArray[Any], rtol: float, atol: float
) -> _Errors:
    """Like `_float_errors`, in uint64, which holds the difference of any two 64-bit integers."""
    e, a = _wide(expected), _wide(actual)
    larger, smaller = np.maximum(e, a), np.minimum(e, a)
    error = larger.astype(np.uint64) - smaller.astype(np.uint64)  # modulo 2**64, so exact
    negative = e < 0
    size = np.where(negative, np.uint64(0) - e.astype(np.uint64), e.astype(np.uint64))
    tolerance = atol + rtol * size.astype(np.float64)
    # Whole numbers are within a tolerance when they are within its whole part.
    whole = np.floor(np.minimum(tolerance, _LARGEST_BELOW_2_64)).astype(np.uint64)
    close = (error <= whole) | (tolerance > _LARGEST_BELOW_2_64)
    return error, size, close, error.astype(np.float64) - tolerance


def _wide(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.astype(np.int64 if array.dtype.kind in "bi" else np.uint64)


def _number(value: Any) -> Number:
    if value.dtype.kind in "biu":
        number: Number = value.item()
        return number
    return float(value)
