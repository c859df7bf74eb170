"""Compute nodes as a backend does that keeps values in integers where the graph has floats.

QNN removes the operators that quantise and dequantise, and runs each operator on integers: its
result is rounded to the scale that the value was calibrated for, and so is what comes in over the
border (`FoldQDQ` and `InsertIOQDQ` of backends/qualcomm/_passes). How it rounds within an operator
is not documented, so that in float64 a number may be rounded to either side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import torch
from torch.utils import _pytree as pytree

from etscope.bridge.reference.reference import GraphNode
from etscope.bridge.reference.xnnpack_int8 import Compute
from etscope.delegates.inner import Codes

REASON = (
    "QNN keeps values in the integers that the model was quantised to, also where its passes have "
    "removed from the graph what quantises"
)


def in_codes(
    node: GraphNode, backends: Mapping[str, str], codes: Mapping[str, Codes]
) -> Compute | None:
    """Return the function that computes a node of such a backend; None for one without integers.

    backends: of each node inside a delegate. codes: of inputs and nodes, by the graph's names.
    """
    own, backend = codes.get(node.name), backends[node.name]
    is_quantizer = "quantize" in node.operator
    incoming = {
        position: codes[leaf.name]
        for position, leaf in enumerate(pytree.tree_leaves(list(node.args)))
        if isinstance(leaf, GraphNode)
        and leaf.weight is None
        and leaf.name in codes
        and backends.get(leaf.name) != backend
        and not is_quantizer
    }
    if is_quantizer or (own is None and not incoming):
        return None
    seed = crc32(node.name.encode())

    def compute(
        target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_wide: bool
    ) -> Any:
        either_side = torch.Generator().manual_seed(seed) if is_wide else None
        leaves, spec = pytree.tree_flatten(list(args))
        for position, known in incoming.items():
            if position < len(leaves):
                leaves[position] = _rounded(leaves[position], known, either_side)
        args = tuple(pytree.tree_unflatten(leaves, spec))
        value = _widely(target, args, kwargs) if is_wide else target(*args, **kwargs)
        return value if own is None else _rounded(value, own, either_side)

    return compute


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
