"""What a value was made of since the last values that were recorded: nodes, and those values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from etscope.analysis.matching.graph import Paths
from etscope.model.graph import Node


@dataclass(frozen=True, slots=True)
class Region:
    """The way to a value.

    nodes: paths of what computes it, in order, the value's own node last. reads: paths of nodes
    whose recorded values go in. inputs: names of the graph's inputs that go in, without weights.
    """

    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    inputs: tuple[str, ...]


class Regions:
    """The regions of a graph in which the values of some nodes were recorded."""

    def __init__(self, paths: Paths, recorded: Collection[str]) -> None:
        self._paths, self._recorded = paths, recorded
        self._position = {path: index for index, path in enumerate(paths.nodes)}
        self._below: dict[str, list[str]] = {}
        for path in paths.nodes:
            self._below.setdefault(path.rpartition("/")[0], []).append(path)

    def of(self, path: str) -> Region:
        """The region of a node's value."""
        nodes, reads, inputs = {path}, set[str](), dict[str, None]()
        waiting = [self._paths.nodes[path]]
        while waiting:
            for source in self._sources(waiting.pop()):
                if source.kind == "placeholder":
                    if self._is_input(source):
                        inputs[source.name] = None
                    continue
                found = self._paths.path_of.get(id(source), "")
                if found in self._recorded and found != path:
                    reads.add(found)
                elif found in self._position and found not in nodes:
                    nodes.add(found)
                    waiting.append(source)
        listed = [name for name in self._in_order(nodes) if name in self._paths.operators]
        return Region(tuple(listed), tuple(self._in_order(reads)), tuple(inputs))

    def _sources(self, node: Node) -> list[Node]:
        """The nodes whose values a node reads, those at the end of its sub-graphs among them."""
        graph = self._paths.graph_of(node)
        found = [graph.by_name[name] for name in node.inputs if name in graph.by_name]
        for below in node.subgraphs:
            found += [below.by_name[name] for name in below.outputs if name in below.by_name]
        return found

    def _is_input(self, node: Node) -> bool:
        graph = self._paths.graph
        return self._paths.graph_of(node) is graph and node.name not in graph.parameters

    def _in_order(self, paths: Collection[str]) -> list[str]:
        return sorted(paths, key=lambda path: self._position.get(path, -1))
