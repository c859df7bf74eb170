"""Operators in the data of an XNNPACK delegate, in the order that XNNPACK gets them.

The data is a header ("XH00") that locates the rest, a FlatBuffer ("XN00" or "XN01") and the
weights; older data does not have a header. This module reads the FlatBuffer's list of operators,
the types and shapes of the values between them, and the places of the weights. Each operator has
the debug handle of its graph node, or `NO_HANDLE`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from etscope.errors import FormatError
from etscope.formats.bytes.flatbuffer import INT16, INT32, UINT32, UINT64, FlatBuffer, FlatTable

MAGICS = (b"XN00", b"XN01")
_HEADER_MAGIC = b"XH00"
# After four zero bytes: magic, length of the header, offset and size of the tables, of the weights
_HEADER = struct.Struct("<4sHIIIQ")
# The backend writes this for a node that its own passes add.
NO_HANDLE = 65535
# A quantized value in the union of values.
_QUANTIZED_VALUE = 2
# Flags of a value: XNN_VALUE_FLAG_EXTERNAL_INPUT and XNN_VALUE_FLAG_EXTERNAL_OUTPUT.
_EXTERNAL = 1 | 2
# Quantization of a value, by channel and by group of a channel: the slot with the index of its
# scales among the constants, and their type.
_PER_CHANNEL, _PER_TENSOR, _PER_GROUP = 1, 2, 4
_SCALES = {_PER_CHANNEL: (2, "float32"), _PER_GROUP: (4, "bfloat16")}
# Element types that get scale and zero point at run time: qdint8, qpint8.
_DYNAMIC = (9, 11)
# The schema's element types, by torch's names; None for the invalid one.
_DTYPES = (
    None, "float32", "float16", "int8", "uint8", "int32", "int8", "int32", "int4", "int8", "int4",
    "int8", "int32", "float32", "bfloat16",
)  # fmt: skip

# Members of the schema's union of operators, from 1 on, without the prefix "XNN". Only the order
# matters; the schema grows at the end.
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
# The slots of the ids of an operator's input values, and of its output values.
_Slots = tuple[tuple[int, ...], tuple[int, ...]]
_ONE_INPUT: _Slots = ((0,), (1,))
_TWO_INPUTS: _Slots = ((0, 1), (2,))
_CONVOLUTION: _Slots = ((15, 16, 17), (18,))
_POOLING: _Slots = ((10,), (11,))
_CONCATENATION: _Slots = ((1, 2, 3, 4, 7), (5,))
_SLOTS: Mapping[str, _Slots] = {
    **dict.fromkeys(("Add", "BatchMatrixMultiply", "Div", "Maximum", "Minimum"), _TWO_INPUTS),
    **dict.fromkeys(("Multiply", "PReLU", "Subtract"), _TWO_INPUTS),
    **dict.fromkeys(("Conv2d", "ConvTranspose2d", "DepthwiseConv2d"), _CONVOLUTION),
    **dict.fromkeys(("AvgPooling2d", "MaxPooling2d"), _POOLING),
    **dict.fromkeys(("StaticTranspose", "StaticReshape", "StaticResizeBilinear2D"), ((2,), (3,))),
    **dict.fromkeys(("StaticConstantPad", "StaticSlice"), ((3,), (4,))),
    **dict.fromkeys(("ELU", "LeakyReLU"), ((1,), (2,))),
    **{
        f"Concatenate{count}": (_CONCATENATION[0][:count], _CONCATENATION[1])
        for count in (2, 3, 4, 5)
    },
    "ArgMaxPooling2d": ((7,), (8, 9)),
    "FullyConnected": ((0, 1, 2), (3,)),
    "ScaledDotProductAttention": ((0, 1, 2, 3, 4), (5,)),
}


@dataclass(frozen=True, slots=True)
class XnnConstant:
    """Constant bytes of a value: the program's named data `key`, or without a key the delegate's
    data from `offset`. label: "int8[16, 8]", or "scales". quantized: the quantization of integers;
    None if unknown."""

    key: str | None
    offset: int
    size: int
    dtype: str
    label: str
    quantized: XnnQuantized | None = None


@dataclass(frozen=True, slots=True)
class XnnQuantized:
    """Quantization: an integer means (integer - zero_point) * scale. scales: numbers, or the
    constant with them. axis: the dimension with a scale for each channel; None: one scale."""

    scales: tuple[float, ...] | XnnConstant
    zero_point: int = 0
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class XnnTensor:
    """The element type ("int8") and the sizes of a value, in XNNPACK's order of dimensions.

    constants: its weights and the scales of their channels, if the file has its content.
    `is_dynamic`: it gets scale and zero point at run time.
    """

    dtype: str
    sizes: tuple[int, ...]
    is_quantized: bool = False
    constants: tuple[XnnConstant, ...] = field(default=(), compare=False)
    is_dynamic: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.sizes))}]"


@dataclass(frozen=True, slots=True)
class XnnNode:
    """An operator: its kind ("Conv2d"; None if etscope does not know it), and the debug handle of
    its node; None for an operator that the backend added.

    `clamped`: it clamps its output, for example by a fused relu. `quantizes`: it is a "Convert" to
    a quantized type. `inputs`, `outputs`: its values, weights included. `bounds`: the bounds of the
    clamp; infinite without one. `window`: number of elements in a pooling's window.
    `order`: the dimensions of a transpose.
    """

    kind: str | None
    debug_handle: int | None
    clamped: bool = False
    quantizes: bool = False
    inputs: tuple[XnnTensor, ...] = field(default=(), compare=False)
    outputs: tuple[XnnTensor, ...] = field(default=(), compare=False)
    bounds: tuple[float, float] | None = field(default=None, compare=False)
    window: int | None = field(default=None, compare=False)
    order: tuple[int, ...] = field(default=(), compare=False)


class XnnGraph(NamedTuple):
    """The content of a delegate's data. arguments: the values that are passed to and from the
    delegate's call, by their position among the call's arguments; values that it neither reads nor
    writes are missing.
    """

    operators: tuple[XnnNode, ...]
    arguments: Mapping[int, XnnTensor]


def is_xnnpack(data: memoryview) -> bool:
    """Return True if the bytes begin like the data of an XNNPACK delegate."""
    return bytes(data[4:8]) in (_HEADER_MAGIC, *MAGICS)


def known_operators(data: memoryview) -> tuple[XnnNode, ...]:
    """Return the operators of a delegate's data; () for another backend's and for damaged data,
    which `etscope info` reports."""
    try:
        return read_xnnpack(data) if is_xnnpack(data) else ()
    except FormatError:
        return ()


def read_xnnpack(data: memoryview) -> tuple[XnnNode, ...]:
    """Read the operators of a delegate's data, in the order that XNNPACK gets them."""
    return read_xnnpack_graph(data).operators


