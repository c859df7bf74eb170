"""The change of a method by module, operator, kind or line: sums that add up to it.

Every leaf of both profiles counts once: a removed one goes to zero, an added one comes from zero.
So programs without equal rows can be compared, too: across backends, dtypes and exports.
`etscope.analysis.statistics.compare_samples` judges the sums of each run, as for rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from etscope.analysis.comparison.align import Status
from etscope.analysis.comparison.changes import (
    Change,
    MethodDiff,
    clock_steps,
    comparison_cells,
    correction_note,
    diff_title,
    interval,
    interval_note,
    percent,
    summed,
)
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.rollup import (
    NO_MODULE,
    ROOT,
    Group,
    modules_around,
    operator_of,
    rollup,
)
from etscope.analysis.profile.scale import Scale
from etscope.analysis.statistics.compare_samples import Verdict, compare_all
from etscope.analysis.tables.profile_table import (
    LACKS_PROGRAM,
    group_noun,
    lacks_program,
    not_shown,
)
from etscope.errors import UsageError
from etscope.model.table import Column, Kind, Table
from etscope.units import duration_decimals, format_durations, format_share

Keep = Callable[[Row], bool]
GROUPINGS = ("module", "op", "type", "source", "delegate")
# Another export has other kernel names, and other numbers of delegate calls.
_SAME_ON_BOTH = {"op": "operator", "delegate": "backend"}
# Columns shown by default, after the column of the groups.
SHOWN = (
    "before", "after", "change", "of_change", "relative", "interval", "verdict", "status",
)  # fmt: skip

_NAMED = 3  # parts that a headline names: more are a table's
_WORTH_NAMING = 0.1  # of the largest change: less explains little of it
_ON_KERNELS = 0.05  # of the time: a smaller share of kernels next to delegates is not mentioned
_MORE_RUNS = 100  # that a headline asks for: ten times the fewest that are judged


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The parts of a method's change, the largest first; a module comes before the modules inside
    it.

    own: each part without the modules inside it; these, `hidden` and `unaccounted` sum to `total`.
    """

    by: str
    parts: tuple[Change, ...]
    own: tuple[Change, ...]
    hidden: Change | None
    unaccounted: Change
    total: Change

    def closing(self, shown: Sequence[Change]) -> list[Change]:
        """Return the sum of hidden parts, unaccounted time, and the total."""
        known = {id(part) for part in shown}
        left = [part for part in self.parts if part.depth == 0 and id(part) not in known]
        left += [] if self.hidden is None else [self.hidden]
        cut = len(self.parts) - len(shown)
        rows = 0 if self.hidden is None else sum(self.hidden.leaves)
        name = not_shown(**{group_noun(self.by): cut}, row=rows)
        tail: list[Change] = []
        if left:
            tail.append(summed(name, left))
        elif cut:  # modules inside a shown one, which includes their times
            tail.append(Change(name, "hidden", "same", None, None))
        return [*tail, self.unaccounted, self.total]

    def largest(self, limit: int | None) -> list[Change]:
        """Return the parts with the largest changes, and the modules around them, in order."""
        if limit is None:
            return list(self.parts)
        above: list[Change] = []
        around: dict[int, list[Change]] = {}
        for part in self.parts:
            above[part.depth :] = [part]
            around[id(part)] = list(above)
        largest = sorted(self.parts, key=lambda part: -abs(part.change))[:limit]
        wanted = {id(one) for part in largest for one in around[id(part)]}
        return [part for part in self.parts if id(part) in wanted]


def waterfall(diff: MethodDiff, by: str, keep: Keep | None = None) -> Waterfall:
    """Add up the leaves of both sides by "module", "op", "type", "source" or "delegate".

    keep: selects the leaves; `hidden` sums the others. Raises `UsageError` for another grouping.
    """
    if by not in GROUPINGS:
        raise UsageError(f"cannot group by {by!r}", hint=f"one of: {', '.join(GROUPINGS)}")
    sides = diff.sides
    name = _SAME_ON_BOTH.get(by, by)
    mine, theirs = (rollup(one, name, keep=keep) for one in (sides.before, sides.after))
    noise = [rollup(one, name, keep=keep) for one in sides.noise]
    own = _parts(diff, mine.groups, theirs.groups, [one.groups for one in noise])
    hidden = None
    if count := len(mine.others.members) + len(theirs.others.members):
        hidden = _group_change(not_shown(row=count), mine.others, theirs.others)
    parts = own
    if by == "module":
        trees = [one.tree() for one in (mine, theirs, *noise)]
        below: dict[str | None, list[Change]] = {}
        for part in _parts(diff, trees[0], trees[1], trees[2:]):
            around = [None, *modules_around(part.name)][-2]
            below.setdefault(around, []).append(part)
        parts = []
        waiting = [(part, 0) for part in reversed(below.get(None, []))]
        while waiting:
            part, depth = waiting.pop()
            parts.append(replace(part, depth=depth))
            waiting += [(inner, depth + 1) for inner in reversed(below.get(part.name, []))]
    return Waterfall(by, tuple(parts), tuple(own), hidden, diff.unaccounted, diff.total)


