"""The work of a graph's nodes, from the shapes that the graph has."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

from etscope.analysis.work.formulas import INT8_INT4, work_of
from etscope.analysis.work.operation import (
    ACTIVATION,
    NO_WORK,
    STATE,
    WEIGHT,
    Argument,
    Operand,
    Operation,
    Traffic,
    UnfitError,
    Work,
    operator_name,
    sum_of,
    unknown_work,
)
from etscope.analysis.work.sizes import Sizes, largest
from etscope.model.graph import Graph, Node

_FUNCTIONALIZED = "higher_order.auto_functionalized"  # calls the operator that it names first
_WRAPPER = "wrap_with_"  # runs its one sub-graph once, as a body of `torch.no_grad()`
_DEQUANTIZERS = frozenset({
    "dequantize_per_tensor", "dequantize_per_channel", "dequantize_affine",
    "dequantize_per_channel_group", "dequantize_per_token",
})  # fmt: skip


class GraphWork:
    """The work of the nodes of a graph, and of its sub-graphs, for given sizes of its dynamic
    dimensions.

    sizes: the values of the symbols in its shapes; by default the largest that the program was
    exported for.
    """

    def __init__(self, graph: Graph, sizes: Sizes | None = None) -> None:
        self.graph = graph
        self.sizes = largest(graph) if sizes is None else sizes
        self._operands: dict[tuple[int, str], Operand] = {}
        self._known: dict[tuple[int, bool], Work] = {}

    def of(self, node: Node, *, is_view: bool = False) -> Work:
        """Return the work of a node; for a delegate's call, of the nodes inside. Placeholders have
        none; control flow's is unknown, as it depends on the branch and the number of passes.

        is_view: it is known to copy nothing, as memory planning made a view of it.
        """
        key = id(node), is_view
        if key not in self._known:
            self._known[key] = self._of(node, is_view)
        return self._known[key]

    def _of(self, node: Node, is_view: bool) -> Work:
        if node.kind != "call_function":
            return NO_WORK
        if node.delegate is not None:
            inner = node.delegate.graph
            return unknown_work(node.op) if inner is None else self.together(inner.nodes)
        if node.subgraphs:
            if not node.op.startswith(_WRAPPER):
                return unknown_work(node.op)
            return sum_of(self.of(one) for graph in node.subgraphs for one in graph.nodes)
        try:
            operation = self.operation(node, is_view=is_view)
        except UnfitError:
            return unknown_work(operator_name(node.target)[0])
        found = work_of(operation)
        is_largest = bool(found.flops or found.traffic) and self._is_bound(node)
        return replace(found, is_bound=found.is_bound or is_largest)

    def together(self, nodes: Sequence[Node]) -> Work:
        """The work of nodes that one delegate's call computes: their FLOPs, and the bytes that
        cross the border of the call. Values that one hands to another are counted apart.

        Dequantizing a constant is not work: it was done when the program was made.
        """
        nodes = [node for node in nodes if node.kind == "call_function"]
        works = [
            self._as_quantized(self.of(node), node) for node in nodes if not self._is_constant(node)
        ]
        try:
            traffic = self._border(nodes)
        except UnfitError:
            return sum_of([*works, unknown_work("the border of the call")])
        added = sum_of(works)
        inner = max(0, added.traffic.activations - traffic.activations)
        return replace(added, traffic=traffic, inner=inner)

    def operation(self, node: Node, *, is_view: bool = False) -> Operation:
        """The operator of a node with the sizes of its tensors. Raises `UnfitError` for a size that
        is not known."""
        name, own_name = operator_name(node.target)
        arguments = [(argument, self._argument(text, node)) for argument, text in node.arguments]
        if name.startswith(_FUNCTIONALIZED) and arguments and isinstance(arguments[0][1], str):
            name, own_name = operator_name(arguments[0][1])
            arguments = arguments[1:]
        position = self.sizes.position
        if name.startswith("llama.") and position is not None:
            arguments = [
                (key, position if key == "start_pos" and not isinstance(value, int) else value)
                for key, value in arguments
            ]
        return Operation(name, own_name, tuple(arguments), tuple(self._outputs(node)), is_view)

    # -- operands

    def _argument(self, text: str, node: Node) -> Argument:
        graph = self.graph.graph_of(node)
        if text in graph.by_name:
            return self._operand(text, graph) or text
        if not text.startswith("["):
            return _literal(text)
        items = [item for item in text[1:-1].split(", ") if item]
        tensors = [self._operand(item, graph) if item in graph.by_name else None for item in items]
        if any(tensors):
            return tuple(tensors)
        return [item if isinstance(item, int) else str(item) for item in map(_literal, items)]

    def _operand(self, name: str, graph: Graph) -> Operand | None:
        """The tensor of a value; None for a number."""
        key = id(graph), name
        if key not in self._operands:
            source = graph.by_name[name]
            values = {value.name: value.tensor for value in source.outputs}
            spec = values.get(name) or (source.outputs[0].tensor if source.outputs else None)
            if spec is None:
                return None
            shape = self.sizes.shape(spec)
            self._operands[key] = Operand(spec.dtype, shape, self._role(source, graph))
        return self._operands[key]

    def _role(self, source: Node, graph: Graph) -> str:
        """Return the role of a node's values; a view, or what is changed in place, has the role of
        its input."""
        seen: set[str] = set()
        while source.name not in seen:
            seen.add(source.name)
            if source.name in graph.state or (id(graph), source.name) in self._changed:
                return STATE
            if source.name in graph.parameters:
                return WEIGHT
            own_name = operator_name(source.target)[1]
            follows = _is_in_place(own_name) or own_name in _VIEWS_OF_WEIGHTS
            if not follows or not source.inputs:
                return ACTIVATION
            source = graph.by_name.get(source.inputs[0], source)
        return ACTIVATION

    @cached_property
    def _changed(self) -> frozenset[tuple[int, str]]:
        """The buffers that operators change in place, by graph and name. Only the exported program,
        which is not functional, has such."""
        return frozenset(
            (id(graph), node.inputs[0])
            for graph in self.graph.with_subgraphs()
            for node in graph.nodes
            if node.inputs
            and node.inputs[0] in graph.parameters
            and _is_in_place(operator_name(node.target)[1])
        )

    def _outputs(self, node: Node) -> Iterator[Operand]:
        graph = self.graph.graph_of(node)
        for value in node.outputs:
            operand = None if value.tensor is None else self._operand(value.name, graph)
            if operand is not None:
                yield operand

    # -- delegates

    def _border(self, nodes: Sequence[Node]) -> Traffic:
        """The bytes of values that nodes read from others, and of those that they give to others,
        each once."""
        inside = set(map(id, nodes))
        read: dict[int, Operand] = {}
        written: dict[int, Operand] = {}
        for node in nodes:
            graph = self.graph.graph_of(node)
            for name in node.inputs:
                source = graph.by_name.get(name)
                if source is not None and id(source) not in inside:
                    operand = self._operand(name, graph)
                    if operand is not None:
                        read[id(operand)] = operand
            users = {
                value.name: self._users.get((id(graph), value.name), []) for value in node.outputs
            }
            for operand, value in zip(self._outputs(node), node.outputs, strict=False):
                if not inside.issuperset(map(id, users[value.name])):
                    written[id(operand)] = operand
        return Traffic.of(
            ((one, one.nbytes) for one in read.values()),
            ((one, one.nbytes) for one in written.values()),
        )

    @cached_property
    def _users(self) -> Mapping[tuple[int, str], list[Node]]:
        """The nodes that read a value, the output node among them, by graph and name."""
        found: dict[tuple[int, str], list[Node]] = {}
        for graph in self.graph.with_subgraphs():
            for node in graph.nodes:
                for name in node.inputs:
                    found.setdefault((id(graph), name), []).append(node)
        return found

    def _is_constant(self, node: Node) -> bool:
        graph = self.graph.graph_of(node)
        return operator_name(node.target)[1] in _DEQUANTIZERS and all(
            name in graph.parameters for name in node.inputs
        )

    def _as_quantized(self, work: Work, node: Node) -> Work:
        """The work of a node in a delegate: what takes dequantized activations is computed with
        their integers, as backends fuse the two."""
        graph = self.graph.graph_of(node)
        sources = [graph.by_name[name] for name in node.inputs if name in graph.by_name]
        dequantized = [one for one in sources if operator_name(one.target)[1] in _DEQUANTIZERS]
        activations = [one for one in dequantized if not self._is_constant(one)]
        if not activations or operator_name(node.target)[1].startswith("quantize"):
            return work
        for node in sources:
            for _ in range(_MOST_VIEWS):  # behind views: for a transpose, its weights
                is_view = operator_name(node.target)[1].removesuffix("_copy") in _VIEWS_OF_WEIGHTS
                source = graph.by_name.get(node.inputs[0]) if is_view and node.inputs else None
                if source is None:
                    break
                node = source
            given = {name: _literal(text) for name, text in node.arguments}
            low, high = given.get("quant_min"), given.get("quant_max")
            is_int4 = isinstance(low, int) and isinstance(high, int) and high - low < _INT4_LEVELS
            if is_int4 and self._is_constant(node):
                return work.in_dtype(INT8_INT4)
        return work.in_dtype("int8")

    def _is_bound(self, node: Node) -> bool:
        graph = self.graph.graph_of(node)
        around = [graph.by_name[name] for name in node.inputs if name in graph.by_name]
        values = (value.tensor for one in (node, *around) for value in one.outputs)
        return any(self.sizes.is_bound(tensor) for tensor in values if tensor is not None)


_VIEWS_OF_WEIGHTS = frozenset({"view", "reshape", "t", "transpose", "permute", "detach", "alias"})
_MOST_VIEWS = 8  # one behind the other; a file may claim any number, and circles
_INT4_LEVELS = 16  # numbers of an int4 weight


def _is_in_place(own_name: str) -> bool:
    return own_name.endswith("_") and not own_name.startswith("__")


@lru_cache(maxsize=4096)
def _literal(text: str) -> int | float | str | None:
    """A number, or the text of anything else; None for a default that is left out."""
    if text == "None":
        return None
    try:
        value = ast.literal_eval(text) if len(text) <= 64 else text
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, (int, float, str)) else text
