"""Bundled programs (.bpte): a program with test inputs and expected outputs.

A file is a FlatBuffer with the identifier "BP08" that holds test cases for each method and the
bytes of the program. The schema is `bundled_program_schema.fbs` (ExecuTorch 1.0 to 1.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from etscope.errors import BundleError, FormatError, MissingDataError, reading
from etscope.formats.bytes.files import BytesLike, PathLike, Source, open_source
from etscope.formats.bytes.flatbuffer import INT8, INT64, UINT32, FlatBuffer, FlatTable, Span
from etscope.formats.identify import check_identifier, describe
from etscope.formats.program import pte
from etscope.formats.program.scalar_type import (
    ScalarType,
    checked_dim_order,
    dense_view,
    scalar_type,
    stored_tensor,
)
from etscope.support.shown import Shown

__all__ = ["read_bundled", "read_program_file"]

KIND = "bundled program"
IDENTIFIER = b"BP08"
SCHEMA_VERSION = 2  # in the files that are written
MAX_BYTES = (1 << 31) - 1  # readers of FlatBuffers accept no more

# `force_align` of the schema.
_PROGRAM_ALIGNMENT = 32
_TENSOR_ALIGNMENT = 16
_TENSOR, _INT, _BOOL, _DOUBLE = 1, 2, 3, 4  # members of the schema's union ValueUnion
_INT64 = range(-(1 << 63), 1 << 63)
_SIZES = range(1 << 31)


# --------------------------------------------------------------------------------------------
# The content in the file's form. Classes and attributes have ExecuTorch's names
# (`bundled_program_schema.fbs`), so code for either one works with both.


@dataclass(slots=True)
class Tensor:
    """A tensor. `data` holds its elements densely in memory order; `dim_order` names the
    dimensions from the outermost in memory to the innermost."""

    scalar_type: ScalarType
    sizes: list[int]
    data: BytesLike
    dim_order: list[int]


@dataclass(slots=True)
class Int:
    int_val: int


@dataclass(slots=True)
class Bool:
    bool_val: bool


@dataclass(slots=True)
class Double:
    double_val: float


ValueUnion: TypeAlias = Tensor | Int | Double | Bool


@dataclass(slots=True)
class Value:
    """An input or an output."""

    val: ValueUnion


@dataclass(slots=True)
class BundledMethodTestCase:
    """Flat inputs of a method, and the expected outputs; [] when none were recorded."""

    inputs: list[Value]
    expected_outputs: list[Value]


@dataclass(slots=True)
class BundledMethodTestSuite:
    """The cases of one method of the program."""

    method_name: str
    test_cases: list[BundledMethodTestCase]


@dataclass(slots=True)
class BundledProgram:
    """A program (the bytes of a .pte file) and its test cases."""

    version: int
    method_test_suites: list[BundledMethodTestSuite]
    program: BytesLike


# --------------------------------------------------------------------------------------------
# The content as etscope uses it: tensors are arrays.

CaseValue = npt.NDArray[Any] | int | bool | float


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Flat inputs of a method, and the expected outputs (none when none were recorded).

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
class BundledFile(Shown):
    """A bundled program. `program_span` locates the program's bytes in the file."""

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
            f"{self.source.name} does not have cases for method {method!r}",
            hint="methods with cases are: " + ", ".join(suite.method for suite in self.suites),
        )

    @property
    def program_bytes(self) -> memoryview:
        """The bytes of the program, the same as in a .pte file, without a copy."""
        span = self.program_span
        return self.source.buffer[span.offset : span.offset + span.size]

    def program(self) -> pte.Program:
        """The program. Offsets in its errors count from its own first byte."""
        if not self.program_span.size:
            raise MissingDataError(f"{self.source.name} does not contain a program")
        return pte.read_program(Source(self.program_bytes, self.source.path), member="program")


def read_program_file(
    data_or_path: BytesLike | PathLike,
) -> tuple[pte.Program, BundledFile | None]:
    """Return the program of a .pte or .bpte file, and the bundle for a .bpte file.

    Raises the errors of `read_pte`, also for a file of another format.
    """
    if bytes(open_source(data_or_path, pte.KIND).buffer[4:8]) == IDENTIFIER:
        bundle = read_bundled(data_or_path)
        return bundle.program(), bundle
    return pte.read_pte(data_or_path), None


def read_bundled(data_or_path: BytesLike | PathLike) -> BundledFile:
    """Open a bundled program: a path, or its bytes.

    Raises `FormatError` (`VersionError` for another version of the schema) for a damaged file and
    for another format, `MissingFileError` for a missing file. `BundledFile.program` parses the
    program inside it.
    """
    source = open_source(data_or_path, KIND)
    with reading(KIND, source.path):
        root = _root(source)
        return BundledFile(
            version=root.integer(0, UINT32),
            suites=tuple(
                Suite(
                    method=stored.method_name,
                    cases=tuple(
                        Case(
                            inputs=tuple(map(_case_value, case.inputs)),
                            expected_outputs=tuple(map(_case_value, case.expected_outputs)),
                        )
                        for case in stored.test_cases
                    ),
                )
                for stored in _read_suites(source, root)
            ),
            program_span=root.blob(2),
            source=source,
        )


