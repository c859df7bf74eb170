"""The graphs of a record and its program with times, memory and errors of their nodes.

All views of graphs (TensorBoard, the HTML report, DOT, JSON, Model Explorer) show a `GraphView`:
the same nodes under the same keys, with the same numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from etscope.analysis.graphs.executed import EXECUTED, executed_graph
from etscope.analysis.graphs.linked_graph import (
    LinkedGraph,
    linked_graph,
    method_of_graph,
    short_name,
)
from etscope.analysis.graphs.node_costs import NodeTime, node_times
from etscope.analysis.memory.plan import memory_plan
from etscope.analysis.numerics.rows import Numerics, NumericsRow
from etscope.analysis.profile.profile import MethodProfile, Ticks, profile_of
from etscope.analysis.profile.trace import Capture, Trace
from etscope.analysis.program.correlate import method_symbols, record_methods
from etscope.analysis.program.source_location import common_module, module_path
from etscope.errors import MissingDataError, UsageError
from etscope.formats.etrecord.reader import EDGE, EXPORTED
from etscope.formats.program.pte import Program
from etscope.model.graph import Graph, Node
from etscope.support.shown import Shown

__all__ = ["GraphView", "graph_views"]


def given_bytes(node: Node) -> int | None:
    """Bytes of the node's tensors; symbolic sizes count with their hints. None without tensors, or
    if a size is unknown."""
    if node.kind == "output":
        return None
    sizes = [value.tensor.nbytes for value in node.outputs if value.tensor is not None]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


@dataclass(frozen=True, slots=True)
class ViewNode(Shown):
    """A node of a view.

    key: unique in the view, and the same in every run of etscope: the node's name, in sub-graphs
    with the sub-graph's as prefix ("lowered_module_0/aten_add_tensor"). graph: the graph of the
    node. call: key of the node that calls that graph, None in the first. scope: the boxes around
    it, outermost first: modules, and for nodes in branches and delegates the box of the call. A
    call with a sub-graph is in its box, too. backend: the delegate's, None outside. instructions:
    the program's instructions that run it. opens: True for a call with a sub-graph in the view.
    """

    key: str
    node: Node
    graph: Graph
    call: str | None
    scope: tuple[str, ...]
    depth: int = 0
    backend: str | None = None
    instructions: tuple[int, ...] = ()
    opens: bool = False


@dataclass(frozen=True, slots=True)
class NodeError:
    """The numeric error of a node's value on the device.

    metric: its name. total: the error to the reference. local: the error to PyTorch's result from
    the device's own inputs, None if unknown. verdict: "fine", "wrong" or "inherited", None without
    a diagnosis.
    """

    metric: str
    total: float | None
    local: float | None = None
    verdict: str | None = None


@dataclass(frozen=True)
class GraphView(Shown):
    """A graph with layers of attributes of its nodes: times, memory, errors.

    key: "exported/forward", "edge/forward", "executed/forward" or "<name in the record>", short
        and stable. title: to display. dialect: as in the file ("ATEN", "EDGE"), "EXECUTORCH" for
        the executed program.
    profile: the runs of `times`; None without a dump, or if the method did not run.
    times: by key of the node that displays the time (see `NodeTime`); in each run, the times that
        are not `inside` add up to `accounted`.
    memory: bytes of a node's tensors, by key; bounds for dynamic shapes.
    live: planned bytes alive while a node's instruction runs, by key; empty without a program.
    errors: the errors of nodes, by key; empty until `with_errors`.
    """

    key: str
    title: str
    dialect: str
    method: str | None
    linked: LinkedGraph
    nodes: tuple[ViewNode, ...]
    profile: MethodProfile | None = None
    times: Mapping[str, NodeTime] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    live: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, NodeError] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.linked.graph

    @cached_property
    def by_key(self) -> Mapping[str, ViewNode]:
        return {node.key: node for node in self.nodes}

    @cached_property
    def keys(self) -> Mapping[tuple[str | None, int, str], str]:
        """The key of each node, by (key of the call that opens its graph, None in the first graph;
        `id` of the graph; the node's name)."""
        return {(node.call, id(node.graph), node.node.name): node.key for node in self.nodes}

    @cached_property
    def below(self) -> Mapping[str, tuple[ViewNode, ...]]:
        """The nodes of the graphs that a call opens, by the call's key."""
        table: dict[str, list[ViewNode]] = {}
        for node in self.nodes:
            if node.call is not None:
                table.setdefault(node.call, []).append(node)
        return {key: tuple(nodes) for key, nodes in table.items()}

    @cached_property
    def shared(self) -> Mapping[str, str]:
        """Map each node that shares a time to the node that displays it."""
        return {
            key: place
            for place, time in self.times.items()
            for key in time.keys
            if key not in self.times
        }

    @property
    def accounted(self) -> Ticks | None:
        """Time of the instructions with nodes in this graph in each run, in ticks."""
        if self.profile is None:
            return None
        outer = [time.ticks for time in self.times.values() if not time.inside]
        total: Ticks = sum(outer, np.zeros_like(self.profile.total))
        return total

    def rest(self, call: str) -> Ticks | None:
        """The time of a delegate call without the times of the nodes inside, in each run, in ticks,
        so that a box adds up to its call. None if no node inside has a time, or if these times
        contain each other."""
        whole = self.times.get(call)
        inside = [
            time.ticks
            for node in self.inside(call)
            if (time := self.times.get(node.key)) is not None and time.inside
        ]
        if whole is None or not inside:
            return None
        rest: Ticks = whole.ticks - np.sum(inside, axis=0)
        return None if (rest < 0).any() else rest

    def inside(self, call: str) -> Iterator[ViewNode]:
        """All nodes inside a call, at any depth."""
        for node in self.below.get(call, ()):
            yield node
            yield from self.inside(node.key)


def graph_views(capture: Capture, *, only: Collection[str] | None = None) -> tuple[GraphView, ...]:
    """The views of the record's graphs (exported programs, edge dialect, others), then of the
    executed program of each method. Views of a run have its times.

    only: keys of the views; None for all.

    Raises `UsageError` without a record and a program, or for an unknown key in `only`, and
    `MissingDataError` when they have no graph.
    """
    if capture.record is None and capture.recorded_program is None:
        raise UsageError(
            "graphs need an ETRecord or a program, and both are missing",
            hint="pass the .etrecord of the export, or the .pte",
        )
    known = view_names(capture)
    unknown = [key for key in only or () if key not in known]
    if unknown:
        raise UsageError(f"no graph {unknown[0]!r}", hint="graphs are: " + ", ".join(known))
    if not known:
        raise MissingDataError(
            "the record has neither graphs nor a program",
            hint="export again with an ETRecord of the edge program",
        )
    maker = _Views(capture, known)
    return tuple(maker.view(key) for key in known if only is None or key in only)


def view_names(capture: Capture) -> Mapping[str, str]:
    """Key of each view that `graph_views` returns -> the graph's name in the record, or
    "executed/<method>"."""
    record, program = capture.record, capture.recorded_program
    names = [] if record is None else list(record.graph_names)
    order = {EXPORTED: 0, EDGE: 1}
    names.sort(key=lambda name: order.get(name.partition("/")[0], 2))
    found: dict[str, str] = {}
    for name in names:
        key = short_name(name)
        if name == EXPORTED and record is not None:
            # torch.export's program of "forward" alone has no method in its name.
            method = method_of_graph(record, name)
            key = f"{key}/{method}" if method else key
        found[name if key in found else key] = name
    executed = [] if program is None else [f"{EXECUTED}/{m.name}" for m in program.methods]
    found.update((name, name) for name in executed)
    return found


class _Views:
    """Builds views; graphs that several of them need are built once."""

    def __init__(self, capture: Capture, names: Mapping[str, str]) -> None:
        self._capture, self._names = capture, names
        self._profiles = capture.profiles() if isinstance(capture, Trace) else []
        self._found: dict[str, LinkedGraph] = {}

    def view(self, key: str) -> GraphView:
        name, program = self._names[key], self._capture.recorded_program
        head, _, method = name.partition("/")
        if head == EXECUTED and program is not None:
            linked: LinkedGraph = self._executed(program, method)
        else:
            linked = self._linked(name)
        profile = profile_of(self._profiles, linked.method)
        if profile is None and self._capture.record is None and len(self._profiles) == 1:
            profile = self._profiles[0] if len(self._names) == 1 else None
        return view_of(linked, key, profile, program)

    def _linked(self, name: str) -> LinkedGraph:
        if name not in self._found:
            self._found[name] = linked_graph(self._capture, name)
        return self._found[name]

    def _executed(self, program: Program, method: str) -> LinkedGraph:
        record, name = self._capture.record, f"{EDGE}/{method}"
        if record is None:
            return executed_graph(program, method)
        edge = self._linked(name) if name in record.graph_names else None
        symbols = None if edge is None else edge.symbols
        if symbols is None and method in record_methods(record):
            symbols = method_symbols(record, method)
        return executed_graph(program, method, symbols, edge)


def view_of(
    linked: LinkedGraph,
    key: str,
    profile: MethodProfile | None = None,
    program: Program | None = None,
) -> GraphView:
    """The view of one graph. profile: the profile of the graph's method, for times. program: the
    program, for live memory.
    """
    placing = _Placing(linked)
    nodes = tuple(placing.nodes(linked.graph, None, "", (), 0, None))
    keys: dict[int, list[str]] = {}
    for node in nodes:
        keys.setdefault(id(node.node), []).append(node.key)
    times: dict[str, NodeTime] = {}
    if profile is not None:
        position = {node.key: i for i, node in enumerate(nodes)}
        found = node_times(linked, profile)
        for place, time in found.at.items():
            if place in keys:
                shared = {key for node in time.nodes for key in keys.get(id(node), ())}
                in_order = tuple(sorted(shared, key=position.__getitem__))
                times[keys[place][0]] = replace(time, keys=in_order)
        for number, time in found.rest.items():
            rest = placing.rest(number, time)
            nodes = (*nodes, rest)
            times[rest.key] = replace(time, nodes=(rest.node,), keys=(rest.key,))
    live: dict[str, int] = {}
    if program is not None and linked.method in [method.name for method in program.methods]:
        plan = memory_plan(program, linked.method or "")
        live = {
            node.key: max(plan.live_bytes[i] for i in node.instructions)
            for node in nodes
            if node.instructions and max(node.instructions) < len(plan.live_bytes)
        }
    head, _, method = key.partition("/")
    titles = {"exported": "exported program", "edge": "edge program", EXECUTED: "executed program"}
    return GraphView(
        key=key,
        title=key if head not in titles else titles[head] + (f" · {method}" if method else ""),
        dialect=linked.graph.dialect,
        method=linked.method,
        linked=linked,
        nodes=nodes,
        profile=profile,
        times=times,
        memory={n.key: size for n in nodes if (size := given_bytes(n.node)) is not None},
        live=live,
    )


# -- errors


def with_errors(views: Iterable[GraphView], found: Numerics) -> tuple[GraphView, ...]:
    """Add the errors of a diagnosis to the views of its method.

    A row belongs to a node of the reference graph. Other views display it at the same node, or at
    its origin, which is known for the edge graph only. Among several rows of one node (passes of a
    loop, several outputs) the worst counts.
    """
    views = tuple(views)
    reference = next((view for view in views if view.linked.name == found.reference), None)
    if reference is None:
        return views
    nodes = {key: node.node for key, node in reference.by_key.items()}
    rows = [(nodes[row.pair.node], row) for row in found.rows if row.pair.node in nodes]

    def badness(row: NumericsRow) -> tuple[float, float]:
        return found.metric.badness(row.total), found.metric.badness(row.local)

    with_layer = []
    for view in views:
        if view.method != found.method:
            with_layer.append(view)
            continue
        keys: dict[int, str] = {}
        for placed in view.nodes:
            keys.setdefault(id(placed.node), placed.key)
        worst: dict[str, NumericsRow] = {}
        for node, row in rows:
            for counterpart in (node,) if view is reference else view.linked.behind((node,)):
                key = keys.get(id(counterpart))
                if key is not None and (key not in worst or badness(row) > badness(worst[key])):
                    worst[key] = row
        errors = {
            key: NodeError(found.metric.name, row.total, row.local, row.verdict)
            for key, row in worst.items()
        }
        with_layer.append(replace(view, errors=errors))
    return tuple(with_layer)


# -- nodes and their boxes


class _Placing:
    """Gives each node its key and its boxes."""

    def __init__(self, linked: LinkedGraph) -> None:
        self._linked = linked
        self._taken: set[str] = set()

    def nodes(
        self,
        graph: Graph,
        call: str | None,
        prefix: str,
        box: tuple[str, ...],
        depth: int,
        backend: str | None,
    ) -> Iterator[ViewNode]:
        for node in graph.nodes:
            below = [inside for inside in node.graphs if inside.nodes]
            scope = _around(node, graph, box)
            if below:
                scope = (*scope, node.name)
            key = self._free(f"{prefix}{node.name}")
            yield ViewNode(
                key=key,
                node=node,
                graph=graph,
                call=call,
                scope=scope,
                depth=depth,
                backend=backend or self._linked.backends.get(id(node)),
                instructions=self._linked.instructions.get(id(node), ()),
                opens=bool(below),
            )
            for inside in below:
                name = inside.own_name
                inner_box = scope if node.delegate is not None else (*scope, name)
                yield from self.nodes(
                    inside,
                    key,
                    f"{prefix}{name}/",
                    inner_box,
                    depth + 1,
                    backend or (node.delegate.backend_id if node.delegate is not None else None),
                )

    def rest(self, instruction: int, time: NodeTime) -> ViewNode:
        """A node for the time of a delegate call outside its events."""
        backend = next((self._linked.backends.get(id(node)) for node in time.nodes), None)
        key = self._free(f"rest_of_{instruction}")
        return ViewNode(
            key=key,
            node=Node(key, "rest", "", f"(rest of {backend or 'the delegate'} #{instruction})"),
            graph=self._linked.graph,
            call=None,
            scope=_relative(common_module(time.nodes), ()),
            backend=backend,
            instructions=(instruction,),
        )

    def _free(self, key: str) -> str:
        """The key, numbered when a lowered module or branch is called more than once."""
        free, number = key, 1
        while free in self._taken:
            number += 1
            free = f"{key}#{number}"
        self._taken.add(free)
        return free


def _around(node: Node, graph: Graph, box: tuple[str, ...]) -> tuple[str, ...]:
    """The boxes around a node of a graph in `box`: the boxes of its module. Without a module, a
    call has the module of all nodes inside, and a weight the boxes that its users share."""
    if node.name in graph.parameters:
        module = graph.parameters[node.name].rpartition(".")[0]
        users = [graph.by_name[name] for name in graph.users[node.name]]
        if module or not users:
            return box + _relative(module, box)
        scopes = [_around(user, graph, box) for user in users]
        return scopes[0][: _shared(scopes)]
    path = module_path(node)
    if not path and any(below.nodes for below in node.graphs):
        path = common_module(inner for below in node.graphs for inner in below.walk())
    return box + _relative(path, box)


def _shared(scopes: Sequence[tuple[str, ...]]) -> int:
    """The number of outer boxes that all scopes share."""
    shortest = min(map(len, scopes))
    same = (len({scope[depth] for scope in scopes}) == 1 for depth in range(shortest))
    return sum(1 for _ in takewhile(bool, same))


def _relative(path: str | None, box: tuple[str, ...]) -> tuple[str, ...]:
    """The modules of a path that are not yet among the boxes around."""
    parts = tuple(path.split(".")) if path else ()
    shared = _shared([parts, box])
    return parts[shared:]
