"""The times of a graph's nodes, from the profile of a run.

A time belongs to all nodes behind its instruction and is never split among them: it stands at one
of them, with the number of nodes that it is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etscope.analysis.graphs.linked_graph import LinkedGraph, Nodes
from etscope.analysis.profile.profile import MethodProfile, Row, Ticks
from etscope.analysis.profile.trace import Trace
from etscope.model.graph import Node


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Time of the instructions (or of a delegate's events) behind `nodes`.

    ticks: int64, one element for each run of the profile. ran: bool, the runs in which something
    of it ran. `inside` tells that it is a part of the time of a delegate call that stands at
    another node.
    """

    nodes: Nodes
    ticks: Ticks
    ran: npt.NDArray[np.bool_]
    inside: bool = False


@dataclass(frozen=True)
class NodeTimes:
    """The times of a graph's nodes in a profile.

    `at` maps the `id` of a node to the time that stands at it: the first of the time's nodes, in
    the order of the graph, at which none of fewer nodes stands. For a delegate call that is a
    node of the graph, it is that node. `shared` maps the `id` of each further node to its time.
    `accounted` is what instructions with nodes in this graph took in each run, in ticks.
    """

    profile: MethodProfile
    at: Mapping[int, NodeTime]
    shared: Mapping[int, NodeTime]
    accounted: Ticks

    def of(self, node: Node) -> NodeTime | None:
        """The time that the node is behind, be it alone or with others; None without one."""
        return self.at.get(id(node)) or self.shared.get(id(node))


def node_times(linked: LinkedGraph, profile: MethodProfile) -> NodeTimes:
    """The times of the nodes of `linked` in `profile`, which is of the graph's method."""
    found = [(row, nodes) for row in profile.rows if (nodes := nodes_of_row(linked, row))]
    explained: dict[int | None, Ticks] = {}
    for row, _ in found:
        if row.depth:
            number = row.instruction_id
            explained[number] = explained.get(number, 0) + row.ticks
    times: dict[frozenset[int], NodeTime] = {}
    for row, nodes in found:
        call = _call_node(linked, nodes) if row.kind == "delegate" else None
        ticks = row.ticks
        if call is not None:
            nodes = (call,)
        elif row.kind == "delegate" and row.instruction_id in explained:
            # Its nodes have times of their own, from inside the delegate: what is left is of all.
            ticks = ticks - explained[row.instruction_id]
            if (ticks < 0).any() or not ticks.any():
                continue
        inside = bool(row.depth) and _call_node(linked, nodes) is not None
        key = frozenset(map(id, nodes))
        time = NodeTime(nodes, ticks, row.ran, inside)
        times[key] = _both(times[key], time) if key in times else time
    at = _placed(linked, list(times.values()))
    return NodeTimes(
        profile=profile,
        at=at,
        shared={
            id(node): time for time in at.values() for node in time.nodes if id(node) not in at
        },
        accounted=_sum(profile, [row for row, _ in found if not row.depth]),
    )


def kernel_labels(trace: Trace, profiles: Sequence[MethodProfile]) -> Mapping[str, Sequence[str]]:
    """The instructions of each method: those of the record or program, else as the run named
    them, "" where it ran none. Beyond the last that the record knows they are left out."""
    labels: dict[str, Sequence[str]] = {}
    for profile in profiles:
        ran = {row.instruction_id: row.name for row in profile.rows if row.depth == 0}
        method = profile.method or ""
        # A dump may hold any number as an instruction.
        last = max(trace.symbols(method).handles, default=-1)
        labels[method] = [ran.get(i, "") for i in range(last + 1)]
    return {**labels, **trace.labels}


def nodes_of_row(linked: LinkedGraph, row: Row) -> Nodes:
    """The nodes of the graph behind a row of a profile; none for times on a clock of their own."""
    if row.own_clock:
        return ()
    if row.depth == 0 and row.instruction_id is not None:
        return linked.ran(row.instruction_id)
    return linked.behind(row.attribution.nodes)


def _call_node(linked: LinkedGraph, nodes: Sequence[Node]) -> Node | None:
    """The delegate call of this graph that `nodes` are inside of."""
    return next((linked.calls[id(node)] for node in nodes if id(node) in linked.calls), None)


def _placed(linked: LinkedGraph, times: list[NodeTime]) -> dict[int, NodeTime]:
    """The node at which each time stands. Two that can stand nowhere else are added up."""
    position = {id(node): i for i, node in enumerate(linked.graph.walk())}
    at: dict[int, NodeTime] = {}
    for time in sorted(times, key=lambda time: len(time.nodes)):
        places = sorted(map(id, time.nodes), key=lambda key: position.get(key, -1))
        free = next((place for place in places if place not in at), None)
        if free is not None:
            at[free] = time
            continue
        at[places[0]] = _both(at[places[0]], time)
    return at


def _both(first: NodeTime, time: NodeTime) -> NodeTime:
    """The two added up; the nodes are the second's, of which there are as many or more."""
    ticks, ran = first.ticks + time.ticks, first.ran | time.ran
    return NodeTime(time.nodes, ticks, ran, time.inside)


def _sum(profile: MethodProfile, rows: Sequence[Row]) -> Ticks:
    total: Ticks = sum((row.ticks for row in rows), np.zeros_like(profile.total))
    return total
