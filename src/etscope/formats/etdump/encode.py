"""Columns to the bytes of an ETDump: the inverse of `etdump`, and as free of loops per event.

FlatBuffers' own builder makes one table at a time, which takes a large dump to many seconds. All
events of a kind have the same fields here, so a kind is one structured array, and the references
in it are sums of arrays. What comes in fewer numbers and more shapes (vtables, values, strings)
goes one by one to a heap behind the arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.formats.bytes.flatbuffer_heap import Heap
from etscope.formats.etdump.debug_value import DebugValue, write_value
from etscope.formats.etdump.reader import IDENTIFIER, ETDump, EventKind

IntArray = npt.NDArray[np.int64]

# One row per event; what an event's kind does not have is left at the default. `name`,
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


@dataclass(frozen=True, slots=True)
class Content:
    """What a dump holds. Run r has the next `run_events[r]` rows of `events`."""

    strings: Sequence[str]
    metadata: Sequence[bytes]
    values: Sequence[tuple[DebugValue, bool]]  # the value, and whether it is a program output
    run_name: IntArray  # [R], index into `strings`, -1: absent
    run_bundled_input_index: IntArray  # [R]
    run_allocators: Sequence[tuple[str, ...]]  # [R]
    run_events: IntArray  # [R]
    events: npt.NDArray[np.void]  # [E] of EVENT
    version: int = 0


@dataclass(frozen=True, slots=True)
class _Record:
    """A table as an element of a structured array: its fields by slot, their types and places."""

    slots: tuple[str, ...]
    fields: Mapping[str, tuple[str, int]]
    dtype: np.dtype[Any]


_REFERENCE = "<u4"


def _record(slots: str, **fields: tuple[str, int]) -> _Record:
    """`fields`: the type and the offset of each, 64-bit ones at multiples of 8."""
    places = {"vtable": ("<i4", 0), **fields}
    end = max(at + np.dtype(kind).itemsize for kind, at in places.values())
    dtype = np.dtype(
        {
            "names": list(places),
            "formats": [kind for kind, _ in places.values()],
            "offsets": [at for _, at in places.values()],
            "itemsize": -(-end // 8) * 8,
        }
    )
    return _Record(tuple(slots.split()), fields, dtype)


_RUN = _record(
    "name bundled_input_index allocators events",
    name=(_REFERENCE, 4),
    bundled_input_index=("<i4", 8),
    allocators=(_REFERENCE, 12),
    events=(_REFERENCE, 16),
)
_EVENT = _record(  # the three share one place: an event has one of them
    "profile allocation debug",
    profile=(_REFERENCE, 4),
    allocation=(_REFERENCE, 4),
    debug=(_REFERENCE, 4),
)
_PROFILE = _record(
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
_ALLOCATION = _record("allocator size", allocator=("<i4", 4), size=("<u8", 8))
_DEBUG = _record(
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
    """The ETDump file, with its size in front."""
    R, E = len(content.run_events), len(content.events)
    rows = {kind: np.flatnonzero(content.events["kind"] == kind) for kind in EventKind}
    sizes = [_HEAD, 4 + 4 * R, R * _RUN.dtype.itemsize, 4 * (R + E), E * _EVENT.dtype.itemsize]
    sizes += [len(rows[kind]) * record.dtype.itemsize for kind, record in _KINDS.items()]
    ends = np.cumsum([-(-size // 8) * 8 for size in sizes])
    run_list, runs, event_lists, events, *kinds, heap_start = ends.tolist()

    heap = Heap(heap_start)
    refer = _References(
        strings=_positions(heap.string, content.strings),
        metadata=_positions(heap.blob, content.metadata),
        values=_positions(partial(write_value, heap), content.values),
    )
    fixed = np.zeros(heap_start, np.uint8)

    def put(position: int, array: npt.NDArray[Any]) -> None:
        fixed[position : position + array.nbytes] = array.view(np.uint8).reshape(-1)

    members = {}
    for (kind, record), start in zip(_KINDS.items(), kinds, strict=True):
        mine = content.events[rows[kind]]
        put(start, _tables(heap, record, start, len(mine), _FIELDS[kind](mine, refer)))
        members[kind.name.lower()] = np.full(E, -1, np.int64)
        members[kind.name.lower()][rows[kind]] = _places(record, start, len(mine))
    put(events, _tables(heap, _EVENT, events, E, members))
    lists, starts = _event_lists(content.run_events, _places(_EVENT, events, E), event_lists)
    put(event_lists, lists)
    put(runs, _tables(heap, _RUN, runs, R, _run_fields(heap, content, refer, starts)))
    put(run_list, np.array([R], "<u4"))
    put(run_list + 4, _references(run_list + 4, _places(_RUN, runs, R)))
    put(0, _head(heap, content.version, run_list))
    return fixed.tobytes() + bytes(heap.data)


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


def write_etdump(dump: ETDump) -> bytes:
    """The file of a dump that was read: equal in every column, if not in its bytes."""
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


@dataclass(frozen=True, slots=True)
class _References:
    """Where the items of `Content`'s lists are; a last element -1, so that index -1 gives -1."""

    strings: IntArray
    metadata: IntArray
    values: IntArray


