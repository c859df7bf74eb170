"""The times and the work of a graph's nodes.

A time of a profile belongs to all nodes of its instruction and is never split among them: it is
displayed at one of them, with the number of nodes that share it. Work is known for any dialect and
for the executed program; symbolic sizes count with their upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etscope.analysis.graphs.executed import ExecutedGraph
from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.run_nodes import Nodes
from etscope.analysis.profile.profile import MethodProfile, Row, Ticks
from etscope.analysis.work.graph_work import GraphWork
from etscope.analysis.work.operation import Work, sum_of
from etscope.analysis.work.program_work import ProgramWork, operator_work
from etscope.model.graph import Node, stem
from etscope.model.statistics import statistic
from etscope.units import listed

STATISTICS = ("avg", "p50", "p90", "min", "max", "first")


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Time of the instructions (or of a delegate's events) that `nodes` share.

    ticks: int64, one element for each run of the method; 0 where it did not run. ran: bool, True
    where it did. inside: True if the time is part of a delegate call's time that another node
    displays. keys: the nodes' keys in a `GraphView`, in its order; the first node that displays no
    other time displays this one.
    """

    nodes: Nodes
    ticks: Ticks
    ran: npt.NDArray[np.bool_]
    inside: bool = False
    keys: tuple[str, ...] = ()

    @property
    def avg(self) -> float:
        """Mean of all runs, in ticks, so that the means of the nodes add up."""
        return float(self.ticks.mean())

    def statistic(self, name: str) -> float:
        """One of `STATISTICS`, in ticks: `avg` over all runs, the others over the runs of the node,
        as in the table of events. NaN if it never ran."""
        return self.avg if name == "avg" else statistic(self.ticks[self.ran], name)


@dataclass(frozen=True)
class NodeTimes:
    """The times of a graph's nodes in a profile.

    at: `id` of a node -> the time that it displays. A time is displayed at its first node, in the
    order of the graph, without a time of fewer nodes; for a delegate call in the graph, at the
    call. shared: `id` of each other node -> the time that it shares. rest: the time of a delegate
    call outside its events, by the call's instruction, if the graph has no node for the call.
    accounted: time of the instructions with nodes in this graph in each run, in ticks: the sum of
    `at` and `rest`, without times that are `inside`.
    """

    profile: MethodProfile
    at: Mapping[int, NodeTime]
    shared: Mapping[int, NodeTime]
    rest: Mapping[int, NodeTime]
    accounted: Ticks

    def of(self, node: Node) -> NodeTime | None:
        """The time of the node, alone or shared; None without one."""
        return self.at.get(id(node)) or self.shared.get(id(node))


def node_times(linked: LinkedGraph, profile: MethodProfile) -> NodeTimes:
    """Return the times of the nodes of `linked`. profile: the profile of the graph's method."""
    found = [(row, nodes) for row in profile.rows if (nodes := nodes_of_row(linked, row))]
    explained: dict[int | None, Ticks] = {}
    for row, _ in found:
        if row.depth:
            number = row.instruction_id
            explained[number] = explained.get(number, 0) + row.ticks
    times: dict[frozenset[int], NodeTime] = {}
    rest: dict[int, NodeTime] = {}
    for row, nodes in found:
        call = _call_node(linked, nodes) if row.kind == "delegate" else None
        ticks = row.ticks
        if call is not None:
            nodes = (call,)
        elif row.kind == "delegate" and row.instruction_id in explained:
            ticks = ticks - explained[row.instruction_id]
            if row.instruction_id is not None and (ticks >= 0).all() and ticks.any():
                rest[row.instruction_id] = NodeTime(nodes, ticks, row.ran)
            continue
        inside = bool(row.depth) and _call_node(linked, nodes) is not None
        key = frozenset(map(id, nodes))
        time = NodeTime(nodes, ticks, row.ran, inside)
        times[key] = _both(times[key], time) if key in times else time
    position = {id(node): i for i, node in enumerate(linked.graph.walk())}
    at: dict[int, NodeTime] = {}
    for time in sorted(times.values(), key=lambda time: len(time.nodes)):
        ids = sorted(map(id, time.nodes), key=lambda node: position.get(node, -1))
        free = next((node for node in ids if node not in at), None)
        if free is not None:
            at[free] = time
        else:  # all its nodes display other times
            at[ids[0]] = _both(at[ids[0]], time)
    return NodeTimes(
        profile=profile,
        at=at,
        shared={
            id(node): time for time in at.values() for node in time.nodes if id(node) not in at
        },
        rest=rest,
        accounted=sum(
            (row.ticks for row, _ in found if not row.depth), np.zeros_like(profile.total)
        ),
    )


def nodes_of_row(linked: LinkedGraph, row: Row) -> Nodes:
    """Return the nodes of the graph that a row of a profile ran; empty for times of another
    clock."""
    if row.own_clock:
        return ()
    if row.depth == 0 and row.instruction_id is not None:
        return linked.ran(row.instruction_id)
    return linked.behind(row.attribution.nodes)


def _call_node(linked: LinkedGraph, nodes: Sequence[Node]) -> Node | None:
    """The delegate call of this graph that contains `nodes`."""
    return next((linked.calls[id(node)] for node in nodes if id(node) in linked.calls), None)


def _both(first: NodeTime, time: NodeTime) -> NodeTime:
    """Return the sum of two times, with the nodes of the second time, which has at least as
    many."""
    ticks, ran = first.ticks + time.ticks, first.ran | time.ran
    return NodeTime(time.nodes, ticks, ran, time.inside)


# -- work


NodeWork = Callable[[Node], Work]


def node_work(linked: LinkedGraph) -> NodeWork:
    """Return a function that gives the work of a node, also of one inside a delegate."""
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


_LISTED = 6  # operators in a note


def work_notes(linked: LinkedGraph) -> Iterator[str]:
    work_of = node_work(linked)
    calls = [node for node in linked.graph.walk() if node.kind == "call_function"]
    works = list(map(work_of, calls))
    unknown = sum(bool(work.unknown) for work in works)
    if unknown:
        names = sum_of(works).unknown
        yield (
            f"The work of {unknown:,} of {len(calls):,} nodes is unknown: {listed(names, _LISTED)}."
        )
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
