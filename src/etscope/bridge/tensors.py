"""numpy arrays to torch tensors, and back."""

from __future__ import annotations

from collections.abc import Sequence
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
    if array.size == 0:  # numpy's strides for these are not torch's
        return torch.from_numpy(np.empty(0, array.dtype)).reshape(array.shape)
    # "K" keeps the order of dimensions, so a channels-last tensor stays one.
    return torch.from_numpy(array.copy(order="K"))


def numpy_from_tensor(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """An array with the tensor's values, shape, strides and dtype; it may share the memory."""
    import ml_dtypes

    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(plain.dtype).removeprefix("torch.")
    if name in _AS_BITS:
        bits = torch.int16 if plain.element_size() == 2 else torch.uint8
        array: npt.NDArray[Any] = plain.view(bits).numpy()
        return array.view(getattr(ml_dtypes, name))
    return np.asarray(plain)


def torch_values(values: Sequence[Any]) -> list[Any]:
    """Numpy arrays as torch tensors, the rest as it is."""
    return [tensor_from_numpy(v) if isinstance(v, np.ndarray) else v for v in values]


def numpy_value(value: Any) -> Any:
    """A torch tensor as a numpy array of its own memory, the rest as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return np.array(numpy_from_tensor(value), order="K")
