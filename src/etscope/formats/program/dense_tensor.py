"""Tensors as .pte and .bpte files store them: dense, with an order of dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError
from etscope.formats.program.scalar_type import ScalarType, scalar_type_of


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


def dim_order_of(array: npt.NDArray[Any]) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost.

    Sizes of 1 leave a choice: the order of the sizes comes first, then channels-last, which are
    the orders that the runtime knows by name. What is dense in no order has that of its sizes.
    """
    dims = tuple(range(array.ndim))
    # What dimensions of size 1 have for a stride says nothing: they come first, in order.
    by_stride = sorted(dims, key=lambda d: -array.strides[d] if array.shape[d] > 1 else -math.inf)
    for order in (dims, (*dims[:1], *dims[2:], *dims[1:2]), tuple(by_stride)):
        if array.transpose(order).flags.c_contiguous:
            return order
    return dims


def in_dim_order(array: npt.NDArray[Any], dim_order: Sequence[int]) -> npt.NDArray[Any]:
    """The same values, dense in memory in that order of dimensions; no copy if they are already."""
    sizes = [array.shape[d] for d in dim_order]  # ascontiguousarray makes a scalar a vector of one
    dense = np.ascontiguousarray(array.transpose(dim_order)).reshape(sizes)
    view: npt.NDArray[Any] = dense.transpose(np.argsort(np.asarray(dim_order, dtype=np.intp)))
    return view


def as_numpy(value: Any) -> npt.NDArray[Any]:
    """An array, a torch tensor or what has `__array__`, as an array; torch is not imported.

    Types without a numpy type are those of ml_dtypes. Raises `UsageError` for a type that
    ExecuTorch's files cannot hold.
    """
    if hasattr(value, "detach"):  # a torch tensor; torch itself is not needed for what follows
        value = value.detach().cpu()
        kind = scalar_type_of(str(value.dtype).removeprefix("torch."))
        if kind.numpy_dtype.isbuiltin != 1:  # numpy does not know the type, only its bits
            empty = value.new_empty(0)
            bits = empty.short() if kind.itemsize == 2 else empty.char()
            return np.asarray(value.view(bits.dtype)).view(kind.numpy_dtype)
    array: npt.NDArray[Any] = np.asarray(value)
    scalar_type_of(array.dtype)
    return array
