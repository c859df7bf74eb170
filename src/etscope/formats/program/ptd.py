"""External tensors of a program (.ptd): named data that a program finds by its keys.

A file is a FlatBuffer with the identifier "FT01" that lists keys, an extended header ("FH01") that
locates it, and the data behind it. The format is in ExecuTorch's `flat_tensor.fbs` and
`docs/source/ptd-file-format.md`; ExecuTorch 0.5 and 0.6 list tensors in another way.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import (
    FormatError,
    MismatchError,
    MissingDataError,
    UsageError,
    reading,
)
from etscope.formats.bytes.files import BytesLike, PathLike, Source, atomic_write, open_source
from etscope.formats.bytes.flatbuffer import INT8, UINT32, UINT64, FlatBuffer, FlatTable, Span
from etscope.formats.identify import check_ends, check_identifier
from etscope.formats.program.delegate_data import delegate_parts
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import TensorValue
from etscope.formats.program.scalar_type import (
    ScalarType,
    checked_dim_order,
    dense_view,
    scalar_type,
    stored_tensor,
)
from etscope.formats.program.xnnpack import known_operators
from etscope.support.shown import Shown

__all__ = ["read_ptd", "write_ptd"]

KIND = "PTD file"
IDENTIFIER = b"FT01"

_HEADER = struct.Struct("<4sIQQQQ")  # magic, length, tables' offset and size, data's offset, size
_HEADER_AT = 8  # after the root's offset and the identifier
_HEADER_MAGIC = b"FH01"
_TABLES_AT = _HEADER_AT + _HEADER.size  # in files that are written
_ALIGNMENT = 128  # of segments that are written, as upstream's
_MAX_RANK = 32  # numpy's; the runtime has 16


@dataclass(frozen=True, slots=True)
class ExternalEntry:
    """The data of a key. A tensor has an element type, sizes and an order of dimensions; data that
    only a backend understands does not."""

    key: str
    blob: Span
    scalar_type: ScalarType | None = None
    sizes: tuple[int, ...] = ()
    dim_order: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Type and shape, "float32[2, 3]"; "" for data other than a tensor."""
        if self.scalar_type is None:
            return ""
        return f"{self.scalar_type.torch_name}[{', '.join(map(str, self.sizes))}]"


@dataclass(frozen=True, slots=True, eq=False)
class ExternalData(Shown):
    """A .ptd file. `entries` are by key, in the order of the file; several may share one span.
    `tables`: the bytes before the data."""

    version: int
    entries: Mapping[str, ExternalEntry]
    tables: Span
    source: Source

    def blob(self, key: str) -> memoryview:
        """The bytes of a key, without a copy. Raises `MissingDataError` for an unknown key."""
        span = self._entry(key).blob
        return self.source.buffer[span.offset : span.offset + span.size]

    def tensor(self, key: str) -> npt.NDArray[Any]:
        """The tensor of a key: a read-only view of the file in the tensor's shape and order of
        dimensions. Raises `MissingDataError` for an unknown key, and for data other than a tensor.
        """
        entry = self._entry(key)
        if entry.scalar_type is None:
            raise MissingDataError(
                f"the data of {key!r} is not a tensor: only its backend understands it"
            )
        with reading(KIND, self.source.path):
            return dense_view(self.blob(key), entry.scalar_type, entry.sizes, entry.dim_order)

    def _entry(self, key: str) -> ExternalEntry:
        found = self.entries.get(key)
        if found is None:
            raise MissingDataError(f"{self.source.name} does not have data for the key {key!r}")
        return found


