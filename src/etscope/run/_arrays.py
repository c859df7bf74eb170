"""Whatever a user gives as one input, as a numpy array or a plain value. torch is not needed: who
gives its tensors has loaded it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError

Leaf = npt.NDArray[Any] | int | float | bool | str | None


def plain_value(value: Any, place: str) -> Leaf:
    """An array, a number, text or None. Arrays and tensors of the CPU are not copied.

    Raises `UsageError`, which begins with `place`, for anything else.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return _native(np.asarray(value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _array_of_tensor(torch, value, place)
    if hasattr(value, "__array__"):
        return _native(np.asarray(value))
    raise UsageError(
        f"{place}: a {type(value).__name__} is neither a tensor nor a number",
        hint="give numpy arrays, torch tensors, numbers, or nested tuples, lists and dicts of them",
    )


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same values in the byte order of this machine."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _array_of_tensor(torch: Any, tensor: Any, place: str) -> npt.NDArray[Any]:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise UsageError(
            f"{place}: a tensor that is sparse, quantized or without data",
            hint="give dense tensors with values: tensor.to_dense(), tensor.dequantize()",
        )
    from etscope.bridge.tensors import numpy_from_tensor  # torch is loaded: this is its tensor

    try:
        return numpy_from_tensor(tensor)
    except (TypeError, RuntimeError) as error:  # a type that numpy lacks; a tensor without values
        raise UsageError(f"{place}: cannot read this {tensor.dtype} tensor: {error}") from error
