"""Tensors whose numbers are elsewhere: what can be told without fetching all of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.etdb.targets.target import FarTensor

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