def read_ptd(data_or_path: BytesLike | PathLike) -> ExternalData:
    """Open a .ptd file: a path, or its bytes.

    Raises `FormatError` (`VersionError` for another version of the schema) for a damaged file and
    for another format, `MissingFileError` for a missing file.
    """
    source = open_source(data_or_path, KIND)
    with reading(KIND, source.path):
        tables_end, base, data_end = _read_header(source)
        root = FlatBuffer(source.buffer[:tables_end]).root()
        # Before 0.7, a list of tensors stands between the alignment and the segments.
        is_old = root.has(3)
        segments = []
        for number, table in enumerate(root.tables(3 if is_old else 1)):
            span = Span(base + table.integer(0, UINT64), table.integer(1, UINT64))
            if span.offset + span.size > data_end:
                raise FormatError(
                    f"segment {number} is bytes {span.offset:,} to {span.offset + span.size:,}, "
                    f"but the data ends at byte {data_end:,}",
                    offset=table.position,
                    hint="the file may be cut off",
                )
            segments.append(span)
        filled = sorted((span for span in segments if span.size), key=lambda span: span.offset)
        for before, after in pairwise(filled):
            if before.offset + before.size > after.offset:
                raise FormatError("two of its segments overlap", offset=after.offset)
        entries: dict[str, ExternalEntry] = {}
        for entry in _read_entries(root, segments, is_old):
            if entry.key in entries:
                raise FormatError(f"duplicate key {entry.key!r}")
            entries[entry.key] = entry
        return ExternalData(root.integer(0, UINT32), entries, Span(0, tables_end), source)


def _read_header(source: Source) -> tuple[int, int, int]:
    """Return where the tables end, and where the data begins and ends."""
    buffer = source.buffer
    check_identifier(buffer, IDENTIFIER, ".ptd", f"a {KIND}")
    head = bytes(buffer[_HEADER_AT:_TABLES_AT])
    if len(head) < _HEADER.size:
        raise FormatError("its header is cut off", offset=_HEADER_AT)
    magic, length, tables, tables_size, base, data_size = _HEADER.unpack(head)
    if magic != _HEADER_MAGIC or length < _HEADER.size:
        raise FormatError("it does not have an extended header (FH01)", offset=_HEADER_AT)
    check_ends(source.size, _HEADER_AT, tables=tables + tables_size, data=base + data_size)
    return tables + tables_size, base, base + data_size


def _read_entries(root: FlatTable, segments: list[Span], is_old: bool) -> Iterator[ExternalEntry]:
    for table in root.tables(4 if is_old else 2):
        key, layout = table.string(0) or "", table.table(2)
        blob = _segment(table, table.integer(1, UINT32), segments)
        yield ExternalEntry(key, blob) if layout is None else _tensor(key, blob, layout, 0)
    # ExecuTorch 0.5 and 0.6 also list tensors, each at an offset of a segment.
    for table in root.tables(2) if is_old else ():
        segment = _segment(table, table.integer(4, UINT32), segments)
        start = table.integer(5, UINT64)
        if start > segment.size:
            raise FormatError(
                f"an entry begins at byte {start:,} of a segment of {segment.size:,} bytes",
                offset=table.position,
            )
        blob = Span(segment.offset + start, segment.size - start)
        yield _tensor(table.string(0) or "", blob, table, 1)


def _segment(table: FlatTable, index: int, segments: list[Span]) -> Span:
    if index >= len(segments):
        raise FormatError(
            f"an entry is in segment {index}, but there are {len(segments):,} segments",
            offset=table.position,
        )
    return segments[index]


def _tensor(key: str, blob: Span, layout: FlatTable, slot: int) -> ExternalEntry:
    """Read the entry of the tensor at the start of `blob`. The layout has its type in `slot`, and
    its sizes and order of dimensions in the next two."""
    sizes: tuple[int, ...] = layout.numbers(slot + 1, "i")
    if len(sizes) > _MAX_RANK or (sizes and min(sizes) < 0):
        raise FormatError(
            f"tensor {key!r} has the sizes {list(sizes[:_MAX_RANK])}", offset=layout.position
        )
    kind = scalar_type(layout.integer(slot, INT8), offset=layout.position)
    needed = kind.nbytes(math.prod(sizes))
    if needed > blob.size:
        raise FormatError(
            f"tensor {key!r} needs {needed:,} bytes, but its segment has {blob.size:,}",
            offset=layout.position,
        )
    order = checked_dim_order(layout.numbers(slot + 2, "B"), len(sizes), offset=layout.position)
    return ExternalEntry(key, Span(blob.offset, needed), kind, sizes, order)


