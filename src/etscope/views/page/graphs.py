"""The graphs of a run for the page: nodes, edges, boxes and measures."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from etscope.analysis.graphs.flow import edges
from etscope.analysis.graphs.node_costs import STATISTICS, node_work, nodes_of_row
from etscope.analysis.graphs.node_table import tensor_text
from etscope.analysis.graphs.partition import Partition
from etscope.analysis.graphs.partition_report import refusal_text
from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.analysis.metrics import find_metric
from etscope.analysis.profile.profile import Row, with_phase
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import module_path, user_line
from etscope.analysis.work.limits import ProfileLimits
from etscope.model.graph import Node
from etscope.model.table import Column, Kind
from etscope.views.output import finite
from etscope.views.page.elements import Json, Lines
from etscope.views.page.method import ShownMethod

# Characters of an argument, and arguments of a node, in the document: long lists of indices
# make the page large and explain little.
_LONGEST_ARGUMENT = 300
_MOST_ARGUMENTS = 40


@dataclass(frozen=True)
class ShownGraph:
    """A view of a graph, with the indices of its nodes in the document. scale: from the ticks of
    its times to the report's."""

    view: GraphView
    scale: Scale

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

    @cached_property
    def _boxes(self) -> _Boxes:
        return _Boxes(self.view)

    def indices(self, nodes: Iterable[Node]) -> list[int]:
        """The indices of nodes of the graph, in the order of the graph."""
        return sorted({number for node in nodes for number in self._by_id.get(id(node), ())})

    def rows(self, rows: Sequence[Row]) -> list[list[int]]:
        """The indices of the nodes of each row of a profile of the graph's method."""
        return [
            [] if row.kind == "total" else self.indices(nodes_of_row(self.view.linked, row))
            for row in rows
        ]

    def document(
        self,
        lines: Lines,
        edge_graph: ShownGraph | None = None,
        partition: Partition | None = None,
        method: ShownMethod | None = None,
    ) -> Json:
        """Return the `GraphDoc`. edge_graph: the edge graph of the same method. partition: the
        method's partition, for its edge graph. method: the graph's method, if it ran.
        """
        view = self.view
        labels: dict[str, int] = {}  # of edges: types of values
        triples: list[int] = []  # from, to, label
        for edge in edges(view):
            label = -1
            if edge.tensor is not None:
                label = labels.setdefault(tensor_text(edge.tensor), len(labels))
            triples += (self.index[edge.source], self.index[edge.target], label)
        document: Json = {
            "key": view.key,
            "title": view.title,
            "dialect": view.dialect,
            "method": view.method,
            "nodes": [
                _node_document(node, group, lines)
                for node, group in zip(view.nodes, self._boxes.group_of, strict=True)
            ],
            "edges": triples,
            "edgeLabels": list(labels),
            "groups": self._boxes.groups,
            "measures": [*self._times(), *self._bytes(), *self._errors(), *self._work(method)],
        }
        refusals = {} if partition is None else partition.refusals_by_path
        for node, one in zip(view.nodes, document["nodes"], strict=True):
            if node.key in refusals:
                one["refusals"] = [[said.by, refusal_text(said)] for said in refusals[node.key]]
        if edge_graph is not None and edge_graph is not self:
            behind: list[list[int]] = [[] for _ in view.nodes]
            for number, node in enumerate(edge_graph.view.nodes):
                for index in self.indices(view.linked.behind((node.node,))):
                    behind[index].append(number)
            document["edgeNodes"] = behind
        return document

    # -- `Measure`s of nodes and groups, if they are known.

    def _times(self) -> Iterator[Json]:
        view, boxes = self.view, self._boxes
        if not view.times:
            return
        inside = {}  # a node with a time that is part of a call's -> the nearest call with a time
        for key, time in view.times.items():
            call = view.by_key[key].call if time.inside else None
            while call is not None and call not in view.times:
                call = view.by_key[call].call
            if call is not None:
                inside[self.index[key]] = self.index[call]
        shared = sorted(self.index[key] for key, time in view.times.items() if len(time.keys) > 1)
        for name in STATISTICS:
            values: list[Any] = [None] * len(view.nodes)
            for key, time in view.times.items():
                values[self.index[key]] = float(self.scale(time.statistic(name)))
            title = with_phase(_TITLES[name], None if view.profile is None else view.profile.phase)
            column = Column(name, Kind.DURATION, self.scale.unit, title=title)
            measure = _measure(column, values, boxes.combined(values, operator.add, inside))
            yield {**measure, "shared": shared}

    def _bytes(self) -> Iterator[Json]:
        view, boxes = self.view, self._boxes
        if view.memory:
            sizes = [view.memory.get(node.key) for node in view.nodes]
            column = Column("memory", Kind.BYTES, "B", title="bytes of the results")
            yield _measure(column, sizes, boxes.combined(sizes, operator.add))
        if view.live:
            live = [view.live.get(node.key) for node in view.nodes]
            column = Column("live", Kind.BYTES, "B", title="planned bytes alive meanwhile")
            yield _measure(column, live, boxes.combined(live, max))

    def _errors(self) -> Iterator[Json]:
        view, boxes = self.view, self._boxes
        if not view.errors:
            return
        metric = find_metric(next(iter(view.errors.values())).metric)
        errors = [view.errors.get(node.key) for node in view.nodes]
        worse = max if metric.better == "lower" else min
        for key, title, numbers in (
            ("error", f"{metric.title} to the reference", [e and e.total for e in errors]),
            ("local_error", f"{metric.title} of its own", [e and e.local for e in errors]),
        ):
            column = Column(key, Kind.FLOAT, metric.unit or None, title=title)
            measure = _measure(column, numbers, boxes.combined(numbers, worse))
            # An error that is not a number is worse than any, also for the groups around its node.
            nan = [True if number != number else None for number in numbers]
            for part, marked in (("nodes", nan), ("groups", boxes.combined(nan, operator.or_))):
                for index in np.flatnonzero(np.array(marked, dtype=bool)).tolist():
                    measure[part][index] = "NaN"
            yield {**measure, "largerIsWorse": metric.better == "lower"}

    def _work(self, method: ShownMethod | None) -> Iterator[Json]:
        """The work of the nodes: FLOPs, bytes, FLOPs for each byte; with a calibration of the
        method's run, the share of the peak."""
        view, boxes = self.view, self._boxes
        work_of = node_work(view.linked)
        works = [work_of(placed.node) for placed in view.nodes]
        inside = {
            number: self.index[placed.call]
            for number, placed in enumerate(view.nodes)
            if placed.call is not None and works[self.index[placed.call]].known_flops
        }
        sums: dict[str, list[Any]] = {}
        numbers: dict[str, list[Any]] = {
            "flops": [work.known_flops or None for work in works],  # what only moves data has none
            "moved_bytes": [work.known_bytes or None for work in works],
        }
        for column in (
            Column("flops", Kind.COUNT, title="FLOPs"),
            Column("moved_bytes", Kind.BYTES, "B", title="bytes read and written"),
        ):
            values = numbers[column.name]
            if any(values):
                sums[column.name] = boxes.combined(values, operator.add, inside)
                yield _measure(column, values, sums[column.name])
        if len(sums) == 2:
            ratios = [
                [_ratio(*pair) for pair in zip(*pairs, strict=True)]
                for pairs in (numbers.values(), sums.values())
            ]
            yield _measure(Column("intensity", Kind.FLOAT, title="FLOPs for each byte"), *ratios)
        limits = None if method is None else method.limits
        if method is not None and limits is not None and limits.peaks is not None:
            yield from self._peak(limits, method.rows)

    def _peak(self, limits: ProfileLimits, rows: Sequence[Row]) -> Iterator[Json]:
        """The share of the peak of each node: of the row that it has most time in. A row of several
        nodes counts at the first of them for the groups around it."""
        size = len(self.view.nodes)
        shares: list[Any] = [None] * size
        longest = [0.0] * size
        roofs: list[Any] = [None] * size
        times: list[Any] = [None] * size
        for row, nodes in zip(rows, self.rows(rows), strict=True):
            one = limits.of([row]) if nodes and row.kind != "unaccounted" else None
            if one is None or one.share is None:
                continue
            for number in nodes:
                if one.ns > longest[number]:
                    shares[number], longest[number] = one.share, one.ns
            first = nodes[0]
            roofs[first] = (roofs[first] or 0.0) + (one.roof_ns or 0.0)
            times[first] = (times[first] or 0.0) + one.ns
        if all(share is None for share in shares):
            return
        sums = (self._boxes.combined(one, operator.add) for one in (roofs, times))
        of_groups = [_ratio(*pair) for pair in zip(*sums, strict=True)]
        measure = _measure(Column("peak", Kind.SHARE, title="share of the peak"), shares, of_groups)
        yield {**measure, "largerIsWorse": False}


