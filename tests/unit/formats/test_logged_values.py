"""The columns of logged values against the values one by one, and against broken ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from etscope.errors import FormatError
from etscope.formats.etdump.debug_values import TensorRef, ValueType
from etscope.formats.etdump.reader import logged_values, read_etdump
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.program.scalar_type import ScalarType
from tests.support import etdump_by_hand as by_hand
from tests.support.artifacts import artifacts


@pytest.mark.parametrize(
    "name", ["cnn_portable", "int_outputs", "channels_last", "transformer", "scalar_outputs"]
)
def test_they_are_what_the_values_are_one_by_one(name: str) -> None:
    files = artifacts(name)
    dump = read_etdump(files.etdump)
    rows = np.flatnonzero(dump.debug_value_offset >= 0)
    one_by_one = [dump.value(int(row)) for row in rows]
    tensors = [
        ref
        for value in one_by_one
        for ref in (value if isinstance(value, tuple) else (value,))
        if isinstance(ref, TensorRef)
    ]

    found = logged_values(dump)

    sizes = [ref.scalar_type.nbytes(math.prod(ref.sizes)) for ref in tensors]
    assert len(found.kind) == len(one_by_one)
    assert sorted(found.offset.tolist()) == sorted(ref.offset for ref in tensors)
    assert sorted(found.nbytes.tolist()) == sorted(sizes)
    for kind in ScalarType:
        mine = [s for s, ref in zip(sizes, tensors, strict=True) if ref.scalar_type is kind]
        assert int(found.nbytes[found.scalar_type == kind].sum()) == sum(mine)
    assert found.buffer_size == max(r.offset + s for r, s in zip(tensors, sizes, strict=True))
    assert found.buffer_size <= files.debug_buffer.stat().st_size


def test_every_kind_of_value() -> None:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    tensors = [np.zeros(4, np.uint8), np.zeros((0, 5), np.float64)]
    for value in (None, True, 3, 2.5, np.zeros((2, 3), np.int16), tensors):
        writer.log_evalue(value)

    found = logged_values(read_etdump(writer.finish()))

    assert [ValueType(kind).name for kind in found.kind] == [
        "NULL", "BOOL", "INT", "DOUBLE", "TENSOR", "TENSOR_LIST",
    ]  # fmt: skip
    assert found.nbytes.tolist() == [12, 4, 0]
    found = logged_values(read_etdump(artifacts("large_20k").etdump))
    assert (len(found.kind), len(found.nbytes), found.buffer_size) == (0, 0, 0)


FLOAT = 6
TENSOR, TENSOR_LIST = 5, 6


def found_of(value: by_hand.Table) -> Any:
    dump = by_hand.etdump(by_hand.run("Execute", [by_hand.debug(value)]))
    return logged_values(read_etdump(dump))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (by_hand.value(TENSOR, 1, by_hand.tensor(FLOAT, [2, -1], [], 0)), "negative size"),
        (by_hand.value(TENSOR, 1, by_hand.tensor(FLOAT, [2**40, 2**40], [], 0)), "any memory"),
        (by_hand.value(TENSOR, 1, by_hand.tensor(FLOAT, [1] * 33, [], 0)), "33 sizes"),
        (by_hand.value(TENSOR, 1, by_hand.tensor(99, [1], [], 0)), "unknown scalar type 99"),
        (by_hand.value(TENSOR), "TENSOR or TENSOR_LIST is empty"),
        (by_hand.value(TENSOR_LIST), "TENSOR or TENSOR_LIST is empty"),
    ],
)
def test_broken_values_are_refused(value: by_hand.Table, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        found_of(value)


def test_an_empty_tensor_may_have_a_huge_size_beside_its_zero() -> None:
    tensor = by_hand.tensor(FLOAT, [2**62, 0, 2**62], [], -1)
    found = found_of(by_hand.value(TENSOR, 1, tensor))
    assert (found.nbytes.tolist(), found.buffer_size) == ([0], 0)