def read_xnnpack_graph(data: memoryview) -> XnnGraph:
    """Read the operators of a delegate's data, and what it exchanges with its call."""
    root, weights_at = _root(data)
    arguments: dict[int, XnnTensor] = {}
    values = _values(root, weights_at, arguments)
    nodes = []
    for table in root.tables(1):
        number, entry = table.union(0)
        handle = table.integer(2, UINT32)
        kind = KINDS[number - 1] if 1 <= number <= len(KINDS) else None
        inputs, outputs = (
            ()
            if entry is None or kind is None
            else tuple(
                values[identifier]
                for slot in slots
                if (identifier := entry.integer(slot, UINT32)) in values
            )
            for slots in _SLOTS.get(kind or "", _ONE_INPUT)
        )
        bounds, limits = None, table.table(3)  # `OutputMinMax`
        if limits is not None:
            numbers = (limits.integer(slot, UINT32) for slot in (0, 1))
            bounds = struct.unpack("<ff", struct.pack("<II", *numbers))
        nodes.append(
            XnnNode(
                kind=kind,
                debug_handle=None if handle in (0, NO_HANDLE) else handle,
                clamped=table.has(3),
                quantizes=kind == "Convert" and any(value.is_quantized for value in outputs),
                inputs=inputs,
                outputs=outputs,
                bounds=bounds,
                window=None
                if entry is None or kind not in ("AvgPooling2d", "MaxPooling2d")
                else entry.integer(4, UINT32) * entry.integer(5, UINT32),  # height, width
                order=()
                if entry is None or kind != "StaticTranspose"
                else tuple(int(dim) for dim in entry.numbers(1, "I")),
            )
        )
    return XnnGraph(tuple(nodes), arguments)


