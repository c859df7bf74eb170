"""The profile of a method as tables: one row for each instruction, or for each group of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.profile.counted import FEWEST
from etscope.analysis.profile.growth import GROWTH, growth_columns, growth_note
from etscope.analysis.profile.profile import MethodProfile, Row, Ticks, with_phase
from etscope.analysis.profile.rollup import Group, rollup
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program import vulkan_calls, xnnpack_events
from etscope.analysis.program.correlate import handle_list
from etscope.analysis.program.source_location import module_type
from etscope.analysis.work.columns import (
    CALIBRATED,
    NAMES,
    SHOWN,
    SORTED_BY,
    bound_name,
    sorted_by,
    work_columns,
    work_notes,
)
from etscope.backends.registry.decoders import decoder_of
from etscope.errors import UsageError
from etscope.model.event_table import ESTIMATED, EXECUTE, LOAD_METHOD, Quantity
from etscope.model.report import filled_columns
from etscope.model.statistics import Floats, statistic, summarize_rows
from etscope.model.table import Column, Kind, Table
from etscope.support.options import takes_fields
from etscope.units import count, format_duration

if TYPE_CHECKING:
    from etscope.analysis.work.limits import ProfileLimits

__all__ = ["profile_table"]

_STATISTICS = ("p10", "p50", "p90", "min", "max", "std", "first")


def columns(unit: str) -> tuple[Column, ...]:
    """Return all columns of `profile_table`; narrow terminals drop the highest priorities first."""
    return (
        Column("method", priority=9),
        Column("instruction", Kind.INT, title="#"),
        Column("event", title="event"),
        Column("kind", priority=9),
        Column("leaf", Kind.BOOL, priority=9),
        Column("calls", Kind.FLOAT, title="calls", priority=5),
        Column("avg", Kind.DURATION, unit),
        *(
            Column(name, Kind.DURATION, unit, priority={"p50": 3, "p90": 4}.get(name, 8))
            for name in ("p50", "p90", "p10", "min", "max", "std", "first", "kernel")
        ),
        Column("value", Kind.FLOAT, priority=3),
        Column("unit", priority=3),
        Column("derived", Kind.DURATION, "us", priority=3),
        Column("quantity", priority=9),
        Column("share", Kind.SHARE, title="share"),
        Column("cumulative", Kind.SHARE, title="cum.", priority=2),
        Column("op_types", Kind.LIST, title="ops", priority=8),
        Column("module", Kind.PATH, priority=1),
        Column("module_type", title="module type", priority=7),
        Column("source", Kind.PATH),
        Column("sources", Kind.LIST, title="source lines", priority=8),
        Column("operator", priority=8),
        Column("inputs", Kind.LIST, priority=6),
        Column("outputs", Kind.LIST, priority=4),
        Column("bytes_read", Kind.BYTES, title="read", priority=6),
        Column("bytes_written", Kind.BYTES, title="written", priority=5),
        Column("backend", title="backend", priority=7),
        Column("delegate_debug_identifier", title="delegate id", priority=8),
        Column("debug_handles", Kind.LIST, title="debug handles", priority=8),
    )


# Default columns; `_WHERE_FILLED` only if a row has a value.
DEFAULT_COLUMNS = (
    "instruction", "event", "avg", "p50", "p90", "value", "unit", "derived", "share", "cumulative",
    "growth", "module", "source",
)  # fmt: skip
_WHERE_FILLED = ("value", "unit", "derived", "growth")
_LESS_BESIDE_WORK = ("p50", "p90", "cumulative")


def default_columns(
    tables: Sequence[Table], by: str | None = None, *, work: bool = False
) -> list[str]:
    """Return the columns of `profile_table`, or of `grouped_table`, to show by default, and at the
    end the columns that backends add. work: show the columns of the work, too."""
    filled = {name for table in tables for name in filled_columns(table)}

    def of_work(names: Sequence[str]) -> list[str]:
        """Return the columns that the tables have; columns that need a calibration only if they
        have values.
        """
        known = (name for name in names if name in tables[0].names)
        return [name for name in known if name in filled or name not in CALIBRATED]

    if by is not None:
        shown = ["avg", "share", *(["growth"] if "growth" in filled else [])]
        if "value" in tables[0].names:
            numbers = ("avg", "value", "unit", "derived", "share")
            shown = [name for name in numbers if name in filled]
        shown += of_work(SHOWN if work else ("peak",) if by == "bound" else ())
        return [by, "events", "calls", *(name for name in shown if name != by)]
    known = {*(column.name for column in columns("")), "phase", *GROWTH, *NAMES}
    of_backends: dict[str, None] = {}
    for table in tables:
        for name in table.names:
            if name in known:
                continue
            cells = zip(table.values["event"], table.values[name], strict=True)
            # A column adds nothing if all its values are in the names of their rows.
            if any(value is not None and str(value) not in event for event, value in cells):
                of_backends[name] = None
    shown = [name for name in DEFAULT_COLUMNS if name not in _WHERE_FILLED or name in filled]
    if work:
        shown = [name for name in shown if name not in _LESS_BESIDE_WORK]
        at = shown.index("share") + 1
        shown[at:at] = of_work(SHOWN)
    return [*shown, *of_backends]


def backend_columns(rows: Iterable[Row]) -> dict[str, str]:
    """Return the columns that backends add to the table of these rows: the column's name -> its
    name in `Meaning.columns`. A name that every such table already has becomes `delegate_<name>`.
    """
    known = {column.name for column in columns("")}
    told = dict.fromkeys(
        name for row in rows if row.meaning is not None for name in row.meaning.columns
    )
    return {f"delegate_{name}" if name in known else name: name for name in told}


def _phase_column(profile: MethodProfile, rows: int) -> dict[Column, list[str]]:
    """Return a column that tables of a language model's calls have alone."""
    if profile.phase is None:
        return {}
    return {Column("phase", priority=9): [profile.phase] * rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Options of `profile_table` and `grouped_table`.

    sort: "time" (longest first), "run" (execution order), or the name of a statistic or of a number
    of the work, with "-" or without: largest first; groups by "time" or a number of the work. keep:
    selects the leaves. limit: the most leaves or groups to show, the first in that order. limits:
    for the columns of `WORK_COLUMNS`, and for groups by "bound".
    """

    sort: str = "time"
    keep: Callable[[Row], bool] | None = None
    limit: int | None = None
    limits: ProfileLimits | None = None


@takes_fields(TableOptions)
def profile_table(
    profile: MethodProfile,
    scale: Scale,
    *,
    options: TableOptions = TableOptions(),
    **changes: Any,
) -> Table:
    """Return one row for each instruction, a delegate's events below its call, then closing rows.

    What is not shown is summed in a row below its call or among the closing rows, so that the shown
    `avg` of leaves always adds up to ``Method::execute``. options, changes: fields of
    `TableOptions`; changes go before `options`.
    """
    options = replace(options, **changes)
    limits = options.limits
    rows, hidden = _shown_rows(profile, scale, options)
    everything = [*rows, *closing_rows(profile, hidden)]
    statistics = _statistics(everything, scale)
    times = [row.ticks if row.is_time and not row.own_clock else None for row in everything]
    added = {
        **growth_columns(profile, times, scale),
        **work_columns(limits, [[row] for row in everything]),
    }
    of_backends = backend_columns(profile.rows)
    cells = [
        {
            "method": profile.method,
            "phase": profile.phase,
            **shares,
            **{
                name: float(column[number]) if row.is_time and row.ran.any() else None
                for name, column in statistics.items()
            },
            **_cells(row, scale),
            **{column.name: values[number] for column, values in added.items()},
            **{
                column: None if row.meaning is None else row.meaning.columns.get(name)
                for column, name in of_backends.items()
            },
        }
        for number, (row, shares) in enumerate(zip(everything, _shares(everything), strict=True))
    ]
    table = Table.of_cells(
        (
            *columns(scale.unit),
            *_phase_column(profile, 0),
            *added,
            *(Column(name, priority=6) for name in of_backends),
        ),
        cells,
        title=profile_title(profile, scale),
        notes=(*_notes(profile, rows), *work_notes(limits)),
        depth=[row.depth for row in everything],
        breaks=frozenset({len(rows)}),
    )
    return replace(table, runs=(profile.runs_as_plain,))


def _shares(rows: Sequence[Row]) -> Iterator[dict[str, float | None]]:
    """Yield for each row its share of the last one, the total, and the sum of shares up to it."""
    total, cumulative = float(rows[-1].ticks.mean()), 0.0
    for row in rows:
        share = None if row.own_clock or not total else float(row.ticks.mean()) / total
        adds = row.depth == 0 and share is not None
        if share is not None and adds:
            cumulative = 1.0 if row.kind == "total" else cumulative + share
        yield {"share": share, "cumulative": cumulative if adds else None}


def _shown_rows(
    profile: MethodProfile, scale: Scale, options: TableOptions
) -> tuple[list[Row], list[Row]]:
    """Return the rows to show in their order, and the instructions of which no leaf is shown."""
    measure, keep = _measures(profile.rows, scale, options), options.keep
    groups = profile.instructions
    if measure is not None:
        groups = sorted(groups, key=lambda group: -measure[id(group.head)])
    leaves = [leaf for group in groups for leaf in group.kept(keep)]
    if measure is not None and options.limit is not None:
        leaves.sort(key=lambda leaf: -measure[id(leaf)])
    wanted = {id(leaf) for leaf in leaves[: options.limit]}
    rows: list[Row] = []
    hidden: list[Row] = []
    for group in groups:
        if not any(id(leaf) in wanted for leaf in group.leaves):
            hidden.append(group.head)
            continue
        below = list(group.below)
        hidden_leaves = [leaf for leaf in group.leaves if id(leaf) not in wanted]
        if group.is_split:
            out = set(map(id, hidden_leaves))
            below = [row for row in below if id(row) not in out]
        if keep is not None and not keep(group.head):
            below = _without_other_numbers(below, keep)
        if measure is not None and all(row.depth == 1 for row in below):
            below.sort(key=lambda row: (*_sorted_apart(row), -measure[id(row)]))
        rows += [group.head, *below]
        if group.is_split and hidden_leaves:
            rows.append(_hidden(hidden_leaves, depth=1))
    return rows, hidden


def _without_other_numbers(below: Sequence[Row], keep: Callable[[Row], bool]) -> list[Row]:
    """Return the rows of a call without the numbers other than its time that are not kept, if one
    of them is. What holds a kept row is kept."""
    kept: list[Row] = []
    depth = 0  # of what holds the row before, read from the end
    for row in reversed(below):
        holds = row.depth < depth
        if not row.own_clock or keep(row) or holds:
            kept.append(row)
            depth = row.depth if row.own_clock else 0
    has_match = any(row.own_clock and keep(row) for row in below)
    return kept[::-1] if has_match else list(below)


def _sorted_apart(row: Row) -> tuple[bool, bool, str, str]:
    """Return the sort key of a call's parts: times, their rest, then other numbers by kind."""
    meaning = row.meaning
    kind = ("", "") if meaning is None else (meaning.quantity.value, meaning.unit or "")
    return row.own_clock, row.kind == "unaccounted", *kind


def _cells(row: Row, scale: Scale) -> dict[str, Any]:
    """The cells of a row but for its shares and statistics."""
    attribution, kernel, meaning = row.attribution, row.kernel_ticks, row.meaning
    value, unit, derived = _number(row, scale)
    types = {kind for node in attribution.located if (kind := module_type(node))}
    return {
        "instruction": row.instruction_id if row.depth == 0 else None,
        "event": row.name,
        "kind": row.kind,
        "leaf": row.leaf,
        "calls": float(row.calls.mean()),
        "avg": float(scale(row.ticks).mean()) if row.is_time else None,
        "value": value,
        "unit": unit,
        "derived": derived,
        "quantity": None if meaning is None else meaning.quantity.value,
        "kernel": None if kernel is None else float(scale(kernel).mean()),
        "op_types": attribution.op_types,
        "module": attribution.module,
        "module_type": types.pop() if len(types) == 1 else None,
        "source": attribution.source,
        "sources": [str(line) for line in attribution.all_lines],
        "operator": attribution.operator,
        "inputs": list(attribution.inputs),
        "outputs": list(attribution.outputs),
        "bytes_read": attribution.bytes_read,
        "bytes_written": attribution.bytes_written,
        "backend": attribution.backend_id,
        "delegate_debug_identifier": row.delegate_id,
        "debug_handles": handle_list(attribution.debug_handles),
    }


def _number(row: Row, scale: Scale) -> tuple[float | None, str | None, float | None]:
    """Return the number of a row that is not a time, its unit, and the microseconds derived from
    it: the mean of the runs that logged it. A point in time has no number."""
    meaning, ran = row.meaning, row.ran
    if meaning is None or meaning.is_time or not ran.any() or meaning.quantity is Quantity.INSTANT:
        return None, None, None
    if meaning.is_estimate:
        return float(scale(row.ticks[ran]).mean()), f"{scale.unit}, {ESTIMATED}", None
    value = float(row.ticks[ran].mean())
    derived = None if meaning.unit_us is None else value * meaning.unit_us
    return value, meaning.unit, derived


def _notes(profile: MethodProfile, rows: Sequence[Row]) -> Iterator[str]:
    meanings = [row.meaning for row in rows if row.meaning is not None]
    if any(meaning.is_estimate for meaning in meanings):
        yield (
            "Times marked as estimated were not measured: the backend divides the time of the call "
            "by the costs that its compiler expects. They are shown without a share, and not added "
            "up."
        )
    if any(not meaning.adds and not meaning.is_estimate for meaning in meanings):
        yield (
            "Some delegates log numbers that are not a part of the method's time: bytes, cycles, "
            "or times on another clock. These have no share and are not added up."
        )
    if any(meaning.unit_us is not None for meaning in meanings):
        yield (
            "Derived times are cycles in the accelerator's time, which is logged in cycles and in "
            "microseconds."
        )
    yield from runs_notes(profile)
    yield from _silent_calls(profile)
    if profile.alternatives:
        yield (
            f"The dump does not distinguish runs of {profile.method} from runs of "
            f"{' or '.join(profile.alternatives)}: modules and lines are {profile.method}'s."
        )
    if lacks_program(profile):
        yield LACKS_PROGRAM
    if profile.calls is not None and profile.calls.note is not None:
        yield profile.calls.note
    yield from growth_note(profile)
    unlined = [
        row
        for row in profile.rows
        if row.depth == 0
        and row.attribution.nodes
        and not row.attribution.lines
        and all(node.stack_trace for node in row.attribution.nodes)
    ]
    share = sum(int(row.ticks.sum()) for row in unlined) / max(1, int(profile.total.sum()))
    if share >= _UNLINED_SHARE:
        what = "1 operator has" if len(unlined) == 1 else f"{len(unlined):,} operators have"
        yield (
            f"{what} no line, {share:.0%} of the time: torch itself calls them, as in a "
            "torch.nn.Sequential that is the whole model."
        )
    if profile.traced:
        yield "Intermediate values were logged in these runs: their times hold the cost of that."


def runs_notes(profile: MethodProfile) -> Iterator[str]:
    """Yield notes on the counted runs."""
    if profile.excluded is not None:
        yield "etscope inspect --all-runs counts the excluded runs, too."
    # Of fewer, the median may be of disturbed runs: see `FEWEST`.
    if 1 < len(profile.every.runs) < FEWEST:
        yield f"Fewer than {FEWEST} runs do not show which of them were disturbed."
    elif 1 <= len(profile.runs) < FEWEST < len(profile.every.runs):
        yield (
            f"Only {count(len(profile.runs), 'run')} remain: record more, on a machine that does "
            "nothing else."
        )


def _silent_calls(profile: MethodProfile) -> Iterator[str]:
    """Yield a sentence for each backend without events in any call."""
    below: dict[str, list[bool]] = {}
    for group in profile.instructions:
        backend = group.head.attribution.backend_id
        if group.head.kind == "delegate" and backend is not None:
            below.setdefault(backend, []).append(bool(group.below))
    for backend, has_events in below.items():
        if not any(has_events):
            calls = "call, which is one time" if len(has_events) == 1 else "calls: each is one time"
            yield f"{backend} logged nothing inside its {calls}. {decoder_of(backend).silence}"


_UNLINED_SHARE = 0.1  # of the method's time: less is what a few operators have that torch adds

# Their operators are listed in the data of the program.
_TOLD_BY_PROGRAM = (xnnpack_events.BACKEND, vulkan_calls.BACKEND)
LACKS_PROGRAM = (
    f"The program has the modules and lines of what ran inside {' or '.join(_TOLD_BY_PROGRAM)}: "
    "give it too (--program)."
)


def lacks_program(profile: MethodProfile) -> bool:
    """Return True if the program would give the modules of events inside a delegate."""
    calls = [
        group
        for group in profile.instructions
        if group.head.attribution.backend_id in _TOLD_BY_PROGRAM
        and group.head.attribution.nodes
        and group.below
    ]
    return bool(calls) and not any(row.attribution.nodes for group in calls for row in group.below)


def _statistics(rows: Sequence[Row], scale: Scale) -> dict[str, Floats]:
    """Return statistics of each row over the runs that executed it, NaN without one. `avg` is not
    among them: it is over all runs, so that its column adds up to the method's."""
    samples = scale(np.stack([row.ticks for row in rows]))
    return summarize_rows(samples, np.stack([row.ran for row in rows]), _STATISTICS)


def _measures(rows: Sequence[Row], scale: Scale, options: TableOptions) -> dict[int, float] | None:
    """Return what rows are sorted by, largest first, by the id of the row; None: run order."""
    sort = options.sort.removeprefix("-")
    if sort == "run":
        return None
    if sort in SORTED_BY:
        measure = sorted_by(options.limits, sort)
        return {id(row): measure([row]) for row in rows}
    if sort not in ("time", "avg", "calls", *_STATISTICS):
        raise UsageError(
            f"cannot sort by {sort!r}",
            hint="sort by one of: time, run, calls, avg, " + ", ".join((*_STATISTICS, *SORTED_BY)),
        )
    if sort == "calls":
        measures = [float(row.calls.sum()) for row in rows]
    elif sort in _STATISTICS:
        measures = _statistics(rows, scale)[sort].tolist() if rows else []
    else:
        measures = [float(row.ticks.mean()) for row in rows]
    return {id(row): value for row, value in zip(rows, measures, strict=True)}


def closing_rows(
    profile: MethodProfile, hidden: Sequence[Row], name: str | None = None
) -> list[Row]:
    """Return the closing rows: the sum of hidden rows, unaccounted time, and the total. name: what
    the hidden rows are called, if not "rows"."""
    ones = np.ones_like(profile.total)
    tail = [_hidden(hidden, name=name)] if hidden else []
    tail.append(Row("unaccounted", "unaccounted", profile.unaccounted, ones))
    tail.append(Row("total", EXECUTE, profile.total, ones, leaf=False))
    return tail


def _hidden(rows: Sequence[Row], depth: int = 0, name: str | None = None) -> Row:
    ticks: Ticks = np.sum([row.ticks for row in rows], axis=0)
    calls: Ticks = np.sum([row.calls for row in rows], axis=0)
    return Row(
        "hidden", name or not_shown(row=len(rows)), ticks, calls, depth=depth, parts=tuple(rows)
    )


def not_shown(**counts: int) -> str:
    """Return the name of a line for what a table leaves out: "(28 groups and 1 row not shown)".

    counts: how many, by the noun.
    """
    named = [f"{n:,} {noun}{'' if n == 1 else 's'}" for noun, n in counts.items() if n]
    return f"({' and '.join(named)} not shown)"


def profile_title(profile: MethodProfile, scale: Scale) -> str:
    """Return the method, its number of runs, and the times of loading, the first run and p50."""
    every = scale(profile.every.total)
    name = " or ".join((profile.method or "unnamed method", *profile.alternatives))
    parts = [with_phase(name, profile.phase), profile.runs_in_words]
    if LOAD_METHOD in profile.load:
        parts.append(f"traced load {_time(float(scale(profile.load[LOAD_METHOD]).mean()), scale)}")
    parts.append(f"first recorded run {_time(float(every[0]), scale)}")
    if len(every) > 1:
        parts.append(f"p50 {_time(statistic(scale(profile.total), 'p50'), scale)}")
    return " · ".join(parts)


def _time(value: float, scale: Scale) -> str:
    return f"{format_duration(value, scale.unit)} {scale.unit}"


GROUPINGS = ("op", "type", "source", "delegate")  # and "module", which is a tree, and "bound"


@takes_fields(TableOptions)
def grouped_table(
    profile: MethodProfile,
    scale: Scale,
    by: str,
    *,
    options: TableOptions = TableOptions(),
    **changes: Any,
) -> Table:
    """Roll leaves up by "op", "type", "module", "source", "delegate" or "bound", longest first; or
    events of delegates by a column of their backend, such as "compute_unit".

    A leaf counts for what all its nodes have in common: for "module" the innermost module that
    holds them all. A line says how many groups are left out. options, changes: as for
    `profile_table`.
    """
    groups = _Groups(profile, scale, by, replace(options, **changes))
    of_backends = backend_columns(profile.rows)
    if by not in (*GROUPINGS, "module", "bound", *of_backends):
        known = ", ".join((*GROUPINGS, "module", "bound", *of_backends))
        raise UsageError(f"cannot group by {by!r}", hint=f"group by one of: {known}")
    table = groups.by_backend_column() if by in of_backends else groups.by_leaf()
    return replace(table, runs=(profile.runs_as_plain,))


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of a profile by what `grouped_table` allows."""

    profile: MethodProfile
    scale: Scale
    by: str
    options: TableOptions

    def by_leaf(self) -> Table:
        profile, limit, limits = self.profile, self.options.limit, self.options.limits
        sort = self.options.sort.removeprefix("-")
        of_rows = sorted_by(limits, sort) if sort in SORTED_BY else None

        def measure(group: Group) -> float:
            return group.average if of_rows is None else of_rows(group.rows)

        name = self.by if self.by != "bound" else lambda _, leaf: bound_name(limits, leaf)
        found = rollup(profile, name, keep=self.options.keep)
        groups = found.tree(measure) if self.by == "module" else found.largest(measure)
        cut = 0 if limit is None else len(groups[limit:])
        groups = groups[:limit]
        title = not_shown(**{group_noun(self.by): cut}, row=len(found.others.members))
        counted = {id(leaf) for group in groups for leaf in group.rows}
        hidden = [leaf for _, leaf in profile.leaves if id(leaf) not in counted]
        tail = [(row.name, [row]) for row in closing_rows(profile, hidden, title)]
        if cut and not hidden:  # modules that count in the modules around them
            tail.insert(0, (title, []))
        everything = [*((group.name, group.rows) for group in groups), *tail]
        counts = [*(len(group.members) for group in groups), *([None] * len(tail))]
        rows = [rows for _, rows in everything]
        work = work_columns(limits, rows)
        return Table.of(
            {
                Column("method", priority=9): [profile.method] * len(everything),
                **_phase_column(profile, len(everything)),
                Column(self.by): [name for name, _ in everything],
                Column("events", Kind.COUNT, title="events", priority=2): counts,
                **self._sums(rows),
                **{column: cells for column, cells in work.items() if column.name != self.by},
            },
            title=f"{profile_title(profile, self.scale)} · by {self.by}",
            notes=(
                *_notes(profile, [leaf for group in found.groups for leaf in group.rows]),
                *work_notes(limits),
            ),
            depth=[*(group.depth for group in groups), *([0] * len(tail))],
            breaks=frozenset({len(groups)}),
        )

    def _sums(self, groups: Sequence[Sequence[Row]]) -> dict[Column, list[Any]]:
        """Return the columns of times of groups of rows; None for a group without rows."""
        total = float(self.profile.total.mean())
        ticks = [np.sum([row.ticks for row in rows], axis=0) if rows else None for rows in groups]
        calls = [sum(float(row.calls.mean()) for row in rows) if rows else None for rows in groups]
        means = [None if one is None else float(one.mean()) for one in ticks]
        shares = [mean / total if total and mean is not None else None for mean in means]
        return {
            Column("calls", Kind.FLOAT, priority=3): calls,
            Column("avg", Kind.DURATION, self.scale.unit): list(map(self.scale.one, means)),
            Column("share", Kind.SHARE): shares,
            **growth_columns(self.profile, ticks, self.scale),
        }

    def by_backend_column(self) -> Table:
        """Add up the numbers of delegates' events by the value of a column of their backend."""
        profile, scale, by = self.profile, self.scale, self.by
        groups = self._numbers()
        added = [
            replace(
                members[0],
                ticks=np.sum([row.ticks for row in members], axis=0),
                calls=np.sum([row.calls for row in members], axis=0),
                parts=tuple(members),
            )
            for members in groups.values()
        ]
        shown = sorted(
            zip(groups, added, strict=True),
            key=lambda item: (str(item[0][1:]), -float(item[1].ticks.mean())),
        )
        total = float(profile.total.mean())
        cells = [
            {
                **_cells(row, scale),
                "method": profile.method,
                "phase": profile.phase,
                by: str(value),
                "events": len(row.parts),
                "share": float(row.ticks.mean()) / total if total and not row.own_clock else None,
            }
            for (value, *_), row in shown[: self.options.limit]
        ]
        left_out = len(shown) - len(cells)
        return Table.of_cells(
            (
                Column("method", priority=9),
                *_phase_column(profile, 0),
                Column(by),
                Column("backend", priority=4),
                Column("events", Kind.COUNT, title="events", priority=2),
                Column("calls", Kind.FLOAT, priority=3),
                Column("avg", Kind.DURATION, scale.unit),
                Column("value", Kind.FLOAT),
                Column("unit"),
                Column("derived", Kind.DURATION, "us"),
                Column("share", Kind.SHARE),
            ),
            cells,
            title=f"{profile_title(profile, scale)} · by {by}",
            notes=(
                *([not_shown(group=left_out)] if left_out else []),
                *_notes(profile, profile.rows),
            ),
            breaks=frozenset({len(cells)}),
        )

    def _numbers(self) -> dict[tuple[Any, ...], list[Row]]:
        """Group the events of delegates that have a column of their backend, by its value and by
        unit. What holds another such event is left out."""
        name, keep = backend_columns(self.profile.rows)[self.by], self.options.keep
        groups: dict[tuple[Any, ...], list[Row]] = {}
        depth = 0  # of the row below that has the column, read from the end
        for row in reversed(self.profile.rows):
            value = None if row.meaning is None else row.meaning.columns.get(name)
            if value is None or row.meaning is None:
                depth = min(depth, row.depth)
                continue
            if row.depth >= depth and (keep is None or keep(row)):
                clock, quantity = row.meaning.clock.value, row.meaning.quantity.value
                key = value, row.attribution.backend_id, clock, quantity, row.meaning.unit
                groups.setdefault(key, []).append(row)
            depth = row.depth
        return groups


def group_noun(by: str) -> str:
    """Return what the rows of a roll-up are called: "module" or "group"."""
    return "module" if by == "module" else "group"
