"""Read an ETDump, the file of a profiled run, as columns: one row per event, in file order.

The format is a FlatBuffer with identifier "ED00", usually after a uint32 with its size (schema:
`etdump_schema_flatcc.fbs` of ExecuTorch 1.5; unchanged since 0.4). Reading does not build an object
for each event: 200,000 events open in tens of milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, MissingDataError, reading
from etscope.formats.bytes.files import BytesLike, PathLike, Source, open_source
from etscope.formats.bytes.flatbuffer import (
    Extents,
    FlatBufferColumns,
    IntArray,
    TableColumns,
    chunks,
)
from etscope.formats.etdump.debug_values import (
    MAX_DIMENSIONS,
    DebugValue,
    TensorRef,
    ValueType,
    read_value,
)
from etscope.formats.identify import describe
from etscope.formats.program.scalar_type import scalar_type
from etscope.support.shown import Shown

__all__ = ["DebugValue", "ETDump", "EventKind", "TensorRef", "read_etdump"]


class EventKind(IntEnum):
    """The kind of record that an event is."""

    PROFILE = 0
    ALLOCATION = 1
    DEBUG = 2


@dataclass(frozen=True, slots=True, eq=False)
class ETDump(Shown):
    """The content of an ETDump: R runs, E events. Arrays are read-only.

    Columns that end in `name` or `str` are indices into `strings`, the distinct strings in order
    of first appearance; -1 is an absent string, "" an empty one.
    """

    version: int
    strings: tuple[str, ...]

    run_name: npt.NDArray[np.int32]  # [R]
    run_bundled_input_index: npt.NDArray[np.int32]  # [R], -1: not set
    run_first_event: npt.NDArray[np.int64]  # [R + 1]; run r has the rows [r] up to [r + 1]
    run_allocators: tuple[tuple[str, ...], ...]  # [R]; `allocator_id` counts from 1

    run: npt.NDArray[np.int32]  # [E], the index of the event's run
    kind: npt.NDArray[np.uint8]  # [E], an `EventKind`
    name: npt.NDArray[np.int32]  # [E]
    chain_index: npt.NDArray[np.int64]  # [E], -1: outside of any instruction
    instruction_id: npt.NDArray[np.int32]  # [E], -1: not set
    delegate_id_int: npt.NDArray[np.int32]  # [E], -1: not set
    delegate_id_str: npt.NDArray[np.int32]  # [E]
    start: npt.NDArray[np.uint64]  # [E], profile events: in the ticks of the recorder's clock
    end: npt.NDArray[np.uint64]  # [E]
    metadata_offset: npt.NDArray[np.int64]  # [E], byte in the file, -1: no metadata
    metadata_length: npt.NDArray[np.int64]  # [E], bytes, -1: no metadata
    allocator_id: npt.NDArray[np.int32]  # [E], allocation events, else 0
    allocation_size: npt.NDArray[np.uint64]  # [E], bytes
    is_output: npt.NDArray[np.bool_]  # [E], a debug event that holds an output of the program
    debug_value_offset: npt.NDArray[np.int64]  # [E], the Value table in the file, -1: none

    source: Source
    flatbuffer_end: int  # end of the FlatBuffer in the file; what follows is not read

    @property
    def num_runs(self) -> int:
        return len(self.run_name)

    @property
    def num_events(self) -> int:
        return len(self.kind)

    @property
    def size(self) -> int:
        return self.source.size

    @property
    def path(self) -> str | None:
        """The file, None if the dump was read from memory."""
        return self.source.path

    def run_name_of(self, run: int) -> str:
        """Return the name of a run; "" without one."""
        name = self.run_name[run]
        return "" if name < 0 else self.strings[name]

    def metadata(self, event: int) -> bytes:
        """Return the bytes that a delegate attached to an event; b"" if empty or absent."""
        start, length = int(self.metadata_offset[event]), int(self.metadata_length[event])
        return bytes(self.source.buffer[start : start + length]) if length > 0 else b""

    def value(self, event: int) -> DebugValue:
        """The value of a debug event; tensors as references into the debug buffer.

        Raises `MissingDataError` for an event without a value (None is a logged null), and
        `FormatError` if the bytes are not a value.
        """
        position = int(self.debug_value_offset[event])
        if position < 0:
            raise MissingDataError(f"event {event} does not have a debug value")
        with reading("ETDump", self.path):
            return read_value(self.source.buffer[: self.flatbuffer_end], position)


def read_etdump(source: BytesLike | PathLike) -> ETDump:
    """Read a dump from a file, which is mapped, or from bytes.

    Omitted fields have the schema's default. Raises `MissingFileError`, and `FormatError` for a
    file that is not an ETDump or has references that lead out of it.
    """
    opened = open_source(source, "ETDump")
    with reading("ETDump", opened.path):
        try:
            return _read(opened)
        except FormatError as error:
            error.hint = error.hint or _BROKEN
            raise


IDENTIFIER = b"ED00"
_BROKEN = (
    "the file is damaged, or ExecuTorch wrote it broken: up to 1.5 it does so when it logs a "
    "tensor of type half, bfloat16, uint32, uint64, float8 or complex to the debug buffer. "
    "etscope run --debug-level intermediate_outputs records such a program with the native runner"
)
_PREFIX = 4  # bytes of the size before the FlatBuffer
_CUT_PADDING = 16  # a size may count a few bytes of padding that the file lacks
_MIN_EVENT = 16  # bytes: its reference, its table with one field, and the table in that field


def _flatbuffer_bounds(source: Source) -> tuple[int, int]:
    """Start and end of the FlatBuffer: it is the file, or follows a uint32 of its size."""
    head = bytes(source.buffer[: _PREFIX + 8])
    if head[8:12] == IDENTIFIER:
        end = _PREFIX + int.from_bytes(head[:_PREFIX], "little")
        if end > source.size + _CUT_PADDING:
            raise FormatError(
                f"this ETDump is cut off: it should have {end:,} bytes, but has {source.size:,}",
                hint="was the file copied before its writer closed it?",
            )
        return _PREFIX, min(end, source.size)
    if head[4:8] == IDENTIFIER:
        return 0, source.size
    raise FormatError(
        f"not an ETDump: {describe(source.buffer)}",
        hint="etscope run --save DIR writes an ETDump, DIR/run.etdp; etscope info shows the "
        "content of programs, ETRecords and .ptd files",
    )


def _read(source: Source) -> ETDump:
    start, end = _flatbuffer_bounds(source)
    buffer = FlatBufferColumns(source.buffer, start, end)
    root = buffer.tables(buffer.root(), 2)
    runs = buffer.tables(buffer.elements(*buffer.vectors(root.reference(1), 4)), 4)
    event_starts, event_counts = buffer.vectors(runs.reference(3), 4)
    event_counts = np.maximum(event_counts, 0)
    if int(event_counts.sum()) * _MIN_EVENT > end - start:
        raise FormatError("its runs list more events than the file has room for")
    positions = buffer.elements(event_starts, event_counts)
    columns: dict[str, npt.NDArray[Any]] = {}
    for part in chunks(len(positions)):
        for name, values in _event_columns(buffer, buffer.tables(positions[part], 3)).items():
            if name not in columns:
                columns[name] = np.empty(len(positions), values.dtype)
            columns[name][part] = values
    del positions  # as large as a column, and memory peaks where strings are read
    buffer.refuse_overlap(columns["metadata_offset"], columns["metadata_length"], "metadata")

    # Runs share a few lists of allocators: read each distinct one once.
    allocator_lists, list_of_run = np.unique(runs.reference(2), return_inverse=True)
    list_starts, list_lengths = buffer.vectors(allocator_lists, 4)
    allocators = buffer.tables(buffer.elements(list_starts, list_lengths), 1)

    # All strings at once, by position: of runs, events, delegates and allocators.
    event_names, delegate_ids = columns.pop("name"), columns.pop("delegate_id")
    ids, strings = buffer.strings(
        np.concatenate([runs.reference(0), event_names, delegate_ids, allocators.reference(0)])
    )
    run_name, event_name, delegate_id_str, allocator_name = np.split(
        ids, np.cumsum([len(runs), len(event_names), len(delegate_ids)])
    )
    columns |= {
        "run_name": run_name,
        "run_bundled_input_index": runs.scalar(1, "<i4", -1),
        "run_first_event": np.concatenate([np.zeros(1, np.int64), np.cumsum(event_counts)]),
        "run": np.repeat(np.arange(len(runs), dtype=np.int32), event_counts),
        "name": event_name,
        "delegate_id_str": delegate_id_str,
    }
    for column in columns.values():
        column.flags.writeable = False
    names = iter([strings[i] if i >= 0 else "" for i in allocator_name.tolist()])
    named_lists = [tuple(islice(names, max(length, 0))) for length in list_lengths.tolist()]
    return ETDump(
        version=int(root.scalar(0, "<u4")[0]),
        strings=strings,
        run_allocators=tuple(named_lists[i] for i in list_of_run.tolist()),
        source=source,
        flatbuffer_end=end,
        **columns,
    )


def _event_columns(buffer: FlatBufferColumns, events: TableColumns) -> dict[str, npt.NDArray[Any]]:
    """The columns of some events; strings as positions in the file."""
    E = len(events)
    members = [events.reference(slot) for slot in EventKind]
    is_profile, is_allocation, is_debug = (member >= 0 for member in members)
    wrong = np.flatnonzero(is_profile.view(np.uint8) + is_allocation + is_debug != 1)
    if len(wrong):
        raise FormatError(
            "an event is not exactly one of profile, allocation and debug event",
            offset=int(events.positions[wrong[0]]),
        )
    kind = is_debug * np.uint8(EventKind.DEBUG) + is_allocation * np.uint8(EventKind.ALLOCATION)
    of_profile, of_allocation, of_debug = (np.flatnonzero(kind == k) for k in EventKind)
    profile = buffer.tables(members[EventKind.PROFILE][of_profile], 8)
    allocation = buffer.tables(members[EventKind.ALLOCATION][of_allocation], 2)
    debug = buffer.tables(members[EventKind.DEBUG][of_debug], 6)

    def column(default: int, *parts: tuple[IntArray, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Rows and their values, spread over all events."""
        if len(parts[0][0]) == E:  # all events are of one kind
            return parts[0][1]
        dtype = parts[0][1].dtype
        values = np.full(E, default, dtype) if default else np.zeros(E, dtype)
        for rows, of_rows in parts:
            values[rows] = of_rows
        return values

    metadata_starts, metadata_lengths = buffer.vectors(profile.reference(5), 1)
    metadata_starts[metadata_lengths < 0] = -1
    values = debug.reference(2)
    return {
        "kind": kind,
        "chain_index": column(
            -1,
            (of_profile, profile.scalar(1, "<i4").astype(np.int64)),
            (of_debug, debug.scalar(0, "<u8").view(np.int64)),
        ),
        "instruction_id": column(
            -1, (of_profile, profile.scalar(2, "<i4", -1)), (of_debug, debug.scalar(1, "<i4", -1))
        ),
        "delegate_id_int": column(
            -1, (of_profile, profile.scalar(3, "<i4", -1)), (of_debug, debug.scalar(3, "<i4", -1))
        ),
        "start": column(0, (of_profile, profile.scalar(6, "<u8"))),
        "end": column(0, (of_profile, profile.scalar(7, "<u8"))),
        "metadata_offset": column(-1, (of_profile, metadata_starts)),
        "metadata_length": column(-1, (of_profile, metadata_lengths)),
        "allocator_id": column(0, (of_allocation, allocation.scalar(0, "<i4"))),
        "allocation_size": column(0, (of_allocation, allocation.scalar(1, "<u8"))),
        "is_output": column(0, (of_debug, _are_outputs(buffer, values))),
        "debug_value_offset": column(-1, (of_debug, values)),
        "name": column(-1, (of_profile, profile.reference(0)), (of_debug, debug.reference(5))),
        "delegate_id": column(
            -1, (of_profile, profile.reference(4)), (of_debug, debug.reference(4))
        ),
    }


