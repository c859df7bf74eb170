"""A tensor in the runner's memory. Only the numbers that are needed are fetched."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from etscope.etdb.protocol.messages import Statistics, TensorInfo

SENT_AT_ONCE = 64 << 10  # bytes; larger tensors are fetched piece by piece
REDUCTIONS = frozenset({"min", "max", "mean", "std"})
_EDGE = 3  # rows and columns shown at each end
_EXACT = 2**53  # integers up to here are exact in float64


class TensorReader(Protocol):
    """The part of `Runner` that reads tensors."""

    def statistics(self, value: int) -> Statistics: ...

    def read(
        self, value: int, info: TensorInfo, first: int = 0, count: int | None = None
    ) -> npt.NDArray[Any]: ...


class RemoteTensor:
    """A large tensor of the runner, at the step at which it was requested.

    It has the attributes of a numpy array; dtype may be one of ml_dtypes, nbytes are those in
    the runner's memory. A slice of leading dimensions fetches only that slice; numpy's conversion
    fetches the whole tensor once. A tensor that was fetched whole stays valid when the run
    continues. For any other, all methods then raise `UsageError`.
    """

    def __init__(self, runner: Callable[[], TensorReader], value: int, info: TensorInfo) -> None:
        """runner: returns the reader. Raises `UsageError` when the run has continued."""
        self._runner, self._value, self._info = runner, value, info
        self.dtype, self.shape, self.nbytes = info.dtype, info.shape, info.nbytes
        self.ndim, self.size = len(info.shape), math.prod(info.shape)
        self._whole: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)} in the runner>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """The whole tensor, fetched once."""
        if self._whole is None:
            self._whole = fetch_tensor(self._runner(), self._value, self._info)
        array = self._whole if dtype is None else self._whole.astype(dtype, copy=False)
        return array.copy() if copy and array is self._whole else array

    def __getitem__(self, key: Any) -> Any:
        """Index as numpy does. A key that starts with integers, or with one slice of step 1 after
        them, fetches only the part that these select."""
        part = None if self._whole is not None else self._contiguous_part(key)
        if part is None:
            return np.asarray(self)[key]
        first, shape, rest = part
        flat = self.stored(first, math.prod(shape))
        return _in_logical_shape(flat, shape, self._info.dim_order)[rest]

    def stored(self, first: int, count: int) -> npt.NDArray[Any]:
        """Fetch elements in the order of the runner's memory."""
        return self._runner().read(self._value, self._info, first, count)

    def statistics(self) -> Statistics:
        """Statistics of the elements, computed by the runner."""
        return self._runner().statistics(self._value)

    def _contiguous_part(self, key: Any) -> tuple[int, tuple[int, ...], tuple[Any, ...]] | None:
        """Find the contiguous memory that a key needs: its first element, its shape, and the key
        into it. None when the key needs the whole tensor."""
        if self.nbytes != self.size * self.dtype.itemsize or not self.size:
            return None  # packed or empty
        items = key if isinstance(key, tuple) else (key,)
        shape, rest = list(self.shape), list[Any]()
        first, stride = 0, self.size
        for dim, item in enumerate(items[: self.ndim]):
            size = self.shape[dim]
            stride //= size
            if self._info.dim_order[dim] != dim:
                break
            if isinstance(item, slice):
                selected = range(*item.indices(size))
                if selected.step != 1 or not len(selected):
                    break
            elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
                index = int(item) + (size if item < 0 else 0)
                if not 0 <= index < size:
                    raise IndexError(f"index {item} is out of bounds for a dimension of {size}")
                selected = range(index, index + 1)
            else:
                break
            first += selected.start * stride
            shape[dim] = len(selected)
            rest.append(slice(None) if isinstance(item, slice) else 0)
            if len(selected) > 1:
                break
        return (first, tuple(shape), (*rest, *items[len(rest) :])) if rest else None


