"""Values of debug events: scalars in the ETDump, tensors in the debug buffer.

The debug buffer is a file of tensor storages one after the other, from `ETDumpGen`'s data sink.
Each has `prod(sizes) * itemsize` bytes, in the memory order of the elements, which the tensor's
strides describe (channels-last and other dim orders differ from the sizes' order). The file has
neither its used size nor its byte order; ExecuTorch runs on little-endian machines.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, reading
from etscope.formats.bytes.files import BytesLike, PathLike, Source, open_source
from etscope.formats.bytes.flatbuffer import INT8, INT32, INT64, FlatBuffer, FlatTable
from etscope.formats.program.scalar_type import ScalarType, scalar_type

__all__ = ["DebugBuffer"]

MAX_DIMENSIONS = 32  # numpy 1's limit; ExecuTorch's own is 16


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A logged tensor: the place and layout of its bytes in the debug buffer.

    `strides` count elements, `offset` counts bytes from the start of the debug buffer; a tensor
    without elements has offset -1. The numbers are unchecked: `DebugBuffer.tensor` checks them.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def view(self, data: memoryview) -> npt.NDArray[Any]:
        """The tensor in the bytes of a debug buffer; see `DebugBuffer.tensor`."""
        dtype, sizes = self.scalar_type.numpy_dtype, self.sizes
        if any(size < 0 for size in sizes):
            raise FormatError(f"a tensor has a negative size: {sizes}")
        numel = math.prod(sizes)
        tensor: npt.NDArray[Any]
        if numel == 0:
            try:
                tensor = np.zeros(sizes, dtype)
            except ValueError as error:  # numpy multiplies the sizes that are not 0
                raise FormatError(f"a tensor without elements has the sizes {sizes}") from error
            tensor.flags.writeable = False
            return tensor

        needed = self.scalar_type.nbytes(numel)
        if self.offset < 0 or self.offset + needed > len(data):
            raise FormatError(
                f"a tensor at offset {self.offset:,} needs {needed:,} bytes "
                f"({self.scalar_type.torch_name} {sizes}), but the debug buffer has {len(data):,}",
                hint="is this the debug buffer that was written with this ETDump?",
            )
        stored = data[self.offset : self.offset + needed]
        if self.scalar_type.values_per_unit > 1:
            return np.frombuffer(stored, dtype)

        if not self.strides:  # contiguous
            return np.frombuffer(stored, dtype).reshape(sizes)
        last = sum((size - 1) * stride for size, stride in zip(sizes, self.strides, strict=True))
        if min(self.strides) < 0 or last >= numel:
            raise FormatError(
                f"a tensor of sizes {sizes} has strides {self.strides}, which lead outside of it"
            )
        # A dimension of one element may have any stride: it is never used, but numpy multiplies it.
        strides = tuple(
            dtype.itemsize * stride if stride <= numel else 0 for stride in self.strides
        )
        tensor = np.ndarray(sizes, dtype, stored, strides=strides)
        return tensor


DebugValue = TensorRef | tuple[TensorRef, ...] | bool | int | float | None


class ValueType(IntEnum):
    """The type of a `Value`, numbered as in ETDump files."""

    NULL = 0
    INT = 1
    BOOL = 2
    FLOAT = 3
    DOUBLE = 4
    TENSOR = 5
    TENSOR_LIST = 6
    STRING = 7


# type -> the slot of `Value` that holds its payload
PAYLOAD_SLOT = {
    ValueType.TENSOR: 1,
    ValueType.TENSOR_LIST: 2,
    ValueType.INT: 3,
    ValueType.FLOAT: 4,
    ValueType.DOUBLE: 5,
    ValueType.BOOL: 6,
}


def read_value(view: memoryview, position: int) -> DebugValue:
    """Read the `Value` table at `position` of a FlatBuffer.

    A tensor list becomes a tuple. Null becomes None, and so does String: the format has this type,
    but not a field for its text. Raises `FormatError` for an unknown type or a missing payload.
    """
    table = FlatTable(FlatBuffer(view), position)
    number = table.integer(0, INT8)
    try:
        kind = ValueType(number)
    except ValueError as error:
        raise FormatError(
            f"a debug value has the unknown type {number}", offset=position
        ) from error
    if kind in (ValueType.NULL, ValueType.STRING):
        return None
    payload = table.table(PAYLOAD_SLOT[kind])
    if payload is None:
        raise FormatError(f"a debug value of type {kind.name} is empty", offset=position)
    if kind is ValueType.TENSOR:
        return _read_tensor(payload)
    if kind is ValueType.TENSOR_LIST:
        return tuple(_read_tensor(tensor) for tensor in payload.tables(0))
    if kind is ValueType.INT:
        return payload.integer(0, INT64)
    if kind is ValueType.BOOL:
        return payload.flag(0)
    if kind is ValueType.DOUBLE:
        return payload.double(0)
    bits = payload.integer(0, INT32)
    return float(struct.unpack("<f", INT32.pack(bits))[0])


def _read_tensor(table: FlatTable) -> TensorRef:
    sizes, strides = table.numbers(1, "q"), table.numbers(2, "q")
    if len(sizes) > MAX_DIMENSIONS or len(strides) not in (0, len(sizes)):
        raise FormatError(
            f"a tensor has {len(sizes)} sizes and {len(strides)} strides", offset=table.position
        )
    return TensorRef(
        scalar_type(table.integer(0, INT8), offset=table.position),
        sizes,
        strides,
        table.integer(3, INT64),
    )


@dataclass(frozen=True, slots=True)
class DebugBuffer:
    """A mapped debug buffer. Reading a tensor touches that tensor's bytes only."""

    source: Source

    @classmethod
    def open(cls, source: BytesLike | PathLike) -> DebugBuffer:
        """Open a debug buffer: a file, or its bytes. It is empty if the run did not log tensors.

        Raises `MissingFileError`, and `FormatError` for a file that is not regular.
        """
        return cls(open_source(source, "debug buffer", may_be_empty=True))

    @property
    def size(self) -> int:
        """Bytes of the file; the recorder may have used fewer."""
        return self.source.size

    @property
    def path(self) -> str | None:
        return self.source.path

    def tensor(self, ref: TensorRef) -> npt.NDArray[Any]:
        """The logged tensor, as a read-only view that keeps its strides.

        Shape `ref.sizes`, dtype `ref.scalar_type.numpy_dtype`. Types that pack several values into
        a byte become flat bytes. Raises `FormatError` for sizes, strides or an offset that do not
        describe bytes of this buffer.
        """
        with reading("debug buffer", self.path):
            return ref.view(self.source.buffer)
