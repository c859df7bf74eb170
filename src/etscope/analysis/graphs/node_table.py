"""Tables of a graph: its nodes with outputs, sources and times, and its modules as a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from etscope.analysis.graphs.linked_graph import LinkedGraph, short_name
from etscope.analysis.graphs.node_costs import NodeTimes, NodeWork, node_work, nodes_of_row
from etscope.analysis.profile.rollup import NO_MODULE, module_name, modules_around
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import (
    common_module,
    module_path,
    module_type,
    short_lines,
    user_line,
)
from etscope.analysis.selector_fields import fields_of_node
from etscope.model.graph import Graph, Node, TensorSpec
from etscope.model.report import filled_columns
from etscope.model.selector import Fields
from etscope.model.table import Column, Kind, Table, grouped
from etscope.units import format_duration

# The columns shown by default, unless empty. `op` is not among them: node names contain the
# operator.
DEFAULT_COLUMNS = (
    "node", "output", "avg", "share", "nodes", "instructions", "handle", "backend", "module",
    "source", "users",
)  # fmt: skip
# As torch abbreviates them in a printed graph.
_SHORT_DTYPES = (("float", "f"), ("uint", "u"), ("int", "i"))


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node with its graph, its depth below the first graph, and the backend around it."""

    node: Node
    graph: Graph
    depth: int = 0
    backend: str | None = None

    @property
    def is_plumbing(self) -> bool:
        """True if it only holds a weight or a lowered module for the nodes that use it."""
        if self.node.kind == "get_attr":
            return self.node.target not in _branches(self.graph)
        return self.node.name in self.graph.parameters

    def cells(self, linked: LinkedGraph) -> Mapping[str, Any]:
        """The cells without times. linked: the graph of the node."""
        node = self.node
        line = user_line(node.stack_trace)
        users = self.graph.users[node.name]
        outputs = [text for value in node.outputs if (text := tensor_text(value.tensor))]
        return {
            "node": node.name,
            "kind": node.kind,
            "op": node.op or node.kind,
            "output": short_outputs(node),
            "outputs": outputs,
            "instructions": list(linked.instructions.get(id(node), ())),
            "handle": node.debug_handle,
            "backend": self.backend or linked.backends.get(id(node)),
            "module": module_path(node),
            "module_type": module_type(node),
            "source": None if line is None else short_lines([line]),
            "source_path": None if line is None else str(line),
            "users": len(users),
            "used_by": list(users),
            "inputs": list(node.inputs),
            "target": node.target,
            "graph": self.graph.name,
        }


def placed_nodes(
    graph: Graph, depth: int = 0, backend: str | None = None, *, into_delegates: bool = True
) -> Iterator[PlacedNode]:
    """Yield all nodes of a graph, each followed by the nodes of its sub-graphs.

    Nodes of a lowered module are one level below their call. Nodes of a branch are two levels
    below, because the `get_attr` node that names the branch is between.
    """
    named = {node.target: node for node in graph.nodes if node.kind == "get_attr"}
    branches = _branches(graph)
    for node in graph.nodes:
        if node.kind == "get_attr" and node.target in branches:
            continue
        yield PlacedNode(node, graph, depth, backend)
        for branch in node.subgraphs:
            if branch.own_name in named:
                yield PlacedNode(named[branch.own_name], graph, depth + 1, backend)
            yield from placed_nodes(branch, depth + 2, backend, into_delegates=into_delegates)
        if node.delegate is not None and node.delegate.graph is not None and into_delegates:
            yield from placed_nodes(node.delegate.graph, depth + 1, node.delegate.backend_id)


def _branches(graph: Graph) -> set[str]:
    return {branch.own_name for node in graph.nodes for branch in node.subgraphs}


def fields_of(linked: LinkedGraph, place: PlacedNode) -> Fields:
    """The node's fields for a selector, with its instructions, and the backend of a delegated
    node."""
    backend = place.backend or linked.backends.get(id(place.node))
    return {
        **fields_of_node(place.node),
        "delegate": [] if backend is None else [backend],
        "id": [str(number) for number in linked.instructions.get(id(place.node), ())],
    }


