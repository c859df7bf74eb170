"""The debug buffer: the bytes of logged tensors, which an ETDump refers to by offset.

The file is nothing but tensors' storage, one after the other, as `ETDumpGen`'s data sink got it:
`prod(sizes) * itemsize` bytes each, in the order in which the elements lay in memory, which the
tensor's strides tell (channels-last and other dim orders differ from the sizes' order). Neither
the used size nor the byte order is recorded; ExecuTorch runs on little-endian machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, reading
from etscope.formats.bytes.source import BytesLike, PathLike, Source, open_source
from etscope.formats.etdump.debug_value import TensorRef


@dataclass(frozen=True, slots=True)
class DebugBuffer:
    """A mapped debug buffer. Opening one and reading a tensor touches that tensor's bytes only."""

    source: Source

    @classmethod
    def open(cls, source: BytesLike | PathLike) -> DebugBuffer:
        """The buffer in a file, or the given bytes.

        Raises `MissingFileError`, and `FormatError` for what is empty or not a regular file.
        """
        return cls(open_source(source, "debug buffer"))

    @property
    def size(self) -> int:
        """Bytes of the file; the recorder may have used fewer."""
        return self.source.size

    @property
    def path(self) -> str | None:
        return self.source.path

    def tensor(self, ref: TensorRef) -> npt.NDArray[Any]:
        """The logged tensor, as a read-only view that keeps its strides.

        Shape `ref.sizes`, dtype `ref.scalar_type.numpy_dtype`. Types that pack several values in a
        byte come as their bytes, flat. Raises `FormatError` for sizes, strides or an offset that do
        not describe bytes of this buffer.
        """
        with reading("debug buffer", self.path):
            return _view(self.source.buffer, ref)


def _view(data: memoryview, ref: TensorRef) -> npt.NDArray[Any]:
    dtype = ref.scalar_type.numpy_dtype
    if any(size < 0 for size in ref.sizes):
        raise FormatError(f"a tensor has a negative size: {ref.sizes}")
    numel = math.prod(ref.sizes)
    if numel == 0:
        return _empty(ref.sizes, dtype)
    needed = ref.scalar_type.nbytes(numel)
    if ref.offset < 0 or ref.offset + needed > len(data):
        raise FormatError(
            f"a tensor at offset {ref.offset:,} needs {needed:,} bytes "
            f"({ref.scalar_type.torch_name} {ref.sizes}), and the debug buffer has {len(data):,}",
            hint="is this the debug buffer that was written with this ETDump?",
        )
    stored = data[ref.offset : ref.offset + needed]
    if ref.scalar_type.values_per_unit > 1:
        return np.frombuffer(stored, dtype)
    strides = _byte_strides(ref, numel, dtype.itemsize)
    tensor: npt.NDArray[Any] = np.ndarray(ref.sizes, dtype, stored, strides=strides)
    return tensor


def _byte_strides(ref: TensorRef, numel: int, itemsize: int) -> tuple[int, ...]:
    """Strides in bytes, known to stay within `numel` elements. No strides means contiguous."""
    if not ref.strides:
        return tuple(itemsize * math.prod(ref.sizes[d + 1 :]) for d in range(len(ref.sizes)))
    last = sum((size - 1) * stride for size, stride in zip(ref.sizes, ref.strides, strict=True))
    if min(ref.strides) < 0 or last >= numel:
        raise FormatError(
            f"a tensor of sizes {ref.sizes} has strides {ref.strides}, which lead out of it"
        )
    # A dimension of one element may have any stride, for it is never taken, but numpy multiplies.
    return tuple(stride * itemsize if stride <= numel else 0 for stride in ref.strides)


def _empty(sizes: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    try:
        empty: npt.NDArray[Any] = np.zeros(sizes, dtype)
    except ValueError as error:  # numpy multiplies the sizes that are not 0
        raise FormatError(f"a tensor without elements has sizes {sizes}") from error
    empty.flags.writeable = False
    return empty