def external_keys(program: Program) -> Mapping[str, str]:
    """Return the keys that a program needs from a .ptd file, each with its first reader (see
    `external_readers`)."""
    return {key: readers[0] for key, readers in external_readers(program).items()}


def external_readers(program: Program) -> Mapping[str, tuple[str, ...]]:
    """Return the keys that a program needs from a .ptd file, each with all its readers: methods
    with a tensor ("forward"), and delegates ("XnnpackBackend, delegate 0 of forward").

    Finds the keys of XNNPACK and Vulkan; the data of other backends is opaque.
    """
    named = {entry.key for entry in program.named_data}
    found: dict[str, dict[str, None]] = {}
    for method in program.methods:
        for value in method.values:
            if isinstance(value, TensorValue) and value.external:
                found.setdefault(value.name or "", {})[method.name] = None
        for number, delegate in enumerate(method.delegates):
            asks = f"{delegate.backend_id}, delegate {number} of {method.name}"
            blob = program.blob(delegate.blob)
            values = [value for node in known_operators(blob) for value in node.inputs]
            keys = [constant.key for value in values for constant in value.constants]
            keys += [part.key for part in delegate_parts(delegate.backend_id, blob)]
            for key in keys:
                if key is not None and key not in named:
                    found.setdefault(key, {})[asks] = None
    return {key: tuple(readers) for key, readers in found.items()}


def match_external(
    programs: Sequence[Program], files: Sequence[ExternalData]
) -> list[tuple[ExternalData, ...]]:
    """Return the .ptd files of each program: the files with any of its keys. If there is one file
    for each program with keys, and each has all keys of its program, pair them in order.

    Raises `MismatchError` for a file that no program needs, and for a program with keys that the
    files lack; `UsageError` if two files have the same key of a program.
    """
    asked = [external_keys(program).keys() for program in programs]
    for data in files:
        if not any(data.entries.keys() & keys for keys in asked):
            names = " or ".join(program.source.name for program in programs)
            raise MismatchError(
                f"{data.source.name} is not the .ptd of {names}: none of its "
                f"{len(data.entries):,} keys is needed",
                hint="take the .ptd of the same export, or leave the file out",
            )
    asking = [number for number, keys in enumerate(asked) if keys]
    found = [tuple(data for data in files if data.entries.keys() & keys) for keys in asked]
    if len(files) == len(asking) > 1:
        in_order = dict(zip(asking, files, strict=True))
        if all(asked[number] <= data.entries.keys() for number, data in in_order.items()):
            found = [(in_order[n],) if n in in_order else () for n in range(len(programs))]
    for program, keys, chosen in zip(programs, asked, found, strict=True):
        held: dict[str, ExternalData] = {}
        for data in chosen:
            for key in sorted(data.entries.keys() & keys):
                if key in held:
                    raise UsageError(
                        f"{held[key].source.name} and {data.source.name} both have the key {key!r} "
                        f"of {program.source.name}",
                        hint="give each program its own .ptd, in the order of the programs",
                    )
                held[key] = data
        if chosen:
            check_external(program, chosen)
    return found


def check_external(program: Program, files: Sequence[ExternalData]) -> None:
    """Raise unless a program's .ptd files have all keys that it is known to need: `UsageError`
    without a file, `MismatchError` for a missing key, and for a tensor of another type or shape."""
    known = external_keys(program)
    missing = sorted(known.keys() - {key for data in files for key in data.entries})
    if missing:
        more = f" and {len(missing) - 1:,} more keys" if missing[1:] else ""
        asked = f"{missing[0]!r} (needed by {known[missing[0]]}){more}"
        if not files:
            raise UsageError(
                f"this program needs data from a .ptd file: {asked}",
                hint="pass the .ptd file: data=, --data",
            )
        names = " and ".join(data.source.name for data in files)
        said = "are not the .ptd files" if files[1:] else "is not the .ptd"
        held = "they have" if files[1:] else "it has"
        raise MismatchError(
            f"{names} {said} of {program.source.name}: {held} no data for {asked}",
            hint="take the .ptd of the same export",
        )
    for method in program.methods:
        for value in method.values:
            if not isinstance(value, TensorValue) or not value.external:
                continue
            key = value.name or ""
            data = next(one for one in files if key in one.entries)
            entry = data.entries[key]
            if (entry.scalar_type, entry.sizes) != (value.scalar_type, value.sizes):
                wanted = f"{value.scalar_type.torch_name}[{', '.join(map(str, value.sizes))}]"
                raise MismatchError(
                    f"{data.source.name} is not the .ptd of {program.source.name}: {key!r} is "
                    f"{str(entry) or 'no tensor'} in it, and {wanted} in the program",
                    hint="take the .ptd of the same export",
                )


