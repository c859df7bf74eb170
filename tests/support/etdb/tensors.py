"""Tensors of a runner."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from etscope.errors import UsageError
from etscope.etdb.protocol.runner import Runner
from etscope.etdb.targets.remote_tensor import fetch_tensor


def read_tensor(runner: Runner, value: int) -> npt.NDArray[Any]:
    """A tensor by its index, in its logical shape. Raises `UsageError` for other values."""
    info = runner.describe(value).tensor
    if info is None:
        raise UsageError(f"value {value} is not a tensor")
    return fetch_tensor(runner, value, info)
