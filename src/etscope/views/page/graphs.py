"""The graphs of a run for the page: nodes, edges, boxes and measures."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from etscope.analysis.graphs.flow import edges
from etscope.analysis.graphs.node_costs import STATISTICS, nodes_of_row
from etscope.analysis.graphs.node_table import tensor_text
from etscope.analysis.graphs.partition import Partition
from etscope.analysis.graphs.partition_report import refusal_text
from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.analysis.metrics import Metric
from etscope.analysis.profile.profile import Row, with_phase
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import module_path, user_line
from etscope.model.graph import Node
from etscope.model.table import Column, Kind
from etscope.views.output import finite
from etscope.views.page.elements import Json, Lines

# Characters of an argument, and arguments of a node, in the document: long lists of indices
# make the page large and explain little.
_LONGEST_ARGUMENT = 300
_MOST_ARGUMENTS = 40


@dataclass(frozen=True)
class ShownGraph:
    """A view of a graph, with the indices of its nodes in the document."""

    view: GraphView

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The index of each node by its key."""
        return {node.key: number for number, node in enumerate(self.view.nodes)}

    @cached_property
    def _by_id(self) -> Mapping[int, list[int]]:
        """The indices of a node by its `id`; several in a graph that is called several times."""
        found: dict[int, list[int]] = {}
        for number, node in enumerate(self.view.nodes):
            found.setdefault(id(node.node), []).append(number)
        return found

    def indices(self, nodes: Iterable[Node]) -> list[int]:
        """The indices of nodes of the graph, in the order of the graph."""
        return sorted({number for node in nodes for number in self._by_id.get(id(node), ())})

    def rows(self, rows: Sequence[Row]) -> list[list[int]]:
        """The indices of the nodes of each row of a profile of the graph's method."""
        return [
            [] if row.kind == "total" else self.indices(nodes_of_row(self.view.linked, row))
            for row in rows
        ]

    def calls_with_time(self) -> dict[int, int]:
        """Map each node with a time that is part of a call's to the nearest call with a time."""
        view = self.view
        found = {}
        for key, time in view.times.items():
            call = view.by_key[key].call if time.inside else None
            while call is not None and call not in view.times:
                call = view.by_key[call].call
            if call is not None:
                found[self.index[key]] = self.index[call]
        return found


def graph_document(
    shown: ShownGraph,
    scale: Scale,
    lines: Lines,
    metric: Metric | None = None,
    edge_graph: ShownGraph | None = None,
    partition: Partition | None = None,
) -> Json:
    """The `GraphDoc` of a view. metric: of its errors. edge_graph: of its method. partition: of the
    method, for its edge graph."""
    view = shown.view
    boxes = _Boxes(view)
    group_of = [boxes.at(node.scope, node) for node in view.nodes]
    labels: dict[str, int] = {}  # of edges: types of values
    triples: list[int] = []  # from, to, label
    for edge in edges(view):
        label = -1
        if edge.tensor is not None:
            label = labels.setdefault(tensor_text(edge.tensor), len(labels))
        triples += (shown.index[edge.source], shown.index[edge.target], label)
    document: Json = {
        "key": view.key,
        "title": view.title,
        "dialect": view.dialect,
        "method": view.method,
        "nodes": [
            _node_document(node, group, lines)
            for node, group in zip(view.nodes, group_of, strict=True)
        ],
        "edges": triples,
        "edgeLabels": list(labels),
        "groups": boxes.groups,
        "measures": _measures(shown, scale, boxes.groups, group_of, metric),
    }
    refusals = {} if partition is None else partition.refusals_by_path
    for node, one in zip(view.nodes, document["nodes"], strict=True):
        if node.key in refusals:
            one["refusals"] = [[said.by, refusal_text(said)] for said in refusals[node.key]]
    if edge_graph is not None and edge_graph is not shown:
        behind: list[list[int]] = [[] for _ in view.nodes]
        for number, node in enumerate(edge_graph.view.nodes):
            for index in shown.indices(view.linked.behind((node.node,))):
                behind[index].append(number)
        document["edgeNodes"] = behind
    return document


def _node_document(placed: ViewNode, group: int | None, lines: Lines) -> Json:
    node = placed.node
    line = user_line(node.stack_trace)
    return {
        "name": node.name,
        "kind": node.kind,
        "op": node.op,
        "handle": node.debug_handle,
        "group": group,
        "line": None if line is None else lines.index(line),
        "stack": lines.stack(node.stack_trace),
        "outputs": [
            value.name if value.tensor is None else tensor_text(value.tensor)
            for value in node.outputs
        ],
        "args": [
            [name, text if len(text) <= _LONGEST_ARGUMENT else f"{text[:_LONGEST_ARGUMENT]}…"]
            for name, text in node.arguments[:_MOST_ARGUMENTS]
        ],
        "backend": placed.backend,
        "instructions": list(placed.instructions),
        "weight": placed.graph.parameters.get(node.name),
    }


