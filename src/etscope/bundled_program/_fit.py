"""Do test cases fit the program that they are for?

What is found here would otherwise be found on the device, or not at all: a runtime takes an array
in another layout for one in its own, and ends the process when it compares outputs of two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from etscope.errors import BundleError, UsageError
from etscope.formats.program.bpte import Case, CaseValue, Suite
from etscope.formats.program.dense_tensor import as_numpy, in_dim_order
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_fit import is_same_number, sizes_fit
from etscope.formats.program.pte_schema import (
    Method,
    ScalarValue,
    ShapeDynamism,
    TensorValue,
    Value,
    ValueKind,
)
from etscope.formats.program.scalar_type import scalar_type_of

_NUMBERS: dict[ValueKind, type] = {
    ValueKind.INT: int,
    ValueKind.BOOL: bool,
    ValueKind.DOUBLE: float,
}


def fitted_suites(program: Program, suites: Sequence[Any]) -> tuple[Suite, ...]:
    """The cases as the program takes them: arrays in the order of dimensions that it expects.

    suites: `MethodTestSuite`s, etscope's or upstream's. Raises `BundleError` for the first value
    that does not fit.
    """
    names = [suite.method_name for suite in suites]
    methods = {method.name: method for method in program.methods}
    for name, count in Counter(names).items():
        if name not in methods:
            raise BundleError(
                f"there are test cases for method {name!r}, which the program does not have",
                hint="its methods are: " + ", ".join(methods),
            )
        if count > 1:
            raise BundleError(
                f"there are {count} test suites for method {name!r}",
                hint="put all cases of a method into one suite: the runtime sees only the first",
            )
    return tuple(
        Suite(
            method=suite.method_name,
            cases=tuple(
                _fitted_case(methods[suite.method_name], index, case)
                for index, case in enumerate(suite.test_cases)
            ),
        )
        for suite in suites
    )


def _fitted_case(method: Method, index: int, case: Any) -> Case:
    place = f"method {method.name!r}, case {index}"
    _check_count(len(case.inputs), len(method.inputs), "inputs", place)
    outputs = case.expected_outputs or []
    if outputs:
        _check_count(len(outputs), len(method.outputs), "expected outputs", place)
    return Case(
        inputs=tuple(
            _fitted_input(value, method.values[i], f"{place}, input {number}")
            for number, (value, i) in enumerate(zip(case.inputs, method.inputs, strict=True))
        ),
        expected_outputs=tuple(
            _fitted_output(value, method.values[i], f"{place}, expected output {number}")
            for number, (value, i) in enumerate(
                zip(outputs, method.outputs if outputs else (), strict=True)
            )
        ),
    )


def _check_count(given: int, wanted: int, what: str, place: str) -> None:
    if given != wanted:
        raise BundleError(f"{place}: {given} {what}, and the method has {wanted}")


def _fitted_input(value: Any, wanted: Value, place: str) -> CaseValue:
    if isinstance(wanted, TensorValue):
        return _fitted_tensor(value, wanted, place)
    if not isinstance(wanted, ScalarValue) or wanted.kind not in _NUMBERS:
        raise BundleError(
            f"{place}: the program takes a value of the kind {wanted.kind.value} here, which a "
            "bundled program has no place for"
        )
    number: int | bool | float = _python_number(value)
    if type(number) is not _NUMBERS[wanted.kind]:
        raise BundleError(
            f"{place}: expected {_a(_NUMBERS[wanted.kind].__name__)}, got {_description(value)}"
        )
    if wanted.value is None or not is_same_number(number, wanted.value):
        raise BundleError(
            f"{place}: the program was exported for {wanted.value!r}, and refuses {number!r}",
            hint="export it again with this value, or with a tensor in its place",
        )
    return number


def _fitted_output(value: Any, wanted: Value, place: str) -> CaseValue:
    if not isinstance(wanted, TensorValue):
        raise BundleError(
            f"{place}: the program's output is of the kind {wanted.kind.value}, and only tensors "
            "can be verified",
            hint="leave the expected outputs out, or return a tensor from the model",
        )
    return _fitted_tensor(value, wanted, place)


def _fitted_tensor(value: Any, wanted: TensorValue, place: str) -> CaseValue:
    if isinstance(value, np.generic) or not hasattr(value, "__array__"):
        raise BundleError(f"{place}: expected a tensor {wanted}, got {_description(value)}")
    try:
        array = as_numpy(value)
    except UsageError as error:
        raise BundleError(f"{place}: {error.message}") from error
    except Exception as error:  # whatever a tensor raises that has no data: meta, fake, sparse
        raise BundleError(
            f"{place}: this tensor cannot be read ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    kind = scalar_type_of(array.dtype)
    if kind is not wanted.scalar_type:
        raise BundleError(
            f"{place}: expected {wanted.scalar_type.torch_name}, got {kind.torch_name}"
        )
    if not sizes_fit(array.shape, wanted):
        raise BundleError(
            f"{place}: expected {wanted}, got {kind.torch_name}{list(array.shape)}",
            hint=None
            if wanted.dynamism is ShapeDynamism.STATIC
            else "the sizes of the program are the largest that it takes",
        )
    return in_dim_order(array, wanted.dim_order)


def _python_number(value: Any) -> Any:
    """numpy's and Python's numbers as Python's; anything else as it is."""
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    return value


def _description(value: Any) -> str:
    number = _python_number(value)
    if isinstance(number, (bool, int, float)):
        return f"{_a(type(number).__name__)} ({number})"
    if hasattr(value, "__array__"):
        return f"a tensor of {value.dtype} and shape {list(value.shape)}"
    return _a(type(value).__name__)


def _a(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
