"""Operators in the data of an XNNPACK delegate, in the order in which XNNPACK gets them.

The data is a header ("XH00") that locates the rest, a FlatBuffer ("XN00" or "XN01") and the
weights; older data has no header. Only the FlatBuffer's list of operators and the ids of the values
that flow between them are read here. Each operator has the debug handle of the graph node that it
was made from, or `NO_HANDLE`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from etscope.errors import FormatError
from etscope.formats.bytes.flatbuffer import UINT32, FlatBuffer

MAGICS = (b"XN00", b"XN01")
_HEADER_MAGIC = b"XH00"
# After four zero bytes: magic, length of the header, offset and size of the tables, of the weights
_HEADER = struct.Struct("<4sHIIIQ")
# The backend writes it for a node that its own passes made.
NO_HANDLE = 65535
# Slots of the schema: a quantised value in the union of values, a value's id, a convert's output.
_QUANTIZED_VALUE, _VALUE_ID, _CONVERT_OUTPUT = 2, 6, 1

# Members of the schema's union of operators, from 1 on, without the prefix "XNN". The names are
# those of the schema; only the order matters, and it only ever grows.
KINDS = (
    "Add", "FullyConnected", "Softmax", "Sigmoid", "StaticTranspose", "Clamp", "Conv2d", "Div",
    "StaticResizeBilinear2D", "StaticConstantPad", "AvgPooling2d", "Minimum", "DepthwiseConv2d",
    "MaxPooling2d", "Multiply", "Subtract", "Floor", "Convert", "GlobalAvgPooling2d",
    "StaticReshape", "ArgMaxPooling2d", "SquareRoot", "Ceiling", "Hardswish", "LeakyReLU",
    "Maximum", "Negate", "Square", "ELU", "Abs", "PReLU", "Concatenate2", "Concatenate3",
    "Concatenate4", "StaticSlice", "ScaledDotProductAttention", "BatchMatrixMultiply",
    "Concatenate5", "ConvTranspose2d", "ReciprocalSquareRoot", "Log", "Gelu", "Tanh", "Exp", "Sin",
    "Copy", "Cos",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class XnnNode:
    """One operator: its kind ("Conv2d"; None for one that etscope does not know), and the debug
    handle of its node, None for an operator that the backend added.

    `clamped`: its output is clamped, as by a relu that was fused into it. `quantizes`: it is a
    "Convert" whose output is quantised.
    """

    kind: str | None
    debug_handle: int | None
    clamped: bool = False
    quantizes: bool = False


def is_xnnpack(data: memoryview) -> bool:
    """Return True if the bytes begin like a delegate's data for XNNPACK."""
    return bytes(data[4:8]) in (_HEADER_MAGIC, *MAGICS)


def read_xnnpack(data: memoryview) -> tuple[XnnNode, ...]:
    """Read the operators of a delegate's data, in the order in which XNNPACK gets them."""
    tables = data
    if bytes(data[4:8]) == _HEADER_MAGIC:
        if len(data) < 4 + _HEADER.size:
            raise FormatError("the header of the XNNPACK data is cut off", offset=0)
        _, _, offset, size, *_ = _HEADER.unpack_from(data, 4)
        if offset + size > len(data):
            raise FormatError(
                f"the XNNPACK operators are bytes {offset:,} to {offset + size:,} of {len(data):,}",
                offset=10,
            )
        tables = data[offset : offset + size]
    magic = bytes(tables[4:8])
    if magic not in MAGICS:
        raise FormatError(f"not XNNPACK data: its tables begin with {magic!r}", offset=4)
    root = FlatBuffer(tables).root()
    quantized: set[int] = set()
    for value in root.tables(2):
        member, entry = value.union(0)
        tensor = entry.table(0) if entry is not None and member == _QUANTIZED_VALUE else None
        if tensor is not None:
            quantized.add(tensor.integer(_VALUE_ID, UINT32))
    nodes = []
    for table in root.tables(1):
        number, entry = table.union(0)
        handle = table.integer(2, UINT32)
        kind = KINDS[number - 1] if 1 <= number <= len(KINDS) else None
        output = entry.integer(_CONVERT_OUTPUT, UINT32) if entry and kind == "Convert" else -1
        nodes.append(
            XnnNode(
                kind=kind,
                debug_handle=None if handle in (0, NO_HANDLE) else handle,
                clamped=table.has(3),
                quantizes=output in quantized,
            )
        )
    return tuple(nodes)
