"""The result of a comparison of two dumps, and its `Table`: one row for each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etscope.analysis.comparison.align import Alignment, Pair, Status
from etscope.analysis.comparison.compare_samples import Comparison, Policy, Verdict, overall
from etscope.analysis.profile.profile import Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import common_module, short_lines
from etscope.errors import UsageError
from etscope.model.table import Column, Kind, Table, grouped
from etscope.units import format_duration


@dataclass(frozen=True, slots=True)
class Change:
    """The change of an operator, an event inside a delegate's call (`depth` 1), or a closing row.

    before, after: average ticks over the middle runs, None where it did not run. firsts: ticks of
    the runs that were left out as the first ones. comparison: None where there is nothing to
    compare, or where it was not selected. adds: its change is a part of the total's.
    """

    name: str
    kind: str
    status: Status
    before: float | None
    after: float | None
    firsts: tuple[float | None, float | None]
    comparison: Comparison | None = None
    pair: Pair | None = None
    depth: int = 0
    adds: bool = True
    selected: bool = True

    @property
    def change(self) -> float:
        """Ticks that a run takes longer, over the middle runs."""
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def verdict(self) -> Verdict | None:
        return None if self.comparison is None else self.comparison.verdict


@dataclass(frozen=True, slots=True)
class MethodDiff:
    """All changes of one method: rows in run order, events inside a call below it.

    The changes of the rows with `adds`, and that of `unaccounted`, sum to that of `total`.
    """

    method: str | None
    changes: tuple[Change, ...]
    unaccounted: Change
    total: Change
    alignment: Alignment
    policy: Policy
    runs: tuple[int, int]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the method's time."""
        return self.total.verdict or Verdict.CANNOT_TELL

    @property
    def operators(self) -> tuple[Change, ...]:
        """The rows with a verdict: those on both sides that were selected."""
        return tuple(change for change in self.changes if change.comparison is not None)

    def table(
        self, scale: Scale, *, sort: str = "change", limit: int | None = None, per_op: bool = False
    ) -> Table:
        """Return the changes as a table; see `diff_table`."""
        return diff_table(self, scale, sort=sort, limit=limit, per_op=per_op)


@dataclass(frozen=True, slots=True)
class Diff:
    """The changes of every method that both dumps ran."""

    methods: tuple[MethodDiff, ...]

    def verdict(self, *, per_op: bool = False) -> Verdict:
        """The verdict on all methods' times; `per_op`: and on all their operators'."""
        found = [method.verdict for method in self.methods]
        if per_op:
            rows = (row for method in self.methods for row in method.operators)
            found += [row.verdict for row in rows if row.verdict is not None]
        return overall(found)


SORTS = ("change", "time", "run")

# Columns that are shown by default.
DEFAULT_COLUMNS = (
    "event", "before", "after", "change", "relative", "interval", "verdict", "status", "module",
    "source",
)  # fmt: skip


def shown_columns(tables: Sequence[Table]) -> tuple[str, ...]:
    """Return `DEFAULT_COLUMNS` without those that are empty in all tables."""
    empty = (None, "same", "")
    return tuple(
        name
        for name in DEFAULT_COLUMNS
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
        *(
            Column(name, Kind.DURATION, unit, priority=9)
            for name in ("first_before", "first_after")
        ),
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
) -> Table:
    """Return one row for each operator, a delegate's events below its call, then the closing rows.

    sort: "change" (largest first, in either direction), "time" (the later one's) or "run". limit:
    the most leaves to show (see `InstructionRows.leaves`); the others are summed below their call
    or among the closing rows. per_op: always count the operators that regressed in the title.
    """
    rows, hidden = _shown(diff, sort, limit)
    everything = [*rows, *([_not_shown(hidden)] if hidden else [])]
    everything += [diff.unaccounted, diff.total]
    policy, total = diff.policy, diff.total.comparison
    return Table.of_cells(
        columns(scale.unit),
        [_cells(change, diff, scale) for change in everything],
        title=diff_title(diff, scale, per_op=per_op),
        notes=(
            f"First runs, which are left out: {_time(diff.total.firsts[0], scale)} {scale.unit} "
            f"before, {_time(diff.total.firsts[1], scale)} {scale.unit} after.",
            # The reasons of operators are in their column.
            *([f"Cannot tell: {total.reason}."] if total is not None and total.reason else ()),
            *diff.notes,
            f"Regressed or improved: by {policy.min_effect:.1%} at least, at "
            f"{100 * policy.confidence:g}% confidence; of {len(diff.operators)} operators together,"
            " corrected by Holm's method. Times are averages over the middle runs, so they add up.",
        ),
        depth=[change.depth for change in everything],
        breaks=frozenset({len(rows)}),
    )


def _shown(diff: MethodDiff, sort: str, limit: int | None) -> tuple[list[Change], list[Change]]:
    """Return the rows to show, and the operators of which no leaf is shown."""
    measure = _measure(sort)
    groups = grouped(diff.changes, lambda change: change.depth == 0)
    leaves = [
        leaf
        for group in groups
        for leaf in _leaves(group)
        if leaf.selected or (leaf is group[0] and any(change.selected for change in group))
    ]
    if measure is not None:
        # The rest of a delegate call stays below what it is the rest of.
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
            rows += [group[0], *(change for change in group[1:] if id(change) in wanted)]
            if left := [change for change in group[1:] if id(change) not in wanted]:
                rows.append(_not_shown(left, depth=1))
    return rows, hidden


