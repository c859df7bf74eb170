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
    FlatTable,
)
from tests.support.formats.handmade import Number, Raw, build


def root_of(data: bytes) -> FlatTable:
    return FlatBuffer(memoryview(data)).root()


def test_numbers_of_every_kind() -> None:
    root = root_of(
        build(
            {
                0: Number("b", -3),
                1: Number("B", 250),
                2: Number("i", -70_000),
                3: Number("I", 4_000_000_000),
                4: Number("q", -(2**60)),
                5: Number("Q", 2**63 + 1),
                6: Number("d", 2.5),
                7: Number("?", True),
            }
        )
    )
    kinds = [INT8, UINT8, INT32, UINT32, INT64, UINT64]
    assert [root.integer(slot, kind) for slot, kind in enumerate(kinds)] == [
        -3,
        250,
        -70_000,
        4_000_000_000,
        -(2**60),
        2**63 + 1,
    ]
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


def test_strings_vectors_and_tables() -> None:
    root = root_of(
        build(
            {
                0: "größe",
                1: Number("i", [1, -2, 3]),
                2: Number("d", [0.5, -0.25]),
                3: b"\x00\xff",
                4: {0: "inner"},
                5: [{0: Number("i", index)} for index in range(3)],
                6: "",
            }
        )
    )
    assert root.string(0) == "größe"
    assert root.string(6) == ""
    assert root.numbers(1, "i") == (1, -2, 3)
    assert root.numbers(2, "d") == (0.5, -0.25)
    assert root.numbers(3, "B") == (0, 255)
    inner = root.table(4)
    assert inner.string(0) == "inner"
    assert [table.integer(0, INT32) for table in root.tables(5)] == [0, 1, 2]


def test_arrays_are_views_of_the_buffer() -> None:
    data = build({0: Number("i", [5, 6]), 1: b"abc"})
    root = root_of(data)
    array = root.array(0, "i4")
    assert array.tolist() == [5, 6]
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    span = root.blob(1)
    assert data[span.offset : span.offset + span.size] == b"abc"


def test_a_union_has_its_kind_and_its_table() -> None:
    kind, member = root_of(build({0: Number("B", 9), 1: {0: "member"}})).union(0)
    assert kind == 9
    assert member.string(0) == "member"


@pytest.mark.parametrize("offset", [0xFFFF_FFFF, 0x7FFF_FFFF, 10_000])
def test_offsets_out_of_the_buffer(offset: int) -> None:
    root = root_of(build({0: Raw(offset), 1: [Raw(offset)]}))
    for read in (
        lambda: root.string(0),
        lambda: root.table(0),
        lambda: root.tables(0),
        lambda: root.numbers(0, "i"),
        lambda: root.array(0, "i4"),
        lambda: root.blob(0),
        lambda: root.tables(1),
    ):
        with pytest.raises(FormatError, match=r"points to byte") as caught:
            read()
        assert caught.value.offset is not None


def test_a_vector_longer_than_the_buffer() -> None:
    data = bytearray(build({0: Number("i", [1, 2, 3])}))
    data[-16:] = struct.pack("<I", 2**31) + data[-12:]
    root = root_of(bytes(data))
    for read in (
        lambda: root.numbers(0, "i"),
        lambda: root.array(0, "i4"),
        lambda: root.tables(0),
        lambda: root.blob(0),
    ):
        with pytest.raises(FormatError, match=r"a list of 2,147,483,648 items"):
            read()


def test_a_string_that_is_not_utf8() -> None:
    with pytest.raises(FormatError, match="not UTF-8"):
        root_of(build({0: "caf\udce9"})).string(0)


@pytest.mark.parametrize(("way", "words"), [(2**31 - 1, "before the file"), (-(2**31), "byte")])
def test_a_vtable_outside_of_the_buffer(way: int, words: str) -> None:
    data = bytearray(build({0: Number("i", 1)}))
    (position,) = struct.unpack_from("<I", data, 0)
    struct.pack_into("<i", data, position, way)
    with pytest.raises(FormatError, match=words):
        root_of(bytes(data))


def test_a_buffer_cut_off_anywhere() -> None:
    data = build({0: "text", 1: {0: Number("i", 4)}})

    def read_all(data: bytes) -> None:
        root = root_of(data)
        root.string(0)
        inner = root.table(1)
        inner.integer(0, INT32)

    read_all(data)
    for size in range(1, len(data)):
        with pytest.raises(FormatError):
            read_all(data[:size])


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


def test_long_vectors_read_again_and_again_are_refused() -> None:
    root = root_of(build({0: Number("i", list(range(20_000)))}))
    with pytest.raises(FormatError, match="too many times"):
        for _ in range(100):
            root.numbers(0, "i")


def test_views_cost_nothing() -> None:
    root = root_of(build({0: Number("i", list(range(20_000)))}))
    for _ in range(100):
        assert len(root.array(0, "i4")) == 20_000
