"""Whether inputs are what a method takes: asked before anything runs, and all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import MismatchError, UsageError
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.dense_tensor import in_dim_order
from etscope.formats.program.pte_fit import is_same_number, sizes_fit
from etscope.formats.program.pte_schema import (
    Method,
    ScalarValue,
    TensorValue,
    Value,
    ValueKind,
)
from etscope.formats.program.scalar_type import scalar_type_of
from etscope.run._arrays import Leaf

_MAX_PROBLEMS = 20
_NAMES = {
    ValueKind.INT: "the int",
    ValueKind.BOOL: "the bool",
    ValueKind.DOUBLE: "the float",
    ValueKind.STRING: "the text",
}


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is wrong with one input, and what may help."""

    text: str
    hint: str | None = None


def fitted(
    values: Sequence[Leaf], names: Sequence[str | None], method: Method, program: str | None
) -> tuple[CaseValue | None, ...]:
    """The inputs as the runtime takes them: tensors dense in the order of dimensions that the
    program expects, with the same values.

    `program` is its file, for a hint. Raises `MismatchError` with all that does not fit.
    """
    expected = [method.values[index] for index in method.inputs]
    if len(values) != len(expected):
        raise _mismatch(method, program, [_count_problem(values, expected)])
    problems = [
        _Problem(f"{place(index, names[index])}: {problem.text}", problem.hint)
        for index, (value, wanted) in enumerate(zip(values, expected, strict=True))
        if (problem := _problem(value, wanted)) is not None
    ]
    if problems:
        raise _mismatch(method, program, problems)
    return tuple(map(_ready, values, expected))


def place(index: int, name: str | None) -> str:
    """How messages call an input."""
    return f"input {index}" if name is None else f"input {index} ({name})"


def _mismatch(method: Method, program: str | None, problems: list[_Problem]) -> MismatchError:
    lines = [problem.text for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    listed = "".join(f"\n  {line}" for line in lines) if len(lines) > 1 else f" {lines[0]}"
    hints = [problem.hint for problem in problems if problem.hint is not None]
    if program is not None:
        hints.append(f"what the program takes: etscope info {program}")
    return MismatchError(
        f"these inputs do not fit the method {method.name!r}:{listed}",
        hint="; ".join(hints[-2:]) or None,
    )


def _count_problem(values: Sequence[Leaf], expected: Sequence[Value]) -> _Problem:
    numbers = sum(isinstance(value, (bool, int, float)) for value in values)
    hint = None
    if numbers == len(values) > 0:
        hint = "a list of numbers is a number of inputs; give a numpy array for a tensor"
    return _Problem(
        f"{_counted(values, _shown_value)} where the program takes "
        f"{_counted(expected, _shown_expected)}",
        hint,
    )


def _counted(items: Sequence[Any], shown: Any) -> str:
    plural = "" if len(items) == 1 else "s"
    listed = [shown(item) for item in items[:_MAX_PROBLEMS]]
    more = ", …" if len(items) > _MAX_PROBLEMS else ""
    return f"{len(items)} input{plural}" + (f" ({', '.join(listed)}{more})" if items else "")


def _problem(value: Leaf, wanted: Value) -> _Problem | None:
    """What is wrong with an input, None if nothing is."""
    shown = f"{_shown_value(value)} where the program takes {_shown_expected(wanted)}"
    if isinstance(wanted, TensorValue):
        return _tensor_problem(value, wanted, shown)
    if not isinstance(wanted, ScalarValue):
        return _Problem(f"{shown}, which nothing can be given for")
    if wanted.value is None:
        hint = "what has no value at export, as text, is None in the program; give None"
        return None if value is None else _Problem(shown, hint)
    if is_same_number(_as_number(value), wanted.value):
        return None
    return _Problem(shown, "numbers are fixed at export, and the runtime takes no others")


def _tensor_problem(value: Leaf, wanted: TensorValue, shown: str) -> _Problem | None:
    if not isinstance(value, np.ndarray):
        return _Problem(shown, "give a numpy array or a torch tensor")
    try:
        kind = scalar_type_of(value.dtype)
    except UsageError:
        kind = None
    if kind is not wanted.scalar_type:
        return _Problem(shown, f"array.astype({_shown_type(wanted)}) converts it")
    return None if sizes_fit(value.shape, wanted) else _Problem(shown)


def _shown_type(tensor: TensorValue) -> str:
    """Its type as an argument of `astype`."""
    dtype = tensor.scalar_type.numpy_dtype
    return f'"{dtype.name}"' if dtype.isbuiltin == 1 else f"ml_dtypes.{dtype.name}"


def _as_number(value: Leaf) -> bool | int | float | str | npt.NDArray[Any] | None:
    """What a file or numpy gives as an array without dimensions, as the number it is."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":
        number: bool | int | float = value.item()
        return number
    return value


def _ready(value: Leaf, wanted: Value) -> CaseValue | None:
    if isinstance(wanted, TensorValue) and isinstance(value, np.ndarray):
        return in_dim_order(value, wanted.dim_order)
    number: Any = _as_number(value)
    is_double = isinstance(wanted, ScalarValue) and wanted.kind is ValueKind.DOUBLE
    ready: CaseValue | None = float(number) if is_double else number
    return ready


def _shown_value(value: Leaf) -> str:
    if isinstance(value, np.ndarray):
        return _shown_array(value)
    if isinstance(value, str):
        return f"the text {value!r:.60}"
    if value is None:
        return "None"
    kind = "bool" if isinstance(value, bool) else type(value).__name__
    return f"the {kind} {value!r:.60}"


def _shown_array(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"


def _shown_expected(value: Value) -> str:
    if isinstance(value, TensorValue):
        return str(value)
    if isinstance(value, ScalarValue):
        return "None" if value.value is None else f"{_NAMES[value.kind]} {value.value!r:.60}"
    return f"a {value.kind.value}"