# -- Measures of nodes and groups.

_TITLES = {
    "avg": "average time",
    "p50": "median time",
    "p90": "90th percentile of time",
    "min": "shortest time",
    "max": "longest time",
    "first": "time in the first run",
}


def _measures(
    shown: ShownGraph,
    scale: Scale,
    groups: Sequence[Json],
    group_of: Sequence[int | None],
    metric: Metric | None,
) -> list[Json]:
    """Return the `Measure`s of a view: times, memory and errors, if they are known."""
    view = shown.view
    found = []
    if view.times:
        in_groups = GroupValues(groups, group_of, shown.calls_with_time())
        shared = sorted(shown.index[key] for key, time in view.times.items() if len(time.keys) > 1)
        for name in STATISTICS:
            values: list[Any] = [None] * len(view.nodes)
            for key, time in view.times.items():
                values[shown.index[key]] = float(scale(time.statistic(name)))
            measured = values, in_groups.combined(values, operator.add)
            title = with_phase(_TITLES[name], None if view.profile is None else view.profile.phase)
            column = Column(name, Kind.DURATION, scale.unit, title=title)
            found.append({**measure_document(column, *measured), "shared": shared})
    in_groups = GroupValues(groups, group_of)
    if view.memory:
        sizes = [view.memory.get(node.key) for node in view.nodes]
        column = Column("memory", Kind.BYTES, "B", title="bytes of the results")
        found.append(measure_document(column, sizes, in_groups.combined(sizes, operator.add)))
    if view.live:
        live = [view.live.get(node.key) for node in view.nodes]
        column = Column("live", Kind.BYTES, "B", title="planned bytes alive meanwhile")
        found.append(measure_document(column, live, in_groups.combined(live, max)))
    if metric is not None and view.errors:
        errors = [view.errors.get(node.key) for node in view.nodes]
        worse = max if metric.better == "lower" else min
        unit = metric.unit or None
        for key, title, numbers in (
            ("error", f"{metric.title} to the reference", [e and e.total for e in errors]),
            ("local_error", f"{metric.title} of its own", [e and e.local for e in errors]),
        ):
            column = Column(key, Kind.FLOAT, unit, title=title)
            measure = measure_document(column, numbers, in_groups.combined(numbers, worse))
            # An error that is not a number is worse than any, also for the groups around its node.
            nan = [True if number != number else None for number in numbers]
            for part, marked in (("nodes", nan), ("groups", in_groups.combined(nan, operator.or_))):
                for index in np.flatnonzero(np.array(marked, dtype=bool)).tolist():
                    measure[part][index] = "NaN"
            found.append({**measure, "largerIsWorse": metric.better == "lower"})
    return found


def measure_document(column: Column, nodes: Sequence[Any], groups: Sequence[Any]) -> Json:
    """The page's `Measure` of numbers of nodes and groups; None where there is none."""
    return {
        "key": column.name,
        "title": column.title,
        "unit": column.unit,
        "kind": column.kind.value,
        "largerIsWorse": True,
        "nodes": finite(nodes),
        "groups": finite(groups),
        "shared": [],
    }


# -- Boxes: modules, lowered modules and branches.

Scope = tuple[str, ...]


class _Boxes:
    """The `GraphGroup`s of a view by scope, parents before children."""

    def __init__(self, view: GraphView) -> None:
        self.groups: list[Json] = []
        self._index: dict[Scope, int] = {}
        # Boxes that are not modules: calls, and the branches that they run.
        self._calls = {node.scope: node for node in view.nodes if node.opens}
        self._types = {
            frame.path: frame.type.rpartition(".")[2]
            for node in view.nodes
            for frame in node.node.modules
        }
        self._branches = {
            (*call.scope, name): (call, name)
            for call in self._calls.values()
            if call.node.delegate is None
            for name in (graph.name.rpartition("/")[2] for graph in call.node.subgraphs)
        }

    def at(self, scope: Scope, node: ViewNode) -> int | None:
        """The index of the box of a scope, which is added if it is new; `node` is in it."""
        if not scope:
            return None
        if scope not in self._index:
            parent = self.at(scope[:-1], node)
            self._index[scope] = len(self.groups)
            self.groups.append(
                {"name": scope[-1], "parent": parent, **self._described(scope, node)}
            )
        return self._index[scope]

    def _described(self, scope: Scope, node: ViewNode) -> Json:
        if scope in self._branches:
            caller, name = self._branches[scope]
            word, graph, _ = name.partition("_graph_")  # torch calls it "true_graph_0"
            branch = f"{word.replace('_', ' ')} branch" if graph else name
            label = f"{branch} of {caller.node.name}"
            return {"kind": "branch", "label": label, "type": caller.node.op, "backend": None}
        call = self._calls.get(scope)
        if call is not None and call.node.delegate is not None:
            name = call.node.delegate.backend_id
            return {"kind": "delegate", "label": name, "type": None, "backend": name}
        if call is not None:
            label = call.node.name
            return {"kind": "branch", "label": label, "type": call.node.op, "backend": None}
        path, backend = self._path(scope, node), node.backend
        return {"kind": "module", "label": path, "type": self._types.get(path), "backend": backend}

    def _path(self, scope: Scope, node: ViewNode) -> str:
        """Return the path of a box's module, from a node in it; else the names of the boxes."""
        further_in = len(node.scope) - len(scope) - node.opens
        weight = node.graph.parameters.get(node.node.name, "")
        parts = (weight.rpartition(".")[0] or module_path(node.node) or "").split(".")
        parts = parts[: len(parts) - further_in]
        if parts and parts[-1] == scope[-1]:
            return ".".join(parts)
        return ".".join(
            name
            for depth, name in enumerate(scope, start=1)
            if scope[:depth] not in self._calls and scope[:depth] not in self._branches
        )


