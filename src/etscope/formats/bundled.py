"""Bundled programs (.bpte): a program with inputs to run it on and the outputs to expect.

A file is a FlatBuffer with the identifier "BP08" that holds test cases for each method and the
bytes of the program. The format is that of `bundled_program_schema.fbs` (ExecuTorch 1.0 to 1.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from etscope.errors import FormatError, MissingDataError, VersionError, reading
from etscope.formats.dense_tensor import checked_dim_order, dense_view
from etscope.formats.flatbuffer import INT8, INT64, UINT32, FlatBuffer, Span, Table
from etscope.formats.identify import describe
from etscope.formats.pte import Program, read_program
from etscope.formats.scalar_type import scalar_type
from etscope.formats.source import BytesLike, PathLike, Source, open_source

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
        _check_identifier(source.buffer)
        buffer = FlatBuffer(source.buffer)
        root = buffer.root()
        return BundledFile(
            version=root.integer(0, UINT32),
            suites=tuple(_read_suite(buffer, suite) for suite in root.tables(1)),
            program_span=root.blob(2),
            source=source,
        )


def _check_identifier(buffer: memoryview) -> None:
    identifier = bytes(buffer[4:8])
    if identifier == IDENTIFIER:
        return
    if identifier[:2] == b"BP" and identifier[2:].isalnum():
        raise VersionError(
            f"a bundled program of the schema {identifier.decode()}; "
            f"etscope reads {IDENTIFIER.decode()}",
            offset=4,
        )
    raise FormatError(f"not a {KIND} (.bpte): {describe(buffer)}")


def _read_suite(buffer: FlatBuffer, table: Table) -> Suite:
    return Suite(
        method=table.string(0) or "",
        cases=tuple(
            Case(
                inputs=tuple(_read_value(buffer, value) for value in case.tables(0)),
                expected_outputs=tuple(_read_value(buffer, value) for value in case.tables(1)),
            )
            for case in table.tables(1)
        ),
    )


def _read_value(buffer: FlatBuffer, table: Table) -> CaseValue:
    # Members of the schema's union ValueUnion, by number.
    match table.union(0):
        case (1, Table() as tensor):
            return _read_tensor(buffer, tensor)
        case (2, Table() as number):
            return number.integer(0, INT64)
        case (3, Table() as flag):
            return flag.flag(0)
        case (4, Table() as number):
            return number.double(0)
        case (kind, _):
            raise FormatError(f"unknown kind of value {kind}", offset=table.position)


def _read_tensor(buffer: FlatBuffer, table: Table) -> npt.NDArray[Any]:
    sizes: tuple[int, ...] = table.numbers(1, "i")
    if sizes and min(sizes) < 0:
        raise FormatError(f"a tensor of size {list(sizes)}", offset=table.position)
    dim_order: tuple[int, ...] = table.numbers(3, "B")
    data = table.blob(2)
    return dense_view(
        buffer.view[data.offset : data.offset + data.size],
        scalar_type(table.integer(0, INT8), offset=table.position),
        sizes,
        checked_dim_order(dim_order, len(sizes), offset=table.position),
    )
