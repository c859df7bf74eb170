"""Write graphs, tables and the report for TensorBoard."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from etscope.analysis.graphs.views import graph_views, with_errors
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.numerics.runs import OtherInputsError
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Capture, Trace
from etscope.analysis.tables.profile_table import grouped_table, profile_table
from etscope.analysis.work.columns import CALIBRATED, SHOWN
from etscope.analysis.work.limits import profile_limits
from etscope.analysis.work.roofline import choose_calibration
from etscope.errors import EtscopeWarning, MissingDataError, MissingDependencyError
from etscope.formats.bytes.files import PathLike
from etscope.formats.program.bpte import BundledFile
from etscope.model.event_table import LOAD_EVENTS
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind, Table
from etscope.reporting.report import save_report
from etscope.units import TimeScale
from etscope.views.tensorboard import write_runs

__all__ = ["write_tensorboard"]

# Rows of a table in the Text tab, which renders all of it at once.
_MOST_ROWS = 500
# Columns; the tab breaks the words of a wide table.
_TIMES = ("instruction", "event", "avg", "p50", "p90", "share", "module", "source")
_MORE = ("instruction", "event", "calls", "min", "max", "first", "outputs", "op_types")
_WORK = ("instruction", "event", "avg", *SHOWN, "module", "source")
_STATISTICS = ("p10", "p50", "p90")
_TABLES = {"op": "operators, summed up", "type": "kinds of instruction", "module": "modules",
           "source": "source lines", "delegate": "delegates"}  # fmt: skip


def write_tensorboard(
    logdir: PathLike,
    capture: Capture,
    *,
    numerics: Sequence[Numerics] = (),
    source: TimeScale = TimeScale.NS,
    target: TimeScale = TimeScale.MS,
) -> list[str]:
    """Write the graphs of a record or program, and the tables of a dump, for TensorBoard.

    source: unit of the dump's clock; target: unit of the tables. Returns the runs' names.
    """
    views = graph_views(capture)
    for found in numerics:
        views = with_errors(views, found)
    texts = tables(capture, Scale(source, target)) if isinstance(capture, Trace) else {}
    names = write_runs(Path(logdir), views, texts, source)
    save_report(
        logdir,
        Path(logdir).name,
        capture,
        views=views,
        numerics=next(iter(numerics), None),
        scale=Scale(source, target),
    )
    return names


def numerics_if_known(
    trace: Trace, inputs: Callable[[str], Any] | None = None, bundle: BundledFile | None = None
) -> list[Numerics]:
    """Return the numeric errors of each method that ran, if values were logged and a reference is
    known; warn about what is missing. `inputs` is a function that returns the inputs of a method;
    with None they come from the record or from `bundle`.
    """
    if trace.debug_buffer is None or trace.record is None:
        return []
    from etscope.diagnosis.numerics import RunToCompare, numerics_of

    found = []
    for method in dict.fromkeys(p.method for p in trace.profiles() if p.method is not None):
        given = None if inputs is None else inputs(method)
        try:
            asked = RunToCompare(method=method, inputs=given, bundle=bundle)
            found.append(numerics_of(trace, asked))
        except (MissingDataError, MissingDependencyError, OtherInputsError) as error:
            warnings.warn(
                f"no numeric errors on the graphs of {method}: {error.message}",
                EtscopeWarning,
                stacklevel=3,
            )
    return found


# -- the Text tab


def tables(trace: Trace, scale: Scale) -> dict[str, str]:
    """Return the tables of each method that ran, as markdown, by tag."""
    texts: dict[str, str] = {}
    peaks = choose_calibration(None, trace.saved_run)
    for number, profile in enumerate(trace.profiles()):
        method = profile.title(f"method {number}" if number else "method")
        texts[f"{method}/1 run summary"] = _markdown(run_summary(profile, scale))
        operators = profile_table(profile, scale, limit=_MOST_ROWS)
        texts[f"{method}/2 operators"] = _markdown(operators.select(_TIMES))
        texts[f"{method}/3 operators, more of each"] = _markdown(operators.select(_MORE))
        for position, (by, title) in enumerate(_TABLES.items(), start=4):
            table = grouped_table(profile, scale, by, limit=_MOST_ROWS)
            shown = [column.name for column in table.columns if column.name != "method"]
            texts[f"{method}/{position} {title}"] = _markdown(table.select(shown))
        limits = profile_limits(trace, profile, scale.source, peaks)
        if limits is not None:
            work = profile_table(profile, scale, limit=_MOST_ROWS, limits=limits)
            texts[f"{method}/{len(_TABLES) + 4} operators, their work"] = _markdown(
                work.select([name for name in _WORK if peaks is not None or name not in CALIBRATED])
            )
    return texts


def run_summary(profile: MethodProfile, scale: Scale) -> Table:
    """Return statistics of ``Method::execute``, loading, and time that no instruction takes."""
    samples = {name: scale(ticks) for name, ticks in profile.load.items() if name in LOAD_EVENTS}
    samples["Method::execute"] = scale(profile.total)
    samples["unaccounted"] = scale(profile.unaccounted)
    samples = {name: series for name, series in samples.items() if len(series)}
    names = ("avg", *_STATISTICS, "min", "max", "first")
    statistics = [summarize(series, names) for series in samples.values()]
    return Table.of(
        {
            Column("event"): list(samples),
            Column("runs", Kind.COUNT): [len(series) for series in samples.values()],
            **{
                Column(name, Kind.DURATION, scale.unit): [float(one[name]) for one in statistics]
                for name in names
            },
        },
        title=f"{profile.title('the method')}: {profile.runs_in_words}",
    )


def _markdown(table: Table) -> str:
    from etscope.views import write_table

    out = io.StringIO()
    write_table(table, "md", out)
    return out.getvalue()
