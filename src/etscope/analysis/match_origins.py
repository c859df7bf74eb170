"""Carries pairs with the edge graph over to the program that it was made of.

Each node of the edge graph names, in its `from_node` chain, the node of the exported program that
it comes from. A node's value is that of the last node of its decomposition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from etscope.analysis.check import stem
from etscope.analysis.match_graph import VIEWS, Paths, Place, Slot
from etscope.analysis.match_run import Found
from etscope.model.graph import Graph, Node, Origin


def match_origins(edge_found: Found, edge: Paths, paths: Paths) -> Found:
    """The pairs of the graph of `paths`, given those of the edge graph it was lowered to."""
    return _Origins(edge_found, edge, paths).found


class _Origins:
    def __init__(self, edge_found: Found, edge: Paths, paths: Paths) -> None:
        self._edge_found, self._edge, self._paths = edge_found, edge, paths
        self.found = Found(reasons=dict(edge_found.reasons))
        self._slots: dict[Place, list[Slot]] = {}
        for slot, place in edge_found.pairs.items():
            self._slots.setdefault(place, []).append(slot)
        self._parts = _parts(edge, paths)
        self._run()

    def _run(self) -> None:
        for path, node in self._paths.operators.items():
            parts = self._parts.get(path, [])
            for index, place in enumerate(self._paths.places(node)):
                source = self._source(node, index, place, parts)
                if source is not None:
                    self._take(source, place)
            if path not in {p.path for p in self.found.pairs.values()}:
                self.found.node_reasons[path] = self._why_not(node, parts)
        part_of = {id(part): path for path, parts in self._parts.items() for part in parts}
        for slot, place in self._edge_found.pairs.items():
            if slot not in self.found.pairs:
                whole = part_of.get(id(self._edge.nodes[place.path]))
                self.found.reasons[slot] = (
                    ("comes from no node of the reference graph", "unknown")
                    if whole is None
                    else (f"inside of {whole}: a part of what it was decomposed into", "inside")
                )

    def _take(self, source: tuple[Place, bool], place: Place) -> None:
        edge_place, through_view = source
        for slot in self._slots[edge_place]:
            if slot not in self.found.pairs:
                self.found.pairs[slot] = place
                if through_view:
                    self.found.views.add(slot)

    def _source(
        self, node: Node, index: int, place: Place, parts: Sequence[Node]
    ) -> tuple[Place, bool] | None:
        """The place in the edge graph, one with a logged value, that has the node's value; and
        whether it has it in another shape."""
        results = self._results(node, place, parts)
        if not results:
            return None
        candidates = [(found, p) for p in results if (found := self._logged(p)) is not None]
        return candidates[0][0] if len(results) == 1 and candidates else None

    def _results(self, node: Node, place: Place, parts: Sequence[Node]) -> list[Place]:
        """The places in the edge graph that may have the value: one if it is known."""
        spec = self._paths.spec(place)
        inside = {id(part) for part in parts}
        fitting = [
            edge_place
            for part in parts
            for edge_place in self._edge.places(part)
            if _same_spec(self._edge.spec(edge_place), spec)
        ]
        by_output = self._by_output(place)
        if by_output is not None:
            return [p for p in fitting if p == by_output]
        if len(node.outputs) == 1 or True:
            same = [p for p in fitting if p.element == place.element or place.element is None]
            whole = [
                p
                for p in same
                if len(self._edge.places(self._edge.nodes[p.path])) == len(node.outputs)
            ]
            fitting = whole if len(node.outputs) > 1 and whole else fitting
        leaving = [
            p for p in fitting if any(id(user) not in inside for user in self._edge.users(p))
        ]
        if len(leaving) > 1:
            named = [p for p in leaving if stem(self._edge.nodes[p.path].op) == stem(node.op)]
            leaving = named if len(named) == 1 else leaving
        if leaving:
            return leaving
        named = [p for p in fitting if stem(self._edge.nodes[p.path].op) == stem(node.op)]
        return named if named else fitting[-1:]

    def _by_output(self, place: Place) -> Place | None:
        """By the position among the outputs of both programs."""
        graph, edge = self._paths.graph, self._edge.graph
        if "/" in place.path:
            return None
        name = self._paths.nodes[place.path].outputs[place.element or 0].name
        for back, output in enumerate(reversed(graph.outputs), 1):
            if output == name and back <= len(edge.outputs):
                return self._edge.place(edge, edge.outputs[-back])
        return None

    def _logged(self, place: Place) -> tuple[Place, bool] | None:
        """The place itself if it was logged, or what it is a view of."""
        through_view = False
        while place not in self._slots:
            node = self._edge.nodes[place.path]
            inputs = self._edge.inputs(node)
            if stem(node.op) not in VIEWS or len(inputs) < 1:
                return None
            place, through_view = inputs[0], True
        return place, through_view

    def _why_not(self, node: Node, parts: Sequence[Node]) -> tuple[str, str]:
        if node.subgraphs:
            return "it runs sub-graphs, whose nodes are compared", "inside"
        if not parts:
            return "no node of the edge graph comes from it: passes took it away", "unknown"
        reasons = dict.fromkeys(
            self._edge_found.node_reasons[path]
            for part in parts
            if (path := self._edge.path_of[id(part)]) in self._edge_found.node_reasons
        )
        if len(reasons) == 1:
            return next(iter(reasons))
        kinds = {kind for _, kind in reasons}
        if "inside" in kinds:
            return next(reason for reason in reasons if reason[1] == "inside")
        names = ", ".join(part.name for part in parts[-3:])
        return f"nothing tells which value of {names} is its own", "ambiguous"


def _same_spec(one: object, other: object) -> bool:
    from etscope.model.graph import TensorSpec

    if not isinstance(one, TensorSpec) or not isinstance(other, TensorSpec):
        return one is None and other is None
    return (
        one.dtype == other.dtype
        and len(one.shape) == len(other.shape)
        and all(
            a == b or isinstance(a, str) or isinstance(b, str)
            for a, b in zip(one.shape, other.shape, strict=True)
        )
    )


def _parts(edge: Paths, paths: Paths) -> Mapping[str, list[Node]]:
    """For each node of the program, by path, the nodes of the edge graph that come from it."""
    by_graph = _names(paths)
    parts: dict[str, list[Node]] = {}
    for node in edge.operators.values():
        for origin in _chain(node.origins):
            path = by_graph.get((origin.graph_id, origin.name))
            if path is not None:
                parts.setdefault(path, []).append(node)
                break
    return parts


def _names(paths: Paths) -> Mapping[tuple[int | None, str], str]:
    graph_id = paths.graph.graph_id
    if graph_id is None:
        return {}
    return {
        (graph_id, node.name): path for path, node in paths.operators.items() if "/" not in path
    }


def _chain(origins: Iterable[Origin]) -> Iterator[Origin]:
    for origin in origins:
        yield origin
        yield from _chain(origin.origins)


__all__ = ["Graph", "match_origins"]
