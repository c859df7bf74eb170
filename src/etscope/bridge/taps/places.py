"""Where the value of a node that is to be tapped is taken."""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from etscope.bridge.taps.nodes import is_quantized_op, target_name
from etscope.errors import EtscopeWarning

# What XNNPACK and its quantizer take together with the operator before, in one int8 operator.
_ACTIVATIONS = frozenset(
    f"aten.{name}.default"
    for stem in ("relu", "hardtanh", "relu6", "clamp")
    for name in (stem, f"{stem}_")
)
# What hands its input on.
_IDENTITIES = frozenset(
    f"aten.{name}.default"
    for name in ("dropout", "feature_dropout", "contiguous", "detach", "detach_", "alias")
)


@dataclass(frozen=True)
class Place:
    """Where the value of a node is taken: at `value`, or of `dequantize`, a copy of which is made
    for it, because other users of that one belong to their own operators."""

    node: Node
    value: Node
    dequantize: Node | None = None


def place_of(node: Node, value: Node) -> Place:
    """Where a selected value is taken.

    Between a dequantisation and the next quantisation there is one operator of int8. Its value is
    that after quantisation, and there is none within it.
    """
    same = source_of(node)
    if same is not node:
        node, value = owner_of(same), same
    if is_quantized_op(node, "quantize"):
        return _of_quantize(node, origin_of(node))
    if is_quantized_op(node, "dequantize"):
        quantize: Any = node.args[0]
        return _of_quantize(quantize, origin_of(quantize))
    at = value
    while True:
        quantizes = [user for user in at.users if is_quantized_op(user, "quantize")]
        if quantizes:
            if at is not value:
                warnings.warn(
                    f"{node.name} has no value of its own in int8: it is one operator with "
                    f"{at.name}, which is tapped instead",
                    EtscopeWarning,
                    stacklevel=2,
                )
            return _of_quantize(quantizes[0], node if at is value else at)
        users = list(at.users)
        is_fused = any(is_quantized_op(used, "dequantize") for used in node.all_input_nodes)
        if not is_fused or len(users) != 1 or target_name(users[0].target) not in _ACTIVATIONS:
            return Place(node, value)
        at = users[0]


def source_of(node: Node) -> Node:
    """The value of another node that one's is the same as: there is no need to have it twice, and
    a delegate of nothing but a copy cannot be lowered."""
    while is_identity(node):
        given: Any = node.args[0]
        if given.op != "call_function":
            return node
        node = given
    return node


def is_identity(node: Node) -> bool:
    """Whether a node does nothing but hand its input on."""
    if node.op != "call_function":
        return False
    name = target_name(node.target)
    if name == "aten.clone.default":
        return not node.kwargs
    return name in _IDENTITIES and not ("dropout" in name and node.args[2])


def origin_of(quantize: Node) -> Node:
    """The node whose value is quantised; a quantised input has none but its quantisation."""
    source = owner_of(quantize.args[0])
    return source if source.op == "call_function" else quantize


def owner_of(value: Any) -> Any:
    """The node that a value comes of: that of a tuple, for its elements."""
    return owner_of(value.args[0]) if value.target is operator.getitem else value


def _of_quantize(quantize: Node, node: Node) -> Place:
    back = [user for user in quantize.users if is_quantized_op(user, "dequantize")]
    return Place(node, quantize, back[0]) if back else Place(node, quantize)


def element_of(value: Node) -> Any:
    return value.args[1] if value.target is operator.getitem else None
