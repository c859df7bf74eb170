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
from etscope.formats.bytes.files import BytesLike, PathLike, atomic_write
from etscope.formats.program.bpte import (
    Case,
    CaseValue,
    Suite,
    bundled_parts,
    stored_suites,
    write_bundled,
)
from etscope.formats.program.input_validation import as_program_input, check_value
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.pte_schema import Method, TensorValue, Value, ValueKind
from etscope.formats.program.scalar_type import as_numpy

__all__ = ["BUNDLED_PROGRAM_SCHEMA_VERSION", "BundledProgram", "bundle_cases"]


class BundledProgram:
    """A program and test cases for its methods, to be run and verified together.

    The program is either the result of `to_executorch()` (`executorch_program`) or a .pte file
    (`pte_file_path`). Attributes are `executorch_program` and `method_test_suites`, sorted by the
    methods' names. An ETRecord also takes a `BundledProgram`.

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
                hint="pass the result of to_executorch(); pass a .pte file as pte_file_path",
            )
        self.executorch_program = executorch_program
        self._pte_file_path = None if pte_file_path is None else os.fspath(pte_file_path)
        self.method_test_suites = sorted(method_test_suites, key=lambda suite: suite.method_name)
        _validated_suites(self._program(), self.method_test_suites)

    def serialize_to_schema(self) -> schema.BundledProgram:
        """Return the content of the .bpte file as a schema object, with data as `bytes`."""
        program, suites = self._stored()
        views = schema.BundledProgram(BUNDLED_PROGRAM_SCHEMA_VERSION, suites, program.source.buffer)
        return with_bytes(views)

    def save(self, path: PathLike) -> None:
        """Write the .bpte file, without a copy of the program in memory. It appears when it is
        complete."""
        program, suites = self._stored()
        with atomic_write(path) as file:
            for part in bundled_parts(suites, program.source.buffer):
                file.write(part)

    def to_bytes(self) -> bytes:
        """Return the .bpte file."""
        program, suites = self._stored()
        return b"".join(bundled_parts(suites, program.source.buffer))

    def _stored(self) -> tuple[Program, list[schema.BundledMethodTestSuite]]:
        """Read the program and validate the cases again: both may have changed."""
        program = self._program()
        return program, stored_suites(_validated_suites(program, self.method_test_suites))

    def _program(self) -> Program:
        if self._pte_file_path is not None:
            return read_pte(self._pte_file_path)
        return read_pte(self.executorch_program.buffer)


def with_bytes(content: schema.BundledProgram) -> schema.BundledProgram:
    """Replace the views of files and arrays in the content of a bundle by bytes."""
    content.program = bytes(content.program)
    for suite in content.method_test_suites:
        for case in suite.test_cases:
            for value in (*case.inputs, *case.expected_outputs):
                if isinstance(value.val, schema.Tensor):
                    value.val.data = bytes(value.val.data)
    return content


def bundle_cases(
    program: BytesLike | PathLike, cases: Mapping[str, Sequence[tuple[Any, Any]]]
) -> bytes:
    """Return a bundled program (the bytes of a .bpte file) of a program and test cases.

    program: the bytes of a .pte file, or its path. cases: method -> (inputs, expected outputs or
    None) of each case; both may be nested, see `MethodTestCase`. Raises the errors of
    `BundledProgram`.
    """
    opened = read_pte(program)
    suites = [
        MethodTestSuite(method, [MethodTestCase(inputs, outputs) for inputs, outputs in pairs])
        for method, pairs in sorted(cases.items())
    ]
    return write_bundled(opened.source.buffer, _validated_suites(opened, suites))


# -- validation
#
# A mistake that passes here appears on the device, or not at all: a runtime misreads an array in
# another layout, and ends the process when it compares outputs of two shapes.


def _validated_suites(program: Program, suites: Sequence[Any]) -> tuple[Suite, ...]:
    """Convert the cases for the program: arrays get the program's order of dimensions.

    suites: `MethodTestSuite`s, etscope's or upstream's. Raises `BundleError` for the first value
    that does not fit.
    """
    names = [suite.method_name for suite in suites]
    methods = {method.name: method for method in program.methods}
    for name, count in Counter(names).items():
        if name not in methods:
            raise BundleError(
                f"test cases for the unknown method {name!r}",
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
                _validated_case(methods[suite.method_name], index, case)
                for index, case in enumerate(suite.test_cases)
            ),
        )
        for suite in suites
    )


def _validated_case(method: Method, index: int, case: Any) -> Case:
    place = f"method {method.name!r}, case {index}"
    outputs = case.expected_outputs or []
    wanted_outputs = method.outputs if outputs else ()
    for role, given, wanted in (
        ("inputs", case.inputs, method.inputs),
        ("expected outputs", outputs, wanted_outputs),
    ):
        if len(given) != len(wanted):
            raise BundleError(f"{place}: {len(given)} {role}, but the method has {len(wanted)}")
    inputs = []
    for number, (value, i) in enumerate(zip(case.inputs, method.inputs, strict=True)):
        wanted_input = method.values[i]
        if wanted_input.kind not in _BUNDLED_KINDS:
            raise BundleError(
                f"{place}, input {number}: the program takes a value of the kind "
                f"{wanted_input.kind.value} here, which a bundled program cannot contain"
            )
        inputs.append(_validated(value, wanted_input, f"{place}, input {number}"))
    expected = []
    for number, (value, i) in enumerate(zip(outputs, wanted_outputs, strict=True)):
        wanted_output = method.values[i]
        if not isinstance(wanted_output, TensorValue):
            raise BundleError(
                f"{place}, expected output {number}: the program's output is of the kind "
                f"{wanted_output.kind.value}, but only tensors can be verified",
                hint="leave the expected outputs out, or return a tensor from the model",
            )
        expected.append(_validated(value, wanted_output, f"{place}, expected output {number}"))
    return Case(inputs=tuple(inputs), expected_outputs=tuple(expected))


_BUNDLED_KINDS = (ValueKind.TENSOR, ValueKind.INT, ValueKind.BOOL, ValueKind.DOUBLE)


def _validated(value: Any, wanted: Value, place: str) -> CaseValue:
    """Convert a value for the file; numbers must have the program's type."""
    if isinstance(value, np.generic):
        value = value.item()
    elif hasattr(value, "__array__"):
        try:
            value = as_numpy(value)
        except UsageError as error:
            raise BundleError(f"{place}: {error.message}") from error
        except Exception as error:  # tensors without data (meta, fake, sparse) raise various errors
            raise BundleError(
                f"{place}: this tensor cannot be read ({type(error).__name__}: {str(error)[:200]})"
            ) from error
    problem = check_value(value, wanted, exact_type=True)
    if problem is not None:
        raise BundleError(f"{place}: {problem.text}", hint=problem.hint)
    return as_program_input(value, wanted)  # type: ignore[return-value]  # None only for None
