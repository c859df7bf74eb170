"""A comparison of two dumps as a `Table`: one row for each operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from etscope.analysis.comparison.changes import (
    Change,
    MethodDiff,
    comparison_cells,
    correction_note,
    diff_title,
    interval_note,
    summed,
)
from etscope.analysis.comparison.diff import Keep
from etscope.analysis.comparison.waterfall import headline, waterfall
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.correlate import UNATTRIBUTED
from etscope.analysis.tables.profile_table import group_noun, not_shown
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
    """Return one row for each operator, with a delegate's events below its call. The last rows are
    the sum of hidden operators, if any, the time outside of operators, and the total.

    sort: "change" (largest first, in either direction), "time" (of the later run) or "run" (order
    of execution). limit: the most leaves to show (see `InstructionRows.leaves`); the others are
    added up below their delegate call or in the last rows. per_op: always say in the title how many
    operators regressed. with_words: put the headline in the notes.
    """
    rows, hidden = shown_changes(diff, sort, limit)
    everything = [*rows, *([summed(not_shown(row=len(hidden)), hidden)] if hidden else [])]
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
                rows.append(summed(not_shown(row=len(left)), left, depth=1))
    return rows, hidden


def known_order(sort: str) -> str:
    """Return one of `SORTS` without its sign; every order is descending. Raises `UsageError` for
    another.
    """
    order = sort.removeprefix("-")
    if order not in SORTS:
        raise UsageError(f"cannot sort by {order!r}", hint=f"sort by one of: {', '.join(SORTS)}")
    return order


def _leaves(group: Sequence[Change]) -> Sequence[Change]:
    """Return the leaves of a delegate call if either side has events inside; else the call."""
    return [change for change in group[1:] if change.leaf] or group[:1]


def _cells(change: Change, diff: MethodDiff, scale: Scale) -> dict[str, Any]:
    comparison, pair = change.comparison, change.pair
    before = after = shown = None
    if pair is not None:
        before, after, shown = pair.before, pair.after, pair.shown
    origin = UNATTRIBUTED if shown is None else shown.attribution
    judged = comparison if comparison is not None and comparison.relative is not None else None
    return {
        "method": diff.method,
        "event": change.name,
        "kind": change.kind,
        "status": None if pair is None else change.status,
        **change.times(scale),
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


# -- Several dumps, each compared with the first.

_SIZES = ("ratio", "low", "high")
_SHOWN = ("time", "change", "relative", "verdict")  # of each later dump, by default


@dataclass(slots=True)
class _Line:
    """An operator, an event inside a delegate or a group.

    before: ticks in the first dump, None if it did not run. parts: by the number of each later
    dump. inner: the lines below it.
    """

    name: str
    depth: int = 0
    before: float | None = None
    parts: dict[int, Change] = field(default_factory=dict)
    inner: list[_Line] = field(default_factory=list)

    def measure(self, sort: str) -> float:
        if sort == "time":
            return max((part.after or 0.0 for part in self.parts.values()), default=0.0)
        return max((abs(part.change) for part in self.parts.values()), default=0.0)

    def cells(self, method: str | None, first: str, dumps: int, scale: Scale) -> dict[str, Any]:
        """Return the cells of the line. first: the column for the line's name. dumps: the number
        of dumps.
        """
        pair = next((one.pair for one in self.parts.values() if one.pair is not None), None)
        origin = UNATTRIBUTED if pair is None else (pair.before or pair.shown).attribution
        cells = {"method": method, first: self.name, "time_1": scale.one(self.before)}
        for n in range(2, dumps + 1):
            part = self.parts.get(n)
            judged = comparison_cells(None if part is None else part.comparison)
            cells |= {f"{name}_{n}": value for name, value in judged.items()}
            cells[f"time_{n}"] = None if part is None else scale.one(part.after)
            cells[f"change_{n}"] = None if part is None else scale.one(part.change)
            cells[f"status_{n}"] = None if part is None else part.status
        # A column of groups has their names.
        return {"module": origin.module, "source": origin.source, **cells}

    @property
    def is_rest(self) -> bool:
        """True for the rest of a delegate call, which stays below the call."""
        return any(part.kind == "unaccounted" for part in self.parts.values())


def several_table(
    dumps: Sequence[tuple[str, MethodDiff | None]],
    scale: Scale,
    *,
    by: str | None = None,
    sort: str = "change",
    keep: Keep | None = None,
    limit: int | None = None,
) -> Table:
    """Return a row for each operator, or group of `waterfall`, with the time in each dump, then the
    closing rows: the changes of each dump add up to the total's.

    dumps: the name of each, and the comparison of one method with the first dump; None for the
    first dump, and for dumps that did not run the method. sort: "change" (the largest in any dump),
    "time" or "run". limit: the most leaves to show, with the rows around them. Raises `UsageError`
    for another order or grouping.
    """
    sort = known_order(sort)
    names, first = [name for name, _ in dumps], by or "event"
    later = {number: diff for number, (_, diff) in enumerate(dumps, 1) if diff is not None}
    tops = _lines(later, by, keep)
    shown = list(_shown(tops, sort, limit))
    cut = len(list(_shown(tops, sort, None))) - len(shown)
    name = not_shown(**{group_noun(by): cut}) if by and cut else "(rows not shown)"
    closing = list(_closing(later, [line for line in shown if line.depth == 0], name))
    # modules: the modules around them include their times
    if by and cut and closing[0].name != name:
        closing.insert(0, _Line(name))
    everything = [*shown, *closing]
    method = next((diff.method for diff in later.values() if diff.method), None)
    policy = next(iter(later.values())).policy
    verdicts = ", ".join(f"dump {number} {one.verdict.value}" for number, one in later.items())
    return Table.of_cells(
        _columns(first, len(names), scale.unit),
        [line.cells(method, first, len(names), scale) for line in everything],
        title=f"{method or 'method'}: {verdicts}",
        notes=(
            f"Dump 1, compared with the others: {names[0]}.",
            *(
                f"Dump {number}, {names[number - 1]}: {' '.join(headline(diff, scale))}"
                for number, diff in later.items()
            ),
            *interval_note(part.comparison for line in everything for part in line.parts.values()),
            *dict.fromkeys(note for diff in later.values() for note in diff.notes),
            f"Regressed or improved: {policy.in_words()}, corrected for all rows (Holm's method) "
            f"and {policy.dumps} dumps (Bonferroni's).",
        ),
        depth=[line.depth for line in everything],
        breaks=frozenset({len(shown)}),
    )


def shown_names(by: str | None, dumps: int) -> tuple[str, ...]:
    each = [f"{name}_{n}" for n in range(2, dumps + 1) for name in _SHOWN]
    return (by or "event", "time_1", *each, *(("module", "source") if by is None else ()))


def _lines(later: dict[int, MethodDiff], by: str | None, keep: Keep | None) -> list[_Line]:
    """Return the outermost lines of all dumps. Each operator of the first dump is one line.
    Operators that later dumps added under one name, in one module, share a line."""
    found: dict[Hashable, _Line] = {}
    outermost: list[_Line] = []
    for number, diff in later.items():
        places = {id(row): place for place, row in enumerate(diff.sides.before.rows)}
        seen: Counter[Hashable] = Counter()
        above: list[_Line] = []
        parts = diff.selected if by is None else waterfall(diff, by, keep).parts
        for part in parts:
            del above[part.depth :]
            around = id(above[-1]) if above else None
            identity: Hashable = around, part.name
            if part.pair is not None:
                before, module = part.pair.before, part.pair.shown.attribution.module
                identity = (around, part.name, module) if before is None else places[id(before)]
            seen[identity] += 1
            line = found.get((identity, seen[identity]))
            if line is None:
                line = _Line(part.name, part.depth, part.before)
                found[identity, seen[identity]] = line
                (above[-1].inner if above else outermost).append(line)
            line.parts[number] = part
            above.append(line)
    return outermost


def _shown(tops: Sequence[_Line], sort: str, limit: int | None) -> Iterator[_Line]:
    """Yield the lines to show, each before those below it."""

    def ordered(lines: Sequence[_Line]) -> Sequence[_Line]:
        if sort == "run":
            return lines
        return sorted(lines, key=lambda line: (line.is_rest, -line.measure(sort)))

    def below(lines: Sequence[_Line], wanted: set[int] | None) -> Iterator[_Line]:
        for line in ordered(lines):
            inside = list(below(line.inner, wanted))
            if wanted is None or inside or id(line) in wanted:
                yield line
                yield from inside

    everything = list(below(tops, None))
    leaves = [line for line in everything if not line.inner]
    if sort != "run":
        leaves.sort(key=lambda line: -line.measure(sort))
    yield from everything if limit is None else below(tops, {id(leaf) for leaf in leaves[:limit]})


def _closing(later: dict[int, MethodDiff], tops: Sequence[_Line], name: str) -> Iterator[_Line]:
    """Yield the sum of hidden rows (titled `name`), unaccounted time, and the total."""
    rest = _Line(name)
    for number, diff in later.items():
        adding = [
            part for line in tops if (part := line.parts.get(number)) is not None and part.adds
        ]
        whole = [(diff.total, 1), *((part, -1) for part in (diff.unaccounted, *adding))]
        sides = [
            sum(sign * (one.before or 0.0) for one, sign in whole),
            sum(sign * (one.after or 0.0) for one, sign in whole),
        ]
        if max(map(abs, sides)) > 1e-9 * (diff.total.after or 0.0):
            rest.before = sides[0]
            rest.parts[number] = Change(name, "hidden", "same", sides[0], sides[1])
    if rest.parts:
        yield rest
    for parts in (
        {number: one.unaccounted for number, one in later.items()},
        {number: one.total for number, one in later.items()},
    ):
        first = next(iter(parts.values()))
        yield _Line(first.name, before=first.before, parts=parts)


def _columns(first: str, dumps: int, unit: str) -> list[Column]:
    columns = [Column("method", priority=9), Column(first)]
    columns.append(Column("time_1", Kind.DURATION, unit, title="dump 1"))
    for n in range(2, dumps + 1):
        columns += [
            Column(f"time_{n}", Kind.DURATION, unit, title=f"dump {n}"),
            Column(f"change_{n}", Kind.DURATION, unit, title=f"change {n}", priority=6),
            Column(f"relative_{n}", title=f"relative {n}", priority=2),
            Column(f"interval_{n}", title=f"interval {n}", priority=7),
            Column(f"verdict_{n}", title=f"verdict {n}", priority=1),
            Column(f"status_{n}", title=f"status {n}", priority=7),
            Column(f"reason_{n}", title=f"reason {n}", priority=9),
            *(Column(f"{name}_{n}", Kind.FLOAT, priority=9) for name in _SIZES),
        ]
    if first != "event":
        return columns
    return [*columns, *(Column(name, Kind.PATH, priority=3) for name in ("module", "source"))]
