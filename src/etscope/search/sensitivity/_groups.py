"""Group the operators that may be kept in float together: by operator, module or node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etscope.analysis.program.source_location import lines_of, module_path, short_lines
from etscope.analysis.selector_fields import fields_of_node
from etscope.errors import MissingDataError, UsageError
from etscope.model.graph import Node
from etscope.model.selector import Selector

if TYPE_CHECKING:
    from etscope.bridge.lowering.keep_float import Unit

OP, MODULE, NODE = "op", "module", "node"
GROUPINGS = (OP, MODULE, NODE)


@dataclass(frozen=True, slots=True)
class Group:
    """Units that are kept in float together.

    selector: a selector that picks these units and no others. names: the names of all their nodes.
    units: the names of the units. modules, source: their modules and source lines. sources: names
    of units outside the group whose int8 values they use.
    """

    selector: str
    names: tuple[str, ...]
    units: tuple[str, ...]
    modules: tuple[str, ...]
    source: str
    sources: frozenset[str]


def check_grouping(by: str, select: str | None) -> None:
    """Raise `UsageError` for an unknown grouping, and for an invalid selector."""
    if by not in GROUPINGS:
        raise UsageError(f"unknown grouping {by!r}", hint=f"it is {', '.join(GROUPINGS)}")
    if select is not None:
        Selector(select)


def groups_of(units: Sequence[Unit], by: str, select: str | None = None) -> list[Group]:
    """The groups, in execution order. Units that only move int8 values lose nothing and are in
    none.

    select: a selector; only units that it picks are in the groups. Raises `MissingDataError` when
    it picks nothing.
    """
    lossy = [unit for unit in units if not unit.moves]
    if select is not None:
        lossy = [unit for unit in lossy if picks(Selector(select), unit)]
        if not lossy:
            raise MissingDataError(f"{select!r} picks nothing that would be quantized")
    members: dict[str, list[Unit]] = {}
    for unit in lossy:
        first = unit.nodes[0]
        if by == OP:
            key = _op(first)
        else:
            key = (module_path(first) if by == MODULE else None) or first.name
        members.setdefault(key, []).append(unit)
    groups = []
    for found in members.values():
        nodes = [node for unit in found for node in unit.nodes]
        names = {unit.names[0] for unit in found}
        groups.append(
            Group(
                selector=_selector(found, units, by),
                names=tuple(node.name for node in nodes),
                units=tuple(unit.names[0] for unit in found),
                modules=tuple(dict.fromkeys(path for node in nodes if (path := module_path(node)))),
                source=short_lines(lines_of(unit.nodes[0] for unit in found)),
                sources=frozenset(name for unit in found for name in unit.sources) - names,
            )
        )
    return groups


def picks(selector: Selector, unit: Unit) -> bool:
    return any(selector.matches(fields_of_node(node)) for node in unit.nodes)


def _op(node: Node) -> str:
    """The operator without namespace and overload."""
    parts = node.op.split(".")
    return parts[1] if len(parts) > 1 else node.op


def _selector(members: Sequence[Unit], units: Sequence[Unit], by: str) -> str:
    """The shortest selector that picks these units and no other."""
    wanted = {unit.names[0] for unit in members}
    paths = {module_path(unit.nodes[0]) or "" for unit in members}
    ops = {_op(unit.nodes[0]) for unit in members}
    path = paths.pop() if len(paths) == 1 else ""
    op = ops.pop() if len(ops) == 1 else ""
    candidates = [f"module:{path}"] if path else []
    candidates += [f"module:{path} and op:{op}"] if path and op else []
    candidates += [f"op:{op}"] if op else []
    if by == OP:
        candidates.reverse()
    for text in candidates:
        selector = Selector(text)
        if {unit.names[0] for unit in units if picks(selector, unit)} == wanted:
            return text
    return " or ".join(unit.names[0] for unit in members)


def neighbours(groups: Sequence[Group]) -> list[frozenset[int]]:
    """Return for each group the positions of the groups that exchange int8 values with it.

    A value stays in float only if the unit that makes it and the units that use it all do.
    """
    owner = {name: index for index, group in enumerate(groups) for name in group.units}
    pairs = (
        frozenset((index, owner[name]))
        for index, group in enumerate(groups)
        for name in sorted(group.sources)
        if name in owner
    )
    return [pair for pair in dict.fromkeys(pairs) if len(pair) == 2]


def joined(groups: Sequence[Group], chosen: Iterable[int]) -> Mapping[str, tuple[str, ...]]:
    """The selectors, node names, modules and source lines of several groups."""
    picked = [groups[index] for index in sorted(chosen)]
    return {
        "selectors": tuple(group.selector for group in picked),
        "names": tuple(name for group in picked for name in group.names),
        "modules": tuple(dict.fromkeys(path for group in picked for path in group.modules)),
        "sources": tuple(dict.fromkeys(group.source for group in picked if group.source)),
    }
