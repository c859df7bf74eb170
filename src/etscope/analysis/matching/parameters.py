"""The parameters that nodes of a record's graph read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from etscope.analysis.delegates.xnnpack import QUANTIZATION
from etscope.model.graph import Graph, Node

_BIASES = ("bias", "weight_bias")  # the second: a convolution with its batch norm folded in
# torchao numbers quantized weights: such names do not come from the model.
_NUMBERED = ("_frozen_param", "_lifted_tensor_constant", "lifted_tensor_")


def parameter_at(
    node: Node, graph: Graph, slot: int, sizes: Sequence[int] | None = None
) -> str | None:
    """Return the name of the parameter at a position among all parameters that a node reads,
    directly or dequantized; None if it has no name in the model. sizes: of the expected weight; a
    weight with another number of elements does not match."""
    around = graph.graph_of(node)
    read = [one for name in node.inputs if (one := _parameter(around, name)) is not None]
    if slot >= len(read):
        return None
    name, shape = read[slot]
    if sizes is not None and math.prod(shape) != math.prod(sizes):
        return None
    if not name.startswith(_NUMBERED):
        return name
    # The bias of a quantized weight still has the module's name.
    if slot != 0 or len(read) != 2:
        return None
    module, dot, bias = read[1][0].rpartition(".")
    return f"{module}{dot}weight" if bias in _BIASES else None


def _parameter(graph: Graph, value: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the name and shape of the parameter in a value, or of the one it dequantizes."""
    node = graph.by_name.get(value)
    if value not in graph.parameters:
        if node is None or not node.op.startswith(QUANTIZATION) or not node.inputs:
            return None
        value = node.inputs[0]
    name = graph.parameters.get(value)
    return None if name is None else (name, _shape(graph, value))


def _shape(graph: Graph, parameter: str) -> tuple[int, ...]:
    source = graph.by_name[parameter]
    tensor = source.outputs[0].tensor if source.outputs else None
    return () if tensor is None else tuple(s for s in tensor.shape if isinstance(s, int))


def parameters_of(node: Node, graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters that a node reads, by qualified name: directly, or
    through nodes that read nothing else (a weight's transpose, its dequantization)."""
    around = graph.graph_of(node)
    found: dict[str, tuple[int, ...]] = {}
    waiting = list(node.inputs)
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        source = around.by_name.get(name)
        if source is None:
            continue
        if name in around.parameters:
            found[around.parameters[name]] = _shape(around, name)
        elif source.kind == "call_function" and all(
            one in around.parameters for one in source.inputs
        ):
            waiting += (one for one in source.inputs if one not in seen)
            seen.update(source.inputs)
    return found
