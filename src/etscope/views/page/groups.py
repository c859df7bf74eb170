"""The boxes of a graph for the page: modules, lowered modules and branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.analysis.profile.source_location import module_path
from etscope.views.page.tables import Json

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
