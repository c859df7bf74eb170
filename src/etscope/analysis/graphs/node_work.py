"""The work of a graph's nodes, for any dialect and for the executed program.

Symbolic sizes count with their upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from etscope.analysis.graphs.executed import ExecutedGraph
from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.work.graph_work import GraphWork
from etscope.analysis.work.operation import Work, sum_of
from etscope.analysis.work.program_work import ProgramWork, operator_work
from etscope.model.graph import Node, stem

NodeWork = Callable[[Node], Work]


def node_work(linked: LinkedGraph) -> NodeWork:
    """Return the function from a node, also inside a delegate, to its work."""
    if isinstance(linked, ExecutedGraph):
        return _of_executed(linked)
    of_graph = GraphWork(linked.graph)
    labels = () if linked.run_nodes is None else linked.run_nodes.labels
    if not labels:
        return of_graph.of

    def of(node: Node) -> Work:
        # Memory planning turns most into views: without an instruction, or with one that moves no
        # data.
        if stem(node.op) != "view" or node.kind != "call_function":
            return of_graph.of(node)
        ran = [labels[n] for n in linked.instructions.get(id(node), ()) if 0 <= n < len(labels)]
        is_view = id(node) not in linked.backends and all("et_view" in label for label in ran)
        return of_graph.of(node, is_view=is_view)

    return of


_LISTED = 6  # operators


def work_notes(linked: LinkedGraph) -> Iterator[str]:
    """Yield notes on unknown work and upper bounds."""
    work_of = node_work(linked)
    calls = [node for node in linked.graph.walk() if node.kind == "call_function"]
    works = list(map(work_of, calls))
    unknown = sum(bool(work.unknown) for work in works)
    if unknown:
        names = sum_of(works).unknown
        listed = ", ".join(names[:_LISTED])
        listed += f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
        yield f"The work of {unknown:,} of {len(calls):,} nodes is unknown: {listed}."
    if any(work.is_bound for work in works):
        yield "With dynamic shapes, work is counted for the largest shapes that the program allows."


def _of_executed(executed: ExecutedGraph) -> NodeWork:
    """Return the work of instructions and of operators inside delegates: of the edge program's
    nodes, else of XNNPACK's operators."""
    program, method = executed.program, executed.method or ""
    of_program = ProgramWork(program, method)
    of_edge = None if executed.edge is None else GraphWork(executed.edge.graph)
    known: dict[int, Work] = {}
    for call, number in ((node, executed.number_of.get(id(node))) for node in executed.graph.nodes):
        inner = None if call.delegate is None else call.delegate.graph
        if number is None or inner is None:
            continue
        operators = of_program.operators(number)
        if len(operators) == len(inner.nodes) and inner.dialect == "XNNPACK":
            known.update(
                (id(node), operator_work(operator))
                for node, operator in zip(inner.nodes, operators, strict=True)
            )

    def of(node: Node) -> Work:
        number = executed.number_of.get(id(node))
        if number is not None:
            return of_program.of(number)
        if id(node) in known:
            return known[id(node)]
        return Work() if of_edge is None or node.kind != "call_function" else of_edge.of(node)

    return of
