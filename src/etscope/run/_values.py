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

from etscope.formats.program.dense_tensor import dense_view, dim_order_of
from etscope.formats.program.scalar_type import ScalarType, scalar_type_of

_SCALAR_KINDS = ("int", "bool", "double", "string")
_BY_TORCH_NAME = {kind.torch_name: kind for kind in ScalarType}


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
        "dtype": scalar_type_of(value.dtype).torch_name,
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
    name = description["file"]
    if Path(name).name != name:  # it may come from a device
        raise ValueError(f"{name!r} is not a file beside the description")
    data = (folder / name).read_bytes()
    return dense_view(
        memoryview(data),
        _BY_TORCH_NAME[description["dtype"]],
        description["sizes"],
        description["dim_order"],
    )
