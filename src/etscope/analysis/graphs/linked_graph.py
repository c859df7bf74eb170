"""A graph of a record, linked to the instructions that run its nodes.

`RunNodes` finds nodes of the edge graph. Their `from_node` chains lead to nodes of the exported
program; nodes of other graphs are found by their handles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.matching.run_nodes import Nodes, RunNodes
from etscope.analysis.profile.trace import Capture
from etscope.analysis.program.correlate import (
    MethodSymbols,
    record_methods,
)
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordView
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph, Node


@dataclass(frozen=True)
class LinkedGraph:
    """A graph and its method, linked to the method's instructions.

    run_nodes: the nodes of the edge program that its instructions run; None if the record has no
    edge program of the method.
    """

    name: str
    graph: Graph
    method: str | None
    run_nodes: RunNodes | None

    @property
    def symbols(self) -> MethodSymbols | None:
        """The edge program's, of the method."""
        return None if self.run_nodes is None else self.run_nodes.symbols

    def behind(self, edge_nodes: Iterable[Node]) -> Nodes:
        """The nodes of this graph for nodes of the edge graph (the same ones, or their origins),
        each once."""
        found = {id(node): node for edge in edge_nodes for node in self._counterparts(edge)}
        return tuple(found.values())

    @cached_property
    def instructions(self) -> Mapping[int, tuple[int, ...]]:
        """The instructions that run a node, by `id` of the node; a delegate call has the
        instructions of the nodes inside."""
        table: dict[int, set[int]] = {}
        for instruction in () if self.run_nodes is None else self.run_nodes.nodes:
            for node in self.ran(instruction):
                table.setdefault(id(node), set()).add(instruction)
        for call, inner in self._delegated:
            ran = {number for node in inner for number in table.get(id(node), ())}
            if ran:
                table[id(call)] = ran
        return {key: tuple(sorted(numbers)) for key, numbers in table.items()}

    @cached_property
    def backends(self) -> Mapping[int, str]:
        """The backend that a node is delegated to, by `id` of the node."""
        table: dict[int, str] = {}
        for call, inner in self._delegated:
            for node in (call, *inner):
                if call.delegate is not None:
                    table[id(node)] = call.delegate.backend_id
        delegates = {} if self.symbols is None else self.symbols.delegates
        for instruction, entry in delegates.items():
            for node in self.ran(instruction):
                table.setdefault(id(node), entry.backend_id)
        return table

    @cached_property
    def calls(self) -> Mapping[int, Node]:
        """The outermost delegate call around a node, by `id` of the node."""
        table: dict[int, Node] = {}
        for call, inner in self._delegated:
            for node in inner:
                table.setdefault(id(node), call)
        return table

    @cached_property
    def _delegated(self) -> list[tuple[Node, Nodes]]:
        """The delegate calls with all nodes of their sub-graphs, outer calls first."""
        return [
            (node, () if node.delegate.graph is None else tuple(node.delegate.graph.walk()))
            for node in self.graph.walk()
            if node.delegate is not None
        ]

    def ran(self, instruction: int) -> Nodes:
        """The nodes of this graph that an instruction runs; several if it runs them together, or if
        the right one is unknown."""
        run = self.run_nodes
        return () if run is None else self.behind(run.nodes.get(instruction, ()))

    @cached_property
    def _counterparts(self) -> Callable[[Node], Nodes]:
        if self.symbols is None:
            return lambda _: ()
        if self.symbols.graph is self.graph:
            return lambda node: (node,)
        if self.name.partition("/")[0] == EXPORTED:
            return self._origins_of
        own = MethodSymbols(self.method or "", self.graph)
        return lambda node: () if node.debug_handle is None else own.nodes_of([node.debug_handle])

    def _origins_of(self, edge_node: Node) -> Nodes:
        """The nodes of this (exported) graph in the `from_node` chain of an edge node."""
        by_name, graph_id = self.graph.by_name, self.graph.graph_id
        return tuple(
            by_name[origin.name]
            for origin in edge_node.all_origins()
            if graph_id is not None and origin.graph_id == graph_id and origin.name in by_name
        )


def linked_graph(capture: Capture, name: str) -> LinkedGraph:
    """Link the graph `name` of a record with the instructions of a run or a program.

    Raises `MissingDataError` without a record.
    """
    record = capture.needed_record
    method = method_of_graph(record, name)
    run = None
    if method is not None and f"{EDGE}/{method}" in record.graph_names:
        run = capture.edge_nodes(method)
    graph = run.symbols.graph if run is not None and name == f"{EDGE}/{method}" else None
    return LinkedGraph(
        name=name,
        graph=graph or graph_from_record(record, name),
        method=method,
        run_nodes=run,
    )


def method_of_graph(record: RecordView, name: str) -> str | None:
    """The method of a graph; None if its name does not contain it."""
    methods = record_methods(record)
    last = name.rpartition("/")[2]
    if last in methods:
        return last
    if name == EXPORTED and "forward" in methods:
        return "forward"
    return methods[0] if len(methods) == 1 else None
