"""Programs bundled with test cases: upstream's `executorch.devtools.bundled_program.core`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from etscope.bundled_program import schema
from etscope.bundled_program._fit import fitted_suites
from etscope.bundled_program.config import MethodTestCase, MethodTestSuite
from etscope.bundled_program.version import BUNDLED_PROGRAM_SCHEMA_VERSION
from etscope.errors import BundleError
from etscope.formats.bytes.atomic_write import replacing
from etscope.formats.bytes.source import BytesLike, PathLike
from etscope.formats.program.bpte_writer import bundled_parts, stored_suites, write_bundled
from etscope.formats.program.pte import Program, read_pte

__all__ = ["BUNDLED_PROGRAM_SCHEMA_VERSION", "BundledProgram", "bundle_cases"]


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
        with replacing(path) as file:
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
