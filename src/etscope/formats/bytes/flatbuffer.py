"""A reader of FlatBuffers tables that checks every offset and limits its own work.

The layout (https://flatbuffers.dev/internals): all numbers are little-endian. Offsets to tables,
strings and vectors are unsigned 32-bit and count from their own position. A table begins with the
signed distance back to its vtable, which lists the offset of each field.

Offsets only lead forward, so cycles cannot occur. But two offsets may lead to the same bytes, so a
small file can describe an enormous tree. A `FlatBuffer` therefore has a budget: it counts decoded
bytes, and rejects more than a few times the size of the buffer. Arrays and blobs are views and cost
nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError

INT8 = struct.Struct("<b")
UINT8 = struct.Struct("<B")
INT16 = struct.Struct("<h")
INT32 = struct.Struct("<i")
UINT32 = struct.Struct("<I")
INT64 = struct.Struct("<q")
UINT64 = struct.Struct("<Q")
DOUBLE = struct.Struct("<d")
_VTABLE_HEAD = struct.Struct("<HH")

# Budget: a tree without shared parts costs less than its own bytes, and writers share a few.
_BUDGET_FACTOR = 4
_BUDGET_FLOOR = 1 << 16  # bytes: small files may share more of their parts
_TABLE_COST = 8  # its own head, and the offset that leads to it
# The widest table that is read here has 14 slots. A vtable may claim 32,766.
_SLOTS = 32


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a file: its first byte and its size in bytes."""

    offset: int
    size: int


