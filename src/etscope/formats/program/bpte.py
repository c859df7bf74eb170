"""Bundled programs (.bpte): a program with inputs to run it on and the outputs to expect.

A file is a FlatBuffer with the identifier "BP08" that holds test cases for each method and the
bytes of the program. The format is that of `bundled_program_schema.fbs` (ExecuTorch 1.0 to 1.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from etscope.errors import FormatError, MissingDataError, VersionError, reading
from etscope.formats.bytes.flatbuffer import INT8, INT64, UINT32, FlatBuffer, Span, Table
from etscope.formats.bytes.source import BytesLike, PathLike, Source, open_source
from etscope.formats.identify import describe
from etscope.formats.program import bpte_schema as schema
from etscope.formats.program.dense_tensor import checked_dim_order, dense_view
from etscope.formats.program.pte import Program, read_program
from etscope.formats.program.scalar_type import scalar_type

KIND = "bundled program"
IDENTIFIER = b"BP08"

CaseValue = npt.NDArray[Any] | int | bool | float


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Inputs of a method, flattened, and the outputs to expect (none when none were recorded).

    Tensors are read-only views of the file in their shape and order of dimensions.
    """

    inputs: tuple[CaseValue, ...]
    expected_outputs: tuple[CaseValue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """The cases of one method. A dump's `bundled_input_index` is an index of `cases`."""

    method: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BundledFile:
    """A bundled program. `program_span` is where the program's bytes are in the file."""

    version: int
    suites: tuple[Suite, ...]
    program_span: Span
    source: Source

    def suite(self, method: str) -> Suite:
        """The cases of that method, or `MissingDataError`."""
        for suite in self.suites:
            if suite.method == method:
                return suite
        raise MissingDataError(
            f"{self.source.name} has no cases for method {method!r}",
            hint="methods with cases are: " + ", ".join(suite.method for suite in self.suites),
        )

    @property
    def program_bytes(self) -> memoryview:
        """The bytes of the program, as they would be in a .pte file; no copy."""
        span = self.program_span
        return self.source.buffer[span.offset : span.offset + span.size]

    def program(self) -> Program:
        """The program. Offsets in its errors count from its own first byte."""
        if not self.program_span.size:
            raise MissingDataError(f"{self.source.name} holds no program")
        return read_program(Source(self.program_bytes, self.source.path), member="program")


def read_bundled(data_or_path: BytesLike | PathLike) -> BundledFile:
    """Open a bundled program: a path, or the bytes of one.

    Raises `FormatError` (`VersionError` for another version of the schema) for what is not a
    bundled program or is damaged, `MissingFileError` for a path that is not there. The program in
    it is not looked at before it is asked for.
    """
    source = open_source(data_or_path, KIND)
    with reading(KIND, source.path):
        root = _root(source)
        return BundledFile(
            version=root.integer(0, UINT32),
            suites=tuple(_suite(one) for one in _read_suites(source, root)),
            program_span=root.blob(2),
            source=source,
        )


def read_bundled_schema(data_or_path: BytesLike | PathLike) -> schema.BundledProgram:
    """The same as the file has it: types and orders of dimensions by number, bytes as views of the
    file. Raises as `read_bundled` does."""
    source = open_source(data_or_path, KIND)
    with reading(KIND, source.path):
        root = _root(source)
        program = root.blob(2)
        return schema.BundledProgram(
            version=root.integer(0, UINT32),
            method_test_suites=_read_suites(source, root),
            program=source.buffer[program.offset : program.offset + program.size],
        )


def _root(source: Source) -> Table:
    identifier = bytes(source.buffer[4:8])
    if identifier == IDENTIFIER:
        return FlatBuffer(source.buffer).root()
    if identifier[:2] == b"BP" and identifier[2:].isalnum():
        raise VersionError(
            f"a bundled program of the schema {identifier.decode()}; "
            f"etscope reads {IDENTIFIER.decode()}",
            offset=4,
        )
    raise FormatError(f"not a {KIND} (.bpte): {describe(source.buffer)}")


def _suite(found: schema.BundledMethodTestSuite) -> Suite:
    return Suite(
        method=found.method_name,
        cases=tuple(
            Case(
                inputs=tuple(_case_value(value) for value in case.inputs),
                expected_outputs=tuple(_case_value(value) for value in case.expected_outputs),
            )
            for case in found.test_cases
        ),
    )


def _case_value(value: schema.Value) -> CaseValue:
    match value.val:
        case schema.Tensor(kind, sizes, data, dim_order):
            return dense_view(memoryview(data), kind, sizes, dim_order)
        case schema.Int(number):
            return number
        case schema.Bool(flag):
            return flag
        case schema.Double(real):
            return real


def _read_suites(source: Source, root: Table) -> list[schema.BundledMethodTestSuite]:
    return [
        schema.BundledMethodTestSuite(
            method_name=suite.string(0) or "",
            test_cases=[
                schema.BundledMethodTestCase(
                    inputs=[_read_value(source, value) for value in case.tables(0)],
                    expected_outputs=[_read_value(source, value) for value in case.tables(1)],
                )
                for case in suite.tables(1)
            ],
        )
        for suite in root.tables(1)
    ]


def _read_value(source: Source, table: Table) -> schema.Value:
    # Members of the schema's union ValueUnion, by number.
    match table.union(0):
        case (1, Table() as tensor):
            return schema.Value(_read_tensor(source, tensor))
        case (2, Table() as number):
            return schema.Value(schema.Int(number.integer(0, INT64)))
        case (3, Table() as flag):
            return schema.Value(schema.Bool(flag.flag(0)))
        case (4, Table() as number):
            return schema.Value(schema.Double(number.double(0)))
        case (kind, _):
            raise FormatError(f"unknown kind of value {kind}", offset=table.position)


def _read_tensor(source: Source, table: Table) -> schema.Tensor:
    sizes: tuple[int, ...] = table.numbers(1, "i")
    if sizes and min(sizes) < 0:
        raise FormatError(f"a tensor of size {list(sizes)}", offset=table.position)
    dim_order: tuple[int, ...] = table.numbers(3, "B")
    data = table.blob(2)
    return schema.Tensor(
        scalar_type=scalar_type(table.integer(0, INT8), offset=table.position),
        sizes=list(sizes),
        data=source.buffer[data.offset : data.offset + data.size],
        dim_order=list(checked_dim_order(dim_order, len(sizes), offset=table.position)),
    )
