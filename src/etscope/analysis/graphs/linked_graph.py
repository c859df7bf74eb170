"""A graph of a record, linked to the instructions that run its nodes.

Debug handles lead from instructions to nodes of the edge graph. The parts of a decomposed operator
share its handle, and each is an instruction: the operator's name tells them apart. For several
parts of one name the program decides, by shapes and the flow of values. Without a program, or if it
does not decide, their order does, which is that of the instructions unless lowering to a backend
has sorted them.

Nodes of the exported program are found from those of the edge graph by their `from_node` chains,
nodes of other graphs by their own handles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.matching.matching import Matching, program_matching
from etscope.analysis.matching.run import LoggedSpec, type_mismatch
from etscope.analysis.profile.correlate import (
    MethodSymbols,
    branch_nodes,
    method_symbols,
    record_methods,
)
from etscope.analysis.program.program import InstructionRecord, instructions
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordView
from etscope.formats.program.pte import Program
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph, Node, stem

Nodes = tuple[Node, ...]


@dataclass(frozen=True)
class LinkedGraph:
    """A graph and its method, linked to the method's instructions.

    symbols: the edge program's, of the method; None if the record has none. labels: the method's
    instructions, if known: "aten::add.out" or "add.out". program: the one that ran, if known.
    """

    name: str
    graph: Graph
    method: str | None
    symbols: MethodSymbols | None
    labels: Sequence[str] = ()
    program: Program | None = None

    def behind(self, edge_nodes: Iterable[Node]) -> Nodes:
        """The nodes of this graph that nodes of the edge graph are or come from, each once."""
        found = {id(node): node for edge in edge_nodes for node in self._counterparts(edge)}
        return tuple(found.values())

    @cached_property
    def instructions(self) -> Mapping[int, tuple[int, ...]]:
        """The instructions that run a node, by `id` of the node; for a delegate call those of the
        nodes inside."""
        table: dict[int, set[int]] = {}
        for instruction in self._edge_nodes:
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
        """The outermost delegate call that a node is inside of, by `id` of the node."""
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
        """The nodes of this graph that an instruction runs; several if it runs them together, or
        if it is unknown which of them it runs."""
        return self.behind(self._edge_nodes.get(instruction, ()))

    @cached_property
    def _edge_nodes(self) -> Mapping[int, Nodes]:
        """The edge program's nodes behind each instruction."""
        if self.symbols is None:
            return {}
        table: dict[int, Nodes] = {}
        alike: dict[tuple[int, ...], list[int]] = {}  # by `id` of the nodes
        for instruction, handles in sorted(self.symbols.handles.items()):
            nodes = self.symbols.nodes_of(handles)
            label = self.labels[instruction] if 0 <= instruction < len(self.labels) else ""
            named = tuple(node for node in nodes if label and stem(node.op) == stem(label))
            table[instruction] = named or nodes
            if len(named) > 1:
                alike.setdefault(tuple(map(id, named)), []).append(instruction)
        for numbers in alike.values():
            table.update(self._distinguished(numbers, table[numbers[0]]))
        for instruction, node in branch_nodes(self.labels, self.symbols).items():
            table[instruction] = (node,)
        # A delegate has the handles of its nodes, which parts outside of it may share.
        delegates = {i for i, h in self.symbols.handles.items() if not isinstance(h, int)}
        kernels = {id(n[0]) for i, n in table.items() if len(n) == 1 and i not in delegates}
        for instruction in delegates & table.keys():
            inside = tuple(node for node in table[instruction] if id(node) not in kernels)
            table[instruction] = inside or table[instruction]
        return table

    def _distinguished(self, numbers: Sequence[int], nodes: Nodes) -> Mapping[int, Nodes]:
        """The node that each of these instructions runs, where it is known."""
        sorted_anew = self.symbols is not None and self.symbols.delegates
        known: dict[int, Node] = {}
        if sorted_anew or len(numbers) != len(nodes):
            candidates = set(map(id, nodes))
            of_program = {i: self._of_program[i] for i in numbers if i in self._of_program}
            known = {i: node for i, node in of_program.items() if id(node) in candidates}
        left = [i for i in numbers if i not in known]
        taken = {id(node) for node in known.values()}
        free = [node for node in nodes if id(node) not in taken]
        if len(left) == len(free):
            for number in left:
                node = next((node for node in free if self._can_run(number, node)), None)
                if node is not None:
                    known[number] = node
                    free.remove(node)
        return {i: (node,) for i, node in known.items()}

    @cached_property
    def matching(self) -> Matching | None:
        """The matching of the program's values with the edge program's, as far as it is known
        without a run; None without a program of the method."""
        graph = None if self.symbols is None else self.symbols.graph
        if self.program is None or self.symbols is None or graph is None or not self._records:
            return None
        method = self.program.method(self.symbols.method)
        return program_matching(graph, self.symbols, method, self._records)

    @cached_property
    def _of_program(self) -> Mapping[int, Node]:
        """The edge program's nodes of kernels, as far as the program decides."""
        if self.matching is None or self.symbols is None or self.symbols.graph is None:
            return {}
        nodes = self.symbols.graph.calls
        return {
            pair.instruction: nodes[pair.node]
            for pair in self.matching.pairs
            if self._records[pair.instruction].kind == "kernel" and not pair.is_view
        }

    def _can_run(self, instruction: int, node: Node) -> bool:
        """False if the tensors that an instruction writes are known not to be the node's."""
        if not 0 <= instruction < len(self._records):
            return True
        written = self._records[instruction].written
        logged = [LoggedSpec(value.scalar_type.torch_name, value.sizes) for value in written]
        wanted = [value.tensor for value in node.outputs if value.tensor is not None]
        return len(logged) != len(wanted) or not any(map(type_mismatch, logged, wanted))

    @cached_property
    def _records(self) -> Sequence[InstructionRecord]:
        """The program's instructions; empty without a program of the method."""
        if self.program is None or self.symbols is None:
            return ()
        name, counts = self.symbols.method, self.symbols.num_outputs
        if name not in (method.name for method in self.program.methods):
            return ()
        return instructions(self.program, name, delegate_outputs=counts).records

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


def linked_graph(
    record: RecordView,
    name: str,
    symbols: Callable[[str], MethodSymbols] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    program: Program | None = None,
) -> LinkedGraph:
    """Link the graph `name` of a record. `symbols` and `labels` are those of `Trace`, if there is
    one. program: the record's, or the one that ran."""
    method = method_of_graph(record, name)
    found = None
    if method is not None and f"{EDGE}/{method}" in record.graph_names:
        found = method_symbols(record, method) if symbols is None else symbols(method)
    if labels is None:
        known = record.fingerprints
        labels = {} if known is None else {m: f.instructions for m, f in known.methods.items()}
    graph = found.graph if found is not None and name == f"{EDGE}/{method}" else None
    return LinkedGraph(
        name=name,
        graph=graph or graph_from_record(record, name),
        method=method,
        symbols=found,
        labels=labels.get(method or "", ()),
        program=program,
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