class FlatBuffer:
    """A buffer with one root table. Offsets in errors and `Span`s count from its first byte."""

    __slots__ = ("_budget", "_strings", "_vtables", "size", "view")

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.size = len(view)
        self._budget = _BUDGET_FLOOR + _BUDGET_FACTOR * self.size
        self._strings: dict[int, str] = {}
        self._vtables: dict[int, tuple[int, ...]] = {}

    def root(self) -> FlatTable:
        """The table that the first four bytes point to."""
        return FlatTable(self, self.target(0))

    def number(self, kind: struct.Struct, position: int) -> Any:
        """Return the number of that kind at `position`, which must not be negative."""
        try:
            return kind.unpack_from(self.view, position)[0]
        except struct.error:
            raise self._outside(position, kind.size) from None

    def target(self, position: int) -> int:
        """Follow the offset stored at `position`."""
        return position + int(self.number(UINT32, position))

    def spend(self, cost: int, position: int) -> None:
        """Count `cost` decoded bytes."""
        self._budget -= cost
        if self._budget < 0:
            raise FormatError(
                "its tables refer to the same bytes too many times",
                offset=position,
            )

    def vector(self, position: int, item_size: int) -> tuple[int, int]:
        """First byte and number of items of the vector at `position`."""
        count = int(self.number(UINT32, position))
        if position + 4 + count * item_size > self.size:
            raise FormatError(
                f"a list of {count:,} items of {item_size} bytes does not fit in the file",
                offset=position,
            )
        return position + 4, count

    def string(self, position: int) -> str:
        """The UTF-8 string at `position`."""
        known = self._strings.get(position)
        if known is not None:
            return known
        start, count = self.vector(position, 1)
        self.spend(4 + count, position)
        try:
            text = str(self.view[start : start + count], "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError("a string is not UTF-8", offset=start + error.start) from error
        self._strings[position] = text
        return text

    def fields(self, position: int) -> tuple[int, ...]:
        """Read the vtable of the table at `position`: each field's distance from the table's first
        byte, 0 for an absent field."""
        vtable = position - int(self.number(INT32, position))
        known = self._vtables.get(vtable)
        if known is not None:
            return known
        if vtable < 0:
            raise FormatError("the vtable of a table lies before the file", offset=position)
        try:
            length, _ = _VTABLE_HEAD.unpack_from(self.view, vtable)
            count = min(max(length - 4, 0) // 2, _SLOTS)
            fields = struct.unpack_from(f"<{count}H", self.view, vtable + 4)
        except struct.error:
            raise self._outside(vtable, 4) from None
        self.spend(2 * count, vtable)
        self._vtables[vtable] = fields
        return fields

    def _outside(self, position: int, length: int) -> FormatError:
        return FormatError(
            f"an offset points to byte {position:,} of only {self.size:,} bytes"
            if position + length > self.size
            else "an offset points before the file",
            offset=position,
            hint="the file may be cut off",
        )


class FlatTable:
    """One table. A field is named by its slot: its index in the schema, where a union takes two.

    An absent field has the default, an absent vector is empty.
    """

    __slots__ = ("_buffer", "_fields", "position")

    def __init__(self, buffer: FlatBuffer, position: int) -> None:
        buffer.spend(_TABLE_COST, position)
        self._buffer = buffer
        self._fields = buffer.fields(position)
        self.position = position

    def _at(self, slot: int) -> int:
        """The position of a field, 0 when it is absent."""
        if slot >= len(self._fields) or not self._fields[slot]:
            return 0
        return self.position + self._fields[slot]

    def _target(self, slot: int) -> int:
        """The target of the offset in a field, 0 when it is absent."""
        at = self._at(slot)
        return self._buffer.target(at) if at else 0

    def spend(self, cost: int) -> None:
        """Count `cost` more bytes for this table: bytes of other tables that it represents."""
        self._buffer.spend(cost, self.position)

    def has(self, slot: int) -> bool:
        return bool(self._at(slot))

    def integer(self, slot: int, kind: struct.Struct, default: int = 0) -> int:
        at = self._at(slot)
        return int(self._buffer.number(kind, at)) if at else default

    def flag(self, slot: int, default: bool = False) -> bool:
        at = self._at(slot)
        return bool(self._buffer.number(UINT8, at)) if at else default

    def double(self, slot: int, default: float = 0.0) -> float:
        at = self._at(slot)
        return float(self._buffer.number(DOUBLE, at)) if at else default

    def string(self, slot: int) -> str | None:
        """A string field."""
        at = self._target(slot)
        return self._buffer.string(at) if at else None

    def table(self, slot: int) -> FlatTable | None:
        at = self._target(slot)
        return FlatTable(self._buffer, at) if at else None

    def union(self, slot: int) -> tuple[int, FlatTable | None]:
        """The number of the member and its table; the type is in `slot`, the table in the next."""
        return self.integer(slot, UINT8), self.table(slot + 1)

    def blob(self, slot: int) -> Span:
        """The span of a [ubyte] field; of size 0 if it is absent."""
        at = self._target(slot)
        return Span(*self._buffer.vector(at, 1)) if at else Span(0, 0)

    def array(self, slot: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A vector of numbers, as a view."""
        kind = np.dtype(dtype).newbyteorder("<")
        at = self._target(slot)
        if not at:
            return np.empty(0, kind)
        start, count = self._buffer.vector(at, kind.itemsize)
        return np.frombuffer(self._buffer.view, kind, count, start)

    def numbers(self, slot: int, code: str) -> tuple[Any, ...]:
        """A vector of numbers, as Python numbers. `code` as in `struct`: "i", "q", "B", "d" or
        "?"."""
        at = self._target(slot)
        if not at:
            return ()
        size = struct.calcsize("<" + code)
        start, count = self._buffer.vector(at, size)
        self._buffer.spend(4 + size * count, at)
        return struct.unpack_from(f"<{count}{code}", self._buffer.view, start)

    def offsets(self, slot: int) -> tuple[int, ...]:
        """The positions of the tables or strings in a vector."""
        at = self._target(slot)
        if not at:
            return ()
        start, count = self._buffer.vector(at, 4)
        self._buffer.spend(4 + 4 * count, at)
        distances = struct.unpack_from(f"<{count}I", self._buffer.view, start)
        return tuple(map(add, distances, range(start, start + 4 * count, 4)))

    def tables(self, slot: int) -> list[FlatTable]:
        """A vector of tables."""
        buffer = self._buffer
        return [FlatTable(buffer, position) for position in self.offsets(slot)]
