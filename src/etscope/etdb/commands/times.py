"""Times: the slowest operators, and the difference from another run."""

from __future__ import annotations

from dataclasses import replace

from etscope.analysis.comparison.diff import diff_profiles
from etscope.analysis.comparison.diff_table import diff_table, shown_columns
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.rollup import Group, rollup
from etscope.analysis.profile.trace import Trace
from etscope.analysis.tables.profile_table import profile_table
from etscope.capture.files import NOTHING
from etscope.errors import MismatchError, MissingDataError, UsageError
from etscope.etdb.commands import command, split_words, whole
from etscope.etdb.debugger import Debugger, profiles_of, with_files
from etscope.etdb.output import Output
from etscope.formats.etdump.reader import read_etdump
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table

GROUP = "times"
_COLUMNS = ("instruction", "event", "avg", "p50", "p90", "share", "cumulative", "module", "source")

_SORTED_BY = ("time", "avg", "min", "max", "std", "first", "p10", "p50", "p90")
SHOWN_STATISTICS = ("first", "avg", "min", "p10", "p50", "p90", "max")


@command("top [N] [by COLUMN] [ops|modules|types]", group=GROUP,
         words=("by", "ops", "modules", "types", "avg", "p50", "p90", "max", "first"))  # fmt: skip
def top(debugger: Debugger, rest: str) -> Output:
    """Show the N operators that take longest (10), over all runs of the method.

    by: avg, p10, p50, p90, min, max, std, first or calls. `ops` sums by operator, `modules` by
    module, each with those inside it, `types` by type of module: operators inside of delegates are
    counted as what they are, as by `etscope inspect --by`. For a run on the runtime, the run up to
    here is repeated with the event tracer on, as by generate-core-file.
    """
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
    profile = profile_of(debugger)
    if group is not None:
        return Output().table(_grouped(profile, debugger, group, count, by))
    table = profile_table(profile, debugger.scale, sort=by, limit=count)
    columns = list(_COLUMNS)
    if by not in ("time", *columns):
        columns.insert(3, by)
    return Output().table(table, columns)


def profile_of(debugger: Debugger) -> MethodProfile:
    """Times of the method: of the run on the runtime, or of the dump. Raises `MissingDataError`
    without any."""
    trace = debugger.trace
    target = debugger.on_runtime
    if target is not None:
        if debugger.position is None:
            raise MissingDataError("nothing has run yet", hint="run, or start")
        dump = read_etdump(target.core().etdump)
        # Do not verify: after a few operators a dump may not be recognized as the program's.
        trace = Trace(dump, debugger.record, program=debugger.capture.program, forced=True)
    profiles = profiles_of(trace)
    found = profiles.get(debugger.method) or next(iter(profiles.values()), None)
    if found is None:
        raise MissingDataError(
            "no times are loaded", hint="load a dump with profiling events: core RUN.etdp"
        )
    return found


def _grouped(profile: MethodProfile, debugger: Debugger, group: str, count: int, by: str) -> Table:
    """Sum times by "ops", "modules" or "types"."""
    if by not in _SORTED_BY:
        raise UsageError(f"cannot sort by {by!r}", hint="by " + ", ".join(_SORTED_BY))
    scale = debugger.scale
    title = group.removesuffix("s")

    def measure(one: Group) -> float:
        return statistic(scale(one.ticks), "avg" if by == "time" else by)

    found = rollup(profile, "module_type" if group == "types" else title)
    groups = found.tree(measure) if group == "modules" else found.largest(measure)
    shown = groups[:count]
    return Table.of(
        {
            Column(title): [one.name for one in shown],
            Column("count", Kind.COUNT): [len(one.members) for one in shown],
            **{
                Column(name, Kind.DURATION, scale.unit): [
                    statistic(scale(one.ticks), name) for one in shown
                ]
                for name in SHOWN_STATISTICS
            },
            Column("share", Kind.SHARE): [found.share(one) for one in shown],
        },
        title=f"{profile.title()} by {title}",
        depth=[one.depth for one in shown],
    )


@command("diff OTHER.etdp", group=GROUP, words=("file",))
def diff(debugger: Debugger, rest: str) -> Output:
    """Compare the times with another dump, operator by operator.

    The other dump is the later one. Runs of the same instructions are compared by instruction,
    others by module or by name. The verdict: regressed, improved, no difference, cannot tell.
    """
    paths = split_words(rest)
    if not paths:
        raise UsageError("diff with which dump?")
    mine = profile_of(debugger)
    files = with_files(NOTHING, *paths)
    if files.dump is None:
        raise UsageError(f"{rest} is not an ETDump")
    alone = files.open(force=True)
    record, program = alone.record or debugger.record, alone.program or debugger.capture.program
    trace = replace(alone, record=record, program=program, forced=False)
    try:
        trace.verify()
    except MismatchError:  # a dump of another program
        trace = alone
    profiles = trace.profiles()
    if not profiles:
        raise MissingDataError("the other dump has no times")
    theirs = next((p for p in profiles if p.method == mine.method), profiles[0])
    table = diff_table(diff_profiles(mine, theirs), debugger.scale)
    return Output().table(table, shown_columns([table]))
