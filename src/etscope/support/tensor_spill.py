"""`TensorSpill`: arrays in memory, and in a file where there are many."""

from __future__ import annotations

import mmap
import tempfile
from functools import cached_property
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

_ALIGNMENT = 64  # of arrays in the file


class TensorSpill:
    """Keeps more arrays than fit in memory: the first `in_memory` bytes as copies, more in a
    temporary file, which is mapped as writable arrays.

    What is written into them stays in this process. The file has no name, and goes when the last
    array does.
    """

    def __init__(self, in_memory: int = 32 << 20) -> None:
        self._room = in_memory
        self._end = 0
        self._map: mmap.mmap | None = None

    @cached_property
    def _file(self) -> BinaryIO:
        return tempfile.TemporaryFile()

    def add(self, value: Any) -> Any:
        """Keep a value; what `get` takes. Only arrays go to the file."""
        if not isinstance(value, np.ndarray):
            return value
        if value.nbytes <= self._room:
            self._room -= value.nbytes
            return value.copy(order="K")
        # In the order of its memory, where it has no gaps: a transposed array is not turned round.
        axes = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
        ordered = value.transpose(axes)
        stored = np.ascontiguousarray(ordered)
        at = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        self._file.seek(at)
        self._file.write(stored.reshape(-1).view(np.uint8).data)
        self._end = at + stored.nbytes
        return _Stored(ordered.shape, stored.dtype, at, tuple(np.argsort(axes).tolist()))

    def get(self, kept: Any) -> Any:
        """Return a kept value. Nothing can be added afterwards."""
        if not isinstance(kept, _Stored):
            return kept
        if kept.size == 0:
            return np.empty(kept.shape, kept.dtype).transpose(kept.axes)
        if self._map is None:
            self._file.flush()
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
        array: npt.NDArray[Any] = np.ndarray(kept.shape, kept.dtype, self._map, kept.offset)
        return array.transpose(kept.axes)


class _Stored:
    """A stored array: `axes` turn what was stored into the array's own order of dimensions."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int, axes: tuple[int, ...]
    ) -> None:
        self.shape, self.dtype, self.offset, self.axes = shape, dtype, offset, axes

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))
