"""ETDumps as a test wants them: correct, strange or broken. Shares no code with the package.

A table is a dict of slot -> field. A field is ``(struct format, number)``, or what it refers to: a
table, a str, bytes (a vector of ubytes), a list of tables or strings (a vector of references), an
`array` of 64-bit integers. An object that stands in two places is written once and shared where
possible; every table has a vtable of its own. A reference to a wrong place is ``("I", distance)``.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from typing import Any

Table = dict[int, Any]


def flatbuffer(root: Table, identifier: bytes = b"ED00", *, size_prefixed: bool = True) -> bytes:
    """The file. Things stand in the order in which they are referred to, level by level."""
    data = bytearray(12)
    written: dict[int, int] = {}
    waiting: deque[tuple[int, Any]] = deque([(4, root)])
    while waiting:
        reference, thing = waiting.popleft()
        if written.get(id(thing), 0) <= reference:  # references lead forwards only
            written[id(thing)] = _write(data, thing, waiting)
        struct.pack_into("<I", data, reference, written[id(thing)] - reference)
    data += bytes(-len(data) % 8)
    struct.pack_into("<I", data, 0, len(data) - 4)
    data[8:12] = identifier
    return bytes(data if size_prefixed else data[4:])


def _write(data: bytearray, thing: Any, waiting: deque[tuple[int, Any]]) -> int:
    """Append a thing, put what it refers to in the queue, and tell where it is."""
    if isinstance(thing, dict):
        return _write_table(data, thing, waiting)
    if isinstance(thing, array):
        data += bytes(-(len(data) + 4) % 8)
        data += struct.pack("<I", len(thing)) + thing.tobytes()
        return len(data) - 4 - 8 * len(thing)
    data += bytes(-len(data) % 4)
    position = len(data)
    data += struct.pack("<I", len(thing.encode() if isinstance(thing, str) else thing))
    if isinstance(thing, list):
        waiting += ((position + 4 + 4 * i, item) for i, item in enumerate(thing))
        data += bytes(4 * len(thing))
    else:
        data += thing.encode() + b"\0" if isinstance(thing, str) else thing
    return position


def _write_table(data: bytearray, fields: Table, waiting: deque[tuple[int, Any]]) -> int:
    slots = max(fields, default=-1) + 1
    data += bytes(-len(data) % 2)
    vtable = len(data)
    data += bytes(4 + 2 * slots)
    data += bytes(-len(data) % 8)
    table = len(data)
    data += struct.pack("<i", table - vtable)
    for slot, field in fields.items():
        kind, number = field if isinstance(field, tuple) else ("I", 0)
        width = struct.calcsize("<" + kind)
        data += bytes(-len(data) % width)
        struct.pack_into("<H", data, vtable + 4 + 2 * slot, len(data) - table)
        if not isinstance(field, tuple):
            waiting.append((len(data), field))
        data += struct.pack("<" + kind, number)
    struct.pack_into("<HH", data, vtable, 4 + 2 * slots, len(data) - table)
    return table


# The tables of an ETDump, by the names and slots of its schema.


def etdump(*runs: Table, version: int = 0, **options: Any) -> bytes:
    return flatbuffer({0: ("I", version), 1: list(runs)}, **options)


def run(name: str | None = None, events: list[Table] | None = None, **fields: Any) -> Table:
    slots = {"name": 0, "bundled_input_index": 1, "allocators": 2, "events": 3}
    return _table(slots, "xixx", {"name": name, "events": events, **fields})


def profile(name: str | None = None, **fields: Any) -> Table:
    slots = {
        "name": 0,
        "chain": 1,
        "instruction": 2,
        "delegate_int": 3,
        "delegate_str": 4,
        "metadata": 5,
        "start": 6,
        "end": 7,
    }
    return {0: _table(slots, "xiiixxQQ", {"name": name, **fields})}


def allocation(**fields: Any) -> Table:
    return {1: _table({"allocator": 0, "size": 1}, "iQ", fields)}


def debug(value: Any = None, **fields: Any) -> Table:
    slots = {
        "chain": 0,
        "instruction": 1,
        "value": 2,
        "delegate_int": 3,
        "delegate_str": 4,
        "name": 5,
    }
    return {2: _table(slots, "Qixixx", {"value": value, **fields})}


def tensor(kind: int, sizes: list[int], strides: list[int], offset: int) -> Table:
    return {0: ("b", kind), 1: array("q", sizes), 2: array("q", strides), 3: ("q", offset)}


def value(kind: int, slot: int | None = None, payload: Any = None, output: Any = None) -> Table:
    table: Table = {0: ("b", kind)}
    if slot is not None:
        table[slot] = payload
    if output is not None:
        table[7] = {0: ("?", output)}
    return table


def _table(slots: dict[str, int], kinds: str, fields: dict[str, Any]) -> Table:
    """Fields by slot; `kinds` has struct's letter of each slot, x for a reference."""
    table: Table = {}
    for name, field in fields.items():
        kind = kinds[slots[name]]
        if field is not None:
            table[slots[name]] = field if kind == "x" else (kind, field)
    return table
