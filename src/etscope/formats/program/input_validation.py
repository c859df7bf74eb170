"""Check values against the inputs and outputs of a program's method.

All checks return an `InputProblem`; callers add the name of the method, the input or the test case.
Export fixes numbers and texts: the runtime rejects others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.pte_schema import (
    ScalarValue,
    ShapeDynamism,
    TensorValue,
    Value,
    ValueKind,
)
from etscope.formats.program.scalar_type import in_dim_order, scalar_type_of

# One input: tensors as numpy arrays.
Leaf = npt.NDArray[Any] | int | float | bool | str | None

MAX_LISTED = 20  # inputs in a message: more do not help
_SCALAR_NAMES = {
    ValueKind.INT: "the int",
    ValueKind.BOOL: "the bool",
    ValueKind.DOUBLE: "the float",
    ValueKind.STRING: "the text",
}


@dataclass(frozen=True, slots=True)
class InputProblem:
    """A value that the program rejects.

    given, expected: in words, such as "float32[1, 3]" or "the int 3". hint: the fix, if known.
    """

    given: str
    expected: str
    hint: str | None = None

    @property
    def text(self) -> str:
        return f"{self.given} where the program takes {self.expected}"


def check_value(value: Leaf, wanted: Value, *, exact_type: bool = False) -> InputProblem | None:
    """Return the problem with a value for an input or output; None if the value fits.

    Unless `exact_type`, an array without dimensions fits a number, and a whole number fits a float.
    """
    given, expected = describe_value(value), describe_expected(wanted)
    if isinstance(wanted, TensorValue):
        if not isinstance(value, np.ndarray):
            return InputProblem(given, expected, "give a numpy array or a torch tensor")
        try:
            kind = scalar_type_of(value.dtype)
        except UsageError:  # a type that no program has
            kind = None
        if kind is not wanted.scalar_type:
            dtype = wanted.scalar_type.numpy_dtype
            name = f'"{dtype.name}"' if dtype.isbuiltin == 1 else f"ml_dtypes.{dtype.name}"
            return InputProblem(given, expected, f"array.astype({name}) converts it")
        if sizes_fit(value.shape, wanted):
            return None
        is_static = wanted.dynamism is ShapeDynamism.STATIC
        hint = None if is_static else "the program's sizes are upper bounds"
        return InputProblem(given, expected, hint)
    if not isinstance(wanted, ScalarValue):
        return InputProblem(given, f"{expected}, which no value fits")
    if wanted.value is None:
        hint = "the program does not store texts: pass None"
        return None if value is None else InputProblem(given, expected, hint)
    number = value if exact_type else _as_number(value)
    if is_same_number(number, wanted.value) and (
        not exact_type or type(number) is type(wanted.value)
    ):
        return None
    hint = "export fixes numbers: export again with this value, or with a tensor instead"
    return InputProblem(given, expected, hint)


def as_exported(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the example inputs of an export in the form that its program takes: None for a text,
    which export fixes and the program does not store."""
    return tuple(None if isinstance(value, str) else value for value in values)


def check_count(values: Sequence[Leaf], wanted: Sequence[Value]) -> InputProblem | None:
    """Return the problem with the number of inputs; None if it is right."""
    if len(values) == len(wanted):
        return None
    hint = None
    if values and all(isinstance(value, (bool, int, float)) for value in values):
        hint = "a list of numbers counts as several inputs; give a numpy array for a tensor"
    return InputProblem(_counted(values, describe_value), _counted(wanted, describe_expected), hint)


def _counted(items: Sequence[Any], describe: Callable[[Any], str]) -> str:
    plural = "" if len(items) == 1 else "s"
    listed = [describe(item) for item in items[:MAX_LISTED]]
    more = ", …" if len(items) > MAX_LISTED else ""
    return f"{len(items)} input{plural}" + (f" ({', '.join(listed)}{more})" if items else "")


def as_program_input(value: Leaf, wanted: Value) -> CaseValue | None:
    """Convert a value that passed `check_value` for the runtime: a tensor becomes dense in the
    program's order of dimensions, and a number for a double becomes a float."""
    if isinstance(wanted, TensorValue) and isinstance(value, np.ndarray):
        return in_dim_order(value, wanted.dim_order)
    number: Any = _as_number(value)
    is_double = isinstance(wanted, ScalarValue) and wanted.kind is ValueKind.DOUBLE
    converted: CaseValue | None = float(number) if is_double else number
    return converted


def _as_number(value: Leaf) -> Any:
    """Convert an array without dimensions, as files and numpy have them, to a Python number."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":
        return value.item()
    return value


def describe_value(value: Any) -> str:
    """Return a value in words: "float32[1, 3]", "the int 3", "the text 'a'", "None"."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, str):
        return f"the text {value!r:.60}"
    if value is None:
        return "None"
    return f"the {type(value).__name__} {value!r:.60}"


def describe_expected(value: Value) -> str:
    """Return a value of the program in the same words, with the bounds of dynamic sizes."""
    if isinstance(value, TensorValue):
        return str(value)
    if isinstance(value, ScalarValue):
        return "None" if value.value is None else f"{_SCALAR_NAMES[value.kind]} {value.value!r:.60}"
    return f"a {value.kind.value}"


def sizes_fit(shape: tuple[int, ...], wanted: TensorValue) -> bool:
    """True if the runtime takes a tensor of this shape for `wanted`."""
    if len(shape) != len(wanted.sizes):
        return False
    if wanted.dynamism is ShapeDynamism.STATIC:
        return shape == wanted.sizes
    bounded = wanted.dynamism is ShapeDynamism.DYNAMIC_BOUND
    return not bounded or all(n <= bound for n, bound in zip(shape, wanted.sizes, strict=True))


def is_same_number(value: Any, stored: bool | int | float | str) -> bool:
    """True if the runtime takes `value` for the number or text that export fixed.

    A whole number fits a double. A double may differ by 1e-4 + 1e-5 * |stored|. A bool is not a
    number.
    """
    if not isinstance(stored, float) or isinstance(value, bool):
        return type(value) is type(stored) and value == stored
    if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) >= 1 << 1023):
        return False
    if math.isfinite(stored):
        return math.isfinite(value) and abs(value - stored) <= 1e-4 + 1e-5 * abs(stored)
    return value == stored or (math.isnan(stored) and math.isnan(value))


def broadcast_replacement(name: str, value: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Broadcast a value to the shape of the tensor that it replaces during a run.

    Raises `UsageError`, which begins with the tensor's `name`.
    """
    array = np.asarray(value)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise UsageError(
            f"{name} has the shape {list(shape)}, but the value has {list(array.shape)}"
        ) from None
