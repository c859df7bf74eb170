"""Where the time goes, and what changed since another run."""

from __future__ import annotations

import shlex
from dataclasses import replace

import numpy as np

from etscope.analysis.comparison.diff import diff_profiles
from etscope.analysis.comparison.diff_table import shown_columns
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.profile_table import profile_table
from etscope.analysis.profile.trace import Trace
from etscope.errors import MismatchError, MissingDataError, UsageError
from etscope.etdb.commands.registry import command, whole
from etscope.etdb.debugger import Debugger
from etscope.etdb.files import Files
from etscope.etdb.output import Output
from etscope.etdb.targets.target import Target
from etscope.formats.etdump.reader import read_etdump
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table

GROUP = "times"
_COLUMNS = ("instruction", "event", "avg", "p50", "p90", "share", "cumulative", "module", "source")


@command("top [N] [by COLUMN] [ops|modules|types]", group=GROUP,
         words=("by", "ops", "modules", "types", "avg", "p50", "p90", "max", "first"))  # fmt: skip
def top(debugger: Debugger, rest: str) -> Output:
    """Show the N operators that take longest (10), over all runs of the method.

    by: avg, p10, p50, p90, min, max, std, first or calls. `ops` sums by operator, `modules` by
    module, `types` by type of module. Of a run on the runtime it is what ran so far: the run is
    repeated for it with the event tracer on, as generate-core-file does.
    """
    count, by, group = _read(rest)
    profile = profile_of(debugger)
    if group is not None:
        return Output().table(_grouped(profile, debugger, group, count, by))
    table = profile_table(profile, debugger.scale, sort=by, limit=count)
    columns = list(_COLUMNS)
    if by not in ("time", *columns):
        columns.insert(3, by)
    return Output().table(table, columns)


def profile_of(debugger: Debugger) -> MethodProfile:
    """The times of the method: of the run on the runtime, or of the dump. Raises
    `MissingDataError` without any."""
    target = debugger.on_runtime
    profiles = debugger.files.profiles if target is None else _measured(debugger, target)
    found = profiles.get(debugger.method) or next(iter(profiles.values()), None)
    if found is None:
        raise MissingDataError(
            "there are no times", hint="load a dump with profiling events: core RUN.etdp"
        )
    return found


def _measured(debugger: Debugger, target: Target) -> dict[str | None, MethodProfile]:
    """The times of what ran on the runtime so far, by its core."""
    if debugger.position is None:
        raise MissingDataError("nothing has run yet", hint="run, or start")
    dump = read_etdump(target.core().etdump)
    # It is of this program; too little may have run for anything to tell.
    return replace(debugger.files, dump=dump, debug_buffer=None, forced=True).profiles


def _read(rest: str) -> tuple[int, str, str | None]:
    count, by, group = 10, "time", None
    words = rest.split()
    while words:
        word = words.pop(0)
        if word == "by":
            if not words:
                raise UsageError("by what?", hint="top 10 by p90")
            by = words.pop(0)
        elif word in ("ops", "modules", "types"):
            group = word
        else:
            count = whole(word, what="how many")
    return count, by, group


def _grouped(profile: MethodProfile, debugger: Debugger, group: str, count: int, by: str) -> Table:
    sums: dict[str, list[Row]] = {}
    for row in profile.rows:
        if row.depth == 0 and not row.own_clock:
            sums.setdefault(_key(row, group), []).append(row)
    scale = debugger.scale
    total = float(scale(profile.total).mean()) or 1.0
    statistics = {
        key: scale(np.sum([row.ticks for row in rows], axis=0)) for key, rows in sums.items()
    }
    if by not in _SORTS:
        raise UsageError(f"cannot sort by {by!r}", hint="by " + ", ".join(_SORTS))
    measure = "avg" if by == "time" else by
    ordered = sorted(statistics, key=lambda key: -statistic(statistics[key], measure))[:count]
    names = ("first", "avg", "min", "p10", "p50", "p90", "max")
    return Table(
        columns=(
            Column(group.removesuffix("s")),
            Column("count", Kind.COUNT),
            *(Column(name, Kind.DURATION, scale.unit) for name in names),
            Column("share", Kind.SHARE),
        ),
        values={
            group.removesuffix("s"): ordered,
            "count": [len(sums[key]) for key in ordered],
            **{name: [statistic(statistics[key], name) for key in ordered] for name in names},
            "share": [float(statistics[key].mean()) / total for key in ordered],
        },
        title=f"{profile.method or 'method'} by {group.removesuffix('s')}",
    )


def _key(row: Row, group: str) -> str:
    from etscope.analysis.profile.source_location import common_module, module_type

    if group == "ops":
        return row.attribution.op_types[0] if len(row.attribution.op_types) == 1 else row.name
    if group == "modules":
        return common_module(row.attribution.nodes) or "(root)"
    types = {kind for node in row.attribution.nodes if (kind := module_type(node))}
    return next(iter(types)) if len(types) == 1 else "(several)" if types else "(none)"


_SORTS = ("time", "avg", "min", "max", "std", "first", "p10", "p50", "p90")


@command("diff OTHER.etdp", group=GROUP, words=("file",))
def diff(debugger: Debugger, rest: str) -> Output:
    """Compare the times with those of another dump, operator by operator: what got slower.

    Runs of the same instructions are compared by instruction; of others, by module or by name. The
    verdict is regressed, improved, no difference or cannot tell: the other dump is the later one.
    """
    try:
        paths = shlex.split(rest)
    except ValueError as error:
        raise UsageError(f"cannot read {rest!r}: {error}") from error
    if not paths:
        raise UsageError("diff with which dump?")
    mine = profile_of(debugger)
    theirs = _same_method(_opened(debugger, paths, rest), mine)
    table = diff_profiles(mine, theirs).table(debugger.scale)
    return Output().table(table, shown_columns([table]))


def _opened(debugger: Debugger, paths: list[str], given: str) -> Trace:
    """The other dump, explained by the debugger's files if it is of their program."""
    mine = debugger.files
    try:
        trace = Files(record=mine.record, program=mine.program).opened(*paths).trace
    except MismatchError:
        trace = Files(forced=True).opened(*paths).trace
    if trace is None:
        raise UsageError(f"{given} is no ETDump")
    return trace


def _same_method(trace: Trace, mine: MethodProfile) -> MethodProfile:
    profiles = trace.profiles()
    found = next((p for p in profiles if p.method == mine.method), None)
    if found is None and not profiles:
        raise MissingDataError("the other dump has no times")
    return found or profiles[0]