def diff_title(diff: MethodDiff, scale: Scale, *, per_op: bool = False) -> str:
    """Return the title: "forward: regressed, +5.1% (+4.2% to +6.0%) · 1.20 → 1.26 ms"."""
    total, comparison = diff.total, diff.total.comparison
    text = f"{diff.method or 'method'}: {diff.verdict.value}"
    if comparison is not None and comparison.relative is not None:
        text += f", {comparison.relative:+.1%} ({interval(comparison)})"
    times = [_time(t, scale) for t in (total.before, total.after)]
    parts = [text, f"{times[0]} → {times[1]} {scale.unit}"]
    parts.append(f"{diff.runs[0]} and {diff.runs[1]} runs")
    slower = sum(change.verdict is Verdict.REGRESSED for change in diff.operators)
    if slower or per_op:
        parts.append(f"{slower} {'operator' if slower == 1 else 'operators'} regressed")
    return " · ".join(parts)


def interval(comparison: Comparison) -> str:
    """Return the confidence interval: "+4.2% to +6.0%", or "" without one."""
    if comparison.low is None or comparison.high is None:
        return ""
    return f"{_percent(comparison.low)} to {_percent(comparison.high)}"


def _percent(change: float) -> str:
    """Format a relative change; beyond 10,000 % as a factor."""
    return f"{change:+.1%}" if change < 100 else f"x{change:.3g}"


def source_location(row: Row) -> tuple[str | None, str | None]:
    """Return the module and the line of Python of a row, None where unknown."""
    attribution = row.attribution
    return common_module(attribution.located), short_lines(attribution.lines) or None


def _measure(sort: str) -> Callable[[Change], float] | None:
    """Return what changes are sorted by, largest first; None: execution order."""
    sort = sort.removeprefix("-")
    if sort not in SORTS:
        raise UsageError(f"cannot sort by {sort!r}", hint=f"sort by one of: {', '.join(SORTS)}")
    if sort == "run":
        return None
    if sort == "change":
        return lambda change: abs(change.change)
    return lambda change: change.after or 0.0


def _leaves(group: Sequence[Change]) -> Sequence[Change]:
    """Return the changes below a delegate call, if its rest is among them; else the call."""
    is_split = any(change.kind == "unaccounted" for change in group[1:])
    return group[1:] if is_split else group[:1]


def _not_shown(changes: Sequence[Change], depth: int = 0) -> Change:
    adding = [change for change in changes if change.adds or depth]
    return Change(
        name=f"({len(changes)} {'row' if len(changes) == 1 else 'rows'} not shown)",
        kind="hidden",
        status="same",
        before=sum(change.before or 0.0 for change in adding),
        after=sum(change.after or 0.0 for change in adding),
        firsts=(None, None),
        depth=depth,
        adds=depth == 0,
    )


def _cells(change: Change, diff: MethodDiff, scale: Scale) -> dict[str, Any]:
    comparison = change.comparison
    timed = {
        "before": change.before,
        "after": change.after,
        "change": change.change,
        "first_before": change.firsts[0],
        "first_after": change.firsts[1],
    }
    judged = comparison if comparison is not None and comparison.relative is not None else None
    return {
        "method": diff.method,
        "event": change.name,
        "kind": change.kind,
        "status": change.status if change.pair is not None else None,
        **{name: None if v is None else float(scale(v)) for name, v in timed.items()},
        "relative": None if judged is None else _percent(judged.relative or 0.0),
        "interval": None if judged is None else interval(judged),
        "verdict": None if change.verdict is None else change.verdict.value,
        "reason": None if comparison is None else comparison.reason or None,
        "ratio": None if judged is None else 1 + (judged.relative or 0.0),
        "low": None if judged is None else 1 + (judged.low or 0.0),
        "high": None if judged is None else 1 + (judged.high or 0.0),
        "fastest": None if judged is None else 1 + (judged.fastest or 0.0),
        "p": None if judged is None else judged.p,
        "noise_floor": (judged.noise_floor or None) if judged is not None else None,
        "runs_before": None if comparison is None else comparison.samples[0],
        "runs_after": None if comparison is None else comparison.samples[1],
        **_identity(change),
    }


def _identity(change: Change) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(
        ("instruction_before", "instruction", "module", "module_before", "source", "backend")
    )
    if change.pair is None:
        return {**empty, "op_types": []}
    before, after = change.pair.before, change.pair.after
    shown = change.pair.shown
    module, source = source_location(shown)
    return {
        "instruction_before": None if before is None or change.depth else before.instruction_id,
        "instruction": None if after is None or change.depth else after.instruction_id,
        "op_types": shown.attribution.op_types,
        "module": module,
        "module_before": None if before is None else source_location(before)[0],
        "source": source,
        "backend": shown.attribution.backend_id,
    }


def _time(ticks: float | None, scale: Scale) -> str:
    return format_duration(None if ticks is None else float(scale(ticks)), scale.unit)
