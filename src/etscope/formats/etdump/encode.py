"""Write columns as the bytes of an ETDump, without a Python loop over events.

FlatBuffers' own builder makes one table at a time, which takes many seconds for a large dump. Here
all events of a kind have the same fields, so a kind is one structured array, and the references in
it are sums of arrays. A `TableWriter` writes the other parts (vtables, values, strings) one by one
after the arrays: they are few, but vary in shape.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.formats.etdump.debug_values import PAYLOAD_SLOT, DebugValue, TensorRef, ValueType
from etscope.formats.etdump.reader import IDENTIFIER, ETDump, EventKind

IntArray = npt.NDArray[np.int64]

# One row per event; fields that an event's kind does not have stay at the default. `name`,
# `delegate_str`, `metadata` and `value` index the lists of `Content`, -1: absent.
EVENT = np.dtype(
    [
        ("kind", "u1"),
        ("name", "i4"),
        ("chain", "i8"),
        ("instruction", "i4"),
        ("delegate_int", "i4"),
        ("delegate_str", "i4"),
        ("start", "u8"),
        ("end", "u8"),
        ("metadata", "i4"),
        ("allocator", "i4"),
        ("size", "u8"),
        ("value", "i4"),
    ]
)
# field of EVENT -> column of ETDump
_COLUMNS = {
    "kind": "kind",
    "name": "name",
    "chain": "chain_index",
    "instruction": "instruction_id",
    "delegate_int": "delegate_id_int",
    "delegate_str": "delegate_id_str",
    "start": "start",
    "end": "end",
    "allocator": "allocator_id",
    "size": "allocation_size",
}


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a dump. The runs have consecutive rows of `events`, run r `run_events[r]`."""

    strings: Sequence[str]
    metadata: Sequence[bytes]
    values: Sequence[tuple[DebugValue, bool]]  # the value, and whether it is a program output
    run_name: IntArray  # [R], index into `strings`, -1: absent
    run_bundled_input_index: IntArray  # [R]
    run_allocators: Sequence[tuple[str, ...]]  # [R]
    run_events: IntArray  # [R]
    events: npt.NDArray[np.void]  # [E] of EVENT
    version: int = 0


def write_etdump(dump: ETDump) -> bytes:
    """Return the file of a dump: equal to the source in every column, perhaps not in its bytes."""
    metadata: dict[bytes, int] = {}
    events = np.zeros(dump.num_events, EVENT)
    for field_name, column in _COLUMNS.items():
        events[field_name] = getattr(dump, column)
    events["metadata"] = -1
    for event in np.flatnonzero(dump.metadata_length >= 0).tolist():
        events["metadata"][event] = metadata.setdefault(dump.metadata(event), len(metadata))
    valued = np.flatnonzero(dump.debug_value_offset >= 0)
    events["value"] = -1
    events["value"][valued] = np.arange(len(valued))
    return encode(
        Content(
            strings=dump.strings,
            metadata=tuple(metadata),
            values=[(dump.value(event), bool(dump.is_output[event])) for event in valued.tolist()],
            run_name=dump.run_name.astype(np.int64),
            run_bundled_input_index=dump.run_bundled_input_index.astype(np.int64),
            run_allocators=dump.run_allocators,
            run_events=np.diff(dump.run_first_event),
            events=events,
            version=dump.version,
        )
    )


# --------------------------------------------------------------------------------------------
# Tables of a fixed layout, as rows of structured arrays.


@dataclass(frozen=True, slots=True)
class _Layout:
    """A table as an element of a structured array: the type and the offset of each field."""

    slots: tuple[str, ...]
    fields: Mapping[str, tuple[str, int]]
    dtype: np.dtype[Any]


_REFERENCE = "<u4"