def _parts(
    diff: MethodDiff,
    before: Sequence[Group],
    after: Sequence[Group],
    repeats: Sequence[Sequence[Group]],
) -> list[Change]:
    """Return a part for each group, the largest change first; groups of both sides are judged,
    corrected as one family. repeats: the groups of each noise dump."""
    sides = diff.sides
    mine, theirs, *noise = (
        {group.name: group for group in groups} for groups in (before, after, *repeats)
    )
    parts = {
        name: _group_change(name, mine.get(name), theirs.get(name))
        for name in dict.fromkeys((*mine, *theirs))
    }
    both = [name for name in mine if name in theirs]
    steps = clock_steps(sides.before) | clock_steps(sides.after)

    def step(group: Group) -> float:  # roundings of several rows add up as their squares
        return float(np.sqrt(sum(steps[id(row)] ** 2 for row in group.rows)))

    comparisons = compare_all(
        [mine[name].ticks for name in both],
        [theirs[name].ticks for name in both],
        diff.policy,
        noise=[
            sides.noise_of(
                mine[name].ticks, [one[name].ticks if name in one else None for one in noise]
            )
            for name in both
        ],
        steps=[(step(mine[name]), step(theirs[name])) for name in both],
    )
    for name, comparison in zip(both, comparisons, strict=True):
        parts[name] = replace(parts[name], comparison=comparison)
    return sorted(parts.values(), key=lambda part: -abs(part.change))


def _group_change(name: str, before: Group | None, after: Group | None) -> Change:
    groups = [None if one is None or not one.members else one for one in (before, after)]
    times = [None if group is None else group.average for group in groups]
    counts = [0 if group is None else len(group.members) for group in groups]
    status: Status = "added" if times[0] is None else "removed" if times[1] is None else "same"
    return Change(name, "group", status, times[0], times[1], leaves=(counts[0], counts[1]))


# -- In words, and as a table.


def headline(
    diff: MethodDiff, scale: Scale, sums: Mapping[str, Waterfall] | None = None
) -> tuple[str, ...]:
    """Return sentences on the change, its size and its certainty.

    sums: the change by "op" and "module", if known already.
    """
    name = diff.title("the method")
    totals = [scale.one(diff.total.before), scale.one(diff.total.after)]
    decimals = duration_decimals(totals, scale.unit)
    times = format_durations(totals, scale.unit, decimals)
    moved = f"{times[0]} → {times[1]} {scale.unit}"
    comparison, verdict = diff.total.comparison, diff.verdict
    sizes = ""
    if comparison is not None and comparison.relative is not None:
        sizes = f"{percent(comparison.relative)}, {interval(comparison)}"
    if verdict is Verdict.NO_DIFFERENCE:
        first = f"{name} takes as long as before: {moved} ({sizes})."
    elif verdict is Verdict.CANNOT_TELL:
        reason = "" if comparison is None else comparison.reason
        first = f"It is unclear whether {name} changed: {moved}; {reason}."
        if comparison is not None and comparison.is_unbounded:
            first += (
                f" Record more runs on a quiet machine: etscope run … --iterations "
                f"{max(_MORE_RUNS, 2 * min(comparison.samples))}."
            )
    else:
        longer = "longer" if verdict is Verdict.REGRESSED else "less"
        by = _size(diff.total.change, scale, decimals).lstrip("+-")
        first = f"{name} takes {by} {longer}: {moved} ({sizes})."
    sentences = [first[:1].upper() + first[1:] if name == "the method" else first]
    profiles = diff.sides.before, diff.sides.after
    if _backends(profiles[0]) != _backends(profiles[1]):
        places = list(map(_where, profiles))
        sentences.append(f"It ran {places[0]} before, {places[1]} after.")
    changed = (Verdict.REGRESSED, Verdict.IMPROVED)
    is_sure = verdict in changed
    told = "" if is_sure else ", as far as known"
    for by, what in (("op", "By operator"), ("module", "By module")):
        parts = [
            part
            for part in ((sums or {}).get(by) or waterfall(diff, by)).own
            if part.name not in (ROOT, NO_MODULE)
            and (is_sure or (part.comparison and part.comparison.verdict in changed))
        ]
        most = max((abs(part.change) for part in parts), default=0.0)
        parts = [part for part in parts if abs(part.change) >= _WORTH_NAMING * most > 0][:_NAMED]
        if parts:
            named = (
                f"{part.name} {_size(part.change, scale, decimals)}"
                + ("" if part.status == "same" else f" ({part.status})")
                for part in parts
            )
            sentences.append(f"{what}{told}: {', '.join(named)}.")
    if any(map(lacks_program, profiles)):
        sentences.append(LACKS_PROGRAM)
    return (*sentences, *diff.beside)


