from __future__ import annotations

import numpy as np
import pytest

from etscope.errors import FormatError
from etscope.formats.bytes.flatbuffer_columns import FlatBufferColumns, unique_rows


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
