"""Programs bundled with test cases: upstream's `executorch.devtools.bundled_program.core`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from etscope.bundled_program import schema
from etscope.bundled_program.config import MethodTestCase, MethodTestSuite
from etscope.bundled_program.version import BUNDLED_PROGRAM_SCHEMA_VERSION
from etscope.errors import BundleError, UsageError
from etscope.formats.bytes.atomic_write import atomic_write
from etscope.formats.bytes.source import BytesLike, PathLike
from etscope.formats.program.bpte import (
    Case,
    CaseValue,
    Suite,
    bundled_parts,
    stored_suites,
    write_bundled,
)
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.pte_fit import is_same_number, sizes_fit
from etscope.formats.program.pte_schema import (
    Method,
    ScalarValue,
    ShapeDynamism,
    TensorValue,
    Value,
    ValueKind,
)
from etscope.formats.program.scalar_type import as_numpy, in_dim_order, scalar_type_of

__all__ = ["BUNDLED_PROGRAM_SCHEMA_VERSION", "BundledProgram", "bundle_cases"]


# Do test cases fit the program that they are for?
#
# What is found here would otherwise be found on the device, or not at all: a runtime takes an array
# in another layout for one in its own, and ends the process when it compares outputs of two.


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


class BundledProgram:
    """A program and test cases for its methods, to be run and verified together.

    The program is either what `to_executorch()` gave (`executorch_program`) or a .pte file
    (`pte_file_path`). Attributes are `executorch_program` and `method_test_suites`, in the order of
    the methods' names. A `BundledProgram` may stand wherever an ETRecord takes one.

    Raises `BundleError` (a `RuntimeError` and an `AssertionError`) unless there is exactly one
    program, and for a case that does not fit it: unknown method, other number of inputs or outputs,
    other type, other shape. The message names the method, the case and the value.
    """

    def __init__(
        self,
        executorch_program: Any,
        method_test_suites: Sequence[MethodTestSuite],
        pte_file_path: PathLike | None = None,
    ) -> None:
        if executorch_program is None and not pte_file_path:
            raise BundleError("Either executorch_program or pte_file_path must be provided")
        if executorch_program is not None and pte_file_path:
            raise BundleError("Only one of executorch_program or pte_file_path can be used")
        if executorch_program is not None and not hasattr(executorch_program, "buffer"):
            raise BundleError(
                f"executorch_program is of type {type(executorch_program).__name__}",
                hint="give what to_executorch() returns; a .pte file goes into pte_file_path",
            )
        self.executorch_program = executorch_program
        self._pte_file_path = None if pte_file_path is None else os.fspath(pte_file_path)
        self.method_test_suites = sorted(method_test_suites, key=lambda suite: suite.method_name)
        fitted_suites(self._program(), self.method_test_suites)

    def serialize_to_schema(self) -> schema.BundledProgram:
        """The content of the file, as plain values."""
        program, suites = self._stored()
        for tensor in _tensors(suites):
            tensor.data = bytes(tensor.data)
        return schema.BundledProgram(
            BUNDLED_PROGRAM_SCHEMA_VERSION, suites, bytes(program.source.buffer)
        )

    def save(self, path: PathLike) -> None:
        """Write the .bpte file, without holding a copy of the program in memory. It appears when it
        is complete."""
        program, suites = self._stored()
        with atomic_write(path) as file:
            for part in bundled_parts(suites, program.source.buffer):
                file.write(part)

    def to_bytes(self) -> bytes:
        """The .bpte file."""
        program, suites = self._stored()
        return b"".join(bundled_parts(suites, program.source.buffer))

    def _stored(self) -> tuple[Program, list[schema.BundledMethodTestSuite]]:
        """The program as it is now, and the cases, which may have changed, made to fit it."""
        program = self._program()
        return program, stored_suites(fitted_suites(program, self.method_test_suites))

    def _program(self) -> Program:
        if self._pte_file_path is not None:
            return read_pte(self._pte_file_path)
        return read_pte(self.executorch_program.buffer)


def bundle_cases(
    program: BytesLike | PathLike, cases: Mapping[str, Sequence[tuple[Any, Any]]]
) -> bytes:
    """A bundled program (the bytes of a .bpte file) of a program and test cases.

    program: the bytes of a .pte file, or its path. cases: method -> (inputs, expected outputs or
    None) of each case; both may be nested as for `MethodTestCase`. Raises as `BundledProgram` does.
    """
    opened = read_pte(program)
    suites = [
        MethodTestSuite(method, [MethodTestCase(inputs, outputs) for inputs, outputs in pairs])
        for method, pairs in sorted(cases.items())
    ]
    return write_bundled(opened.source.buffer, fitted_suites(opened, suites))


def _tensors(suites: Sequence[schema.BundledMethodTestSuite]) -> list[schema.Tensor]:
    return [
        value.val
        for suite in suites
        for case in suite.test_cases
        for value in (*case.inputs, *case.expected_outputs)
        if isinstance(value.val, schema.Tensor)
    ]
