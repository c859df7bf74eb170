"""Values on their way to and from a runner: a description in JSON, and a file for a tensor's bytes.

    {"kind": "tensor", "dtype": "float32", "sizes": [1, 3], "dim_order": [0, 1], "file": "…"}
    {"kind": "int" | "bool" | "double" | "string", "value": …}
    {"kind": "none"}

A tensor's file holds its elements, densely, in the order of dimensions `dim_order`, outermost
first; `dtype` is torch's name of the type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.formats.dense_tensor import dense_view
from etscope.formats.scalar_type import ScalarType

_SCALAR_KINDS = ("int", "bool", "double", "string")
_BY_NUMPY_NAME = {
    kind.numpy_dtype.name: kind
    for kind in reversed(ScalarType)
    if kind.values_per_unit == 1 and not kind.torch_name.startswith(("q", "bits"))
}
_BY_TORCH_NAME = {kind.torch_name: kind for kind in ScalarType}


def scalar_type_of(array: npt.NDArray[Any]) -> ScalarType:
    """The runtime's type of an array's elements; `UsageError` when it has none."""
    found = _BY_NUMPY_NAME.get(array.dtype.name)
    if found is None:
        raise UsageError(f"ExecuTorch has no tensors of the type {array.dtype.name}")
    return found


def dim_order_of(array: npt.NDArray[Any]) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost. For what is dense in no
    order, and where sizes of 1 leave a choice, the order of the sizes is kept."""
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d] if array.shape[d] > 1 else 0)
    dense = array.transpose(order).flags.c_contiguous
    if array.flags.c_contiguous or not dense:
        return tuple(range(array.ndim))
    return tuple(order)


def in_dim_order(array: npt.NDArray[Any], dim_order: tuple[int, ...]) -> npt.NDArray[Any]:
    """The same values, dense in memory in that order of dimensions; no copy if they are already."""
    sizes = [array.shape[d] for d in dim_order]  # ascontiguousarray makes a scalar a vector of one
    dense = np.ascontiguousarray(array.transpose(dim_order)).reshape(sizes)
    view: npt.NDArray[Any] = dense.transpose(np.argsort(np.asarray(dim_order, dtype=np.intp)))
    return view


def describe_value(value: Any, file: Path, dim_order: tuple[int, ...] | None = None) -> Any:
    """The description of a value; a tensor's bytes go to `file`."""
    if value is None:
        return {"kind": "none"}
    if isinstance(value, (bool, np.bool_)):
        return {"kind": "bool", "value": bool(value)}
    if isinstance(value, int):
        return {"kind": "int", "value": value}
    if isinstance(value, float):
        return {"kind": "double", "value": value}
    if isinstance(value, str):
        return {"kind": "string", "value": value}
    order = dim_order_of(value) if dim_order is None else dim_order
    file.write_bytes(np.ascontiguousarray(value.transpose(order)).tobytes())
    return {
        "kind": "tensor",
        "dtype": scalar_type_of(value).torch_name,
        "sizes": list(value.shape),
        "dim_order": list(order),
        "file": file.name,
    }


def value_of(description: Any, folder: Path) -> Any:
    """The value of a description; tensors as read-only arrays of their own memory."""
    kind = description["kind"]
    if kind == "none":
        return None
    if kind in _SCALAR_KINDS:
        return description["value"]
    data = (folder / description["file"]).read_bytes()
    return dense_view(
        memoryview(data),
        _BY_TORCH_NAME[description["dtype"]],
        description["sizes"],
        description["dim_order"],
    )
