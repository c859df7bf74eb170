"""Graphs as `matching` sees them: places where values are, and whether a logged value fits one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.program.compatibility import stem
from etscope.model.graph import Graph, Node, TensorSpec

# Operators, by `stem`, that compute nothing. Memory planning makes views of some, and passes take
# others away, so that what reads them may read their input.
VIEWS = frozenset({"view", "et_view", "reshape"})
SAME_VALUE = VIEWS | {
    "alias", "clone", "clone_dim_order", "contiguous", "detach", "lift_fresh", "squeeze", "to",
    "to_dim_order", "unsqueeze",
}  # fmt: skip

# A recorder may widen a type that an ETDump cannot hold.
_WIDENED = {"float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True, slots=True)
class LoggedSpec:
    """What kind of tensor was logged: dtype by torch's name, and shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """An output of an instruction, or of an operator inside its delegate."""

    instruction: int
    output: int
    delegate_id: int | str | None = None

    @property
    def order(self) -> tuple[int, str, int]:
        """For sorting."""
        return (
            self.instruction,
            "" if self.delegate_id is None else str(self.delegate_id),
            self.output,
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A value of a node; `element` is None unless the node has a tuple or list of them."""

    path: str
    element: int | None = None


class Paths:
    """The nodes of a graph and of those below it by path, and the places of their values."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Path -> node, of all that call something, in order."""
        return {path: node for path, node, _ in self._walk if node.kind == "call_function"}

    @cached_property
    def operators(self) -> Mapping[str, Node]:
        """As `nodes`, without what only stands for memory."""
        return {
            path: node for path, node in self.nodes.items() if node.op not in ("getitem", "alloc")
        }

    @cached_property
    def top(self) -> Mapping[str, Node]:
        """As `operators`, of the graph's own nodes only."""
        return {path: node for path, node in self.operators.items() if "/" not in path}

    @cached_property
    def path_of(self) -> Mapping[int, str]:
        """The path of each node, by its `id`."""
        return {id(node): path for path, node, _ in self._walk}

    @cached_property
    def _walk(self) -> list[tuple[str, Node, Graph]]:
        return list(_walk(self.graph, ""))

    @cached_property
    def _owner(self) -> Mapping[int, Graph]:
        return {id(node): graph for _, node, graph in self._walk}

    def graph_of(self, node: Node) -> Graph:
        """The graph that the node stands in."""
        return self._owner[id(node)]

    def places(self, node: Node) -> tuple[Place, ...]:
        """The places of a node's values, in order."""
        path = self.path_of[id(node)]
        if len(node.outputs) == 1 and node.outputs[0].name == node.name:
            return (Place(path),)
        return tuple(Place(path, index) for index in range(len(node.outputs)))

    def place(self, graph: Graph, value: str) -> Place | None:
        """Where the value of that name in `graph` is; None for what no node computes."""
        node = graph.by_name.get(value)
        if node is None or node.kind != "call_function":
            return None
        names = [output.name for output in node.outputs]
        places = self.places(node)
        index = names.index(value) if value in names else 0
        return places[index] if index < len(places) else None

    def spec(self, place: Place) -> TensorSpec | None:
        """The tensor at a place, None for a number."""
        node = self.nodes[place.path]
        index = place.element or 0
        return node.outputs[index].tensor if index < len(node.outputs) else None

    def inputs(self, node: Node) -> list[Place]:
        """The places of what a node reads."""
        graph = self.graph_of(node)
        found = (self.place(graph, name) for name in node.inputs)
        return [place for place in found if place is not None]

    def users(self, place: Place) -> list[Node]:
        """The nodes that read the value at a place, the graph's output among them."""
        node = self.nodes[place.path]
        graph = self.graph_of(node)
        name = node.outputs[place.element or 0].name
        return self._users(graph).get(name, [])

    def readers(self, place: Place) -> list[Node]:
        """As `users`; those of a delegate's output are the nodes that read it from the call."""
        graph = self.graph_of(self.nodes[place.path])
        call = self._calls.get(id(graph))
        found: list[Node] = []
        for user in self.users(place):
            if user.kind != "output" or call is None:
                found.append(user)
                continue
            for outer in self.places(call):
                if self.inner(outer) == place:
                    found.extend(self.readers(outer))
        return found

    def inner(self, place: Place) -> Place:
        """For the value of a delegate call, the one inside that it is; any other place itself."""
        delegate = self.nodes[place.path].delegate
        graph = None if delegate is None else delegate.graph
        if graph is None or (place.element or 0) >= len(graph.outputs):
            return place
        return self.place(graph, graph.outputs[place.element or 0]) or place

    @cached_property
    def _calls(self) -> Mapping[int, Node]:
        """The call of each delegated graph, by `id` of the graph."""
        return {
            id(node.delegate.graph): node
            for node in self.nodes.values()
            if node.delegate is not None and node.delegate.graph is not None
        }

    def _users(self, graph: Graph) -> Mapping[str, list[Node]]:
        found = self._users_of.get(id(graph))
        if found is None:
            found = {}
            for node in graph.nodes:
                for name in dict.fromkeys(node.inputs):
                    found.setdefault(name, []).append(node)
            self._users_of[id(graph)] = found
        return found

    @cached_property
    def _users_of(self) -> dict[int, dict[str, list[Node]]]:
        return {}

    def read_through(self, node: Node) -> frozenset[Place]:
        """What a node reads, and what that is a view or copy of, to any depth."""
        found = self._read.get(id(node))
        if found is None:
            found = self._read[id(node)] = frozenset(self._sources(node))
        return found

    def _sources(self, node: Node) -> set[Place]:
        found: set[Place] = set()
        waiting = self.inputs(node)
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                source = self.nodes[place.path]
                if stem(source.op) in SAME_VALUE:
                    waiting.extend(self.inputs(source))
        return found

    @cached_property
    def _read(self) -> dict[int, frozenset[Place]]:
        return {}


def _walk(graph: Graph, prefix: str) -> Iterator[tuple[str, Node, Graph]]:
    for node in graph.nodes:
        yield prefix + node.name, node, graph
        for below in node.subgraphs:
            yield from _walk(below, f"{prefix}{below.name.rpartition('/')[2]}/")
        if node.delegate is not None and node.delegate.graph is not None:
            yield from _walk(node.delegate.graph, f"{prefix}{node.delegate.name}/")


def difference(logged: LoggedSpec | None, spec: TensorSpec | None) -> str | None:
    """Why a logged value cannot be the value of a node: its shape or dtype; None if it can."""
    if logged is None or spec is None:
        if logged is None and spec is None:
            return None
        return "one is a tensor, the other a number"
    if not _same_dtype(logged.dtype, spec.dtype):
        return f"logged as {logged.dtype}, but {spec.dtype} in the reference"
    if len(logged.shape) != len(spec.shape) or any(
        isinstance(size, int) and size != given
        for size, given in zip(spec.shape, logged.shape, strict=True)
    ):
        return f"logged as {_shape(logged.shape)}, but {_shape(spec.shape)} in the reference"
    return None


def _same_dtype(logged: str, wanted: str) -> bool:
    return logged in (wanted, _WIDENED.get(wanted))


def _shape(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