def _layout(slots: str, **fields: tuple[str, int]) -> _Layout:
    """`fields`: the type and the offset of each, 64-bit ones at multiples of 8."""
    all_fields = {"vtable": ("<i4", 0), **fields}
    end = max(at + np.dtype(kind).itemsize for kind, at in all_fields.values())
    dtype = np.dtype(
        {
            "names": list(all_fields),
            "formats": [kind for kind, _ in all_fields.values()],
            "offsets": [at for _, at in all_fields.values()],
            "itemsize": -(-end // 8) * 8,
        }
    )
    return _Layout(tuple(slots.split()), fields, dtype)


_RUN = _layout(
    "name bundled_input_index allocators events",
    name=(_REFERENCE, 4),
    bundled_input_index=("<i4", 8),
    allocators=(_REFERENCE, 12),
    events=(_REFERENCE, 16),
)
_EVENT = _layout(  # an event has only one of the three, so they share an offset
    "profile allocation debug",
    profile=(_REFERENCE, 4),
    allocation=(_REFERENCE, 4),
    debug=(_REFERENCE, 4),
)
_PROFILE = _layout(
    "name chain instruction delegate_int delegate_str metadata start end",
    name=(_REFERENCE, 4),
    chain=("<i4", 8),
    instruction=("<i4", 12),
    delegate_int=("<i4", 16),
    delegate_str=(_REFERENCE, 20),
    metadata=(_REFERENCE, 24),
    start=("<u8", 32),
    end=("<u8", 40),
)
_ALLOCATION = _layout("allocator size", allocator=("<i4", 4), size=("<u8", 8))
_DEBUG = _layout(
    "chain instruction value delegate_int delegate_str name",
    instruction=("<i4", 4),
    chain=("<i8", 8),
    value=(_REFERENCE, 16),
    delegate_int=("<i4", 20),
    delegate_str=(_REFERENCE, 24),
    name=(_REFERENCE, 28),
)
_KINDS = {EventKind.PROFILE: _PROFILE, EventKind.ALLOCATION: _ALLOCATION, EventKind.DEBUG: _DEBUG}
_HEAD = 32  # size prefix, root's offset, identifier, 4 bytes to align, and the root table


def encode(content: Content) -> bytes:
    """Return the ETDump file, with its size in front."""
    R, E = len(content.run_events), len(content.events)
    rows = {kind: np.flatnonzero(content.events["kind"] == kind) for kind in EventKind}
    sizes = [_HEAD, 4 + 4 * R, R * _RUN.dtype.itemsize, 4 * (R + E), E * _EVENT.dtype.itemsize]
    sizes += [len(rows[kind]) * layout.dtype.itemsize for kind, layout in _KINDS.items()]
    ends = np.cumsum([-(-size // 8) * 8 for size in sizes])
    run_list, runs, event_lists, events, *kinds, writer_start = ends.tolist()

    writer = TableWriter(writer_start)

    # Positions of the targets of references. The last element is -1, so index -1 gives -1.
    def positions(write: Callable[[Any], int], items: Sequence[Any]) -> IntArray:
        return np.array([*map(write, items), -1], np.int64)

    strings = positions(writer.string, content.strings)
    metadata = positions(writer.blob, content.metadata)
    values = positions(lambda pair: _write_value(writer, *pair), content.values)
    # Reference fields of EVENT, and their targets.
    referred = {"name": strings, "delegate_str": strings, "metadata": metadata, "value": values}

    fixed = np.zeros(writer_start, np.uint8)

    def put(position: int, array: npt.NDArray[Any]) -> None:
        fixed[position : position + array.nbytes] = array.view(np.uint8).reshape(-1)

    members = {}
    for (kind, layout), start in zip(_KINDS.items(), kinds, strict=True):
        mine = content.events[rows[kind]]
        fields = {
            name: referred[name][mine[name]] if name in referred else mine[name]
            for name in layout.slots
        }
        put(start, _tables(writer, layout, start, len(mine), fields))
        members[kind.name.lower()] = np.full(E, -1, np.int64)
        members[kind.name.lower()][rows[kind]] = _row_positions(layout, start, len(mine))
    put(events, _tables(writer, _EVENT, events, E, members))

    # The runs' vectors of events, one after the other: the length of each, then its references.
    first_events = np.cumsum(content.run_events) - content.run_events
    lengths_at = first_events + np.arange(R)
    targets = np.insert(_row_positions(_EVENT, events, E), first_events, 0)
    words = _references(event_lists, targets)
    words[lengths_at] = content.run_events
    put(event_lists, words)

    distinct = dict.fromkeys(content.run_allocators)
    allocators = {names: _write_allocators(writer, names) for names in distinct}
    run_fields = {
        "name": strings[content.run_name],
        "bundled_input_index": content.run_bundled_input_index,
        "allocators": np.array([allocators[names] for names in content.run_allocators], np.int64),
        "events": event_lists + 4 * lengths_at,
    }
    put(runs, _tables(writer, _RUN, runs, R, run_fields))
    put(run_list, np.array([R], "<u4"))
    put(run_list + 4, _references(run_list + 4, _row_positions(_RUN, runs, R)))

    put(0, np.frombuffer(_write_head(writer, content.version, run_list), np.uint8))
    return fixed.tobytes() + bytes(writer.data)


def _row_positions(layout: _Layout, start: int, count: int) -> IntArray:
    return start + layout.dtype.itemsize * np.arange(count, dtype=np.int64)


def _references(start: int, targets: IntArray) -> npt.NDArray[np.uint32]:
    """The elements, from `start` on, of a vector of references to `targets`."""
    return (targets - (start + 4 * np.arange(len(targets)))).astype("<u4")


def _tables(
    writer: TableWriter, layout: _Layout, start: int, count: int, fields: Mapping[str, Any]
) -> npt.NDArray[np.void]:
    """`count` tables from `start` on. References are given as positions, -1: left out."""
    rows = np.zeros(count, layout.dtype)
    at = _row_positions(layout, start, count)
    present = np.zeros(count, np.int64)  # a bit for each slot that is there
    for slot, name in enumerate(layout.slots):
        kind, offset = layout.fields[name]
        if kind != _REFERENCE:
            rows[name] = fields[name]
            present |= 1 << slot
            continue
        there = fields[name] >= 0
        rows[name][there] = fields[name][there] - at[there] - offset
        present |= there.astype(np.int64) << slot
    offsets = [layout.fields[name][1] for name in layout.slots]
    masks, which = np.unique(present, return_inverse=True)
    vtables = [
        writer.vtable(
            layout.dtype.itemsize,
            tuple(offset if mask >> slot & 1 else 0 for slot, offset in enumerate(offsets)),
        )
        for mask in masks.tolist()
    ]
    rows["vtable"] = at - np.array(vtables, np.int64)[which]
    return rows


# --------------------------------------------------------------------------------------------
# All other parts, written one by one.


class TableWriter:
    """Writes parts of a FlatBuffer in file order, from byte `start` on.

    References lead forward, so write a table before its parts, and set its references afterwards
    with `refer`. Methods return the position of the written part.
    """

    def __init__(self, start: int) -> None:
        self.data = bytearray()
        self._start = start
        self._vtables: dict[tuple[int, tuple[int, ...]], int] = {}

    @property
    def position(self) -> int:
        return self._start + len(self.data)

    def align(self, width: int, after: int = 0) -> None:
        """Pad until the byte `after` from here is at a multiple of `width`."""
        self.data += bytes(-(self.position + after) % width)

    def append(self, data: bytes) -> int:
        position = self.position
        self.data += data
        return position

    def vtable(self, size: int, offsets: tuple[int, ...]) -> int:
        """The vtable of tables of `size` bytes, written once; offset 0 is an absent field."""
        key = size, offsets
        if key not in self._vtables:
            self.align(2)
            words = (4 + 2 * len(offsets), size, *offsets)
            self._vtables[key] = self.append(struct.pack(f"<{len(words)}H", *words))
        return self._vtables[key]

    def string(self, text: str) -> int:
        """A string, which ends with a zero byte that its length does not count."""
        self.align(4)
        data = text.encode()
        return self.append(struct.pack("<I", len(data)) + data + b"\0")

    def blob(self, data: bytes) -> int:
        self.align(4)
        return self.append(struct.pack("<I", len(data)) + data)

    def longs(self, numbers: Sequence[int]) -> int:
        self.align(8, after=4)
        return self.append(struct.pack(f"<I{len(numbers)}q", len(numbers), *numbers))

    def table(self, offsets: tuple[int, ...], fields: str, *values: Any) -> int:
        """A table of `fields` (a format of `struct`) behind its vtable reference."""
        vtable = self.vtable(4 + struct.calcsize("<" + fields), offsets)
        self.align(8)
        return self.append(struct.pack("<i" + fields, self.position - vtable, *values))

    def references(self, count: int) -> int:
        """A vector of references that are not set yet; returns the position of the first."""
        self.align(4)
        return self.append(struct.pack("<I", count) + bytes(4 * count)) + 4

    def refer(self, position: int, target: int) -> None:
        """Set the reference at `position`, written as 0, to `target`."""
        struct.pack_into("<I", self.data, position - self._start, target - position)


def _write_value(writer: TableWriter, value: DebugValue, output: bool) -> int:
    """Write a value, and whether it is an output of the program.

    A float is written as a double, which holds every float.
    """
    if value is None:
        kind = ValueType.NULL
    elif isinstance(value, bool):  # before int, which a bool also is
        kind = ValueType.BOOL
    elif isinstance(value, int):
        kind = ValueType.INT
    elif isinstance(value, float):
        kind = ValueType.DOUBLE
    else:
        kind = ValueType.TENSOR if isinstance(value, TensorRef) else ValueType.TENSOR_LIST
    slot = PAYLOAD_SLOT.get(kind)
    offsets = [12, 0, 0, 0, 0, 0, 0, 8 if output else 0]
    if slot is not None:
        offsets[slot] = 4
    table = writer.table(tuple(offsets), "IIb3x", 0, 0, kind)
    if isinstance(value, TensorRef):
        writer.refer(table + 4, _write_tensor(writer, value))
    elif isinstance(value, tuple):
        payload = writer.table((4,), "I", 0)
        first = writer.references(len(value))
        writer.refer(payload + 4, first - 4)
        for i, tensor in enumerate(value):
            writer.refer(first + 4 * i, _write_tensor(writer, tensor))
        writer.refer(table + 4, payload)
    elif isinstance(value, bool):
        writer.refer(table + 4, writer.table((4,), "?3x", value))
    elif value is not None:
        fields = "4xq" if kind is ValueType.INT else "4xd"
        writer.refer(table + 4, writer.table((8,), fields, value))
    if output:
        writer.refer(table + 8, writer.table((4,), "?3x", True))
    return table


def _write_tensor(writer: TableWriter, ref: TensorRef) -> int:
    table = writer.table((12, 4, 8, 16), "IIb3xq", 0, 0, ref.scalar_type, ref.offset)
    writer.refer(table + 4, writer.longs(ref.sizes))
    writer.refer(table + 8, writer.longs(ref.strides))
    return table


def _write_allocators(writer: TableWriter, names: tuple[str, ...]) -> int:
    """A vector of Allocator tables; -1 if there are none."""
    if not names:
        return -1
    first = writer.references(len(names))
    for i, name in enumerate(names):
        table = writer.table((4,), "I", 0)
        writer.refer(first + 4 * i, table)
        writer.refer(table + 4, writer.string(name))
    return first - 4


def _write_head(writer: TableWriter, version: int, run_list: int) -> bytes:
    """Return the first `_HEAD` bytes, with the size of the rest; `run_list` is the position of the
    vector of runs."""
    root = 16
    vtable = writer.vtable(12, (4, 8))
    writer.align(8)
    return struct.pack(
        "<II4s4xiII",
        *(writer.position - 4, root - 4, IDENTIFIER),
        *(root - vtable, version, run_list - root - 8),
    )
