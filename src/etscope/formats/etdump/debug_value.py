"""The values that debug events hold: scalars inline, tensors by reference to the debug buffer."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from etscope.errors import FormatError
from etscope.formats.bytes.flatbuffer import INT8, INT32, INT64, FlatBuffer, Table
from etscope.formats.bytes.flatbuffer_heap import Heap
from etscope.formats.program.scalar_type import ScalarType, scalar_type


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A logged tensor: where its bytes are in the debug buffer, and how they lie there.

    `strides` count elements, `offset` bytes from the start of the debug buffer; a tensor without
    elements has offset -1. The numbers are as the file has them: `DebugBuffer.tensor` checks them.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


DebugValue = TensorRef | tuple[TensorRef, ...] | bool | int | float | None


class ValueType(IntEnum):
    """What a `Value` holds, numbered as in ETDump files."""

    NULL = 0
    INT = 1
    BOOL = 2
    FLOAT = 3
    DOUBLE = 4
    TENSOR = 5
    TENSOR_LIST = 6
    STRING = 7


# type -> the slot of `Value` that holds its payload
_PAYLOAD_SLOT = {
    ValueType.TENSOR: 1,
    ValueType.TENSOR_LIST: 2,
    ValueType.INT: 3,
    ValueType.FLOAT: 4,
    ValueType.DOUBLE: 5,
    ValueType.BOOL: 6,
}
_MOST_DIMENSIONS = 32  # numpy 1's limit; ExecuTorch's own is 16


def read_value(view: memoryview, position: int) -> DebugValue:
    """The `Value` table at `position` of a flatbuffer.

    A tensor list is a tuple. Null is None, and so is String: the format names that type but has
    no field for its text. Raises `FormatError` for an unknown type or a payload that is not there.
    """
    table = Table(FlatBuffer(view), position)
    number = table.integer(0, INT8)
    try:
        kind = ValueType(number)
    except ValueError as error:
        raise FormatError(f"unknown type {number} of a debug value", offset=position) from error
    if kind in (ValueType.NULL, ValueType.STRING):
        return None
    payload = table.table(_PAYLOAD_SLOT[kind])
    if payload is None:
        raise FormatError(f"a debug value of type {kind.name} holds nothing", offset=position)
    return _read_payload(kind, payload)


def _read_payload(kind: ValueType, table: Table) -> DebugValue:
    if kind is ValueType.TENSOR:
        return _read_tensor(table)
    if kind is ValueType.TENSOR_LIST:
        return tuple(_read_tensor(tensor) for tensor in table.tables(0))
    if kind is ValueType.INT:
        return table.integer(0, INT64)
    if kind is ValueType.BOOL:
        return table.flag(0)
    if kind is ValueType.DOUBLE:
        return table.double(0)
    bits = table.integer(0, INT32)
    return float(struct.unpack("<f", INT32.pack(bits))[0])


def _read_tensor(table: Table) -> TensorRef:
    sizes, strides = table.numbers(1, "q"), table.numbers(2, "q")
    if len(sizes) > _MOST_DIMENSIONS or len(strides) not in (0, len(sizes)):
        raise FormatError(
            f"a tensor has {len(sizes)} sizes and {len(strides)} strides", offset=table.position
        )
    return TensorRef(
        scalar_type(table.integer(0, INT8), offset=table.position),
        sizes,
        strides,
        table.integer(3, INT64),
    )


def write_value(heap: Heap, value_and_output: tuple[DebugValue, bool]) -> int:
    """Write a value and whether it is an output of the program; where its table is.

    A float is written as a double, which holds every float.
    """
    value, output = value_and_output
    kind = _type_of(value)
    slot = _PAYLOAD_SLOT.get(kind)
    offsets = [12, 0, 0, 0, 0, 0, 0, 8 if output else 0]
    if slot is not None:
        offsets[slot] = 4
    table = heap.table(tuple(offsets), "IIb3x", 0, 0, kind)
    if slot is not None:
        heap.refer(table + 4, _write_payload(heap, kind, value))
    if output:
        heap.refer(table + 8, heap.table((4,), "?3x", True))
    return table


def _type_of(value: DebugValue) -> ValueType:
    if value is None:
        return ValueType.NULL
    if isinstance(value, bool):  # before int, which it is too
        return ValueType.BOOL
    if isinstance(value, int):
        return ValueType.INT
    if isinstance(value, float):
        return ValueType.DOUBLE
    return ValueType.TENSOR if isinstance(value, TensorRef) else ValueType.TENSOR_LIST


def _write_payload(heap: Heap, kind: ValueType, value: Any) -> int:
    if kind is ValueType.TENSOR:
        return _write_tensor(heap, value)
    if kind is ValueType.TENSOR_LIST:
        return _write_tensors(heap, value)
    if kind is ValueType.BOOL:
        return heap.table((4,), "?3x", value)
    return heap.table((8,), "4xq" if kind is ValueType.INT else "4xd", value)


def _write_tensors(heap: Heap, tensors: tuple[TensorRef, ...]) -> int:
    table = heap.table((4,), "I", 0)
    first = heap.references(len(tensors))
    heap.refer(table + 4, first - 4)
    for i, tensor in enumerate(tensors):
        heap.refer(first + 4 * i, _write_tensor(heap, tensor))
    return table


def _write_tensor(heap: Heap, ref: TensorRef) -> int:
    table = heap.table((12, 4, 8, 16), "IIb3xq", 0, 0, ref.scalar_type, ref.offset)
    heap.refer(table + 4, heap.longs(ref.sizes))
    heap.refer(table + 8, heap.longs(ref.strides))
    return table
