"""Example inputs: what a model is exported with, and what its program is tried on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch.utils import _pytree as pytree

from etscope.bridge.tensors import tensor_from_numpy

NO_INPUTS_HINT = (
    "let the factory return (module, example_inputs), give the model an attribute or method "
    "example_inputs, or name a file: --inputs FILE (.pt, .npz or .safetensors)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def inputs_of(value: Any) -> Inputs | None:
    """Example inputs in any of the forms that a user may give; None for None.

    A tuple or list holds positional ones, a dict those by keyword; anything else is the only one.
    numpy arrays become tensors.
    """
    if value is None or isinstance(value, Inputs):
        return value
    args: Any = ()
    kwargs: Any = {}
    if isinstance(value, Mapping):
        kwargs = dict(value)
    else:
        args = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return Inputs(*pytree.tree_map(_as_tensor, (args, kwargs)))


def _as_tensor(value: Any) -> Any:
    return tensor_from_numpy(value) if isinstance(value, np.ndarray) else value
