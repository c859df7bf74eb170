"""Find the values of a quantised graph in the graph of the model before it was quantised.

PyTorch 2 Export quantization rewrites the float graph, and its nodes name those that they come
from. torchao's `quantize_` changes the module, which is exported anew: the operators of both graphs
are then aligned by operator, module and result. A number that is quantised or dequantised stands
for the one that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from etscope.analysis.comparison.align import matched_in_turn
from etscope.analysis.matching.matching import parts_of
from etscope.analysis.profile.source_location import module_path
from etscope.model.graph import SAME_VALUE, Graph, Node, NodeValue, stem

_SAME_SHAPE = SAME_VALUE | {"expand"}  # the same values, if the shape is the same
# Operators that quantisation leaves out, as it folds them into the one before.
FOLDED = {"batch_norm", "dropout", "native_dropout", "native_batch_norm_legit_no_training"}


@dataclass(frozen=True)
class Counterparts:
    """The values of a quantised graph in the float graph.

    of: float value by quantised one; inputs are values of their placeholders. Values of branches
    and loops have none. computed: the paths of the nodes that compute such a value, without copies
    and conversions of it. rounded: the paths of the conversions with fixed parameters, whose
    rounding belongs to the operator that computes the number; where they are computed from the
    number (dynamic quantisation), it belongs to the operator that reads it.
    """

    of: Mapping[NodeValue, NodeValue]
    computed: frozenset[str]
    rounded: frozenset[str]
    quantized_only: tuple[str, ...] = ()
    float_only: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name what has no counterpart, in words; empty for nothing."""
        return " and ".join(
            f"{len(paths)} node{'' if len(paths) == 1 else 's'} of the {kind} graph "
            f"({', '.join(paths[:3])}{', …' if len(paths) > 3 else ''})"
            for kind, paths in (("quantised", self.quantized_only), ("float", self.float_only))
            if paths
        )


def is_conversion(node: Node) -> bool:
    """True for a node that quantises or dequantises."""
    return "quantize_" in stem(node.op)


def counterparts(graph: Graph, floats: Graph, exported: Graph | None = None) -> Counterparts:
    """Find the float counterparts of a quantised graph's values.

    graph: of any dialect. exported: the quantised exported program that it was made of; None if
    that is not known, or the graph itself.
    """
    parts = parts_of(graph, floats) or _aligned_parts(graph, floats, exported)
    found: dict[NodeValue, NodeValue] = {}
    for path, nodes in parts.items():
        if path in floats.own_operators:
            found.update(_results(graph, floats, floats.calls[path], nodes))
    folded = _move_to_folded(floats, found, set(parts))
    computed = frozenset(value.path for value in found)
    inputs = dict(zip(_user_inputs(graph), _user_inputs(floats), strict=False))
    rounded = set()
    for path, node in graph.own_operators.items():
        own = NodeValue(path)
        if own in found or not (is_conversion(node) or stem(node.op) in _SAME_SHAPE):
            continue
        source = _source(graph, floats, node, found, inputs)
        if source is None:
            continue
        if is_conversion(node) or _float_shape(floats, source) == _shape(graph, own):
            found[own] = source
        if is_conversion(node) and not _is_dynamic(graph, node):
            rounded.add(path)
    known = set(_constant(graph)) | {
        graph.path_of.get(id(n), "") for p in parts.values() for n in p
    }
    compared = {value.path for value in found.values()}
    return Counterparts(
        of={
            value: other
            for value, other in found.items()
            if (spec := graph.spec_of(value)) is not None and "float" in spec.dtype
        },
        computed=computed,
        rounded=frozenset(rounded),
        quantized_only=tuple(
            path
            for path, node in graph.own_operators.items()
            if path not in known
            and not is_conversion(node)
            and "qparams" not in node.op
            and not any(value in found for value in graph.values_of(node))
        ),
        float_only=tuple(
            path for path in floats.own_operators if path not in compared and path not in folded
        ),
    )


