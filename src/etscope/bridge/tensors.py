"""numpy arrays to torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

# numpy has no such types, and torch reads none of ml_dtypes': the bits go through integers.
_AS_BITS = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
}


def tensor_from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor of its own memory with the array's values, shape, strides and dtype."""
    bits = _AS_BITS.get(array.dtype.name)
    if bits is not None:
        return tensor_from_numpy(array.view(bits[0])).view(bits[1])
    # "K" keeps the order of dimensions, so a channels-last tensor stays one.
    return torch.from_numpy(array.copy(order="K"))