def _are_outputs(buffer: FlatBufferColumns, values: IntArray) -> npt.NDArray[np.bool_]:
    """Return for each position of a Value (-1: no value) whether it is an output of the program.
    The field `output` of a Value is a table with a bool."""
    are_outputs = np.zeros(len(values), np.bool_)
    present = np.flatnonzero(values >= 0)
    outputs = buffer.tables(values[present], 8).reference(7)
    marked = np.flatnonzero(outputs >= 0)
    are_outputs[present[marked]] = buffer.tables(outputs[marked], 1).scalar(0, "u1") != 0
    return are_outputs


# --------------------------------------------------------------------------------------------
# Types and sizes of all logged values at once. `ETDump.value` reads one; this reads a hundred
# thousand without an object for each.

_MAX_ELEMENTS = float(1 << 60)  # times 8 bytes, this still fits in 64 bits
_SIZE = np.dtype("<i8")


@dataclass(frozen=True, slots=True, eq=False)
class LoggedValues:
    """D values, and the T tensors among them and in their lists, in the order of the events.

    `offset` counts bytes of the debug buffer; -1 for a tensor without elements. `nbytes` is the
    size of the tensor there.
    """

    kind: npt.NDArray[np.int8]  # [D], a `ValueType`
    scalar_type: npt.NDArray[np.int8]  # [T], a `ScalarType`
    offset: npt.NDArray[np.int64]  # [T]
    nbytes: npt.NDArray[np.int64]  # [T]

    @property
    def buffer_size(self) -> int:
        """Bytes that the debug buffer must have to hold all tensors."""
        return int((self.offset + self.nbytes).max(initial=0))