_TITLES = {
    "avg": "average time",
    "p50": "median time",
    "p90": "90th percentile of time",
    "min": "shortest time",
    "max": "longest time",
    "first": "time in the first run",
}


def _measure(column: Column, nodes: Sequence[Any], groups: Sequence[Any]) -> Json:
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


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


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


# -- Boxes: modules, lowered modules and branches.

Scope = tuple[str, ...]


class _Boxes:
    """The `GraphGroup`s of a view, parents before children. group_of: the index of the innermost
    one around each node; None for a node outside of all."""

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
        self.group_of = [self._at(node.scope, node) for node in view.nodes]

    def combined(
        self,
        values: Sequence[Any],
        combine: Callable[[Any, Any], Any],
        inside: Mapping[int, int] | None = None,
    ) -> list[Any]:
        """Return one value for each group at any depth: the values of its nodes, combined two at a
        time; None for a group without values.

        inside: node -> call, for a value that is part of the call's: it does not count again in
        groups that hold the call.
        """
        found: list[Any] = [None] * len(self.groups)
        for number, value in enumerate(values):
            if value is None or value != value:
                continue
            call = None if inside is None else inside.get(number)
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

    def _at(self, scope: Scope, node: ViewNode) -> int | None:
        """The index of the box of a scope, which is added if it is new; `node` is in it."""
        if not scope:
            return None
        if scope not in self._index:
            parent = self._at(scope[:-1], node)
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


# -- What changed between two runs.

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