def _float_shape(floats: Graph, value: NodeValue) -> tuple[int | str, ...] | None:
    """The shape of a value of the float graph, an input's too."""
    if value.path in floats.calls:
        return _shape(floats, value)
    tensor = floats.by_name[value.path].outputs[0].tensor
    return None if tensor is None else tensor.shape


def _shape(graph: Graph, value: NodeValue) -> tuple[int | str, ...] | None:
    spec = graph.spec_of(value)
    return None if spec is None else spec.shape


def _aligned_parts(graph: Graph, floats: Graph, exported: Graph | None) -> Mapping[str, list[Node]]:
    """Map float nodes to the nodes of the graph, without what these say of their origins."""
    base = graph if exported is None else exported
    ones = [(path, node) for path, node in base.own_operators.items() if not is_conversion(node)]
    others = list(floats.own_operators.items())
    pairs = matched_in_turn(
        [_token(base, node) for _, node in ones],
        [_token(floats, node) for _, node in others],
        [lambda token: token, lambda token: token[:2], lambda token: (token[0], token[2])],
    )
    parts = None if exported is None else parts_of(graph, exported)
    found: dict[str, list[Node]] = {}
    for i, j in pairs:
        path, node = ones[i]
        found[others[j][0]] = [node] if parts is None else parts.get(path, [])
    return found


def _token(graph: Graph, node: Node) -> tuple[object, ...]:
    return stem(node.op), module_path(node), tuple(_shape(graph, v) for v in graph.values_of(node))


def _results(
    graph: Graph, floats: Graph, node: Node, parts: Sequence[Node]
) -> Iterator[tuple[NodeValue, NodeValue]]:
    """Yield the values of a float node's parts that are its own: those of the last part with such
    results."""
    wanted = floats.values_of(node)
    own = [
        part
        for part in parts
        if id(part) in graph.path_of
        and graph.path_of[id(part)] in graph.own_operators
        and not is_conversion(part)
    ]
    for part in reversed(own):
        values = graph.values_of(part)
        shapes = [_shape(graph, value) for value in values]
        if shapes[: len(wanted)] == [_shape(floats, value) for value in wanted]:
            yield from zip(values, wanted, strict=False)
            return


def _move_to_folded(floats: Graph, found: dict[NodeValue, NodeValue], known: set[str]) -> set[str]:
    """Move the counterpart to an operator that quantisation folded into the one before, as its
    value is then that one's; return the paths of the operators before."""
    folded: dict[NodeValue, NodeValue] = {}
    for path, node in floats.own_operators.items():
        if path in known or stem(node.op) not in FOLDED:
            continue
        read = floats.read_by(node)
        if len(read) != 1 or len(floats.users[floats.calls[read[0].path].name]) != 1:
            continue
        folded[read[0]] = NodeValue(path) if len(node.outputs) < 2 else NodeValue(path, 0)
    for value, other in found.items():
        while other in folded:
            other = folded[other]
        found[value] = other
    return {value.path for value in folded}


def _source(
    graph: Graph,
    floats: Graph,
    node: Node,
    found: Mapping[NodeValue, NodeValue],
    inputs: Mapping[str, str],
) -> NodeValue | None:
    """The float value that a conversion or a copy is made of."""
    first = node.inputs[0] if node.inputs else ""
    if first in inputs:
        return NodeValue(inputs[first])
    value = graph.value_named(first, graph)
    return None if value is None else found.get(value)


def _user_inputs(graph: Graph) -> list[str]:
    return [name for name in graph.inputs if name not in graph.parameters]


def _is_dynamic(graph: Graph, node: Node) -> bool:
    """True if the parameters of a conversion are computed in the graph."""
    return any("qparams" in graph.calls[value.path].op for value in graph.read_by(node))


def _constant(graph: Graph) -> Iterator[str]:
    """Yield the paths of the nodes that compute with weights only."""
    seen: set[str] = set(graph.parameters)
    for path, node in graph.own_operators.items():
        if node.inputs and all(graph.by_name[name].name in seen for name in node.inputs):
            seen.add(node.name)
            yield path
