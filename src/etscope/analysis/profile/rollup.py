"""A method's profile rolled up by operator, kind, module, source line or delegate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.profile_table import closing_rows, profile_title
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import common_module
from etscope.errors import UsageError
from etscope.model.table import Column, Kind, Table


def _by_op(row: Row) -> str:
    return row.name


def _by_type(row: Row) -> str:
    return row.kind


def _by_source(row: Row) -> str:
    lines = row.attribution.lines
    if not lines:
        return "(no source line)"
    if len(lines) == 1:
        return str(lines[0])
    return f"{lines[0]} … {lines[-1]} ({len(lines)} lines)"


def _by_delegate(row: Row) -> str:
    if row.kind != "delegate":
        return "(not delegated)"
    return f"{row.attribution.backend_id or 'delegate'} #{row.instruction_id}"


GROUPINGS: Mapping[str, Callable[[Row], str]] = {
    "op": _by_op,
    "type": _by_type,
    "source": _by_source,
    "delegate": _by_delegate,
}


def grouped_table(
    profile: MethodProfile,
    scale: Scale,
    by: str,
    *,
    keep: Callable[[Row], bool] | None = None,
    limit: int | None = None,
) -> Table:
    """Instructions rolled up by "op", "type", "module", "source" or "delegate", longest first.

    A delegate call is one instruction: it counts for what all its nodes have in common (for
    "module" the innermost module that holds them all), never split by guess.
    """
    heads = [row for row in profile.rows if row.depth == 0]
    inner = {row.instruction_id for row in profile.rows if row.depth and keep and keep(row)}
    shown = [row for row in heads if keep is None or keep(row) or row.instruction_id in inner]
    if by == "module":
        groups, depth = _module_tree(shown)
    elif by in GROUPINGS:
        table: dict[str, list[Row]] = {}
        for row in shown:
            table.setdefault(GROUPINGS[by](row), []).append(row)
        groups = sorted(table.items(), key=lambda item: _mean(item[1]), reverse=True)
        depth = [0] * len(groups)
    else:
        names = ", ".join((*GROUPINGS, "module"))
        raise UsageError(f"cannot group by {by!r}", hint=f"group by one of: {names}")
    groups, depth = groups[:limit], depth[:limit]
    counted = {id(row) for _, rows in groups for row in rows}
    hidden = [row for row in heads if id(row) not in counted]
    tail = [(row.name, [row]) for row in closing_rows(profile, hidden)]
    return _group_table(profile, scale, by, groups + tail, depth + [0] * len(tail), len(groups))


def _mean(rows: Sequence[Row]) -> float:
    return sum(float(row.ticks.mean()) for row in rows)


def _module_tree(rows: Sequence[Row]) -> tuple[list[tuple[str, list[Row]]], list[int]]:
    """Modules with all rows of their sub-tree, a module before its children, longest first."""
    members: dict[tuple[str, ...], list[Row]] = {}
    strays: list[Row] = []
    for row in rows:
        path = common_module(row.attribution.nodes)
        if path is None:
            strays.append(row)
            continue
        parts = tuple(path.split(".")) if path else ()
        for length in range(len(parts) + 1):
            members.setdefault(parts[:length], []).append(row)
    children: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for parts in sorted(members, key=lambda parts: _mean(members[parts])):
        if parts:
            children.setdefault(parts[:-1], []).append(parts)

    groups: list[tuple[str, list[Row]]] = []
    depth: list[int] = []
    waiting: list[tuple[str, ...]] = [()] if () in members else []
    while waiting:
        parts = waiting.pop()
        groups.append((".".join(parts) or "(root)", members[parts]))
        depth.append(len(parts))
        waiting.extend(children.get(parts, ()))  # the longest is taken first
    if strays:
        groups.append(("(no module)", strays))
        depth.append(0)
    return groups, depth


def _group_table(
    profile: MethodProfile,
    scale: Scale,
    by: str,
    groups: Sequence[tuple[str, Sequence[Row]]],
    depth: list[int],
    shown: int,
) -> Table:
    total = float(profile.total.mean())
    names = ("method", by, "events", "calls", "avg", "share")
    values: dict[str, list[Any]] = {name: [] for name in names}
    for position, (name, rows) in enumerate(groups):
        mean = _mean(rows)
        values["method"].append(profile.method)
        values[by].append(name)
        values["events"].append(len(rows) if position < shown else None)
        values["calls"].append(sum(float(row.calls.mean()) for row in rows))
        values["avg"].append(float(scale(mean)))
        values["share"].append(mean / total if total else None)
    return Table(
        columns=(
            Column("method", priority=9),
            Column(by),
            Column("events", Kind.COUNT, title="instr.", priority=2),
            Column("calls", Kind.FLOAT, priority=3),
            Column("avg", Kind.DURATION, scale.unit),
            Column("share", Kind.SHARE),
        ),
        values=values,
        title=f"{profile_title(profile, scale)} · by {by}",
        depth=depth,
        breaks=frozenset({shown}),
    )
