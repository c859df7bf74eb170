"""A reader of FlatBuffers, table by table or as columns, that checks every offset and limits its
own work.

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
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from operator import add
from typing import Any, Generic, TypeVar

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
        """Count `cost` decoded bytes against a limit, which files with shared tables would
        exceed.
        """
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

    def strings(self, slot: int) -> tuple[str, ...]:
        """A vector of strings."""
        return tuple(map(self._buffer.string, self.offsets(slot)))

    def tables(self, slot: int) -> list[FlatTable]:
        """A vector of tables."""
        buffer = self._buffer
        return [FlatTable(buffer, position) for position in self.offsets(slot)]


# -- Read a FlatBuffer as columns: the same field of many tables in one array operation.
#
# Positions are int64 byte offsets from the start of the file, and -1 for an absent thing. Each
# reference is checked before it is followed, and the size of the file limits the total size of all
# visited parts, so a small hostile file costs little.
#
# The format (FlatBuffers' internals page): a table starts with an int32 that leads back to its
# vtable; a vtable is uint16s: its own size, the table's size, then one offset in the table per
# field (0: absent); references are uint32 distances forward; a vector is a uint32 length and its
# elements, a string a vector of bytes.


_Kind = TypeVar("_Kind", bound=Hashable)

IntArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

_LENGTH = 4  # bytes of a vector's length
_WORD = 4  # bytes of a reference
_FEW = 16  # as many vtables or string lengths as real dumps have
_CHUNK = 1 << 16  # rows at a time: their columns fit in a CPU's second-level cache
_SMALL = 96  # tables of up to so many bytes are fetched whole: all of ETDump's are
_U16 = np.dtype("<u2")
_I32 = np.dtype("<i4")
_U32 = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class _Layout:
    """Tables with the same field offsets, with their bytes if those are few."""

    members: IntArray | slice  # which of the tables
    positions: IntArray
    size: int
    fields: tuple[int, ...]  # offset of each field in the table, 0: absent
    rows: ByteArray | None  # [members, size]


class TableColumns:
    """Many tables of one type, grouped by layout."""

    def __init__(
        self, buffer: FlatBufferColumns, positions: IntArray, layouts: list[_Layout]
    ) -> None:
        self.positions = positions
        self._buffer = buffer
        self._layouts = layouts

    def __len__(self) -> int:
        return len(self.positions)

    def scalar(self, slot: int, dtype: str, default: int = 0) -> npt.NDArray[Any]:
        """The values of a scalar field; `dtype` as numpy writes it ("<i4")."""
        kind = np.dtype(dtype)
        values = np.full(len(self), default, kind) if default else np.zeros(len(self), kind)
        for layout in self._holding(slot, kind.itemsize):
            values[layout.members] = self._column(layout, slot, kind)
        return values

    def reference(self, slot: int) -> IntArray:
        """Start of the field's table, vector or string, -1 where it is absent."""
        targets = np.full(len(self), -1, np.int64)
        for layout in self._holding(slot, _U32.itemsize):
            distance = self._column(layout, slot, _U32)
            origin = layout.positions + layout.fields[slot]
            targets[layout.members] = self._buffer.follow(origin, distance)
        return targets

    def _holding(self, slot: int, width: int) -> Iterator[_Layout]:
        for layout in self._layouts:
            start = layout.fields[slot]
            if start == 0:
                continue
            if start < _I32.itemsize or start + width > layout.size:
                raise FormatError(
                    f"field {slot} of a table lies outside it", offset=int(layout.positions[0])
                )
            yield layout

    def _column(self, layout: _Layout, slot: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        start = layout.fields[slot]
        if layout.rows is None:
            return self._buffer.gather(layout.positions + start, dtype)
        return layout.rows[:, start : start + dtype.itemsize].view(dtype)[:, 0]


class FlatBufferColumns:
    """One FlatBuffer: the bytes `start` to `end` of a file."""

    def __init__(self, data: memoryview, start: int, end: int) -> None:
        self._bytes: ByteArray = np.frombuffer(data, np.uint8)
        # Nearly all reads are at multiples of 4, which take half the time of others.
        self._words = np.frombuffer(data, _U32, len(data) // _WORD)
        self.start = start
        self.end = end

    def root(self) -> IntArray:
        """The position of the root table, an array of one."""
        origin = np.array([self.start], np.int64)
        return self.follow(origin, self.gather(origin, _U32))

    def tables(self, positions: IntArray, fields: int) -> TableColumns:
        """Return the tables at `positions` (none absent) with their first `fields` fields."""
        if len(positions) == 0:
            return TableColumns(self, positions, [])
        vtables = positions - self.gather(positions, _I32)
        distinct, which = _distinct(vtables)
        entries = self._vtables(distinct, fields)
        first, same = unique_rows(entries.view(np.uint8))
        layouts = []
        for i, members in zip(first, _groups(same[which], len(first)), strict=True):
            size, *offsets = entries[i].tolist()
            mine = positions[members]
            rows = self._rows(mine, size) if size <= _SMALL else None
            layouts.append(_Layout(members, mine, size, tuple(offsets), rows))
        return TableColumns(self, positions, layouts)

    def extents(self, positions: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Start and size of each table and of its vtable."""
        vtables = positions - self.gather(positions, _I32)
        vtable_sizes = self.gather(vtables, _U16).astype(np.int64)
        sizes = self.gather(vtables + _U16.itemsize, _U16).astype(np.int64)
        return positions, sizes, vtables, vtable_sizes

    def vectors(self, positions: IntArray, itemsize: int) -> tuple[IntArray, IntArray]:
        """Start and number of the elements of each vector (number -1: absent vector)."""
        starts = positions + _LENGTH
        lengths = np.full(len(positions), -1, np.int64)
        present = positions >= 0
        if present.all():
            lengths = self.gather(positions, _U32).astype(np.int64)
        elif present.any():
            lengths[present] = self.gather(positions[present], _U32)
        ends = starts + lengths * itemsize
        if len(ends) and ends.max() > self.end:
            longest = ends.argmax()
            raise FormatError(
                f"a vector of {lengths[longest]} elements is longer than the file",
                offset=int(positions[longest]),
            )
        return starts, lengths

    def elements(self, starts: IntArray, lengths: IntArray) -> IntArray:
        """The positions that the offsets in these vectors point to, vector by vector.

        Vectors must not share elements: that would multiply the work.
        """
        lengths = np.maximum(lengths, 0)
        total = int(lengths.sum())
        if total * _U32.itemsize > self.end - self.start:
            raise FormatError("lists of tables overlap: together they are longer than the file")
        if total == 0:
            return np.zeros(0, np.int64)
        before = np.cumsum(lengths) - lengths
        origin = np.repeat(starts - before * _U32.itemsize, lengths)
        origin += np.arange(total, dtype=np.int64) * _U32.itemsize
        return self.follow(origin, self.gather(origin, _U32))

    def strings(self, positions: IntArray) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
        """An id for each position (-1: absent) and the strings, in order of first appearance."""
        ids = np.full(len(positions), -1, np.int32)
        known: dict[str, int] = {}
        ranks = np.zeros(0, np.int32)  # of each known text among those that appeared
        room = self.end - self.start
        for part in chunks(len(positions)):
            present = np.flatnonzero(positions[part] >= 0)
            if not len(present):
                continue
            starts, lengths = self.vectors(positions[part][present], 1)
            room -= int(lengths.sum())
            if room < 0:  # some are referred to many times
                return self._shared_strings(positions)
            found = self._known_strings(starts, lengths, known)
            if len(known) > len(ranks):
                new, first = np.unique(found, return_index=True)
                is_new = new >= len(ranks)
                ordered = new[is_new][np.argsort(first[is_new])]
                count, ranks = len(ranks), np.resize(ranks, len(known))
                ranks[ordered] = np.arange(count, len(known), dtype=np.int32)
            ids[part][present] = ranks[found]
        texts = dict(zip(ranks.tolist(), known, strict=True))
        return ids, tuple(texts[rank] for rank in range(len(texts)))

    def _shared_strings(self, positions: IntArray) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
        """Do the same as `strings` if strings overlap: together longer than the file. Read each
        once."""
        one, index, which = np.unique(positions, return_index=True, return_inverse=True)
        starts, lengths = self.vectors(one[one >= 0], 1)
        self.refuse_overlap(starts, lengths, "strings")
        in_order = np.argsort(index, kind="stable")
        ids, texts = self.strings(one[in_order])
        rank = np.empty(len(one), np.int64)
        rank[in_order] = np.arange(len(one))
        return ids[rank[which]], texts

    def _check(self, positions: IntArray, width: int) -> None:
        """Raise `FormatError` if `width` bytes from one of `positions` (not empty) lie outside the
        buffer."""
        lowest, highest = int(positions.min()), int(positions.max())
        if lowest < self.start or highest + width > self.end:
            at = lowest if lowest < self.start else highest
            raise FormatError(f"a reference leads to byte {at:,}, outside of the file's data")

    def refuse_overlap(self, starts: IntArray, lengths: IntArray, what: str) -> None:
        """Raise `FormatError` if vectors of bytes with distinct starts overlap: together they are
        longer than the file."""
        if int(np.maximum(lengths, 0).sum()) <= self.end - self.start:
            return
        _, one = np.unique(starts, return_index=True)
        if int(np.maximum(lengths[one], 0).sum()) > self.end - self.start:
            raise FormatError(f"{what} overlap: together they are longer than the file")

    def _known_strings(
        self, starts: IntArray, lengths: IntArray, known: dict[str, int]
    ) -> npt.NDArray[np.int32]:
        """An id for each string: its number in `known`, to which new ones are added."""
        ids = np.zeros(len(starts), np.int32)
        sizes, which = _distinct(lengths)
        for size, members in zip(sizes.tolist(), _groups(which, len(sizes)), strict=True):
            of_size = starts[members]
            rows = self._rows(of_size, size)
            one, same = unique_rows(rows)
            kinds = []
            for i in one:
                try:
                    text = rows[i].tobytes().decode()
                except UnicodeDecodeError as error:
                    raise FormatError(
                        f"a string is not UTF-8: {error.reason}",
                        offset=int(of_size[i]) + error.start,
                    ) from error
                kinds.append(known.setdefault(text, len(known)))
            ids[members] = np.array(kinds, np.int32)[same]
        return ids

    def _vtables(self, positions: IntArray, fields: int) -> npt.NDArray[np.uint16]:
        """One row per vtable: the table's size, then the offset of each field (0: absent)."""
        size = self.gather(positions, _U16).astype(np.int64)
        wrong = np.flatnonzero((size < 2 * _U16.itemsize) | (positions + size > self.end))
        if len(wrong):
            raise FormatError("a vtable is broken", offset=int(positions[wrong[0]]))
        rows = np.zeros((len(positions), fields + 1), np.uint16)
        for column in range(fields + 1):
            at = _U16.itemsize * (column + 1)
            held = size >= at + _U16.itemsize
            rows[held, column] = self.gather(positions[held] + at, _U16)
        return rows

    def follow(self, origin: IntArray, distance: npt.NDArray[np.uint32]) -> IntArray:
        """Targets of the references at `origin`. Distance 0, a self-reference, is an error."""
        target = origin + distance
        if len(target) and (distance.min() == 0 or target.max() + _LENGTH > self.end):
            wrong = np.flatnonzero((distance == 0) | (target + _LENGTH > self.end))[0]
            raise FormatError(
                f"a reference leads to byte {target[wrong]}, which is not in the file",
                offset=int(origin[wrong]),
            )
        return target

    def gather(self, positions: IntArray, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The values of `dtype` at `positions`, which need not be aligned."""
        width = dtype.itemsize
        if width == _WORD and len(positions) and not (positions & (_WORD - 1)).any():
            self._check(positions, width)
            words: npt.NDArray[Any] = self._words[positions >> 2].view(dtype)
            return words
        return self._rows(positions, width).view(dtype)[:, 0]

    def _rows(self, positions: IntArray, width: int) -> ByteArray:
        """`width` bytes from each position, as an array [positions, width]."""
        if width == 0 or len(positions) == 0:
            return np.zeros((len(positions), width), np.uint8)
        self._check(positions, width)
        count = len(self._bytes) - width + 1
        windows: npt.NDArray[Any] = np.ndarray((count,), f"V{width}", self._bytes, 0, (1,))
        rows: ByteArray = windows[positions].view(np.uint8)
        return rows.reshape(-1, width)


def own_sizes(starts: IntArray, sizes: IntArray, end: int) -> tuple[IntArray, IntArray]:
    """Return the bytes of each span up to `end` that belong to no earlier span, and the gaps.

    Both together sum to the bytes from 0 to `end`. Gap i is before the i-th span in the order of
    starts; the last gap is after all spans.
    """
    lows, highs, gap_lows, gap_highs = own_spans(starts, sizes, end)
    return highs - lows, gap_highs - gap_lows


def own_spans(
    starts: IntArray, sizes: IntArray, end: int
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return start and end of each span's own bytes up to `end`, and of the gaps between spans."""
    order = np.lexsort((-sizes, starts))
    begins = np.minimum(starts[order], end)
    ends = np.minimum(begins + sizes[order], end)
    covered = np.maximum.accumulate(np.concatenate([np.zeros(1, np.int64), ends]))
    lows, highs = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
    lows[order] = np.maximum(begins, covered[:-1])
    highs[order] = np.maximum(ends, lows[order])
    return lows, highs, covered, np.maximum(np.append(begins, end), covered)


class Extents(Generic[_Kind]):
    """The places of all visited parts of a FlatBuffer, each with its kind. layouts: the kind of the
    vtables."""

    def __init__(self, buffer: FlatBufferColumns, layouts: _Kind) -> None:
        self.buffer = buffer
        self._layouts = layouts
        self._spans: list[tuple[_Kind, IntArray, IntArray]] = []

    def add(self, kind: _Kind, starts: IntArray, sizes: IntArray) -> None:
        """Add places that were visited in another way."""
        self._spans.append((kind, starts, sizes))

    def tables(
        self, kind: _Kind, positions: IntArray, fields: int, scalar: int = 0
    ) -> TableColumns:
        """Visit the tables at these positions (-1: none). scalar: the bytes of their only field, if
        it is a number: some writers count only half of an int64 in the table's size."""
        positions = np.unique(positions[positions >= 0])
        starts, sizes, vtables, vtable_sizes = self.buffer.extents(positions)
        has = vtable_sizes > _U16.itemsize * 2 if scalar else np.zeros(len(sizes), np.bool_)
        offsets = self.buffer.gather(vtables[has] + _U16.itemsize * 2, _U16)
        sizes[has] = np.maximum(sizes[has], np.where(offsets, offsets + np.int64(scalar), 0))
        self.add(kind, starts, sizes)
        vtables, one = np.unique(vtables, return_index=True)
        self.add(self._layouts, vtables, vtable_sizes[one])
        return self.buffer.tables(positions, fields)

    def vectors(
        self, kind: _Kind, positions: IntArray, itemsize: int, terminator: int = 0
    ) -> tuple[IntArray, IntArray]:
        """Visit the vectors at these positions (-1: none): start and number of the elements."""
        positions = np.unique(positions[positions >= 0])
        starts, lengths = self.buffer.vectors(positions, itemsize)
        self.add(kind, positions, starts - positions + lengths * itemsize + terminator)
        return starts, lengths

    def strings(self, kind: _Kind, positions: IntArray) -> None:
        """Visit the strings at these positions (-1: none)."""
        self.vectors(kind, positions, 1, terminator=1)

    def listed(self, kind: _Kind, positions: IntArray) -> IntArray:
        """Visit the vectors of offsets at these positions; return where their offsets point to."""
        return self.buffer.elements(*self.vectors(kind, positions, 4))

    def sizes(
        self, end: int, below: Callable[[IntArray], IntArray] | None = None
    ) -> tuple[dict[_Kind, int], IntArray, IntArray]:
        """The bytes up to `end` by kind, each counted once; first byte and end of the gaps.

        below: returns how many bytes before each position count; None: all.
        """
        starts = np.concatenate([starts for _, starts, _ in self._spans])
        sizes = np.concatenate([sizes for _, _, sizes in self._spans])
        lows, highs, gap_lows, gap_highs = own_spans(starts, sizes, end)
        own = highs - lows if below is None else below(highs) - below(lows)
        found: dict[_Kind, int] = {}
        position = 0
        for kind, spans, _ in self._spans:
            size = int(own[position : position + len(spans)].sum())
            found[kind] = found.get(kind, 0) + size
            position += len(spans)
        return found, gap_lows, gap_highs


def chunks(count: int) -> list[slice]:
    """Split `count` rows into parts that fit in the CPU's caches; at least one part."""
    return [slice(first, first + _CHUNK) for first in range(0, max(count, 1), _CHUNK)]


def unique_rows(rows: ByteArray) -> tuple[IntArray, IntArray]:
    """Find equal rows: the index of one row of each kind, and the kind of each row."""
    count, width = rows.shape
    if count <= width:  # few and long
        return _unique_one_by_one(rows)
    if (rows == rows[0]).all():
        return np.zeros(1, np.int64), np.zeros(count, np.int64)
    padded = np.zeros((count, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = rows
    words = padded.view(np.uint64)
    digest = np.zeros(count, np.uint64)
    for column in range(words.shape[1]):
        digest = (digest ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        digest ^= digest >> np.uint64(29)
    kinds, same = np.unique(digest, return_inverse=True)
    one = np.zeros(len(kinds), np.int64)
    one[same] = np.arange(count)
    if not np.array_equal(words[one[same]], words):  # different rows with the same digest
        return _unique_one_by_one(rows)
    return one, same


def _unique_one_by_one(rows: ByteArray) -> tuple[IntArray, IntArray]:
    kinds: dict[bytes, int] = {}
    same = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in rows], np.int64)
    one = np.zeros(len(kinds), np.int64)
    one[same] = np.arange(len(rows))
    return one, same


def _distinct(values: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct values, and the index of each value in them. Faster than `np.unique` if there
    are few distinct values."""
    which = np.zeros(len(values), np.int64)
    kinds: list[int] = []
    rest = np.ones(len(values), np.bool_)
    while len(kinds) < _FEW:
        first = int(rest.argmax())
        if not rest[first]:
            return np.array(kinds, np.int64), which
        same = values == values[first]
        which[same] = len(kinds)
        rest &= ~same
        kinds.append(int(values[first]))
    return np.unique(values, return_inverse=True)


def _groups(which: IntArray, count: int) -> list[IntArray | slice]:
    """The indices of the elements of each group; `which` holds each element's group."""
    if count == 1:
        return [slice(None)]
    small = which.astype(np.uint16) if count <= 1 << 16 else which  # sorted in linear time
    order = np.argsort(small, kind="stable")
    return list(np.split(order, np.cumsum(np.bincount(which, minlength=count))[:-1]))