# --------------------------------------------------------------------------------------------
# Writing.


def write_ptd(tensors: Mapping[str, Any], destination: PathLike) -> None:
    """Write a .ptd file with a tensor for each key, in their order.

    tensors: arrays (types of ml_dtypes where numpy has none) or torch tensors, which keep the order
    of dimensions that they have in memory; bytes for data that only a backend understands. Raises
    `UsageError` for a key other than a string, for a type that ExecuTorch does not have, and for a
    path that cannot be written.
    """
    blobs: list[memoryview] = []
    entries: list[ExternalEntry] = []
    end = 0
    for key, value in tensors.items():
        if not isinstance(key, str):
            raise UsageError(f"a key of a .ptd is a string, not {key!r}")
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        if isinstance(value, (bytes, bytearray, memoryview)):
            blobs.append(memoryview(value).cast("B"))
            entries.append(ExternalEntry(key, Span(start, len(blobs[-1]))))
        else:
            kind, sizes, order, data = stored_tensor(value)
            blobs.append(data)
            entries.append(ExternalEntry(key, Span(start, len(data)), kind, sizes, order))
        end = start + len(blobs[-1])
    built = _built_tables(entries)
    # The header moves the tables back: the root's offset grows by the header's size.
    root = int.from_bytes(built[:4], "little") + _HEADER.size
    tables = len(built) - _HEADER_AT
    base = -(-(_TABLES_AT + tables) // _ALIGNMENT) * _ALIGNMENT
    head = _HEADER.pack(_HEADER_MAGIC, _HEADER.size, _TABLES_AT, tables, base, end)
    with atomic_write(destination) as file:
        file.write(struct.pack("<I4s", root, IDENTIFIER) + head + built[_HEADER_AT:])
        for entry, blob in zip(entries, blobs, strict=True):
            file.write(bytes(base + entry.blob.offset - file.tell()))
            file.write(blob)
        # The header locates the data, even if it is empty.
        file.write(bytes(base + end - file.tell()))


def _built_tables(entries: Sequence[ExternalEntry]) -> bytes:
    """Return the FlatBuffer of a file without its extended header; each entry gets a segment."""
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    named, segments = [], []
    for number, entry in enumerate(entries):
        layout = 0
        if entry.scalar_type is not None:
            sizes = builder.CreateNumpyVector(np.array(entry.sizes, "<i4"))
            order = builder.CreateNumpyVector(np.array(entry.dim_order, np.uint8))
            builder.StartObject(3)
            builder.PrependInt8Slot(0, entry.scalar_type, 0)
            builder.PrependUOffsetTRelativeSlot(1, sizes, 0)
            builder.PrependUOffsetTRelativeSlot(2, order, 0)
            layout = builder.EndObject()
        key = builder.CreateString(entry.key)
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(0, key, 0)
        builder.PrependUint32Slot(1, number, 0)
        builder.PrependUOffsetTRelativeSlot(2, layout, 0)
        named.append(builder.EndObject())
        builder.StartObject(2)
        builder.PrependUint64Slot(0, entry.blob.offset, 0)
        builder.PrependUint64Slot(1, entry.blob.size, 0)
        segments.append(builder.EndObject())
    lists = []
    for items in (segments, named):
        builder.StartVector(4, len(items), 4)
        for item in reversed(items):
            builder.PrependUOffsetTRelative(item)
        lists.append(builder.EndVector())
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(1, lists[0], 0)
    builder.PrependUOffsetTRelativeSlot(2, lists[1], 0)
    builder.Finish(builder.EndObject(), file_identifier=IDENTIFIER)
    return bytes(builder.Output())
