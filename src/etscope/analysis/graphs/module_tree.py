"""The modules of a graph as a tree, with how many nodes each has and how long they took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from etscope.analysis.graphs.graph_names import short_name
from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.graphs.node_table import PlacedNode, fields_of, placed_nodes
from etscope.analysis.graphs.node_times import NodeTimes, nodes_of_row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import common_module
from etscope.model.selector import Fields
from etscope.model.table import Column, Kind, Table

_UNKNOWN = "(no module)"
_DEEPEST = 100  # levels told apart; no model has as many


@dataclass(slots=True)
class _Module:
    """A module while the tree is made: sums over it and all below."""

    path: str
    parent: str | None
    depth: int
    types: set[str] = field(default_factory=set)
    nodes: int = 0
    operators: set[str] = field(default_factory=set)
    delegated: int = 0
    ticks: float | None = None  # None: no instruction is this module's alone


def module_tree(
    linked: LinkedGraph,
    *,
    keep: Callable[[Fields], bool] | None = None,
    into_delegates: bool = True,
    times: NodeTimes | None = None,
    scale: Scale | None = None,
) -> Table:
    """One row a module, in order of first use, each with the sums of its sub-tree.

    Nodes that call an operator are counted (those that `keep` picks). An instruction's time counts
    for the innermost module that holds all its nodes, and for those around it.
    """
    calls = [
        place
        for place in placed_nodes(linked.graph, into_delegates=into_delegates)
        if place.node.kind == "call_function" and (keep is None or keep(fields_of(linked, place)))
    ]
    tree = _Tree()
    for place in calls:
        tree.add_node(place, place.backend or linked.backends.get(id(place.node)))
    if times is not None:
        kept = {id(place.node) for place in calls}
        for row in times.profile.rows:
            nodes = nodes_of_row(linked, row) if row.depth == 0 else ()
            if any(id(node) in kept for node in nodes):
                tree.add_time(common_module(nodes), float(row.ticks.mean()))
    modules = tree.modules()
    return _table(linked, modules, times, scale)


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
        """A module before those below it, siblings in order of first use."""
        children: dict[str | None, list[_Module]] = {}
        for module in self._modules.values():
            children.setdefault(module.parent, []).append(module)
        ordered: list[_Module] = []
        waiting = sorted(children.get(None, ()), key=lambda module: module.path != _UNKNOWN)
        while waiting:
            module = waiting.pop()
            ordered.append(module)
            waiting += reversed(children.get(module.path, ()))
        return ordered

    def _around(self, path: str | None) -> list[_Module]:
        """The module and all around it, outermost first."""
        if path is None:
            return [self._at(_UNKNOWN, None, 0)]
        modules = [self._at("", None, 0)]
        for part in path.split(".", _DEEPEST - 1) if path else ():
            above = modules[-1].path
            name = f"{above}.{part}" if above else part
            modules.append(self._at(name, above, len(modules)))
        return modules

    def _at(self, path: str, parent: str | None, depth: int) -> _Module:
        if path not in self._modules:
            self._modules[path] = _Module(path, parent, depth)
        return self._modules[path]


def _table(
    linked: LinkedGraph, modules: list[_Module], times: NodeTimes | None, scale: Scale | None
) -> Table:
    measured: tuple[Column, ...] = ()
    values: dict[str, list[Any]] = {
        "module": [module.path or "(root)" for module in modules],
        "type": [", ".join(sorted(module.types)) or None for module in modules],
        "nodes": [module.nodes for module in modules],
        "operators": [len(module.operators) for module in modules],
        "delegated": [module.delegated for module in modules],
    }
    notes: tuple[str, ...] = ()
    if times is not None and scale is not None:
        measured = (Column("avg", Kind.DURATION, scale.unit), Column("share", Kind.SHARE))
        total = float(times.profile.total.mean())
        ticks = [module.ticks for module in modules]
        values["avg"] = [None if value is None else float(scale(value)) for value in ticks]
        values["share"] = [value / total if value and total else value for value in ticks]
        notes = (
            "An instruction's time counts for the innermost module that holds all its nodes, and "
            "for those around it.",
        )
    return Table(
        columns=(
            Column("module"),
            Column("type", priority=2),
            Column("nodes", Kind.COUNT),
            Column("operators", Kind.COUNT, title="distinct operators", priority=3),
            Column("delegated", Kind.COUNT, priority=1),
            *measured,
        ),
        values=values,
        title=f"{short_name(linked.name)} · modules",
        notes=notes,
        depth=[module.depth for module in modules],
    )
