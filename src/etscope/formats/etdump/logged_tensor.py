"""Arrays and tensors of any library as the bytes that a debug buffer holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.formats.program.dense_tensor import as_numpy
from etscope.formats.program.scalar_type import ScalarType, scalar_type_of


def is_tensor(value: object) -> bool:
    """Whether `tensor_storage` takes it: an ndarray, a torch tensor, anything with __array__.

    A numpy scalar is not a tensor.
    """
    return hasattr(value, "__array__") and not isinstance(value, np.generic)


def tensor_storage(value: Any) -> tuple[ScalarType, npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """The element type of a tensor, the tensor, and its bytes in the order they lie in memory.

    A tensor whose elements lie densely in another order than that of its sizes (channels-last, a
    transpose) keeps its strides; any other comes back contiguous.
    """
    array = as_numpy(value)
    kind = scalar_type_of(array.dtype)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    # Outermost in memory first; dimensions of equal stride stay in order.
    order = sorted(range(array.ndim), key=lambda dim: -abs(array.strides[dim]))
    stored = array.transpose(order)
    if not stored.flags.c_contiguous:
        array = stored = np.ascontiguousarray(array).reshape(array.shape)
    return kind, array, stored.reshape(-1).view(np.uint8)