NUMBERS = ("flops", "bytes", "intensity", "share")
"Numbers of nodes that a selector can compare; the share needs times."


def columns(times: bool, unit: str) -> tuple[Column, ...]:
    """All columns of a table of nodes; narrow terminals first drop those with high priority
    numbers."""
    measured = (
        Column("avg", Kind.DURATION, unit),
        Column("share", Kind.SHARE),
        Column("nodes", Kind.COUNT, title="shared by", priority=2),
    )
    return (
        Column("node"),
        Column("kind", priority=9),
        Column("op", priority=8),
        Column("output"),
        Column("outputs", Kind.LIST, priority=9),
        *(measured if times else ()),
        Column("flops", Kind.COUNT, title="FLOPs", priority=4),
        Column("bytes", Kind.BYTES, priority=4),
        Column("instructions", Kind.LIST, title="#", priority=3),
        Column("handle", Kind.INT, title="debug handle", priority=6),
        Column("backend", priority=5),
        Column("module", Kind.PATH, priority=2),
        Column("module_type", title="module type", priority=8),
        Column("source", priority=1),
        Column("source_path", Kind.PATH, title="source line", priority=9),
        Column("users", Kind.COUNT, priority=7),
        Column("used_by", Kind.LIST, priority=9),
        Column("inputs", Kind.LIST, priority=9),
        Column("target", priority=9),
        Column("graph", Kind.PATH, priority=9),
    )


def default_columns(table: Table) -> tuple[str, ...]:
    several = any(count is not None and count > 1 for count in table.values.get("nodes", ()))
    wanted = {*DEFAULT_COLUMNS} - ({"nodes"} if not several else set())
    return tuple(name for name in filled_columns(table) if name in wanted)


def short_outputs(node: Node) -> str | None:
    """The node's first tensor, and the number of others: "f32[1,8] +2"."""
    specs = [value.tensor for value in node.outputs if value.tensor is not None]
    if not specs:
        return None
    return short_tensor(specs[0]) + (f" +{len(specs) - 1}" if len(specs) > 1 else "")


def short_tensor(spec: TensorSpec) -> str:
    """Type and shape in short: "f32[1,8]"."""
    dtype = spec.dtype
    for long, short in _SHORT_DTYPES:
        dtype = dtype.replace(long, short)
    return f"{dtype}[{','.join(map(str, spec.shape))}]"


def tensor_text(spec: TensorSpec | None) -> str:
    """Type and shape ("float32[1, 8]", symbolic sizes as written); "" without a tensor."""
    return "" if spec is None else str(spec)


# -- modules


@dataclass(slots=True)
class _Module:
    """A module of the tree, with sums over it and all modules below."""

    name: str
    parent: str | None
    depth: int
    types: set[str] = field(default_factory=set)
    nodes: int = 0
    operators: set[str] = field(default_factory=set)
    delegated: int = 0
    ticks: float | None = None  # None: this module has no instruction for itself


class _Tree:
    def __init__(self) -> None:
        self._modules: dict[str, _Module] = {}

    def add_node(self, place: PlacedNode, backend: str | None) -> None:
        node = place.node
        for frame in node.modules:
            self._around(frame.path)[-1].types.add(frame.type.rpartition(".")[2])
        for module in self._around(node.modules[-1].path if node.modules else None):
            module.nodes += 1
            module.operators.add(node.op)
            module.delegated += backend is not None

    def add_time(self, path: str | None, ticks: float) -> None:
        for module in self._around(path):
            module.ticks = (module.ticks or 0.0) + ticks

    def modules(self) -> list[_Module]:
        """All modules: parents first, siblings in order of first use."""
        children: dict[str | None, list[_Module]] = {}
        for module in self._modules.values():
            children.setdefault(module.parent, []).append(module)
        ordered: list[_Module] = []
        waiting = sorted(children.get(None, ()), key=lambda module: module.name != NO_MODULE)
        while waiting:
            module = waiting.pop()
            ordered.append(module)
            waiting += reversed(children.get(module.name, ()))
        return ordered

    def _around(self, path: str | None) -> list[_Module]:
        """The module and the modules around it, outermost first."""
        modules: list[_Module] = []
        above: str | None = None
        for name in modules_around(module_name(path)):
            if name not in self._modules:
                self._modules[name] = _Module(name, above, len(modules))
            modules.append(self._modules[name])
            above = name
        return modules


