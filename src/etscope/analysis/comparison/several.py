"""Several dumps, each compared with the first: one table with columns for each dump."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from etscope.analysis.comparison.changes import (
    Change,
    MethodDiff,
    comparison_cells,
    interval_note,
)
from etscope.analysis.comparison.diff import Keep
from etscope.analysis.comparison.diff_table import known_order
from etscope.analysis.comparison.waterfall import Part, headline, waterfall
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.correlate import UNATTRIBUTED
from etscope.analysis.tables.profile_table import group_noun, not_shown
from etscope.model.table import Column, Kind, Table

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
    parts: dict[int, Change | Part] = field(default_factory=dict)
    inner: list[_Line] = field(default_factory=list)

    def measure(self, sort: str) -> float:
        """Return the sort key, largest first: the largest change, or time."""
        if sort == "time":
            return max((part.after or 0.0 for part in self.parts.values()), default=0.0)
        return max((abs(part.change) for part in self.parts.values()), default=0.0)

    def cells(self, method: str | None, first: str, dumps: int, scale: Scale) -> dict[str, Any]:
        """Return its cells. first: the column with its name; dumps: their number."""
        changes = [part for part in self.parts.values() if isinstance(part, Change)]
        pair = next((change.pair for change in changes if change.pair is not None), None)
        origin = UNATTRIBUTED if pair is None else (pair.before or pair.shown).attribution

        def time(ticks: float | None) -> float | None:
            return None if ticks is None else float(scale(ticks))

        cells = {"method": method, first: self.name, "time_1": time(self.before)}
        for n in range(2, dumps + 1):
            part = self.parts.get(n)
            judged = comparison_cells(None if part is None else part.comparison)
            cells |= {f"{name}_{n}": value for name, value in judged.items()}
            cells[f"time_{n}"] = None if part is None else time(part.after)
            cells[f"change_{n}"] = None if part is None else time(part.change)
            cells[f"status_{n}"] = None if part is None else part.status
        # A column of groups has their names.
        return {"module": origin.module, "source": origin.source, **cells}

    @property
    def is_rest(self) -> bool:
        """True for the rest of a delegate call, which stays below the call."""
        return any(
            isinstance(part, Change) and part.kind == "unaccounted" for part in self.parts.values()
        )


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
    names = [name for name, _ in dumps]
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
    verdicts = ", ".join(f"dump {number} {one.verdict.value}" for number, one in later.items())
    return Table.of_cells(
        _columns(by or "event", len(names), scale.unit),
        [line.cells(method, by or "event", len(names), scale) for line in everything],
        title=f"{method or 'method'}: {verdicts}",
        notes=tuple(_notes(later, names, scale, everything)),
        depth=[line.depth for line in everything],
        breaks=frozenset({len(shown)}),
    )


def shown_names(by: str | None, dumps: int) -> tuple[str, ...]:
    """Return the columns shown by default."""
    each = [f"{name}_{n}" for n in range(2, dumps + 1) for name in _SHOWN]
    return (by or "event", "time_1", *each, *(("module", "source") if by is None else ()))


def _lines(later: dict[int, MethodDiff], by: str | None, keep: Keep | None) -> list[_Line]:
    """Return the outermost lines of all dumps. Each operator of the first dump is one line.
    Operators that later dumps added under one name, in one module, share a line."""
    found: dict[Hashable, _Line] = {}
    outermost: dict[Hashable, _Line] = {}
    for number, diff in later.items():
        places = {id(row): place for place, row in enumerate(diff.sides.before.rows)}
        seen: Counter[Hashable] = Counter()
        above: list[Hashable] = []
        parts = diff.selected if by is None else waterfall(diff, by, keep).parts
        for part in parts:
            del above[part.depth :]
            identity: Hashable = (*above[-1:], part.name)
            if isinstance(part, Change) and part.pair is not None:
                before = part.pair.before
                module = part.pair.shown.attribution.module
                identity = (
                    places[id(before)] if before is not None else (*above[-1:], part.name, module)
                )
            seen[identity] += 1
            key = (identity, seen[identity])
            if key not in found:
                found[key] = line = _Line(part.name, part.depth, part.before)
                if above:
                    found[above[-1]].inner.append(line)
                else:
                    outermost[key] = line
            found[key].parts[number] = part
            above.append(key)
    return list(outermost.values())


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
            part
            for line in tops
            if (part := line.parts.get(number)) is not None
            and (isinstance(part, Part) or part.adds)
        ]
        whole = [(diff.total, 1), *((part, -1) for part in (diff.unaccounted, *adding))]
        sides = [
            sum(sign * (one.before or 0.0) for one, sign in whole),
            sum(sign * (one.after or 0.0) for one, sign in whole),
        ]
        if max(map(abs, sides)) > 1e-9 * (diff.total.after or 0.0):
            rest.before = sides[0]
            rest.parts[number] = Part(rest.name, sides[0], sides[1], (0, 0))
    if rest.parts:
        yield rest
    diff = next(iter(later.values()))
    for change, parts in (
        (diff.unaccounted, {number: one.unaccounted for number, one in later.items()}),
        (diff.total, {number: one.total for number, one in later.items()}),
    ):
        yield _Line(change.name, before=change.before, parts={**parts})


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


def _notes(
    later: dict[int, MethodDiff], names: Sequence[str], scale: Scale, lines: Sequence[_Line]
) -> Iterator[str]:
    yield f"Dump 1, compared with the others: {names[0]}."
    for number, diff in later.items():
        yield f"Dump {number}, {names[number - 1]}: {' '.join(headline(diff, scale))}"
    yield from interval_note(part.comparison for line in lines for part in line.parts.values())
    yield from dict.fromkeys(note for diff in later.values() for note in diff.notes)
    policy = next(iter(later.values())).policy
    yield (
        f"Regressed or improved: {policy.in_words()}, corrected for all rows (Holm's method) and "
        f"{policy.dumps} dumps (Bonferroni's)."
    )