@dataclass(frozen=True)
class GroupValues:
    """Combines values of nodes for their groups, at any depth.

    A value that is part of a call's value (`inside`: node -> call) does not count again in groups
    that hold the call.
    """

    groups: Sequence[Json]
    group_of: Sequence[int | None]
    inside: dict[int, int] = field(default_factory=dict)

    def combined(self, values: Sequence[Any], combine: Callable[[Any, Any], Any]) -> list[Any]:
        """The values of each group combined, two at a time; None for one without values."""
        found: list[Any] = [None] * len(self.groups)
        for number, value in enumerate(values):
            if value is None or value != value:
                continue
            call = self.inside.get(number)
            hold_call = set() if call is None else {*self._ancestors(call)}
            for group in self._ancestors(number):
                if group not in hold_call:
                    found[group] = value if found[group] is None else combine(found[group], value)
        return found

    def _ancestors(self, node: int) -> Iterator[int]:
        """Yield the group of a node and its parents."""
        group = self.group_of[node]
        while group is not None:
            yield group
            group = self.groups[group]["parent"]


_OF_A_BOX = ("kind", "name", "label", "type")


def add_changes(runs: Sequence[Json]) -> None:
    """Add the measure "change" to the graphs that the two runs of a report both have: times of the
    second run minus times of the first, at nodes and boxes that both have.

    A time of several nodes together is left out where the other run has times of each; the boxes
    around have the sums of both. Nodes of graphs that differ are not compared: "convolution_3" of
    one may be "convolution_4" of the other, while a module keeps its path.
    """
    if len(runs) != 2 or runs[0]["unit"] != runs[1]["unit"]:
        return
    graphs = [{graph["key"]: graph for graph in run["graphs"]} for run in runs]
    for key in graphs[0]:
        pair = [one[key] for one in graphs if key in one]
        times = [m for graph in pair for m in graph["measures"] if m["key"] == "avg"]
        if len(pair) != 2 or len(times) != 2:
            continue
        nodes, boxes = [], []
        names = [_keys(graph["nodes"], ("name", "op")) for graph in pair]
        for graph, measure, keys in zip(pair, times, names, strict=True):
            shared = set(measure["shared"])
            values = [(value, n in shared) for n, value in enumerate(measure["nodes"])]
            nodes.append(dict(zip(keys, values, strict=True)) if names[0] == names[1] else {})
            sums = [(value, False) for value in measure["groups"]]
            boxes.append(dict(zip(_keys(graph["groups"], _OF_A_BOX), sums, strict=True)))
        for graph, measure, keys in zip(pair, times, names, strict=True):
            graph["measures"].append(
                {
                    **measure,
                    "key": "change",
                    "title": "change of avg, second run - first",
                    "nodes": [_less(nodes, one) for one in keys],
                    "groups": [_less(boxes, one) for one in _keys(graph["groups"], _OF_A_BOX)],
                    "shared": [],
                }
            )


def _keys(found: Sequence[Json], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return a unique key for each: its values, and how many equal ones are before it."""
    seen: Counter[tuple[Any, ...]] = Counter()
    keys = []
    for one in found:
        key = tuple(one[name] for name in names)
        keys.append((*key, seen[key]))
        seen[key] += 1
    return keys


def _less(sides: Sequence[dict[tuple[Any, ...], tuple[Any, bool]]], of: tuple[Any, ...]) -> Any:
    """Return the second value less the first; None unless both are numbers of the same nodes."""
    (before, is_shared), (after, is_shared_too) = (side.get(of, (None, False)) for side in sides)
    if None in (before, after) or is_shared != is_shared_too:
        return None
    return after - before
