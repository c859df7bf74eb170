"""Arithmetic of backends that differs from PyTorch's by design.

A graph says what is to be computed; a backend may keep a number of it in another type, or round at
another place. Where its sources say so, the reference that is compared with its values computes as
the backend does, so that the rest of a difference is an error.

XNNPACK: scales of weights that are quantized by group are stored as bfloat16
(`NodeVisitor.get_quant_params` of executorch.backends.xnnpack). Static int8 operators compute with
integers: see `bridge.reference.xnnpack_int8`.

QNN removes the operators that quantize and dequantize, and runs each operator on integers: its
result is rounded to the scale that the value was calibrated for, and so is what comes in over the
border (`FoldQDQ` and `InsertIOQDQ` of backends/qualcomm/_passes). How it rounds within an operator
is not documented, so that in float64 a number may be rounded to either side.

Core ML, and other backends on request, compute a graph of float32 in float16: each result is
rounded to it, and weights are. What that costs is the difference to the result in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple
from zlib import crc32

import torch
from torch.utils import _pytree as pytree

from etscope.analysis.matching.delegate_values import GraphCodes
from etscope.backends.common.logged import Codes, Inside
from etscope.backends.registry.decoders import IN_CODES
from etscope.bridge.reference.reference import GraphNode, ReferenceGraph
from etscope.bridge.reference.ties import Local
from etscope.bridge.reference.xnnpack_int8 import Compute, dynamic_of, static_of
from etscope.model.graph import NodeValue


class ByDesign(NamedTuple):
    """A backend's way to compute a node. change: converts the arguments as the backend does.
    compute: computes the node instead of its operator. local_of: what `compute` needs of the
    node in float32, by its arguments and result."""

    reason: str
    change: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    compute: Compute | None = None
    local_of: Callable[[tuple[Any, ...], Any], Local] = lambda args, value: Local()


class Arithmetic(NamedTuple):
    """Arithmetic of the device that computes a graph.

    by_design: the nodes that it computes otherwise. unknown: nodes inside backends with
    unknown arithmetic. Both by the reference graph's names.
    """

    by_design: Mapping[str, ByDesign]
    unknown: Collection[str]


PLAIN = Arithmetic({}, ())


def arithmetic_of(
    graph: ReferenceGraph,
    backends: Mapping[str, Inside],
    codes: Callable[[], GraphCodes] = GraphCodes,
) -> Arithmetic:
    """Find how the device computes a graph. backends: the backend of each node inside a delegate,
    by the node's name in the reference graph. codes: a function that returns the codes that the
    graph's values are quantized to, for backends that compute with these.
    """
    unknown = {name for name, inside in backends.items() if inside.backend not in _RULES}
    found: dict[str, ByDesign] = {}
    has_codes = any(inside.backend in IN_CODES for inside in backends.values())
    known = codes() if has_codes else GraphCodes()
    for node in graph.nodes():
        inside = backends.get(node.name)
        if inside is None:
            continue
        kept = in_codes(node, backends, known) if inside.backend in IN_CODES else None
        if kept is not None:
            found[node.name] = ByDesign(KEPT_IN_CODES, _unchanged, kept)
        elif inside.in_halves:
            reason = COMPUTED_IN_HALVES.format(inside.backend)
            found[node.name] = ByDesign(reason, _unchanged, in_halves)
        if node.name in found:
            continue
        source = node.args[0] if node.args else None
        if (
            isinstance(source, GraphNode)
            and source.name in found
            and NodeValue(source.name) in known.values
        ):
            unknown.discard(node.name)  # its numbers are rounded already
        rule = _RULES.get(inside.backend)
        design = None if rule is None else rule(node)
        if design is not None:
            found[node.name] = design
    return Arithmetic(found, frozenset(unknown))


def _unchanged(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return args


def _xnnpack(node: GraphNode) -> ByDesign | None:
    by_row = dynamic_of(node)
    if by_row is not None:
        return ByDesign(_BY_ROW, _unchanged, by_row, lambda args, value: Local(args))
    by_integers = static_of(node)
    if by_integers is not None:
        # Another tensor of the same memory: `LazyValues` frees what it notes with the value itself.
        return ByDesign(
            _INTEGERS, _unchanged, by_integers, lambda args, value: Local((), value.detach())
        )
    at = _SCALES.get(node.operator)
    if at is None or not at.is_by_group(node):
        return None

    def with_stored_scales(args: tuple[Any, ...]) -> tuple[Any, ...]:
        stored = args[at.scales].to(torch.bfloat16).to(args[at.scales].dtype)
        return (*args[: at.scales], stored, *args[at.scales + 1 :])

    return ByDesign(
        "XNNPACK keeps the scales of weights that are quantized by group as bfloat16",
        with_stored_scales,
    )


class _Arguments(NamedTuple):
    """Positions of arguments of an operator that makes numbers of quantized ones: the scales, and
    the least quantized number, which the largest follows."""

    scales: int
    least: int

    def is_by_group(self, node: GraphNode) -> bool:
        """True for a matrix with several scales for each row; with 4 bits, also for one with a
        single scale, which is a group, too (`QuantParams` of executorch.backends.xnnpack)."""
        quantized, scales = (
            used.shape if isinstance(used, GraphNode) else None
            for used in (node.args[0], node.args[self.scales])
        )
        if quantized is None or scales is None or len(quantized) != 2:
            return False
        rows, count = quantized[0], math.prod(scales)
        ends = (
            *node.args[self.least : self.least + 2],
            *map(node.kwargs.get, ("quant_min", "quant_max")),
        )
        has_4_bits = ends[:2] == (-8, 7)
        return count >= rows if has_4_bits else count > rows


_SCALES = {
    "torchao.dequantize_affine.default": _Arguments(2, 5),
    "quantized_decomposed.dequantize_per_channel_group.default": _Arguments(1, 3),
}


_INTEGERS = (
    "XNNPACK computes int8 operators with integers: biases are rounded to steps of int32, and each "
    "sum once to a step of the result"
)
_BY_ROW = (
    "XNNPACK quantizes the inputs of dynamically quantized layers by row (of convolutions by "
    "image), with scales that it chooses in float32"
)
_RULES: Mapping[str, Callable[[GraphNode], ByDesign | None]] = {"XnnpackBackend": _xnnpack}


# -- values in another type than the graph's

KEPT_IN_CODES = (
    "QNN keeps values in the integers that the model was quantized to, also where its passes have "
    "removed from the graph what quantizes"
)
COMPUTED_IN_HALVES = "{} computed in float16, as its values show"


def in_codes(node: GraphNode, backends: Mapping[str, Inside], codes: GraphCodes) -> Compute | None:
    """Return the function that computes a node with values rounded to their integer codes, as
    backends do that compute with integers; None for a node without codes.

    backends: the backend of each node inside a delegate. codes: the codes by name in the graph.
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

    def compute(
        target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local | None
    ) -> Any:
        either_side = None if local is None else torch.Generator().manual_seed(seed)
        leaves, spec = pytree.tree_flatten(list(args))
        for position, known in incoming.items():
            if position < len(leaves):
                leaves[position] = _rounded(leaves[position], known, either_side)
        args = tuple(pytree.tree_unflatten(leaves, spec))
        value = target(*args, **kwargs) if local is None else _widely(target, args, kwargs)
        if isinstance(value, (tuple, list)):
            elements = list(value)
            for element, known in own.items():
                if element is not None and element < len(elements):
                    elements[element] = _rounded(elements[element], known, either_side)
            return type(value)(elements)
        return _rounded(value, own[None], either_side) if None in own else value

    return compute


def in_halves(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local | None
) -> Any:
    """Compute an operator in float16, with sums in float32; in float64 if `local` is given."""
    if local is not None:
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
