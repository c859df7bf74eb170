"""Whether a value that a person sets can take the place of one of the program's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.etdb.protocol.facts import Described, TensorFacts


def fitted(name: str, old: Described, value: Any) -> Any:
    """The value in the shape and type of the one that it takes the place of.

    A tensor takes whatever numpy broadcasts to its shape, cast to its type; one of integers or
    bools only what it can hold. Raises `UsageError` for all else.
    """
    if old.tensor is not None:
        return _tensor(name, old.tensor, value)
    if old.items is not None:
        raise UsageError(f"{name} is a list: its elements are set one by one")
    if old.scalar is None or isinstance(old.scalar, str):
        raise UsageError(f"{name} is no tensor and no number: it cannot be set")
    return _number(name, old.scalar, value)


def _tensor(name: str, facts: TensorFacts, value: Any) -> npt.NDArray[Any]:
    array = _numbers(name, value)
    try:
        fitting = np.broadcast_to(array, facts.shape)
    except ValueError:
        raise UsageError(
            f"{name} has the shape {list(facts.shape)}, and the value {list(array.shape)}"
        ) from None
    with np.errstate(all="ignore"):
        cast = np.ascontiguousarray(fitting).astype(facts.dtype).reshape(facts.shape)
    if facts.dtype.kind in "biu" and not np.array_equal(cast, fitting):
        raise UsageError(
            f"{name} is of {facts.dtype}, which cannot hold all numbers of the value "
            f"({array.dtype})",
            hint="round or clip them first",
        )
    return cast


def _number(name: str, old: bool | int | float, value: Any) -> bool | int | float:
    array = _numbers(name, value)
    if array.size != 1:
        raise UsageError(f"{name} is a number, and the value has the shape {list(array.shape)}")
    number = array.reshape(()).item()
    if isinstance(old, bool) and number in (0, 1):
        return bool(number)
    if isinstance(old, float):
        return float(number)
    if not isinstance(old, bool) and np.isfinite(number) and int(number) == number:
        return int(number)
    raise UsageError(f"{name} is of {type(old).__name__}, which {number!r} is not")


def _numbers(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError:  # lists that are no tensor
        array = np.empty(0, dtype=object)
    # The types of ml_dtypes are of numpy's kind V.
    if array.dtype.kind not in "biufV" or array.dtype.names is not None:
        raise UsageError(f"{name} takes numbers, and the value is {_shown(value, array)}")
    return array


def _shown(value: Any, array: npt.NDArray[Any]) -> str:
    return f"of {array.dtype}" if array.dtype.kind != "O" else f"of type {type(value).__name__}"


__all__ = ["fitted"]
