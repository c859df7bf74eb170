"""Tensors as .pte and .bpte files store them: dense, with an order of dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError
from etscope.formats.scalar_type import ScalarType


def dense_view(
    data: memoryview, scalar_type: ScalarType, sizes: Sequence[int], dim_order: Sequence[int]
) -> npt.NDArray[Any]:
    """The tensor whose first byte is `data[0]`, as a view that nobody can write to.

    `dim_order` names the dimensions from the outermost in memory to the innermost, so (0, 2, 3, 1)
    is channels-last. Types that pack several values in a byte are given as their bytes, flat.
    Raises `FormatError` when `data` is too short.
    """
    numel = math.prod(sizes)
    size = scalar_type.nbytes(numel)
    if size > len(data):
        raise FormatError(
            f"a tensor of {size:,} bytes ({scalar_type.torch_name} {tuple(sizes)}) "
            f"has only {len(data):,} bytes of data"
        )
    flat = np.frombuffer(data[:size], scalar_type.numpy_dtype)
    if scalar_type.values_per_unit > 1:
        return flat
    stored = flat.reshape([sizes[dim] for dim in dim_order])
    view: npt.NDArray[Any] = stored.transpose(np.argsort(np.asarray(dim_order, dtype=np.intp)))
    return view


def checked_dim_order(dim_order: tuple[int, ...], rank: int, *, offset: int) -> tuple[int, ...]:
    """`dim_order` if it is an order of `rank` dimensions, else `FormatError` at `offset`."""
    if sorted(dim_order) != list(range(rank)):
        raise FormatError(f"{list(dim_order)} is not an order of {rank} dimensions", offset=offset)
    return dim_order