@dataclass(frozen=True)
class NodeTables:
    """Tables of a graph: its nodes, and its modules.

    keep: selects nodes; None: all, in the table of nodes without weights and `get_attr`. times,
    scale: for the columns of times; see `NodeTimes`.
    """

    linked: LinkedGraph
    keep: Callable[[Fields], bool] | None = None
    into_delegates: bool = True
    times: NodeTimes | None = None
    scale: Scale | None = None

    def nodes(self, sort: str | None = None, limit: int | None = None) -> Table:
        """A table with one row for each node, in execution order, sub-graphs below their calls. The
        calls around selected nodes are shown, too.

        sort: a column, with "-" largest first; sub-graphs stay below their calls. limit: the
        largest number of nodes outside sub-graphs.
        """
        places = list(placed_nodes(self.linked.graph, into_delegates=self.into_delegates))
        shown = [
            not place.is_plumbing if self.keep is None else self.keep(self._fields(place))
            for place in places
        ]
        hidden = len(shown) - sum(shown) if self.keep is None else 0
        # Show the calls around shown nodes.
        calls_wanted: set[int] = set()  # depths where the next node before is such a call
        for i in range(len(places) - 1, -1, -1):
            depth = places[i].depth
            shown[i] = shown[i] or depth in calls_wanted
            calls_wanted.discard(depth)
            if shown[i] and depth:
                calls_wanted.add(depth - 1)
        places = [place for place, is_shown in zip(places, shown, strict=True) if is_shown]
        table = self._table(places)
        # The rows of each node outside sub-graphs, with the rows below it.
        groups = grouped(range(len(places)), lambda row: places[row].depth == 0)
        if sort is not None:
            name = sort.removeprefix("-")
            values = table.select([name]).values[name]
            known = [group for group in groups if values[group[0]] is not None]
            unknown = [group for group in groups if values[group[0]] is None]
            known.sort(key=lambda group: values[group[0]], reverse=sort != name)
            groups = known + unknown
        rows = [row for group in groups[:limit] for row in group]
        notes = []
        if rest := len(groups[limit:]) if limit is not None else 0:
            notes.append(f"{rest:,} more {'node is' if rest == 1 else 'nodes are'} not shown.")
        if hidden:
            notes.append(
                f"{hidden:,} weights and lowered modules are not shown (--select 'kind:*' shows "
                "all nodes)."
            )
        if self.times is not None and self.scale is not None:
            notes += self._time_notes(self.times, self.scale, [places[row] for row in rows])
        return replace(table.take(rows), notes=tuple(notes))

    def modules(self) -> Table:
        """A table with one row for each module, in order of first use, with the sums of its
        sub-tree.

        Counts nodes that call an operator, if `keep` selects them. An instruction's time counts for
        the innermost module that contains all its nodes, and for the modules around it.
        """
        calls = [
            place
            for place in placed_nodes(self.linked.graph, into_delegates=self.into_delegates)
            if place.node.kind == "call_function"
            and (self.keep is None or self.keep(self._fields(place)))
        ]
        tree = _Tree()
        for place in calls:
            tree.add_node(place, place.backend or self.linked.backends.get(id(place.node)))
        if self.times is not None:
            kept = {id(place.node) for place in calls}
            for instruction in self.times.profile.instructions:
                for leaf in instruction.leaves:
                    nodes = nodes_of_row(self.linked, leaf) or nodes_of_row(
                        self.linked, instruction.head
                    )
                    if any(id(node) in kept for node in nodes):
                        tree.add_time(common_module(nodes), float(leaf.ticks.mean()))
        modules = tree.modules()
        content: dict[Column, list[Any]] = {
            Column("module"): [module.name for module in modules],
            Column("type", priority=2): [", ".join(sorted(one.types)) or None for one in modules],
            Column("nodes", Kind.COUNT): [module.nodes for module in modules],
            Column("operators", Kind.COUNT, title="distinct operators", priority=3): [
                len(module.operators) for module in modules
            ],
            Column("delegated", Kind.COUNT, priority=1): [module.delegated for module in modules],
        }
        notes: tuple[str, ...] = ()
        if self.times is not None and self.scale is not None:
            total, ticks = self._total, [module.ticks for module in modules]
            content[Column("avg", Kind.DURATION, self.scale.unit)] = [
                None if value is None else float(self.scale(value)) for value in ticks
            ]
            content[Column("share", Kind.SHARE)] = [
                value / total if value and total else value for value in ticks
            ]
            notes = (
                "A time counts for the innermost module that holds all its nodes, and for the "
                "modules around it.",
            )
        return Table.of(
            content,
            title=f"{short_name(self.linked.name)} · modules",
            notes=notes,
            depth=[module.depth for module in modules],
        )

    @cached_property
    def _work_of(self) -> NodeWork:
        return node_work(self.linked)

    @cached_property
    def _total(self) -> float:
        """The mean time of the method, in ticks; 0 without times."""
        return 0.0 if self.times is None else float(self.times.profile.total.mean())

    def _fields(self, place: PlacedNode) -> Fields:
        """The fields of a node for a selector, with its known `NUMBERS`."""
        found: dict[str, Any] = {}
        if place.node.kind == "call_function":
            work = self._work_of(place.node)
            numbers = (work.known_flops, work.known_bytes, work.intensity)
            found = dict(zip(NUMBERS, numbers, strict=False))
        time = None if self.times is None else self.times.at.get(id(place.node))
        if time is not None and self._total:
            found["share"] = time.avg / self._total
        told = {name: [str(value)] for name, value in found.items() if value is not None}
        return {**fields_of(self.linked, place), **told}

    def _table(self, places: Sequence[PlacedNode]) -> Table:
        rows = []
        for place in places:
            cells = {**place.cells(self.linked), "avg": None, "share": None, "nodes": None}
            work = self._work_of(place.node)
            is_call = place.node.kind == "call_function"
            cells["flops"] = work.known_flops if is_call else None
            cells["bytes"] = work.known_bytes if is_call else None
            time = None if self.times is None else self.times.at.get(id(place.node))
            if self.times is not None and time is not None and self.scale is not None:
                cells["avg"] = float(self.scale(time.avg))
                cells["share"] = time.avg / self._total if self._total else None
                cells["nodes"] = len(time.nodes)
            rows.append(cells)
        graph = self.linked.graph
        return Table.of_cells(
            columns(self.times is not None, "" if self.scale is None else self.scale.unit),
            rows,
            title=f"{short_name(self.linked.name)} · {graph.dialect} · {len(graph.nodes):,} nodes",
            depth=[place.depth for place in places],
        )

    def _time_notes(
        self, times: NodeTimes, scale: Scale, shown: Sequence[PlacedNode]
    ) -> Iterator[str]:
        runs = len(times.profile.runs)
        total, accounted = (
            format_duration(float(scale(ticks).mean()), scale.unit)
            for ticks in (times.profile.total, times.accounted)
        )
        yield (
            f"Times are averages of {runs:,} {'run' if runs == 1 else 'runs'}: of {total} "
            f"{scale.unit} of Method::execute, instructions of this graph's nodes take "
            f"{accounted} {scale.unit}."
        )
        if times.rest:
            rest = float(scale(sum(float(time.ticks.mean()) for time in times.rest.values())))
            yield (
                f"Of these, delegate calls spend {format_duration(rest, scale.unit)} {scale.unit} "
                "outside the events that they logged: this time belongs to none of the nodes."
            )
        here = [times.at[id(place.node)] for place in shown if id(place.node) in times.at]
        if any(len(time.nodes) > 1 for time in here):
            yield (
                "If one instruction (#) runs several nodes, the first of them shows its time: "
                "their shares are unknown."
            )
