"""Compute nodes as a backend does that keeps values in another type than the graph.

QNN removes the operators that quantise and dequantise, and runs each operator on integers: its
result is rounded to the scale that the value was calibrated for, and so is what comes in over the
border (`FoldQDQ` and `InsertIOQDQ` of backends/qualcomm/_passes). How it rounds within an operator
is not documented, so that in float64 a number may be rounded to either side.

Core ML, and other backends on request, compute a graph of float32 in float16: each result is
rounded to it, and weights are. What that costs is the difference to the result in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import torch
from torch.utils import _pytree as pytree

from etscope.analysis.matching.delegate_values import GraphCodes
from etscope.backends.common.inner import Codes, Inside
from etscope.bridge.reference.reference import GraphNode
from etscope.bridge.reference.xnnpack_int8 import Compute
from etscope.model.graph import NodeValue

KEPT_IN_CODES = (
    "QNN keeps values in the integers that the model was quantised to, also where its passes have "
    "removed from the graph what quantises"
)
COMPUTED_IN_HALVES = "{} computed in float16, as its values show"


def in_codes(node: GraphNode, backends: Mapping[str, Inside], codes: GraphCodes) -> Compute | None:
    """Return the function that computes a node of such a backend; None for one without integers.

    backends: of each node inside a delegate. codes: by the graph's names.
    """
    if "quantize" in node.operator:
        return None
    own = codes.by_node.get(node.name, {})
    incoming: dict[int, Codes] = {}
    for position, leaf in enumerate(pytree.tree_leaves(list(node.args))):
        if not isinstance(leaf, GraphNode) or leaf.weight is not None:
            continue
        known = codes.arguments.get((node.name, leaf.name))
        if known is None and leaf.name not in backends:
            known = codes.values.get(NodeValue(leaf.name))
        if known is not None:
            incoming[position] = known
    if not (own or incoming):
        return None
    seed = crc32(node.name.encode())

    def compute(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_wide: bool) -> Any:
        either_side = torch.Generator().manual_seed(seed) if is_wide else None
        leaves, spec = pytree.tree_flatten(list(args))
        for position, known in incoming.items():
            if position < len(leaves):
                leaves[position] = _rounded(leaves[position], known, either_side)
        args = tuple(pytree.tree_unflatten(leaves, spec))
        value = _widely(target, args, kwargs) if is_wide else target(*args, **kwargs)
        if isinstance(value, (tuple, list)):
            elements = list(value)
            for element, known in own.items():
                if element is not None and element < len(elements):
                    elements[element] = _rounded(elements[element], known, either_side)
            return type(value)(elements)
        return _rounded(value, own[None], either_side) if None in own else value

    return compute


def in_halves(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_wide: bool) -> Any:
    """Compute an operator in float16, by float32 as far as it adds up; in float64, if `is_wide`."""
    if is_wide:
        return _widely(target, args, kwargs)

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.half().to(tensor.dtype) if tensor.is_floating_point() else tensor

    given = pytree.tree_map_only(torch.Tensor, rounded, (args, kwargs))
    return pytree.tree_map_only(torch.Tensor, rounded, target(*given[0], **given[1]))


def _rounded(value: Any, codes: Codes, either_side: torch.Generator | None) -> Any:
    """The numbers that the codes of a tensor stand for. either_side: moves them by up to half a
    step before."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    steps = value.double() / codes.scale + codes.zero_point
    if either_side is not None:
        steps += torch.rand(steps.shape, generator=either_side, dtype=torch.float64) - 0.5
    steps = steps.round().clamp(codes.low, codes.high)
    return ((steps - codes.zero_point) * codes.scale).to(value.dtype)


def _widely(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Compute an operator in float64, or in float32 if it takes no other."""

    def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    for dtype in (torch.float64, torch.float32):
        wide = pytree.tree_map_only(
            torch.Tensor, lambda one, dtype=dtype: cast(one, dtype), (args, dict(kwargs))
        )
        try:
            return target(*wide[0], **wide[1])
        except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError):
            if dtype == torch.float32:
                raise
    raise AssertionError