def fetch_tensor(runner: TensorReader, value: int, info: TensorInfo) -> npt.NDArray[Any]:
    """Fetch a whole tensor in its logical shape. Types that pack several values into a byte are
    returned as flat bytes."""
    flat = runner.read(value, info)
    if flat.size != math.prod(info.shape):
        return flat
    return _in_logical_shape(flat, info.shape, info.dim_order)


def _in_logical_shape(
    flat: npt.NDArray[Any], shape: tuple[int, ...], dim_order: tuple[int, ...]
) -> npt.NDArray[Any]:
    stored = flat.reshape([shape[dim] for dim in dim_order])
    back: npt.NDArray[Any] = stored.transpose(np.argsort(np.array(dim_order, dtype=np.intp)))
    return back


def reduce_remotely(name: str, tensor: RemoteTensor) -> Any:
    """One of `REDUCTIONS` over all elements, as numpy computes it, without fetching the tensor.
    None when only the elements themselves give the result."""
    if not tensor.size or tensor.dtype.kind not in "iufV":
        return None
    found = tensor.statistics()
    infinite = found.plus_inf + found.minus_inf
    if found.nan:
        value = math.nan
    elif name == "std":
        value = math.nan if infinite else found.deviation
    elif name == "mean" and infinite:
        both = found.plus_inf and found.minus_inf
        value = math.nan if both else math.inf if found.plus_inf else -math.inf
    elif name == "mean":
        value = found.mean
    elif name == "max":
        finite = -math.inf if math.isnan(found.greatest) else found.greatest
        value = math.inf if found.plus_inf else finite
    else:
        finite = math.inf if math.isnan(found.least) else found.least
        value = -math.inf if found.minus_inf else finite
    if name in ("mean", "std"):
        return np.float64(value)
    if tensor.dtype.kind in "iu":
        return tensor.dtype.type(int(value)) if abs(value) < _EXACT else None
    return (tensor.dtype if tensor.dtype.kind == "f" else np.dtype(np.float32)).type(value)


def raw_bytes(tensor: Any, offset: int, count: int) -> bytes:
    """Read bytes of a tensor: of the runner's in the order of its memory, of an array row by
    row."""
    size = tensor.dtype.itemsize
    first, last = offset // size, -(-min(offset + count, tensor.nbytes) // size)
    if isinstance(tensor, RemoteTensor):
        part = tensor.stored(first, last - first)
    else:
        part = np.asarray(tensor).reshape(-1)[first:last]
    return part.tobytes()[offset - first * size :][:count]


def leading_part(tensor: RemoteTensor, count: int) -> npt.NDArray[Any]:
    """Fetch at least the first `count` elements: whole leading slices from the tensor's start."""
    index: list[Any] = []
    size = tensor.size
    for length in tensor.shape:
        size //= max(length, 1)
        if size < count:
            index.append(slice(0, -(-count // max(size, 1))))
            break
        index.append(slice(0, 1))
    return np.asarray(tensor[tuple(index)] if index else tensor)


def excerpt(tensor: RemoteTensor, most: int) -> npt.NDArray[Any]:
    """Fetch the numbers that are displayed: the last two dimensions at index 0 of the others. If
    these have more than `most` elements, only their corners, with one row and column in place of
    everything between."""
    head: tuple[Any, ...] = (0,) * max(tensor.ndim - 2, 0)
    shape = tensor.shape[len(head) :]
    if math.prod(shape) <= most:
        return np.asarray(tensor[head] if head else tensor)
    found = np.zeros([min(length, 2 * _EDGE + 1) for length in shape], tensor.dtype)
    # The same slices select the edges of the excerpt and of the tensor.
    edges = [
        (slice(0, _EDGE), slice(-_EDGE, None)) if length > 2 * _EDGE + 1 else (slice(0, length),)
        for length in shape
    ]
    for rows in edges[0]:
        index = (*head, rows)
        piece = np.asarray(tensor[index])
        if len(shape) == 1:
            found[rows] = piece
            continue
        for columns in edges[1]:
            found[rows, columns] = piece[:, columns]
    return found
