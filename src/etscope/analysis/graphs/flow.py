"""The edges of a `GraphView`: the values that go from node to node, through opened calls.

The inputs of an opened call go to the placeholders inside. The outputs of the graph inside go to
the call, and on to its users.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from etscope.analysis.graphs.executed import ExecutedGraph
from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.model.graph import TensorSpec


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge: output number `output` of the node `source` (a key) is input number `input` of
    `target`.

    name, tensor: the name and type of the value.
    """

    source: str
    output: int
    target: str
    input: int
    name: str
    tensor: TensorSpec | None = None


def edges(view: GraphView) -> Iterator[Edge]:
    """All edges, by target in the order of the view's nodes, except those from a node to itself."""
    flow = _Flow(view)
    for node in view.nodes:
        for position, found in enumerate(flow.into(node)):
            source, value = found
            if source == node.key:
                continue
            maker = view.by_key[source].node
            names = [given.name for given in maker.outputs]
            output = names.index(value) if value in names else 0
            tensor = maker.outputs[output].tensor if maker.outputs else None
            yield Edge(source, output, node.key, position, value, tensor)


def own_times(view: GraphView, statistic: str) -> dict[str, float]:
    """A statistic of the time of each node, in ticks, by key, so that boxes add up: an opened call
    excludes the time of the nodes inside.

    If times inside a call contain each other, they are excluded and the call keeps its whole time.
    """
    values: dict[str, float] = {}
    within: dict[str, float] = {}
    for node in reversed(view.nodes):  # inner nodes first
        time = view.times.get(node.key)
        inside = within.get(node.key, 0.0)
        if time is None:
            own = 0.0
        elif node.opens and view.rest(node.key) is None and inside:
            # The times inside contain each other: use only the call's.
            for inner in view.inside(node.key):
                values.pop(inner.key, None)
            own, inside = time.statistic(statistic), 0.0
            values[node.key] = own
        else:
            own = max(time.statistic(statistic) - (inside if node.opens else 0.0), 0.0)
            values[node.key] = own
        if node.call is not None:
            within[node.call] = within.get(node.call, 0.0) + own + inside
    return {key: value for key, value in values.items() if not math.isnan(value)}


def without_delegates(view: GraphView) -> GraphView:
    """Close the delegates of a view: their calls become plain nodes."""
    nodes: list[ViewNode] = []
    opened: set[str | None] = {None}
    for node in view.nodes:
        if node.call not in opened:
            continue
        if node.node.delegate is not None and node.opens:
            node = replace(node, opens=False, scope=node.scope[:-1])
        elif node.opens:
            opened.add(node.key)
        nodes.append(node)
    kept = {node.key for node in nodes}
    return replace(
        view,
        nodes=tuple(nodes),
        times={key: time for key, time in view.times.items() if key in kept},
        memory={key: size for key, size in view.memory.items() if key in kept},
        live={key: size for key, size in view.live.items() if key in kept},
        errors={key: error for key, error in view.errors.items() if key in kept},
    )


class _Flow:
    def __init__(self, view: GraphView) -> None:
        self._view = view
        self._fed = {
            key: value
            for node in view.nodes
            if node.opens
            for key, value in self._feeds(node).items()
        }

    def into(self, node: ViewNode) -> Iterator[tuple[str, str]]:
        """(key of the source, name of its value) of each input."""
        if node.node.kind == "placeholder":
            if node.key in self._fed and node.call is not None:
                yield from self._source(self._view.by_key[node.call], self._fed[node.key])
            return
        given = set[str]()
        if node.opens:
            below = self._view.below[node.key]
            given = {self._fed[inner.key] for inner in below if inner.key in self._fed}
        for value in node.node.inputs:
            if value not in given:
                yield from self._source(node, value)
        if node.opens:
            yield from self._results(node)

    def _source(self, user: ViewNode, value: str) -> Iterator[tuple[str, str]]:
        maker = user.graph.by_name.get(value)
        if maker is not None:
            key = self._view.keys.get((user.call, id(user.graph), maker.name))
            if key is not None:
                yield key, value

    def _results(self, call: ViewNode) -> Iterator[tuple[str, str]]:
        """The outputs of the graphs inside a call: from their output nodes, or by name."""
        for inner in self._view.below[call.key]:
            if inner.node.kind == "output":
                yield inner.key, inner.node.name
        for graph in call.node.graphs:
            if any(node.kind == "output" for node in graph.nodes):
                continue
            for value in graph.outputs:
                maker = graph.by_name.get(value)
                if maker is not None:
                    yield self._view.keys[call.key, id(graph), maker.name], value

    def _feeds(self, call: ViewNode) -> dict[str, str]:
        """The value of each placeholder of the graphs that a call opens."""
        linked, found = self._view.linked, dict[str, str]()
        makers = call.graph.by_name
        values = [v for v in call.node.inputs if v not in makers or makers[v].kind != "get_attr"]
        for graph in call.node.graphs:
            free = [
                node
                for node in graph.nodes
                if node.kind == "placeholder" and node.name not in graph.parameters
            ]
            last = values[len(values) - len(free) :] if len(free) <= len(values) else []
            for position, placeholder in enumerate(free):
                key = self._view.keys[call.key, id(graph), placeholder.name]
                if isinstance(linked, ExecutedGraph):
                    value = linked.feeding(placeholder)
                else:
                    value = last[position] if last else None
                if value is not None:
                    found[key] = value
        return found