def read_bundled_schema(data_or_path: BytesLike | PathLike) -> BundledProgram:
    """Read a bundled program in the file's form: dtypes and orders of dimensions as numbers, bytes
    as views of the file. Raises the errors of `read_bundled`."""
    source = open_source(data_or_path, KIND)
    with reading(KIND, source.path):
        root = _root(source)
        program = root.blob(2)
        return BundledProgram(
            version=root.integer(0, UINT32),
            method_test_suites=_read_suites(source, root),
            program=source.buffer[program.offset : program.offset + program.size],
        )


def _root(source: Source) -> FlatTable:
    check_identifier(source.buffer, IDENTIFIER, KIND, f"a {KIND} (.bpte)")
    return FlatBuffer(source.buffer).root()


def _case_value(value: Value) -> CaseValue:
    match value.val:
        case Tensor(kind, sizes, data, dim_order):
            return dense_view(memoryview(data), kind, sizes, dim_order)
        case Int(number):
            return number
        case Bool(flag):
            return flag
        case Double(real):
            return real


def _read_suites(source: Source, root: FlatTable) -> list[BundledMethodTestSuite]:
    return [
        BundledMethodTestSuite(
            method_name=suite.string(0) or "",
            test_cases=[
                BundledMethodTestCase(
                    inputs=[_read_value(source, value) for value in case.tables(0)],
                    expected_outputs=[_read_value(source, value) for value in case.tables(1)],
                )
                for case in suite.tables(1)
            ],
        )
        for suite in root.tables(1)
    ]


def _read_value(source: Source, table: FlatTable) -> Value:
    number, member = table.union(0)
    if member is None or number not in (_TENSOR, _INT, _BOOL, _DOUBLE):
        raise FormatError(f"unknown kind of value {number}", offset=table.position)
    if number == _INT:
        return Value(Int(member.integer(0, INT64)))
    if number == _BOOL:
        return Value(Bool(member.flag(0)))
    if number == _DOUBLE:
        return Value(Double(member.double(0)))
    sizes: tuple[int, ...] = member.numbers(1, "i")
    if sizes and min(sizes) < 0:
        raise FormatError(f"a tensor has the negative size {list(sizes)}", offset=member.position)
    dim_order: tuple[int, ...] = member.numbers(3, "B")
    data = member.blob(2)
    return Value(
        Tensor(
            scalar_type=scalar_type(member.integer(0, INT8), offset=member.position),
            sizes=list(sizes),
            data=source.buffer[data.offset : data.offset + data.size],
            dim_order=list(checked_dim_order(dim_order, len(sizes), offset=member.position)),
        )
    )


# --------------------------------------------------------------------------------------------
# Writing. A FlatBuffer is built from its end, and the program comes last in the file. So the tables
# are built up to the length of the program, and its bytes follow without a copy.


def write_bundled(program: BytesLike, suites: Iterable[Suite]) -> bytes:
    """Return the bytes of a bundled program, made of a .pte file's bytes and cases for its methods.

    Suites are sorted by their methods' names. Tensors are arrays (types of ml_dtypes where numpy
    has none) and keep the order of dimensions that they have in memory.

    Raises `BundleError` for values that the format cannot hold. Does not check the cases against
    the program's inputs; `etscope.bundled_program.BundledProgram` does.
    """
    return b"".join(bundled_parts(stored_suites(suites), program))


def stored_suites(suites: Iterable[Suite]) -> list[BundledMethodTestSuite]:
    """Return the suites in the file's form, sorted by their methods' names."""
    return [
        BundledMethodTestSuite(
            method_name=suite.method,
            test_cases=[
                BundledMethodTestCase(
                    inputs=[stored_value(value) for value in case.inputs],
                    expected_outputs=[stored_value(value) for value in case.expected_outputs],
                )
                for case in suite.cases
            ],
        )
        for suite in sorted(suites, key=lambda suite: suite.method)
    ]


def stored_value(value: Any) -> Value:
    """Convert an array, a torch tensor or a number to the form of the file."""
    if isinstance(value, (bool, np.bool_)):
        return Value(Bool(bool(value)))
    if isinstance(value, (int, np.integer)):
        return Value(Int(int(value)))
    if isinstance(value, (float, np.floating)):
        return Value(Double(float(value)))
    if not hasattr(value, "__array__"):
        raise BundleError(
            f"a bundled program cannot contain a value of type {type(value).__name__}",
            hint="cases contain tensors, ints, floats and bools",
        )
    kind, sizes, dim_order, data = stored_tensor(value)
    return Value(Tensor(kind, list(sizes), data, list(dim_order)))


