"""The graphs of a run for the page: nodes, edges, boxes, and what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from etscope.analysis.graphs.flow import edges
from etscope.analysis.graphs.node_times import nodes_of_row
from etscope.analysis.graphs.views import STATISTICS, GraphView, ViewNode
from etscope.analysis.metrics import Metric
from etscope.analysis.profile.profile import Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import module_path, user_line
from etscope.model.graph import Node, TensorSpec
from etscope.model.table import Kind
from etscope.views.page.elements import Json, Lines, finite

# The boxes of a graph for the page: modules, lowered modules and branches.


Scope = tuple[str, ...]


def groups_of(view: GraphView) -> tuple[list[Json], list[int | None]]:
    """The `GraphGroup`s of a view, parents before children, and the group of each node."""
    boxes = _Boxes(view)
    return boxes.groups, [boxes.at(node.scope, node) for node in view.nodes]


class _Boxes:
    """The boxes by scope. Two boxes of one scope are one."""

    def __init__(self, view: GraphView) -> None:
        self.groups: list[Json] = []
        self._index: dict[Scope, int] = {}
        # What is no module: the boxes of calls, and of the branches that they run.
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
        """The index of the box of that scope, made if it is new; `node` stands in it."""
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
            label = f"{_branch_word(name)} of {caller.node.name}"
            return {"kind": "branch", "label": label, "type": caller.node.op, "backend": None}
        call = self._calls.get(scope)
        if call is not None and call.node.delegate is not None:
            backend = call.node.delegate.backend_id
            return {"kind": "delegate", "label": backend, "type": None, "backend": backend}
        if call is not None:
            return {
                "kind": "branch", "label": call.node.name, "type": call.node.op, "backend": None,
            }  # fmt: skip
        path = self._path(scope, node)
        return {
            "kind": "module",
            "label": path,
            "type": self._types.get(path),
            "backend": node.backend,
        }

    def _path(self, scope: Scope, node: ViewNode) -> str:
        """The module that a box stands for, told by a node in it: the node's own module without
        what stands for boxes further in. Without a module, the names of the boxes."""
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


def _branch_word(name: str) -> str:
    """ "true branch" for "true_graph_0", the name torch gives it."""
    word, graph, _ = name.partition("_graph_")
    return f"{word.replace('_', ' ')} branch" if graph else name


def _ancestors(groups: Sequence[Json], group: int | None) -> list[int]:
    """The group and those around it."""
    found = []
    while group is not None:
        found.append(group)
        group = groups[group]["parent"]
    return found


@dataclass(frozen=True)
class GroupSums:
    """Adds up what nodes have for the groups that they are in, at any depth.

    A value that is a part of a call's (`inside`: node -> call) does not count again in groups that
    hold the call.
    """

    groups: Sequence[Json]
    group_of: Sequence[int | None]
    inside: dict[int, int] = field(default_factory=dict)

    def sums(self, values: Sequence[Any]) -> list[Any]:
        """The sum of each group, None for one without values."""
        sums: list[Any] = [None] * len(self.groups)
        for number, value in enumerate(values):
            if value is None or value != value:
                continue
            call = self.inside.get(number)
            hold_call = set() if call is None else {*_ancestors(self.groups, self.group_of[call])}
            for group in _ancestors(self.groups, self.group_of[number]):
                if group not in hold_call:
                    sums[group] = value if sums[group] is None else sums[group] + value
        return sums

    def best(self, values: Sequence[Any], better: Any) -> list[Any]:
        """The one of each group's values that `better(one, other)` picks, None without any."""
        found: list[Any] = [None] * len(self.groups)
        for number, value in enumerate(values):
            if value is None or value != value:
                continue
            for group in _ancestors(self.groups, self.group_of[number]):
                found[group] = value if found[group] is None else better(found[group], value)
        return found


_LONGEST_ARGUMENT = 300
_MOST_ARGUMENTS = 40


@dataclass(frozen=True)
class ShownGraph:
    """A view of a graph, and where its nodes stand in the document."""

    view: GraphView

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The index of each node by its key."""
        return {node.key: number for number, node in enumerate(self.view.nodes)}

    @cached_property
    def _places(self) -> Mapping[int, list[int]]:
        """The indices of a node by its `id`: a graph that is called twice stands there twice."""
        found: dict[int, list[int]] = {}
        for number, node in enumerate(self.view.nodes):
            found.setdefault(id(node.node), []).append(number)
        return found

    def indices(self, nodes: Iterable[Node]) -> list[int]:
        """The indices of nodes of the graph, in the order of the graph."""
        return sorted({place for node in nodes for place in self._places.get(id(node), ())})

    def rows(self, rows: Sequence[Row]) -> list[list[int]]:
        """For each row of a profile of the graph's method the indices of the nodes behind it."""
        return [
            [] if row.kind == "total" else self.indices(nodes_of_row(self.view.linked, row))
            for row in rows
        ]


