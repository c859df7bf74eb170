"""The calls in the data of a Vulkan delegate, in order of execution.

The data is a header ("VH00") that locates a FlatBuffer (backends/vulkan/serialization/schema.fbs).
Its `chain` lists the calls, each with the id that the runtime logs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from etscope.errors import FormatError
from etscope.formats.bytes.flatbuffer import UINT32, FlatBuffer, FlatTable

# After four zero bytes: magic, length of the header, offset and size of tables and of constants.
HEADER = struct.Struct("<4x4sHIIIQ")
_MAGIC = b"VH00"
TENSOR = 5  # in the union of values


@dataclass(frozen=True, slots=True)
class VulkanCall:
    """A call of an operator. name: "aten.sigmoid.default", or one of Vulkan's own ("et_vk.…").
    shape: of its output; None unless the output is one tensor. arguments: numbers of its values,
    the output last."""

    node_id: int
    name: str
    shape: tuple[int, ...] | None
    arguments: tuple[int, ...] = ()


def read_vulkan(data: memoryview) -> tuple[VulkanCall, ...]:
    """Return the calls. Raises `FormatError` for other data."""
    root = vulkan_graph(data)
    values = root.tables(2)
    calls: list[VulkanCall] = []
    for call in root.tables(1):
        arguments = call.numbers(2, "i")
        shape = None
        if arguments:
            output = arguments[-1]
            if not 0 <= output < len(values):
                raise FormatError(
                    f"a Vulkan call writes value {output}, but there are {len(values)}"
                )
            kind, tensor = values[output].union(0)
            if kind == TENSOR and tensor is not None:
                shape = tuple(tensor.numbers(1, "I"))
        number, name = call.integer(0, UINT32), call.string(1) or ""
        calls.append(VulkanCall(number, name, shape, tuple(arguments)))
    return tuple(calls)


def vulkan_graph(data: memoryview) -> FlatTable:
    """Return the tables of the data. Raises `FormatError` for other data."""
    if len(data) < HEADER.size:
        raise FormatError("not the data of a Vulkan delegate: it is too short")
    magic, _, tables, size, _, _ = HEADER.unpack_from(data)
    if magic != _MAGIC or tables + size > len(data):
        raise FormatError("not the data of a Vulkan delegate")
    return FlatBuffer(data[tables : tables + size]).root()