def _positions(write: Callable[[Any], int], items: Sequence[Any]) -> IntArray:
    return np.array([*map(write, items), -1], np.int64)


def _profile_fields(events: npt.NDArray[np.void], refer: _References) -> dict[str, Any]:
    return {
        "name": refer.strings[events["name"]],
        "chain": events["chain"],
        "instruction": events["instruction"],
        "delegate_int": events["delegate_int"],
        "delegate_str": refer.strings[events["delegate_str"]],
        "metadata": refer.metadata[events["metadata"]],
        "start": events["start"],
        "end": events["end"],
    }


def _allocation_fields(events: npt.NDArray[np.void], refer: _References) -> dict[str, Any]:
    return {"allocator": events["allocator"], "size": events["size"]}


def _debug_fields(events: npt.NDArray[np.void], refer: _References) -> dict[str, Any]:
    return {
        "chain": events["chain"],
        "instruction": events["instruction"],
        "value": refer.values[events["value"]],
        "delegate_int": events["delegate_int"],
        "delegate_str": refer.strings[events["delegate_str"]],
        "name": refer.strings[events["name"]],
    }


_FIELDS = {
    EventKind.PROFILE: _profile_fields,
    EventKind.ALLOCATION: _allocation_fields,
    EventKind.DEBUG: _debug_fields,
}


def _run_fields(
    heap: Heap, content: Content, refer: _References, event_lists: IntArray
) -> dict[str, Any]:
    lists = {names: _allocators(heap, names) for names in dict.fromkeys(content.run_allocators)}
    return {
        "name": refer.strings[content.run_name],
        "bundled_input_index": content.run_bundled_input_index,
        "allocators": np.array([lists[names] for names in content.run_allocators], np.int64),
        "events": event_lists,
    }


def _allocators(heap: Heap, names: tuple[str, ...]) -> int:
    """A vector of Allocator tables; -1 if there are none."""
    if not names:
        return -1
    first = heap.references(len(names))
    for i, name in enumerate(names):
        table = heap.table((4,), "I", 0)
        heap.refer(first + 4 * i, table)
        heap.refer(table + 4, heap.string(name))
    return first - 4


def _head(heap: Heap, version: int, run_list: int) -> npt.NDArray[np.uint8]:
    root = 16
    vtable = heap.vtable(12, (4, 8))
    heap.align(8)
    size = heap.position - 4
    return np.frombuffer(
        struct.pack(
            "<II4s4xiII", size, root - 4, IDENTIFIER, root - vtable, version, run_list - root - 8
        ),
        np.uint8,
    )


def _places(record: _Record, start: int, count: int) -> IntArray:
    return start + record.dtype.itemsize * np.arange(count, dtype=np.int64)


def _references(start: int, targets: IntArray) -> npt.NDArray[np.uint32]:
    """The elements, from `start` on, of a vector of references to `targets`."""
    return (targets - (start + 4 * np.arange(len(targets)))).astype("<u4")


def _event_lists(
    counts: IntArray, events: IntArray, start: int
) -> tuple[npt.NDArray[np.uint32], IntArray]:
    """The runs' vectors of events one behind the other, and where each begins."""
    lengths = np.cumsum(counts) - counts + np.arange(len(counts))  # element of each run's length
    is_event = np.ones(len(counts) + len(events), np.bool_)
    is_event[lengths] = False
    targets = np.zeros(len(is_event), np.int64)
    targets[is_event] = events
    words = _references(start, targets)
    words[lengths] = counts
    return words, start + 4 * lengths


def _vtable(heap: Heap, record: _Record, bits: int) -> int:
    """The vtable of a record that has the slots whose bits are set."""
    places = (record.fields[name][1] for name in record.slots)
    offsets = tuple(at if bits >> slot & 1 else 0 for slot, at in enumerate(places))
    return heap.vtable(record.dtype.itemsize, offsets)


def _tables(
    heap: Heap, record: _Record, start: int, count: int, fields: Mapping[str, Any]
) -> npt.NDArray[np.void]:
    """`count` tables from `start` on. References are given as positions, -1: left out."""
    rows = np.zeros(count, record.dtype)
    places = _places(record, start, count)
    shape = np.zeros(count, np.int64)  # a bit for each reference that is there
    for slot, name in enumerate(record.slots):
        kind, offset = record.fields[name]
        if kind != _REFERENCE:
            rows[name] = fields[name]
            shape |= 1 << slot
            continue
        there = fields[name] >= 0
        rows[name][there] = fields[name][there] - places[there] - offset
        shape |= there.astype(np.int64) << slot
    shapes, which = np.unique(shape, return_inverse=True)
    vtables = [_vtable(heap, record, bits) for bits in shapes.tolist()]
    rows["vtable"] = places - np.array(vtables, np.int64)[which]
    return rows
