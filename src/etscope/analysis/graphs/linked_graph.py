"""The graphs of a record: their short names, a list of them, and a graph linked to the instructions
that run its nodes.

`RunNodes` finds nodes of the edge graph. Their `from_node` chains lead to nodes of the exported
program; nodes of other graphs are found by their handles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

from etscope.analysis.matching.run_nodes import Nodes, RunNodes
from etscope.analysis.program.correlate import (
    EDGE_GRAPH,
    MethodSymbols,
    record_methods,
)
from etscope.errors import MissingDataError, UsageError
from etscope.formats.etrecord.reader import EDGE, EXPORTED, FLOAT, RecordView
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph, Node, stem
from etscope.model.table import Column, Kind, Table

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Capture


@dataclass(frozen=True)
class LinkedGraph:
    """A graph and its method, linked to the method's instructions.

    run_nodes: the nodes of the edge program that its instructions run; None if the record has no
    edge program of the method. delegate_info: what the backends said of its delegates, by name.
    """

    name: str
    graph: Graph
    method: str | None
    run_nodes: RunNodes | None
    delegate_info: Mapping[str, Mapping[str, str]]

    @property
    def symbols(self) -> MethodSymbols | None:
        """The symbols of the method's edge program; None without one."""
        return None if self.run_nodes is None else self.run_nodes.symbols

    def behind(self, edge_nodes: Iterable[Node]) -> Nodes:
        """Map nodes of the edge graph to nodes of this graph (the same ones, or their origins),
        each once.
        """
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
        """The nodes of this graph that an instruction runs: several if it runs them together, or if
        it is unknown which one it runs.
        """
        run = self.run_nodes
        return () if run is None else self.behind(run.nodes.get(instruction, ()))

    @cached_property
    def _counterparts(self) -> Callable[[Node], Nodes]:
        if self.symbols is None:
            return lambda _: ()
        if self.symbols.graph is self.graph:
            return lambda node: (node,)
        if all(node.debug_handle is None for node in self.graph.walk()):
            return self._origins_of
        own, by_name = MethodSymbols(self.method or "", self.graph), self.graph.by_name

        def with_handle(node: Node) -> Nodes:
            if node.debug_handle is None:
                return ()
            same = by_name.get(node.name)  # of the edge program, recorded once more
            if same is not None and (same.op, same.debug_handle) == (node.op, node.debug_handle):
                return (same,)
            return own.nodes_of([node.debug_handle])

        return with_handle

    @cached_property
    def _graph_id(self) -> int | None:
        """The id of this graph in `from_node` chains. ExecuTorch records it of the exported program
        only; another graph is the one whose nodes in the chains are all here."""
        if self.graph.graph_id is not None or self.symbols is None or self.symbols.graph is None:
            return self.graph.graph_id
        links: dict[int, set[tuple[str, str]]] = {}
        for node in self.symbols.graph.walk():
            for origin in node.all_origins():
                names = links.setdefault(origin.graph_id, set())
                names.add((origin.name, stem(origin.target)))
        own = {(node.name, stem(node.op)) for node in self.graph.nodes}
        return next((number for number, names in links.items() if names <= own), None)

    def _origins_of(self, edge_node: Node) -> Nodes:
        """The nodes of this (exported) graph in the `from_node` chain of an edge node."""
        by_name, graph_id = self.graph.by_name, self._graph_id
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
        delegate_info={
            key.removeprefix(f"{method}/"): said
            for key, said in record.delegate_info.items()
            if key.startswith(f"{method}/")
        },
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


# -- names


_SHORT = {EDGE: "edge", EXPORTED: "exported"}
_LONG = {"edge": EDGE, EDGE_GRAPH: EDGE, "exported": EXPORTED}


def short_name(name: str) -> str:
    """A short name to display: "edge/forward" for "edge_dialect_exported_program/forward"."""
    head, slash, method = name.partition("/")
    return _SHORT.get(head, head) + slash + method


def find_graph(record: RecordView, wanted: str) -> str:
    """Find the graph `wanted` and return its name in the record.

    wanted: the name in the file, the short name, or a unique part of either: "edge", "forward".
    Raises `UsageError` if several graphs match, `MissingDataError` if none does.
    """
    head, slash, method = wanted.partition("/")
    full = _LONG.get(head, head) + slash + method
    names = record.graph_names
    if full in names:
        return full
    found = [n for n in names if n.startswith(full + "/") or n.endswith("/" + wanted)]
    if len(found) > 1:
        raise UsageError(
            f"{wanted!r} matches several graphs",
            hint="name one of: " + ", ".join(map(short_name, found)),
        )
    if not found:
        known = [short_name(name) for name in names]
        heads = dict.fromkeys(name.partition("/")[0] for name in known)
        close = get_close_matches(wanted, [*heads, *known, *names], n=1)
        raise MissingDataError(
            f"the record has no graph {wanted!r}",
            hint=f"did you mean {close[0]!r}?"
            if close
            else "its graphs are: " + (", ".join(known) or "none"),
        )
    return found[0]


def float_graph(record: RecordView, method: str) -> str | None:
    """Return the name of a method's graph before quantization; None if the record has none."""
    name = f"{FLOAT}/{method}"
    return name if name in record.graph_names else None


_COLUMNS = (
    Column("graph"),
    Column("dialect", priority=2),
    Column("nodes", Kind.COUNT),
    Column("calls", Kind.COUNT, priority=1),
    Column("operators", Kind.COUNT, title="distinct operators", priority=4),
    Column("weights", Kind.COUNT, priority=1),
    Column("inputs", Kind.COUNT, priority=3),
    Column("outputs", Kind.COUNT, priority=3),
    Column("modules", Kind.COUNT, priority=4),
    Column("delegates", Kind.COUNT, title="lowered modules", priority=2),
    Column("backends", Kind.LIST, priority=5),
    Column("branches", Kind.COUNT, title="sub-graphs", priority=5),
    Column("handles", Kind.COUNT, title="with debug handle", priority=5),
    Column("name", title="name in the file", priority=6),
)


def graph_cells(graph: Graph) -> dict[str, Any]:
    """A graph's cells in lists of graphs. Nodes count in the graph alone; calls, operators,
    modules, delegates, branches and handles count in its sub-graphs, too."""
    calls = [node for node in graph.walk() if node.kind == "call_function"]
    delegates = [node.delegate for node in calls if node.delegate is not None]
    return {
        "graph": short_name(graph.name),
        "dialect": graph.dialect,
        "nodes": len(graph.nodes),
        "calls": len(calls),
        "operators": len({node.op for node in calls}),
        "weights": len(graph.parameters),
        "inputs": len(graph.inputs) - len(graph.parameters),
        "outputs": len(graph.outputs),
        "modules": len({frame.path for node in calls for frame in node.modules}),
        "delegates": len(delegates),
        "backends": list(dict.fromkeys(delegate.backend_id for delegate in delegates)),
        "branches": sum(len(node.subgraphs) for node in calls),
        "handles": sum(node.debug_handle is not None for node in calls),
        "name": graph.name,
    }


def graph_list(record: RecordView) -> Table:
    """A table with one row for each graph of a record."""
    rows = [graph_cells(graph_from_record(record, name)) for name in record.graph_names]
    return Table.of_cells(_COLUMNS, rows, title=f"graphs of {record.path or 'the record'}")
