"""The borders of delegates: the values that cross them, and the nodes that only lay out or convert
values there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.graphs.node_table import PlacedNode
from etscope.analysis.graphs.partition import DelegateCall, Partition
from etscope.model.graph import Graph, Node, TensorSpec, stem

INPUT, STATE, OUTPUT, VALUE = "input", "state", "output", "value"
LAYOUT, QUANTIZE, DEQUANTIZE = "layout", "quantize", "dequantize"
# Operators, by `stem`, that only change the order of values in memory.
_LAYOUTS = frozenset({"clone", "clone_dim_order", "contiguous", "permute", "t", "transpose"})
_TO_LAYOUT = frozenset({"to", "to_dim_order"})  # only if the type stays


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """A value that is made on one side of a border and read on the other.

    name: the value's name. source, target: the delegate calls that make and read it, None for the
    runtime. kind: `INPUT` of the model, `STATE` (a buffer that the model changes and the delegate
    does not own), `OUTPUT` of the model, or `VALUE`. maker: the node that makes it. bytes: its
    size, None if it is not a tensor; symbolic sizes have their values at export.
    """

    name: str
    kind: str
    source: DelegateCall | None
    target: DelegateCall | None
    maker: Node
    tensor: TensorSpec | None
    bytes: int | None

    @property
    def label(self) -> str:
        """The node that makes it, with a number if the node makes several values:
        "aten_topk[0]"."""
        names = [value.name for value in self.maker.outputs]
        if self.name == self.maker.name or self.name not in names:
            return self.name
        return f"{self.maker.name}[{names.index(self.name)}]"


@dataclass(frozen=True, slots=True, eq=False)
class BorderNode:
    """A node that changes the layout of a value or converts it at a border: see `Borders.nodes`.

    kind: `LAYOUT`, `QUANTIZE` or `DEQUANTIZE`. call: the delegate call that computes it, None for
    the runtime. givers, readers: other calls directly before and after it. partners: the nodes of
    the opposite kind that it is paired with.
    """

    place: PlacedNode
    kind: str
    call: DelegateCall | None
    givers: tuple[DelegateCall, ...]
    readers: tuple[DelegateCall, ...]
    partners: tuple[str, ...]


class Borders:
    """The borders of the delegates of a partition. Values are followed from their makers to their
    readers, through branches."""

    def __init__(self, partition: Partition) -> None:
        self._partition, self._call_of = partition, partition.call_of
        self._graphs = list(_outside_delegates(partition.linked.graph))
        self._callers = {
            id(below): (graph, node)
            for graph in self._graphs
            for node in graph.nodes
            for below in node.subgraphs
        }

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        """The values that cross a border of a delegate, in the order of the readers: once for each
        call that reads them, and once if the runtime reads them.

        Weights and other constants do not cross, even if each call receives them. Nor does a buffer
        that the delegate owns.
        """
        found: dict[tuple[int, str, int], Crossing] = {}
        for graph in self._graphs:
            for node in graph.nodes:
                if node.kind not in ("call_function", "output"):
                    continue
                target = self._call_of.get(id(node))
                for name in dict.fromkeys(self._read(graph, node)):
                    one = self._crossing(graph, node, name, target)
                    if one is not None:
                        found.setdefault((id(one.maker), one.name, id(target)), one)
        return tuple(found.values())

    def entering(self, call: DelegateCall) -> list[Crossing]:
        return [one for one in self.crossings if one.target is call]

    def leaving(self, call: DelegateCall) -> list[Crossing]:
        """The values that come out of a call, each once, whoever reads them."""
        found = {(id(one.maker), one.name): one for one in self.crossings if one.source is call}
        return list(found.values())

    @cached_property
    def nodes(self) -> tuple[BorderNode, ...]:
        """The nodes that change the layout of a value, quantize it or dequantize it directly at a
        border.

        - In the runtime: a permute (`permute`, `transpose`, `t`), a change of layout (`clone`,
          `contiguous`, their dim-order variants, a `to` that keeps the type), a quantize or a
          dequantize node. A delegate call makes the value that the node reads, or reads the value
          that the node makes, with no other node between.
        - In a delegate call: a quantize node that reads a value from outside, unless the value is
          an input of the model; or a dequantize node that is read outside, unless only as an output
          of the model. Permutes in a delegate do not count, since they are in the model;
          `DelegateCall.added` has the permutes that a backend adds.

        A quantize node is paired with the dequantize nodes that read it, and a dequantize node with
        the quantize node that it reads, whichever side each is on: without the border, neither
        would be computed.
        """
        return tuple(one for one in map(self._node, self._partition.places) if one is not None)

    def _read(self, graph: Graph, node: Node) -> Iterable[str]:
        """The values that a node reads itself: a condition hands its operands to its branches."""
        if node.op == "cond":
            return node.inputs[:1]
        if node.kind == "output" and id(graph) not in self._callers:
            crossing = []
            for value in node.inputs:
                maker = graph.by_name.get(value)
                call = None if maker is None else self._call_of.get(id(maker))
                # A value that a delegate writes to a buffer it owns stays inside.
                if call is None or self._partition.mutated.get(value) not in call.state:
                    crossing.append(value)
            return crossing
        return node.inputs

    def _crossing(
        self, graph: Graph, reader: Node, name: str, target: DelegateCall | None
    ) -> Crossing | None:
        where, maker, value = self._origin(graph, name)
        if maker is None or maker.kind == "get_attr":
            return None
        source = self._call_of.get(id(maker))
        if source is target:
            return None
        kind = VALUE
        if reader.kind == "output" and id(graph) not in self._callers:
            kind = OUTPUT
        elif maker.kind == "placeholder" and id(where) not in self._callers:
            kind = INPUT
        if maker.name in where.parameters:
            buffer = where.parameters[maker.name]
            if buffer not in self._partition.mutated.values():
                return None
            if target is None or buffer in target.state:
                return None
            kind = STATE
        tensor = next((one.tensor for one in maker.outputs if one.name == value), None)
        size = None if tensor is None else tensor.nbytes
        return Crossing(value, kind, source, target, maker, tensor, size)

    def _origin(self, graph: Graph, name: str) -> tuple[Graph, Node | None, str]:
        """Return the graph, node and name of a value, followed from a branch to its origin. In
        loops follow only constants: the runtime slices and carries all other values."""
        node = graph.by_name.get(name)
        if node is None or node.kind != "placeholder" or id(graph) not in self._callers:
            return graph, node, name
        outer, caller = self._callers[id(graph)]
        makers = outer.by_name
        given = [v for v in caller.inputs if v not in makers or makers[v].kind != "get_attr"]
        position = len(given) - len(graph.inputs) + graph.inputs.index(name)
        if name not in graph.inputs or not 0 <= position < len(given):
            return graph, node, name
        found = self._origin(outer, given[position])
        is_constant = found[1] is not None and found[1].name in found[0].parameters
        return found if caller.op == "cond" or is_constant else (graph, node, name)

    def _node(self, place: PlacedNode) -> BorderNode | None:
        """Return the node as a border node; None if it is not at a border."""
        node, graph = place.node, place.graph
        kind, call = _conversion(node, graph), self._call_of.get(id(node))
        if kind is None or (call is not None and kind == LAYOUT):
            return None
        origins = (self._origin(graph, name)[1] for name in node.inputs)
        made_by = [maker for maker in origins if maker is not None]
        users = [graph.by_name[name] for name in graph.users[node.name]]
        givers = self._others(call, made_by)
        readers = self._others(call, users)
        if call is None:
            is_border = bool(givers or readers)
        elif kind == QUANTIZE:
            is_border = any(
                self._call_of.get(id(maker)) is not call and maker.kind != "placeholder"
                for maker in made_by
            )
        else:
            outside = [user for user in users if self._call_of.get(id(user)) is not call]
            is_border = any(user.kind != "output" or id(graph) in self._callers for user in outside)
        if not is_border:
            return None
        around = users if kind == QUANTIZE else made_by
        opposite = {QUANTIZE: DEQUANTIZE, DEQUANTIZE: QUANTIZE}.get(kind)
        partners = [one.name for one in around if opposite and _conversion(one, graph) == opposite]
        return BorderNode(place, kind, call, givers, readers, tuple(dict.fromkeys(partners)))

    def _others(self, call: DelegateCall | None, nodes: Iterable[Node]) -> tuple[DelegateCall, ...]:
        found = (self._call_of.get(id(node)) for node in nodes)
        return tuple(dict.fromkeys(one for one in found if one is not None and one is not call))


def _outside_delegates(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for below in node.subgraphs:
            yield from _outside_delegates(below)


def _conversion(node: Node, graph: Graph) -> str | None:
    """Return the kind of a node that only lays out or converts its input; None for others."""
    name = stem(node.op)
    if name.startswith("quantize_"):
        return QUANTIZE
    if name.startswith("dequantize_"):
        return DEQUANTIZE
    if name in _LAYOUTS:
        return LAYOUT
    if name in _TO_LAYOUT and node.inputs:
        source = graph.by_name.get(node.inputs[0])
        given = () if source is None else source.outputs
        types = [one.tensor.dtype for one in (*given[:1], *node.outputs[:1]) if one.tensor]
        return LAYOUT if len(types) == 2 and types[0] == types[1] else None
    return None
