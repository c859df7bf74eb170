"""The times of a graph's nodes, from the profile of a run.

A time belongs to all nodes of its instruction and is never split among them: it is displayed at one
of them, with the number of nodes that share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.run_nodes import Nodes
from etscope.analysis.profile.profile import MethodProfile, Row, Ticks
from etscope.model.graph import Node
from etscope.model.statistics import statistic

STATISTICS = ("avg", "p50", "p90", "min", "max", "first")


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Time of the instructions (or of a delegate's events) that `nodes` share.

    ticks: int64, one element for each run of the method; 0 where it did not run. ran: bool, True
    where it did. inside: part of the time of a delegate call that another node displays. keys: of
    the nodes in a `GraphView`, in its order; the first node without another time displays it.
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
    call. shared: `id` of each other node -> the time that it shares. rest: by instruction, the time
    of a delegate call outside its events, if the graph has no node for the call. accounted: time of
    the instructions with nodes in this graph in each run, in ticks: the sum of `at` and `rest`,
    without times that are `inside`.
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
    """Return the times of the nodes of `linked`. profile: of the graph's method."""
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
