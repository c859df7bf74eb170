"""Tables of a FlatBuffer one by one, and columns of many."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from etscope.errors import FormatError
from etscope.formats.bytes.flatbuffer import (
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    FlatBuffer,
    FlatBufferColumns,
    FlatTable,
    unique_rows,
)
from tests.support.formats.handmade import Number, Raw, build


def root_of(data: bytes) -> FlatTable:
    return FlatBuffer(memoryview(data)).root()


def test_numbers_of_every_kind() -> None:
    numbers = [-3, 250, -70_000, 4_000_000_000, -(2**60), 2**63 + 1, 2.5, True]
    fields = zip("bBiIqQd?", numbers, strict=True)
    root = root_of(build({slot: Number(*field) for slot, field in enumerate(fields)}))
    kinds = [INT8, UINT8, INT32, UINT32, INT64, UINT64]
    assert [root.integer(slot, kind) for slot, kind in enumerate(kinds)] == numbers[:6]
    assert root.double(6) == 2.5
    assert root.flag(7) is True


def test_what_was_not_written_has_its_default() -> None:
    root = root_of(build({3: Number("i", 1)}))
    assert root.integer(0, INT32) == 0
    assert root.integer(200, INT32, 7) == 7
    assert root.flag(1, True) is True
    assert root.double(2, 0.5) == 0.5
    assert root.string(0) is None
    assert root.table(0) is None
    assert root.union(0) == (0, None)
    assert root.tables(0) == []
    assert root.numbers(0, "i") == ()
    assert root.array(0, "i4").shape == (0,)
    assert root.blob(0).size == 0
    assert not root.has(0)
    assert root.has(3)


def test_strings_vectors_tables_and_unions() -> None:
    data = build(
        {
            0: "größe",
            1: Number("i", [1, -2, 3]),
            2: Number("d", [0.5, -0.25]),
            3: b"\x00\xff",
            4: {0: "inner"},
            5: [{0: Number("i", index)} for index in range(3)],
            6: "",
            7: Number("B", 9),
            8: {0: "member"},
        }
    )
    root = root_of(data)
    assert root.string(0) == "größe"
    assert root.string(6) == ""
    assert root.numbers(1, "i") == (1, -2, 3)
    assert root.numbers(2, "d") == (0.5, -0.25)
    assert root.numbers(3, "B") == (0, 255)
    array = root.array(1, "i4")
    assert array.tolist() == [1, -2, 3]
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    span = root.blob(3)
    assert data[span.offset : span.offset + span.size] == b"\x00\xff"
    assert root.table(4).string(0) == "inner"
    assert [table.integer(0, INT32) for table in root.tables(5)] == [0, 1, 2]
    kind, member = root.union(7)
    assert (kind, member.string(0)) == (9, "member")


VECTORS = (
    lambda root: root.tables(0),
    lambda root: root.numbers(0, "i"),
    lambda root: root.array(0, "i4"),
    lambda root: root.blob(0),
)


@pytest.mark.parametrize("offset", [0xFFFF_FFFF, 0x7FFF_FFFF, 10_000])
def test_offsets_out_of_the_buffer(offset: int) -> None:
    root = root_of(build({0: Raw(offset), 1: [Raw(offset)]}))
    others = (lambda root: root.string(0), lambda root: root.table(0), lambda root: root.tables(1))
    for read in (*VECTORS, *others):
        with pytest.raises(FormatError, match=r"points to byte") as caught:
            read(root)
        assert caught.value.offset is not None


def test_a_vector_longer_than_the_buffer() -> None:
    data = bytearray(build({0: Number("i", [1, 2, 3])}))
    data[-16:] = struct.pack("<I", 2**31) + data[-12:]
    for read in VECTORS:
        with pytest.raises(FormatError, match=r"a list of 2,147,483,648 items"):
            read(root_of(bytes(data)))


@pytest.mark.parametrize(("way", "words"), [(2**31 - 1, "before the file"), (-(2**31), "byte")])
def test_a_vtable_outside_of_the_buffer(way: int, words: str) -> None:
    data = bytearray(build({0: Number("i", 1)}))
    (position,) = struct.unpack_from("<I", data, 0)
    struct.pack_into("<i", data, position, way)
    with pytest.raises(FormatError, match=words):
        root_of(bytes(data))


def levels(width: int, depth: int) -> bytes:
    """A table with a vector of `width` offsets, all to the next such table, `depth` tables deep."""
    data = bytearray(8)
    vtable = len(data)
    data += struct.pack("<HHHxx", 6, 8, 4)
    struct.pack_into("<I", data, 0, len(data))
    for level in range(depth):
        items = width if level + 1 < depth else 0
        data += struct.pack("<iII", len(data) - vtable, 4, items)
        following = len(data) + 4 * items
        for _ in range(items):
            data += struct.pack("<I", following - len(data))
    return bytes(data)


def test_tables_that_share_a_subtree_again_and_again_are_refused() -> None:
    """44 KB that stand for 10^33 tables."""

    def count(table: FlatTable) -> int:
        return 1 + sum(count(child) for child in table.tables(0))

    assert count(root_of(levels(width=3, depth=4))) == 1 + 3 + 9 + 27
    with pytest.raises(FormatError, match="too many times"):
        count(root_of(levels(width=1000, depth=12)))


def test_long_vectors_read_again_and_again_are_refused_but_views_are_not() -> None:
    root = root_of(build({0: Number("i", list(range(20_000)))}))
    for _ in range(100):
        assert len(root.array(0, "i4")) == 20_000
    with pytest.raises(FormatError, match="too many times"):
        for _ in range(100):
            root.numbers(0, "i")


# -- columns of many tables at once


@pytest.mark.parametrize(
    ("count", "width", "kinds"),
    [(1, 5, 1), (500, 3, 1), (500, 3, 40), (3000, 9, 700), (4, 300, 3), (50, 0, 1), (0, 7, 0)],
)
def test_unique_rows(count: int, width: int, kinds: int) -> None:
    rng = np.random.default_rng(0)
    pool = rng.integers(0, 256, (max(kinds, 1), width), dtype=np.uint8)
    rows = pool[rng.integers(0, max(kinds, 1), count)]
    one, same = unique_rows(rows)
    assert np.array_equal(rows[one[same]], rows)
    assert len({rows[i].tobytes() for i in one}) == len(one) == len({row.tobytes() for row in rows})


def test_rows_that_were_made_to_have_one_digest() -> None:
    factor, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mixed(word: int) -> int:
        word = word * factor & mask
        return word ^ word >> 29

    first, second = (1, 2), (3, 2 ^ mixed(1) ^ mixed(3))
    rows = np.array([first, second] * 20, np.uint64).view(np.uint8)

    one, same = unique_rows(rows)

    assert len(one) == 2
    assert np.array_equal(rows[one[same]], rows)


def test_numbers_at_any_place() -> None:
    data = np.arange(64, dtype=np.uint8)
    buffer = FlatBufferColumns(memoryview(data), 4, 64)
    for positions in ([4, 8, 60], [5, 4, 31], [60]):
        for dtype in ("<u2", "<i4", "<u4"):
            expected = [int.from_bytes(data[at : at + int(dtype[2])], "little") for at in positions]
            actual = buffer.gather(np.array(positions, np.int64), np.dtype(dtype))
            assert actual.tolist() == expected


@pytest.mark.parametrize("position", [3, -1, 61, 64, 2**40, -(2**40)])
def test_numbers_outside_of_the_buffer(position: int) -> None:
    buffer = FlatBufferColumns(memoryview(bytes(100)), 4, 64)
    with pytest.raises(FormatError, match="outside of the file's data"):
        buffer.gather(np.array([8, position], np.int64), np.dtype("<u4"))


def test_tables_larger_than_what_is_fetched_at_once() -> None:
    size = 2000
    vtable = np.array([8, size, 1996, 4], "<u2").tobytes()
    table = np.array([8], "<i4").tobytes() + bytes(range(4, 100)) + bytes(1896)
    data = bytes(8) + vtable + table[:1996] + b"\x07\0\0\0"
    buffer = FlatBufferColumns(memoryview(data), 8, len(data))
    tables = buffer.tables(np.array([16, 16], np.int64), 2)
    assert tables.scalar(0, "<u4").tolist() == [7, 7]
    assert tables.scalar(1, "<u2").tolist() == [0x0504] * 2
    with pytest.raises(FormatError, match="field 0 of a table lies outside it"):
        tables.scalar(0, "<u8")
