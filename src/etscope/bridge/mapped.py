"""Tensors over memory that is somebody else's: of a mapped file, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

# numpy's names of types that torch reads by their bits only.
_BITS: dict[str, tuple[type[np.generic], torch.dtype]] = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
}


def tensor_over(array: npt.NDArray[Any]) -> torch.Tensor:
    """The tensor that shares a writable array's memory, with its shape, strides and dtype."""
    bits = _BITS.get(array.dtype.name)
    if bits is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(bits[0])).view(bits[1])