def _size(ticks: float, scale: Scale, decimals: int) -> str:
    """Return a change with its sign and unit."""
    text = format_durations([float(scale(ticks))], scale.unit, decimals)[0]
    return f"{'+' if ticks > 0 else ''}{text} {scale.unit}"


def _backends(profile: MethodProfile) -> set[str]:
    return {operator_of(row) for row in profile.rows if row.kind == "delegate"}


def _where(profile: MethodProfile) -> str:
    """Return where the method ran: "on kernels", "on XnnpackBackend", or, if kernels took a notable
    share, too, "partly on XnnpackBackend (85% of its operators' time)"."""
    found = " and ".join(sorted(_backends(profile)))
    if not found:
        return "on kernels"
    times = {
        kind: sum(float(row.ticks.mean()) for row in profile.rows if row.kind == kind)
        for kind in ("delegate", "kernel")
    }
    whole = sum(times.values())
    if times["kernel"] < _ON_KERNELS * whole or not whole:
        return f"on {found}"
    return f"partly on {found} ({format_share(times['delegate'] / whole)} of its operators' time)"


def waterfall_table(
    diff: MethodDiff,
    scale: Scale,
    by: str,
    *,
    sort: str = "change",
    keep: Keep | None = None,
    limit: int | None = None,
) -> Table:
    """Return a row for each part, then the closing rows; the notes begin with the headline.

    sort: "change" or "time" (the later one's), the largest first; a tree of modules is sorted by
    change. keep: see `waterfall`. limit: the most parts to show; a line sums up the others.
    """
    found = waterfall(diff, by, keep)
    table = parts_table(diff, scale, found, sort=sort, limit=limit)
    words = headline(diff, scale, {by: found} if keep is None else None)
    return replace(table, notes=(*words, *table.notes))


def parts_table(
    diff: MethodDiff,
    scale: Scale,
    found: Waterfall,
    *,
    sort: str = "change",
    limit: int | None = None,
) -> Table:
    """Return the table of a waterfall of `diff`; see `waterfall_table`."""
    by = found.by
    if sort.removeprefix("-") == "time" and by != "module":
        shown = sorted(found.parts, key=lambda part: -(part.after or 0.0))[:limit]
    else:
        shown = found.largest(limit)
    everything = [*shown, *found.closing(shown)]
    is_sure = diff.verdict in (Verdict.REGRESSED, Verdict.IMPROVED)
    total = found.total.change if is_sure else 0.0  # without a share: the total may be noise
    judged = sum(part.comparison is not None for part in found.parts)
    return Table.of_cells(
        (
            Column("method", priority=9),
            Column(by),
            *(Column(name, Kind.DURATION, scale.unit) for name in ("before", "after", "change")),
            Column("of_change", Kind.SHARE, title="of the change", priority=3),
            Column("relative", priority=1),
            Column("interval", priority=4),
            Column("verdict", priority=1),
            Column("status", priority=2),
            Column("reason", priority=9),
            *(Column(name, Kind.FLOAT, priority=9) for name in ("ratio", "low", "high")),
            *(Column(name, Kind.COUNT, priority=8) for name in ("rows_before", "rows_after")),
        ),
        [
            {
                "method": diff.method,
                by: part.name,
                **part.times(scale),
                "of_change": part.change / total if total else None,
                **comparison_cells(part.comparison),
                "status": part.status if any(part.leaves) else None,
                "rows_before": part.leaves[0] if any(part.leaves) else None,
                "rows_after": part.leaves[1] if any(part.leaves) else None,
            }
            for part in everything
        ],
        title=f"{diff_title(diff, scale)} · by {by}",
        notes=(
            *interval_note(part.comparison for part in everything),
            *diff.notes,
            correction_note(diff.policy, judged, group_noun(by)),
        ),
        depth=[part.depth for part in everything],
        breaks=frozenset({len(shown)}),
    )
