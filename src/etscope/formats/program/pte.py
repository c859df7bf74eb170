"""ExecuTorch programs (.pte): methods, instructions, memory plan, weights and delegates' data.

A file is a FlatBuffer with the identifier "ET12". When it has segments (weights, delegates' data),
an extended header stands behind the identifier and the segments behind the tables; older files
have all of it inside the tables. The format is that of ExecuTorch's `schema/program.fbs` and
`schema/extended_header.cpp`, versions 1.0 to 1.5.

The file is mapped, and weights, delegates' data and stack traces are read when asked for, so
opening takes time by the number of instructions and values and not by the size of the weights.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, MissingDataError, UsageError, VersionError, reading
from etscope.formats.bytes.flatbuffer import UINT32, UINT64, FlatBuffer, Span, Table
from etscope.formats.bytes.source import BytesLike, PathLike, Source, open_source
from etscope.formats.identify import describe
from etscope.formats.program.dense_tensor import dense_view
from etscope.formats.program.pte_reader import read_method, read_traces
from etscope.formats.program.pte_schema import (
    ExtendedHeader,
    Frame,
    Method,
    NamedData,
    TensorValue,
)

KIND = "ExecuTorch program"
IDENTIFIER = b"ET12"

_HEADER = struct.Struct("<4sIQQQ")  # magic, length, program size, segment base, segment data size
_HEADER_AT = 8
_HEADER_MAGIC = b"eh00"
_HEADER_WITHOUT_DATA_SIZE = 24

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Subsegments:
    """Tensors inside of a segment: `offsets[i]` is where tensor i begins, from the first byte of
    `blob`. Number 0 is a placeholder."""

    blob: Span
    offsets: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """An ExecuTorch program.

    `segments` are the pieces of the file that stand behind the tables, as spans of the file.
    Constant tensors are in `constants`, or in `inline_constants` in older files. `header` is None
    for a file without segments.
    """

    version: int
    methods: tuple[Method, ...]
    segments: tuple[Span, ...]
    named_data: tuple[NamedData, ...]
    header: ExtendedHeader | None
    constants: Subsegments | None
    mutable_data: tuple[Subsegments, ...]
    inline_constants: tuple[Span, ...]
    source: Source

    def method(self, name: str) -> Method:
        """The method of that name, or `MissingDataError`."""
        for method in self.methods:
            if method.name == name:
                return method
        raise MissingDataError(
            f"{self.source.name} has no method {name!r}",
            hint="methods are: " + ", ".join(method.name for method in self.methods),
        )

    def constant_span(self, tensor: TensorValue) -> Span:
        """Where the content or initial state of `tensor` is in the file.

        Raises `MissingDataError` when it is not in this file: an activation, an input, or a weight
        that was stored beside the program. Raises `FormatError` when it lies outside of its place.
        """
        if tensor.external:
            raise MissingDataError(
                f"the data of {tensor.name!r} is not in {self.source.name} but in a .ptd file"
            )
        if not tensor.has_data:
            raise MissingDataError("this tensor gets its data when the program runs")
        size = tensor.nbytes or 0
        with reading(KIND, self.source.path):
            place, within = self._place(tensor)
            if within + size > place.size:
                raise FormatError(
                    f"tensor {tensor} needs {size:,} bytes where its place of {place.size:,} bytes "
                    f"has {max(place.size - within, 0):,}",
                    offset=place.offset,
                )
        return Span(place.offset + within, size)

    def constant(self, method: str, value: int) -> npt.NDArray[Any]:
        """The content (or, for a mutable tensor, the initial state) of a tensor of `method`.

        A read-only view of the file in the tensor's shape and order of dimensions. Types without
        a numpy type are those of ml_dtypes; packed types (quint4x2) are their bytes, flat. Raises
        as `constant_span` does, and `UsageError` when `value` is not a tensor.
        """
        values = self.method(method).values
        tensor = values[value] if 0 <= value < len(values) else None
        if not isinstance(tensor, TensorValue):
            raise UsageError(f"value {value} of method {method!r} is not a tensor")
        data = self.blob(self.constant_span(tensor))
        with reading(KIND, self.source.path):
            return dense_view(data, tensor.scalar_type, tensor.sizes, tensor.dim_order)

    def delegate_blob(self, method: str, delegate: int) -> memoryview:
        """The data that the backend of delegate number `delegate` of `method` is given."""
        delegates = self.method(method).delegates
        if not 0 <= delegate < len(delegates):
            raise UsageError(f"method {method!r} has {len(delegates)} delegates, not {delegate}")
        return self.blob(delegates[delegate].blob)

    def named_blob(self, key: str) -> memoryview:
        """The data stored under `key`, or `MissingDataError`."""
        for entry in self.named_data:
            if entry.key == key:
                return self.blob(entry.blob)
        raise MissingDataError(f"{self.source.name} has no data named {key!r}")

    def stack_traces(self, method: str) -> tuple[tuple[Frame, ...], ...]:
        """The stack traces stored with a method's instructions, each with the outermost call
        first; empty without.

        Programs have them when they were emitted with `emit_stacktrace=True`.
        """
        chains = self.method(method).chains
        with reading(KIND, self.source.path):
            return read_traces(
                FlatBuffer(self.source.buffer), chains[0].traces_at if chains else ()
            )

    def blob(self, span: Span) -> memoryview:
        """The bytes of a span of this file, without a copy."""
        return self.source.buffer[span.offset : span.offset + span.size]

    def _place(self, tensor: TensorValue) -> tuple[Span, int]:
        """The piece of the file that holds the tensor, and how far into it the tensor begins."""
        if not tensor.is_constant:
            table = _entry(self.mutable_data, tensor.mutable_segment, "mutable data segment")
        elif self.constants is not None:
            table = self.constants
        else:
            return _entry(self.inline_constants, tensor.data_index, "constant"), 0
        if tensor.data_index >= len(table.offsets):
            raise FormatError(
                f"there is no tensor data {tensor.data_index}: there are {len(table.offsets):,}",
                offset=table.blob.offset,
            )
        return table.blob, int(table.offsets[tensor.data_index])


def read_pte(data_or_path: BytesLike | PathLike) -> Program:
    """Open a program: a path, or the bytes of one.

    Raises `FormatError` (`VersionError` for another version of the schema) for what is not a
    program or is damaged, `MissingFileError` for a path that is not there.
    """
    return read_program(open_source(data_or_path, KIND))


def read_program(source: Source, *, member: str | None = None) -> Program:
    """The program in `source`, all of it; `member` names the part of the file that it is."""
    with reading(KIND, source.path, member=member):
        header, size = _read_header(source)
        buffer = FlatBuffer(source.buffer[:size])
        return _read_root(buffer.root(), header, source)


def program_fingerprint(data_or_path: BytesLike | PathLike) -> str:
    """The SHA-256 of all bytes of a program, in hex.

    Equal for two files if and only if they are the same, weights included. Programs hold no
    identifier of their own, so a record that carries this can be matched with its program. Also of
    the program inside of a bundle: `program_fingerprint(bundle.program_bytes)`.
    """
    return hashlib.sha256(open_source(data_or_path, KIND).buffer).hexdigest()


def _read_header(source: Source) -> tuple[ExtendedHeader | None, int]:
    """The extended header, if there is one, and the size of what the tables may use."""
    buffer = source.buffer
    magic = bytes(buffer[4:8])
    if magic != IDENTIFIER:
        if magic[:2] == b"ET" and magic[2:].isalnum():
            raise VersionError(
                f"a program of the schema {magic.decode()}; etscope reads {IDENTIFIER.decode()}",
                offset=4,
            )
        raise FormatError(f"not an {KIND} (.pte): {describe(buffer)}")
    if bytes(buffer[_HEADER_AT : _HEADER_AT + 4]) != _HEADER_MAGIC:
        return None, source.size
    padded = bytes(buffer[_HEADER_AT : _HEADER_AT + _HEADER.size]).ljust(_HEADER.size, b"\0")
    _, length, program_size, segment_base, data_size = _HEADER.unpack(padded)
    if length < _HEADER_WITHOUT_DATA_SIZE:
        raise FormatError(f"an extended header of {length} bytes is too short", offset=_HEADER_AT)
    if length < _HEADER.size:
        data_size = 0
    for end, what in ((program_size, "its tables"), (segment_base + data_size, "its segments")):
        if end > source.size:
            raise FormatError(
                f"{what} end at byte {end:,} and the file has {source.size:,} bytes",
                offset=_HEADER_AT,
                hint="the file is cut off; copy or export it again",
            )
    return ExtendedHeader(length, program_size, segment_base, data_size), program_size


def _read_root(root: Table, header: ExtendedHeader | None, source: Source) -> Program:
    segments = _read_segments(root, header, source.size)
    inline_delegates = tuple(entry.blob(0) for entry in root.tables(3))
    constants = root.table(5)
    # Files of before 1.0 may have the table and keep the data inline.
    segmented = constants is not None and len(constants.array(1, "u8")) > 0
    methods = tuple(read_method(plan, inline_delegates, segments) for plan in root.tables(1))
    if not methods:
        raise FormatError("a program without methods", offset=root.position)
    return Program(
        version=root.integer(0, UINT32),
        methods=methods,
        segments=segments,
        named_data=tuple(
            NamedData(
                key=entry.string(0) or "",
                blob=_entry(segments, entry.integer(1, UINT32), "segment"),
            )
            for entry in root.tables(7)
        ),
        header=header,
        constants=_read_subsegments(constants, segments) if constants and segmented else None,
        mutable_data=tuple(_read_subsegments(one, segments) for one in root.tables(6)),
        inline_constants=tuple(entry.blob(0) for entry in root.tables(2)),
        source=source,
    )


def _read_segments(root: Table, header: ExtendedHeader | None, file_size: int) -> tuple[Span, ...]:
    base = header.segment_base_offset if header else 0
    segments = []
    for number, table in enumerate(root.tables(4)):
        span = Span(base + table.integer(0, UINT64), table.integer(1, UINT64))
        # Writers leave the header out when all segments are empty.
        if header is None and span.size:
            raise FormatError(
                f"segment {number} has data, and no extended header says where",
                offset=table.position,
            )
        if span.offset + span.size > file_size:
            raise FormatError(
                f"segment {number} is bytes {span.offset:,} to {span.offset + span.size:,} of a "
                f"file of {file_size:,}",
                offset=table.position,
                hint="the file may be cut off",
            )
        segments.append(span)
    return tuple(segments)


def _read_subsegments(table: Table, segments: tuple[Span, ...]) -> Subsegments:
    return Subsegments(_entry(segments, table.integer(0, UINT32), "segment"), table.array(1, "u8"))


def _entry(entries: Sequence[_Entry], index: int, what: str) -> _Entry:
    if index >= len(entries):
        raise FormatError(f"there is no {what} {index}: the file has {len(entries):,}")
    return entries[index]
