"""A comparison of two dumps as a `Table`: one row for each operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from etscope.analysis.comparison.changes import (
    Change,
    MethodDiff,
    comparison_cells,
    correction_note,
    diff_title,
    interval_note,
)
from etscope.analysis.comparison.waterfall import headline
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.correlate import UNATTRIBUTED
from etscope.analysis.tables.profile_table import not_shown
from etscope.errors import UsageError
from etscope.model.table import Column, Kind, Table, grouped

__all__ = ["diff_table", "shown_columns"]

SORTS = ("change", "time", "run")

# The columns shown by default.
DEFAULT_COLUMNS = (
    "event", "before", "after", "change", "relative", "interval", "verdict", "status", "module",
    "source",
)  # fmt: skip


def shown_columns(
    tables: Sequence[Table], names: Sequence[str] = DEFAULT_COLUMNS
) -> tuple[str, ...]:
    """Return the columns `names`, without columns that are empty in all tables."""
    empty = (None, "same", "")
    return tuple(
        name
        for name in names
        if any(value not in empty for table in tables for value in table.values[name])
    )


def columns(unit: str) -> tuple[Column, ...]:
    """Return all columns of `diff_table`; narrow terminals drop the highest priorities first."""
    return (
        Column("method", priority=9),
        Column("event"),
        Column("kind", priority=9),
        Column("status", priority=3),
        Column("before", Kind.DURATION, unit, priority=1),
        Column("after", Kind.DURATION, unit),
        Column("change", Kind.DURATION, unit),
        Column("relative", priority=1),
        Column("interval", priority=4),
        Column("verdict"),
        Column("reason", priority=9),
        *(
            Column(name, Kind.FLOAT, priority=9)
            for name in ("ratio", "low", "high", "fastest", "p")
        ),
        Column("noise_floor", Kind.SHARE, title="noise floor", priority=9),
        *(Column(name, Kind.COUNT, priority=9) for name in ("runs_before", "runs_after")),
        *(Column(name, Kind.INT, priority=9) for name in ("instruction_before", "instruction")),
        Column("op_types", Kind.LIST, title="ops", priority=8),
        Column("module", Kind.PATH, priority=2),
        Column("module_before", Kind.PATH, priority=8),
        Column("source", Kind.PATH, priority=5),
        Column("backend", priority=8),
    )


def diff_table(
    diff: MethodDiff,
    scale: Scale,
    *,
    sort: str = "change",
    limit: int | None = None,
    per_op: bool = False,
    with_words: bool = True,
) -> Table:
    """Return one row for each operator, a delegate's events below its call, then the closing rows.

    sort: "change" (largest first, in either direction), "time" (the later one's) or "run". limit:
    the most leaves to show (see `InstructionRows.leaves`); sums below their call or among the
    closing rows cover the others. per_op: always count the operators that regressed in the title.
    with_words: put the headline in the notes.
    """
    rows, hidden = shown_changes(diff, sort, limit)
    everything = [*rows, *([_not_shown(hidden)] if hidden else [])]
    everything += [diff.unaccounted, diff.total]
    table = Table.of_cells(
        columns(scale.unit),
        [_cells(change, diff, scale) for change in everything],
        title=diff_title(diff, scale, per_op=per_op),
        notes=(
            *(headline(diff, scale) if with_words else ()),
            *interval_note(change.comparison for change in everything),
            *diff.notes,
            correction_note(diff.policy, len(diff.operators), "operator"),
        ),
        depth=[change.depth for change in everything],
        breaks=frozenset({len(rows)}),
    )
    sides = diff.sides.before, diff.sides.after
    return replace(table, runs=tuple(one.runs_as_plain for one in sides))


def shown_changes(
    diff: MethodDiff, sort: str, limit: int | None = None
) -> tuple[list[Change], list[Change]]:
    """Return the rows to show, and the operators without any shown leaf."""
    order = known_order(sort)

    def measure(change: Change) -> float:
        """Return the sort key of changes, largest first."""
        return abs(change.change) if order == "change" else change.after or 0.0

    groups = grouped(diff.changes, lambda change: change.depth == 0)
    leaves = [
        leaf
        for group in groups
        for leaf in _leaves(group)
        if leaf.selected or (leaf is group[0] and any(change.selected for change in group))
    ]
    if order != "run":
        # The rest of a delegate call stays below the call.
        groups = [
            [head, *sorted(inner, key=lambda one: (one.kind == "unaccounted", -measure(one)))]
            for head, *inner in sorted(groups, key=lambda group: -measure(group[0]))
        ]
        leaves.sort(key=lambda leaf: -measure(leaf))
    wanted = {id(leaf) for leaf in leaves[:limit]}
    rows: list[Change] = []
    hidden: list[Change] = []
    for group in groups:
        below = [leaf for leaf in _leaves(group) if id(leaf) in wanted]
        if not below:
            hidden.append(group[0])
        elif below[0] is group[0]:
            rows += [group[0], *(change for change in group[1:] if change.selected)]
        else:
            left = [leaf for leaf in _leaves(group) if id(leaf) not in wanted]
            out = set(map(id, left))
            rows += [group[0]]
            rows += [one for one in group[1:] if id(one) not in out and (one.leaf or one.selected)]
            if left:
                rows.append(_not_shown(left, depth=1))
    return rows, hidden


def known_order(sort: str) -> str:
    """Return one of `SORTS`, without its sign: all are in descending order. Raises `UsageError` for
    another."""
    order = sort.removeprefix("-")
    if order not in SORTS:
        raise UsageError(f"cannot sort by {order!r}", hint=f"sort by one of: {', '.join(SORTS)}")
    return order


def _leaves(group: Sequence[Change]) -> Sequence[Change]:
    """Return the leaves of a delegate call if either side has events inside; else the call."""
    return [change for change in group[1:] if change.leaf] or group[:1]


def _not_shown(leaves: Sequence[Change], depth: int = 0) -> Change:
    return Change(
        name=not_shown(row=len(leaves)),
        kind="hidden",
        status="same",
        before=sum(leaf.before or 0.0 for leaf in leaves),
        after=sum(leaf.after or 0.0 for leaf in leaves),
        depth=depth,
        adds=depth == 0,
    )


def _cells(change: Change, diff: MethodDiff, scale: Scale) -> dict[str, Any]:
    comparison, pair = change.comparison, change.pair
    before = after = shown = None
    if pair is not None:
        before, after, shown = pair.before, pair.after, pair.shown
    origin = UNATTRIBUTED if shown is None else shown.attribution
    timed = {
        "before": change.before,
        "after": change.after,
        "change": change.change,
    }
    judged = comparison if comparison is not None and comparison.relative is not None else None
    return {
        "method": diff.method,
        "event": change.name,
        "kind": change.kind,
        "status": None if pair is None else change.status,
        **{name: None if v is None else float(scale(v)) for name, v in timed.items()},
        **comparison_cells(comparison),
        "fastest": None if judged is None else 1 + (judged.fastest or 0.0),
        "p": None if judged is None else judged.p,
        "noise_floor": (judged.noise_floor or None) if judged is not None else None,
        "runs_before": None if comparison is None else comparison.samples[0],
        "runs_after": None if comparison is None else comparison.samples[1],
        "instruction_before": None if before is None or change.depth else before.instruction_id,
        "instruction": None if after is None or change.depth else after.instruction_id,
        "op_types": origin.op_types,
        "module": origin.module,
        "module_before": None if before is None else before.attribution.module,
        "source": origin.source,
        "backend": origin.backend_id,
    }