def graph_document(
    shown: ShownGraph, scale: Scale, lines: Lines, metric: Metric | None = None
) -> Json:
    """The `GraphDoc` of a view; `metric` is that of its errors."""
    view = shown.view
    groups, group_of = groups_of(view)
    triples, labels = _edges(shown)
    return {
        "key": view.key,
        "title": view.title,
        "dialect": view.dialect,
        "method": view.method,
        "nodes": [
            _node(node, group, lines) for node, group in zip(view.nodes, group_of, strict=True)
        ],
        "edges": triples,
        "edgeLabels": labels,
        "groups": groups,
        "measures": _measures(shown, scale, groups, group_of, metric),
    }


# -- nodes


def _node(place: ViewNode, group: int | None, lines: Lines) -> Json:
    node = place.node
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
        "args": [[name, _cut(text)] for name, text in node.arguments[:_MOST_ARGUMENTS]],
        "backend": place.backend,
        "instructions": list(place.instructions),
        "weight": place.graph.parameters.get(node.name),
    }


def tensor_text(spec: TensorSpec) -> str:
    """ "float32[1, 8]" """
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_ARGUMENT else f"{text[:_LONGEST_ARGUMENT]}…"


# -- edges


def _edges(shown: ShownGraph) -> tuple[list[int], list[str]]:
    """Triples of indices: from, to, label; and the labels, what the values are."""
    labels: dict[str, int] = {}
    triples: list[int] = []
    for edge in edges(shown.view):
        text = None if edge.tensor is None else tensor_text(edge.tensor)
        label = -1 if text is None else labels.setdefault(text, len(labels))
        triples += (shown.index[edge.source], shown.index[edge.target], label)
    return triples, list(labels)


# -- measures


def _measures(
    shown: ShownGraph,
    scale: Scale,
    groups: Sequence[Json],
    group_of: Sequence[int | None],
    metric: Metric | None,
) -> list[Json]:
    view = shown.view
    found = []
    if view.times:
        adder = GroupSums(groups, group_of, _inside(shown))
        shared = sorted(shown.index[key] for key, time in view.times.items() if len(time.keys) > 1)
        for name in STATISTICS:
            values = _times(shown, name, scale)
            sums = adder.sums(values)
            title = _TITLES[name]
            found.append(_measure(name, title, scale.unit, Kind.DURATION, values, sums, shared))
    adder = GroupSums(groups, group_of)
    if view.memory:
        sizes = [view.memory.get(node.key) for node in view.nodes]
        title = "bytes of the results"
        found.append(_measure("memory", title, "B", Kind.BYTES, sizes, adder.sums(sizes)))
    if view.live:
        live = [view.live.get(node.key) for node in view.nodes]
        title = "planned bytes alive meanwhile"
        found.append(_measure("live", title, "B", Kind.BYTES, live, adder.best(live, max)))
    if metric is not None and view.errors:
        found += _errors(shown, metric, adder)
    return found


def _errors(shown: ShownGraph, metric: Metric, adder: GroupSums) -> list[Json]:
    """The error to the reference, and what of it is the node's own; of a group the worst."""
    errors = [shown.view.errors.get(node.key) for node in shown.view.nodes]
    larger_is_worse = metric.better == "lower"
    found = []
    for key, title, values in (
        ("error", f"{metric.title} to the reference", [e and e.total for e in errors]),
        ("local_error", f"{metric.title} of its own", [e and e.local for e in errors]),
    ):
        worst = adder.best(values, max if larger_is_worse else min)
        measure = _measure(key, title, metric.unit or None, Kind.FLOAT, values, worst)
        found.append({**measure, "largerIsWorse": larger_is_worse})
    return found


_TITLES = {
    "avg": "average time",
    "p50": "median time",
    "p90": "90th percentile of time",
    "min": "shortest time",
    "max": "longest time",
    "first": "time in the first run",
}


def _measure(
    key: str,
    title: str,
    unit: str | None,
    kind: Kind,
    nodes: Sequence[Any],
    groups: Sequence[Any],
    shared: Sequence[int] = (),
) -> Json:
    return {
        "key": key,
        "title": title,
        "unit": unit,
        "kind": kind.value,
        "largerIsWorse": True,
        "nodes": finite(nodes),
        "groups": finite(groups),
        "shared": list(shared),
    }


def _times(shown: ShownGraph, statistic: str, scale: Scale) -> list[Any]:
    """The statistic of the time at each node, None where none stands."""
    values: list[Any] = [None] * len(shown.view.nodes)
    for key, time in shown.view.times.items():
        values[shown.index[key]] = float(scale(time.statistic(statistic)))
    return values


def _inside(shown: ShownGraph) -> dict[int, int]:
    """Of each node with a part of a call's time, that call."""
    view = shown.view
    found = {}
    for key, time in view.times.items():
        call = view.by_key[key].call if time.inside else None
        while call is not None and call not in view.times:
            call = view.by_key[call].call
        if call is not None:
            found[shown.index[key]] = shown.index[call]
    return found
