"""Test cases of a method: upstream's `executorch.devtools.bundled_program.config`."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from etscope.errors import BundleError

if TYPE_CHECKING:
    import torch

__all__ = [
    "ConfigValue",
    "DataContainer",
    "MethodInputType",
    "MethodOutputType",
    "MethodTestCase",
    "MethodTestSuite",
]


_SEQUENCES = (list, tuple, deque)
_MAPPINGS = (dict, OrderedDict, defaultdict)


def flat_leaves(tree: Any) -> list[Any]:
    """Flatten lists, tuples, named tuples, deques and dicts, in the order of `torch.export`;
    anything else is a value.

    If torch is loaded, it flattens, as libraries may have registered more containers with it.
    """
    pytree = sys.modules.get("torch.utils._pytree")
    try:
        if pytree is not None:
            return list(pytree.tree_leaves(tree))
        return list(_leaves(tree))
    except RecursionError as error:
        raise BundleError("values are nested too deeply, or contain themselves") from error


def _leaves(tree: Any) -> Iterator[Any]:
    if type(tree) in _MAPPINGS:
        tree = list(tree.values())
    if type(tree) in _SEQUENCES or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        for item in tree:
            yield from _leaves(item)
    else:
        yield tree


# A value of a case: a tensor of torch, an array, or a number.
ConfigValue: TypeAlias = Union["torch.Tensor", npt.NDArray[Any], int, bool, float]
MethodInputType: TypeAlias = Sequence[ConfigValue]
MethodOutputType: TypeAlias = Sequence[Union["torch.Tensor", npt.NDArray[Any]]]
# Containers of nested values, without parameters for `isinstance(…, get_args(…))`.
DataContainer: TypeAlias = list | tuple | dict  # type: ignore[type-arg]


class MethodTestCase:
    """Inputs for one execution of a method, and the expected outputs.

    `inputs` and `expected_outputs` are flat lists of tensors (torch's, or arrays), ints, bools and
    floats, in the order of `torch.export`'s flattening. Without expected outputs, a case can run,
    but cannot be verified.

    Raises `BundleError` for values of another type.
    """

    def __init__(
        self, inputs: MethodInputType, expected_outputs: MethodOutputType | None = None
    ) -> None:
        self.inputs: list[ConfigValue] = _checked(inputs, "input")
        self.expected_outputs: list[ConfigValue] = []
        if expected_outputs is not None:
            self.expected_outputs = _checked(expected_outputs, "expected output")


@dataclass
class MethodTestSuite:
    """All test cases of a method."""

    method_name: str
    test_cases: Sequence[MethodTestCase]


def _checked(tree: Any, role: str) -> list[ConfigValue]:
    leaves = flat_leaves(tree)
    for index, leaf in enumerate(leaves):
        is_number = isinstance(leaf, (int, float, np.bool_, np.integer, np.floating))
        if not is_number and not hasattr(leaf, "__array__"):
            raise BundleError(
                f"{role} {index} is of type {type(leaf).__name__}",
                hint="a test case contains tensors, ints, bools and floats, "
                "nested in lists, tuples and dicts",
            )
    return leaves