def logged_values(dump: ETDump) -> LoggedValues:
    """Describe the values of all debug events that have one. Raises `FormatError` for a broken
    value."""
    with reading("ETDump", dump.path):
        buffer = FlatBufferColumns(dump.source.buffer, 0, dump.flatbuffer_end)
        positions = dump.debug_value_offset[dump.debug_value_offset >= 0]
        values = buffer.tables(positions, 8)
        kind = values.scalar(0, "<i1")
        single = values.reference(1)[kind == ValueType.TENSOR]
        lists = values.reference(2)[kind == ValueType.TENSOR_LIST]
        if (single < 0).any() or (lists < 0).any():
            raise FormatError("a debug value of type TENSOR or TENSOR_LIST is empty")
        listed = buffer.elements(*buffer.vectors(buffer.tables(lists, 1).reference(0), 4))
        tensors = buffer.tables(np.concatenate([single, listed]), 4)
        types, elements = tensors.scalar(0, "<i1"), _num_elements(buffer, tensors)
        nbytes = np.zeros(len(tensors), np.int64)
        for number in np.unique(types).tolist():
            element = scalar_type(number)
            units = -(-elements[types == number] // element.values_per_unit)
            nbytes[types == number] = units * element.itemsize
        return LoggedValues(kind, types, tensors.scalar(3, "<i8"), nbytes)


def _num_elements(buffer: FlatBufferColumns, tensors: TableColumns) -> IntArray:
    """The number of elements of each tensor: the product of its sizes."""
    starts, dimensions = buffer.vectors(tensors.reference(1), _SIZE.itemsize)
    most = int(dimensions.max(initial=0))
    if most > MAX_DIMENSIONS:
        raise FormatError(f"a tensor has {most} sizes; the limit is {MAX_DIMENSIONS}")
    sizes = np.ones((len(tensors), max(most, 1)), np.int64)
    for dimension in range(most):
        has = dimensions > dimension
        sizes[has, dimension] = buffer.gather(starts[has] + dimension * _SIZE.itemsize, _SIZE)
    if (sizes < 0).any():
        raise FormatError("a tensor has a negative size")
    product = sizes.astype(np.float64).prod(axis=1)
    empty = (sizes == 0).any(axis=1)
    if (product[~empty] > _MAX_ELEMENTS).any():
        raise FormatError("a tensor has more elements than any memory holds")
    elements: IntArray = np.where(empty, 0, sizes.prod(axis=1))
    return elements


# --------------------------------------------------------------------------------------------
# What the bytes of a dump contain.

HEADER, RUNS, EVENTS, VALUES, METADATA, STRINGS, LAYOUTS, PADDING, UNREFERENCED = (
    "header", "runs", "events", "values", "metadata", "strings", "table layouts", "padding",
    "unreferenced",
)  # fmt: skip
_ALIGNMENT = 16  # of the largest scalar, with the length of a vector


def bytes_by_kind(dump: ETDump) -> Mapping[str, int]:
    """Return the bytes of the file by kind; they sum to its size.

    A known table, vector or string belongs to the kind that first refers to it. "unreferenced" are
    bytes that nothing points to, and fields of newer schemas.
    """
    with reading("ETDump", dump.path):
        start, end = _flatbuffer_bounds(dump.source)
        walk = Extents(FlatBufferColumns(dump.source.buffer, start, end), LAYOUTS)
        walk.add(HEADER, np.zeros(1, np.int64), np.array([start + 2 * _PREFIX]))
        root = walk.tables(RUNS, walk.buffer.root(), 2)
        runs = walk.tables(RUNS, walk.listed(RUNS, root.reference(1)), 4)
        allocators = walk.tables(RUNS, walk.listed(RUNS, runs.reference(2)), 1)
        events = walk.tables(EVENTS, walk.listed(EVENTS, runs.reference(3)), 3)
        profile = walk.tables(EVENTS, events.reference(EventKind.PROFILE), 8)
        walk.tables(EVENTS, events.reference(EventKind.ALLOCATION), 2)
        debug = walk.tables(EVENTS, events.reference(EventKind.DEBUG), 6)
        values = walk.tables(VALUES, debug.reference(2), 8)
        for slot in (3, 4, 5, 6, 7):  # numbers, and whether it is an output
            walk.tables(VALUES, values.reference(slot), 1)
        lists = walk.tables(VALUES, values.reference(2), 1)
        listed = walk.listed(VALUES, lists.reference(0))
        tensors = walk.tables(VALUES, np.concatenate([values.reference(1), listed]), 4)
        for slot in (1, 2):
            walk.vectors(VALUES, tensors.reference(slot), _SIZE.itemsize)
        walk.vectors(METADATA, profile.reference(5), 1)
        names = (runs.reference(0), allocators.reference(0), profile.reference(0))
        for text in (*names, profile.reference(4), debug.reference(4), debug.reference(5)):
            walk.strings(STRINGS, text)
        found, gap_lows, gap_highs = walk.sizes(end)
        gaps = gap_highs - gap_lows
        sizes = dict.fromkeys((HEADER, RUNS, EVENTS, VALUES, METADATA, STRINGS, LAYOUTS), 0) | found
        sizes[PADDING] = int(gaps[gaps < _ALIGNMENT].sum())
        sizes[UNREFERENCED] = int(gaps[gaps >= _ALIGNMENT].sum()) + dump.size - end
        return sizes