def _root(data: memoryview) -> tuple[FlatTable, int]:
    """Return the root table, and where the weights begin in the data."""
    tables, weights_at = data, 0
    if bytes(data[4:8]) == _HEADER_MAGIC:
        if len(data) < 4 + _HEADER.size:
            raise FormatError("the header of the XNNPACK data is cut off", offset=0)
        _, _, offset, size, weights_at, _ = _HEADER.unpack_from(data, 4)
        if offset + size > len(data):
            raise FormatError(
                f"the XNNPACK operators are bytes {offset:,} to {offset + size:,}, but there are "
                f"{len(data):,} bytes",
                offset=10,
            )
        tables = data[offset : offset + size]
    magic = bytes(tables[4:8])
    if magic not in MAGICS:
        raise FormatError(f"not XNNPACK data: its tables begin with {magic!r}", offset=4)
    return FlatBuffer(tables).root(), weights_at


def _values(
    root: FlatTable, weights_at: int, arguments: dict[int, XnnTensor]
) -> Mapping[int, XnnTensor]:
    """Return the values of the root table by id, without values of an unknown element type.
    weights_at: where the weights begin in the delegate's data. arguments: gets the values of
    `XnnGraph.arguments`."""
    found = {}
    stored = root.tables(8)

    def constant(index: int, dtype: str, label: str) -> Iterator[XnnConstant]:
        if 0 < index < len(stored):  # index 0: values without data
            key, size = stored[index].string(2) or None, stored[index].integer(1, UINT64)
            offset = 0 if key else weights_at + stored[index].integer(0, UINT64)
            yield XnnConstant(key, offset, size, dtype, label)

    for value in root.tables(2):
        member, entry = value.union(0)
        is_quantized = member == _QUANTIZED_VALUE
        tensor = entry.table(0) if entry is not None and is_quantized else entry
        if tensor is None:
            continue
        number = tensor.integer(0, INT16)
        dtype = _DTYPES[number] if 0 <= number < len(_DTYPES) else None
        if dtype is not None:
            sizes = tuple(int(size) for size in tensor.numbers(2, "I"))
            label = str(XnnTensor(dtype, sizes))
            constants = [*constant(tensor.integer(3, UINT32), dtype, label)]
            by, scales = (0, None) if entry is None or not is_quantized else entry.union(1)
            if scales is not None and constants:
                if by in _SCALES:
                    slot, scale_dtype = _SCALES[by]
                    constants += constant(scales.integer(slot, UINT32), scale_dtype, "scales")
                quantized = _quantized(by, scales, constants[1:])
                constants[0] = replace(constants[0], quantized=quantized)
            read = XnnTensor(dtype, sizes, is_quantized, tuple(constants), number in _DYNAMIC)
            found[tensor.integer(6, UINT32)] = read
            if tensor.integer(5, UINT32) & _EXTERNAL:
                arguments[tensor.integer(4, UINT32)] = read
    return found


def _quantized(
    by: int, parameters: FlatTable, scales: Sequence[XnnConstant]
) -> XnnQuantized | None:
    """Read the quantization of a constant; None for groups of a channel and for 4-bit integers."""
    if by == _PER_TENSOR:
        scale = struct.unpack("<f", struct.pack("<I", parameters.integer(0, UINT32)))[0]
        return XnnQuantized((scale,), zero_point=parameters.integer(1, INT32))
    if by != _PER_CHANNEL:
        return None
    # XNNPACK's 8-bit and 32-bit integers do not have a zero point for each channel.
    given = scales[0] if scales else parameters.numbers(0, "f")
    return XnnQuantized(given, axis=parameters.integer(1, INT32))