def bundled_parts(
    suites: Sequence[BundledMethodTestSuite],
    program: BytesLike,
    version: int = SCHEMA_VERSION,
) -> tuple[memoryview, memoryview]:
    """Return the file in two parts: the tables, then the program itself.

    Raises `BundleError` for bytes that are not a program, for values that the format cannot hold
    and for a file of more than 2 GiB.
    """
    import flatbuffers

    program = memoryview(program).cast("B")
    if bytes(program[4:8]) != pte.IDENTIFIER:
        found = describe(program) if len(program) else "it is empty"
        raise BundleError(f"not an {pte.KIND} (.pte): {found}")
    size = len(program)
    for suite in suites:
        for case in suite.test_cases:
            for value in (*case.inputs, *case.expected_outputs):
                size += 64
                if isinstance(value.val, Tensor):
                    size += len(value.val.data) + 128
    if size > MAX_BYTES:
        raise BundleError(
            f"the bundled program would have {size:,} bytes; the format is limited to 2 GiB",
            hint="bundle fewer cases, or export the weights to a separate file (.ptd)",
        )
    builder = flatbuffers.Builder(1024 + size - len(program))
    # Align what is built so far: its size becomes a multiple of this.
    builder.Prep(_PROGRAM_ALIGNMENT, 0)
    builder.PrependUint32(len(program))
    program_at = builder.Offset()
    suites_at = _write_vector(builder, suites, _write_suite)
    builder.StartObject(3)
    builder.PrependUint32Slot(0, version, 0)
    builder.PrependUOffsetTRelativeSlot(1, suites_at, 0)
    builder.PrependUOffsetTRelativeSlot(2, program_at, 0)
    builder.Finish(builder.EndObject(), file_identifier=IDENTIFIER)
    return memoryview(builder.Bytes)[builder.Head() :], program


def _write_suite(builder: Any, suite: BundledMethodTestSuite) -> int:
    try:
        name = builder.CreateString(suite.method_name.encode())
    except (AttributeError, UnicodeEncodeError):
        raise BundleError(f"{suite.method_name!r} is not a method's name") from None
    cases = _write_vector(builder, suite.test_cases, _write_case)
    return _write_references(builder, name, cases)


def _write_case(builder: Any, case: BundledMethodTestCase) -> int:
    inputs = _write_vector(builder, case.inputs, _write_value)
    outputs = _write_vector(builder, case.expected_outputs, _write_value)
    return _write_references(builder, inputs, outputs)


def _write_vector(builder: Any, items: Sequence[Any], write: Callable[[Any, Any], int]) -> int:
    """Write each item with `write`, then the vector of references to them."""
    offsets = [write(builder, item) for item in items]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _write_references(builder: Any, *references: int) -> int:
    """Write a table with `references` as its fields."""
    builder.StartObject(len(references))
    for slot, reference in enumerate(references):
        builder.PrependUOffsetTRelativeSlot(slot, reference, 0)
    return int(builder.EndObject())


def _write_value(builder: Any, value: Value) -> int:
    match value.val:
        case Tensor() as tensor:
            number, member = _TENSOR, _write_tensor(builder, tensor)
        case Int(whole):
            if whole not in _INT64:
                raise BundleError(f"{whole} does not fit in 64 bits")
            builder.StartObject(1)
            builder.PrependInt64Slot(0, whole, 0)
            number, member = _INT, builder.EndObject()
        case Bool(flag):
            builder.StartObject(1)
            builder.PrependBoolSlot(0, flag, False)
            number, member = _BOOL, builder.EndObject()
        case Double(real):
            builder.StartObject(1)
            builder.PrependFloat64Slot(0, real, 0.0)
            number, member = _DOUBLE, builder.EndObject()
    builder.StartObject(2)
    builder.PrependUint8Slot(0, number, 0)
    builder.PrependUOffsetTRelativeSlot(1, member, 0)
    return int(builder.EndObject())


def _write_tensor(builder: Any, tensor: Tensor) -> int:
    data = np.frombuffer(tensor.data, np.uint8)
    if sorted(tensor.dim_order) != list(range(len(tensor.sizes))):
        raise BundleError(f"{tensor.dim_order} is not an order of {len(tensor.sizes)} dimensions")
    if any(size not in _SIZES for size in tensor.sizes):
        raise BundleError(f"a tensor cannot have the size {tensor.sizes}")
    size = ScalarType(tensor.scalar_type).nbytes(math.prod(tensor.sizes))
    if size != len(data):
        raise BundleError(
            f"a tensor of size {tensor.sizes} needs {size:,} bytes of data and has {len(data):,}"
        )
    sizes = builder.CreateNumpyVector(np.array(tensor.sizes, "<i4"))
    order = builder.CreateNumpyVector(np.array(tensor.dim_order, np.uint8))
    builder.Prep(_TENSOR_ALIGNMENT, len(data))
    content = builder.CreateNumpyVector(data)
    builder.StartObject(4)
    builder.PrependInt8Slot(0, tensor.scalar_type, 0)
    builder.PrependUOffsetTRelativeSlot(1, sizes, 0)
    builder.PrependUOffsetTRelativeSlot(2, content, 0)
    builder.PrependUOffsetTRelativeSlot(3, order, 0)
    return int(builder.EndObject())
