"""A tensor that is in the runner's memory, and of which only what is asked for comes over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from etscope.etdb.protocol.messages import Statistics, TensorInfo
from etscope.etdb.targets.target import FarTensor

__all__ = ["SENT_AT_ONCE", "Fetcher", "RemoteTensor", "fetched"]


SENT_AT_ONCE = 64 << 10  # bytes of a tensor that is not asked for piece by piece


class Fetcher(Protocol):
    """Reads a tensor of the runner's: what `Runner` can."""

    def statistics(self, value: int) -> Statistics: ...

    def read(
        self, value: int, facts: TensorInfo, first: int = 0, count: int | None = None
    ) -> npt.NDArray[Any]: ...


class RemoteTensor:
    """A large tensor of the runner's, at the step that it was made at.

    Its numbers are fetched when they are needed: a slice of leading dimensions alone, all of them
    once by numpy's conversion. What was fetched whole stays when the run goes on; of what was not,
    every method raises `UsageError` then.
    """

    def __init__(self, runner: Callable[[], Fetcher], value: int, facts: TensorInfo) -> None:
        """runner: gives what reads it. Raises `UsageError` when the run has gone on."""
        self._runner, self._value, self._facts = runner, value, facts
        self._whole: npt.NDArray[Any] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy's, or one of ml_dtypes."""
        return self._facts.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._facts.shape

    @property
    def dim_order(self) -> tuple[int, ...]:
        """The dimensions as they are in memory, outermost first."""
        return self._facts.dim_order

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self._facts.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return math.prod(self._facts.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in the runner's memory."""
        return self._facts.nbytes

    @property
    def is_here(self) -> bool:
        """Whether it was fetched whole."""
        return self._whole is not None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)} in the runner>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All of it, fetched once."""
        if self._whole is None:
            self._whole = fetched(self._runner(), self._value, self._facts)
        array = self._whole if dtype is None else self._whole.astype(dtype, copy=False)
        return array.copy() if copy and array is self._whole else array

    def __getitem__(self, key: Any) -> Any:
        """As numpy's; of a key that starts with numbers, or with a slice of step 1 after them, only
        what these pick comes over."""
        part = None if self._whole is not None else self._part(key)
        if part is None:
            return np.asarray(self)[key]
        first, shape, rest = part
        flat = self._runner().read(self._value, self._facts, first, math.prod(shape))
        return _shaped(flat, shape, self.dim_order)[rest]

    def statistics(self) -> Statistics:
        """Its numbers, counted where it is."""
        return self._runner().statistics(self._value)

    def _part(self, key: Any) -> tuple[int, tuple[int, ...], tuple[Any, ...]] | None:
        """The first element in memory that a key needs, the shape of what lies behind it in one
        piece, and the key into that; None where that is all."""
        if self.nbytes != self.size * self.dtype.itemsize or not self.size:
            return None  # packed, or nothing
        items = key if isinstance(key, tuple) else (key,)
        shape, rest = list(self.shape), list[Any]()
        first, stride = 0, self.size
        for dim, item in enumerate(items[: self.ndim]):
            stride //= self.shape[dim]
            picked = _picked(item, self.shape[dim]) if self.dim_order[dim] == dim else None
            if picked is None:
                break
            first += picked.start * stride
            shape[dim] = len(picked)
            rest.append(slice(None) if isinstance(item, slice) else 0)
            if len(picked) > 1:
                break
        return (first, tuple(shape), (*rest, *items[len(rest) :])) if rest else None


def _picked(item: Any, size: int) -> range | None:
    """What an index picks of a dimension, if that lies in one piece."""
    if isinstance(item, slice):
        picked = range(*item.indices(size))
        return picked if picked.step == 1 and len(picked) else None
    if isinstance(item, bool) or not isinstance(item, (int, np.integer)):
        return None
    index = int(item) + (size if item < 0 else 0)
    if not 0 <= index < size:
        raise IndexError(f"index {item} is out of bounds for a dimension of {size}")
    return range(index, index + 1)


def fetched(runner: Fetcher, value: int, facts: TensorInfo) -> npt.NDArray[Any]:
    """All of a tensor, in its logical shape; of types that pack several values in a byte the bytes,
    flat."""
    flat = runner.read(value, facts)
    if flat.size != math.prod(facts.shape):
        return flat
    return _shaped(flat, facts.shape, facts.dim_order)


def _shaped(
    flat: npt.NDArray[Any], shape: tuple[int, ...], dim_order: tuple[int, ...]
) -> npt.NDArray[Any]:
    stored = flat.reshape([shape[dim] for dim in dim_order])
    back: npt.NDArray[Any] = stored.transpose(np.argsort(np.array(dim_order, dtype=np.intp)))
    return back


# Tensors whose numbers are elsewhere: what can be told without fetching all of them.


REDUCED = frozenset({"min", "max", "mean", "std"})
_EDGE = 3
_EXACT = 2**53


def reduced(name: str, tensor: FarTensor) -> Any:
    """One of `REDUCED` over all numbers of a tensor, as numpy has it; None where only the numbers
    themselves tell."""
    if not tensor.size or tensor.dtype.kind not in "iufV":
        return None
    told = tensor.statistics()
    infinite = told.plus_inf + told.minus_inf
    if told.nan:
        value = math.nan
    elif name == "std":
        value = math.nan if infinite else told.deviation
    elif name == "mean" and infinite:
        both = told.plus_inf and told.minus_inf
        value = math.nan if both else math.inf if told.plus_inf else -math.inf
    elif name == "mean":
        value = told.mean
    elif name == "max":
        value = _extreme(told.plus_inf, math.inf, told.greatest)
    else:
        value = _extreme(told.minus_inf, -math.inf, told.least)
    if name in ("mean", "std"):
        return np.float64(value)
    if tensor.dtype.kind in "iu":
        return tensor.dtype.type(int(value)) if abs(value) < _EXACT else None
    return (tensor.dtype if tensor.dtype.kind == "f" else np.dtype(np.float32)).type(value)


def _extreme(infinite: int, value: float, of_finite: float) -> float:
    if infinite:
        return value
    return -value if math.isnan(of_finite) else of_finite


def part(tensor: FarTensor, count: int) -> npt.NDArray[Any]:
    """The first `count` numbers at least, of whole leading dimensions: a piece that starts at the
    tensor's own start."""
    index: list[Any] = []
    size = tensor.size
    for length in tensor.shape:
        size //= max(length, 1)
        if size < count:
            index.append(slice(0, -(-count // max(size, 1))))
            break
        index.append(slice(0, 1))
    return np.asarray(tensor[tuple(index)] if index else tensor)


def excerpt(tensor: FarTensor, most: int) -> npt.NDArray[Any]:
    """What is shown of a tensor: the last two dimensions at the start of the others if those are
    `most` numbers, else their corners, with one row and column for all between."""
    head: tuple[Any, ...] = (0,) * max(tensor.ndim - 2, 0)
    shape = tensor.shape[len(head) :]
    if math.prod(shape) <= most:
        return np.asarray(tensor[head] if head else tensor)
    found = np.zeros([min(length, 2 * _EDGE + 1) for length in shape], tensor.dtype)
    if len(shape) == 1:
        for place in _edges(shape[0]):
            found[place] = tensor[place]
        return found
    for rows in _edges(shape[0]):
        index = (*head, rows)
        piece = np.asarray(tensor[index])
        for columns in _edges(shape[1]):
            found[rows, columns] = piece[:, columns]
    return found


def _edges(length: int) -> tuple[slice, ...]:
    """The parts of a dimension that are shown; they are the same from both of its ends."""
    if length <= 2 * _EDGE + 1:
        return (slice(0, length),)
    return slice(0, _EDGE), slice(-_EDGE, None)
