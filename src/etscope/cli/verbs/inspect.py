"""`etscope inspect`: show where the time of a run went, by operator and line of Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import (
    ABOUT_RUN,
    ChosenCalls,
    GivenFiles,
    calls_options,
    output_options,
    placed_files,
    run_files_options,
    view_options,
    with_option,
)
from etscope.cli.output.tables import (
    OutputOptions,
    ViewOptions,
    nothing_matches,
    row_filter,
)
from etscope.cli.verb import verb
from etscope.errors import UsageError
from etscope.support.optional import numpy_without_threads

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Trace


_DETAILS = """\
Rows are sorted by time; --sort run shows the order of execution. The avg column is the average
over all counted runs, and adds up to Method::execute: the time between instructions and the hidden
rows have a row each. Other statistics cover the runs that reached the row, so a branch may have an
average below its median. Events inside a delegate follow its call. A language model has a table
for all phases, then one for each phase.

--roofline compares each operator with the machine. FLOP/B is the arithmetic intensity: FLOPs for
each byte read or written. GFLOP/s and GB/s are measured rates. With a calibration, the table
shows the share of the peak at this intensity, and the limit: compute, memory (of the level that
fits the working set) or overhead. Operators that only move data, unknown work, and time outside
of operators have rows and shares, too.

Below the table stand the main findings, each with the command that shows more. Each --with file
gets its own table; its numbers are not added to any total.
"""


@verb(
    {
        "Rows": ("--by", "--select", "--sort", "--limit", "--work", "--roofline"),
        "Run": ("--method", "--calls", "--with"),
        "Output": ("--format", "--output", "-X"),
    },
    details=_DETAILS + ABOUT_RUN,
)
@run_files_options
@click.option("--method", "-m", metavar="NAME", help="Show this method only.")
@calls_options
@click.option(
    "--roofline",
    is_flag=True,
    help="Compare the rate of each operator with the peak of the machine. Groups: --by op, module, "
    "source or delegate.",
)
@click.option(
    "--coverage",
    is_flag=True,
    help="Show the share of each backend's time that has a line of Python, and why not all.",
)
@with_option
@view_options
@output_options
def command(
    files: GivenFiles,
    calls: ChosenCalls,
    roofline: bool,
    coverage: bool,
    backend_files: tuple[str, ...],
    view: ViewOptions,
    output: OutputOptions,
) -> None:
    """Show the time of each instruction of RUN, with its module and line of Python. Default: the
    last run.

    \b
    etscope inspect --by module
    etscope inspect @1 --select 'op:conv* and share>5%'
    etscope inspect run.etdp model.etrecord -o events.csv
    """
    numpy_without_threads()
    view = replace(view, source_unit=files.source_unit)
    if roofline:
        if coverage or backend_files:
            raise UsageError("--roofline does not go with --coverage or --with")
        _write_rooflines(calls.of(files.open()), view, output)
        return
    if coverage and backend_files:
        raise UsageError("--with does not go with --coverage")
    if _is_app_log(files) and not backend_files:
        from etscope.analysis.info import SCHEMA, file_info

        output.write_reports([file_info(files.given[0])], SCHEMA)
        return
    trace = calls.of(files.open())
    if coverage:
        from etscope.model.report import filled_columns

        tables = view.coverage(trace)
        filled = dict.fromkeys(name for table in tables for name in filled_columns(table))
        names = [name for name in tables[0].names if name in filled]
        output.write_tables(tables, view.columns, names)
        return
    placed = placed_files(trace, backend_files, files.source_unit)
    tables = view.tables(
        trace, files.findings(trace), for_programs=not output.is_text, most=output.most_rows
    )
    if not placed:
        phases = view.phases(trace)
        output.write_tables(tables, view.columns, view.default_columns(tables), phases)
        return
    chosen = [one for one in placed if view.method in (None, one.calls[0].method)]
    if not chosen:
        others = ", ".join(dict.fromkeys(str(one.calls[0].method) for one in placed))
        raise UsageError(f"no --with file belongs to the method {view.method!r}, but to {others}")
    output.write_with_files(tables, chosen, view)


def _is_app_log(files: GivenFiles) -> bool:
    """True if the only file is the log of an app: a run without a dump."""
    from etscope.formats.identify import is_app_log

    return len(files.given) == 1 and Path(files.given[0]).is_file() and is_app_log(files.given[0])


_ROWS = 25  # rows of a text: one screen, with the notes below
_GROUPS = ("op", "module", "source", "delegate")


def _write_rooflines(trace: Trace, view: ViewOptions, output: OutputOptions) -> None:
    """Write the rate of each operator next to the peak of the machine.

    Raises `MissingDataError` if no work is known, or nothing matches the selector; `UsageError` for
    an unknown group.
    """
    from etscope.analysis.tables.roofline_table import operators_table, roofline_report
    from etscope.analysis.work.limits import profile_limits
    from etscope.analysis.work.roofline import SCHEMA, choose_calibration, roofline
    from etscope.capture.profiles import chosen_profiles
    from etscope.errors import MissingDataError
    from etscope.model.table import joined

    if view.by not in (None, *_GROUPS):
        raise UsageError(
            f"--roofline cannot group by {view.by!r}", hint=f"--by {', '.join(_GROUPS)}"
        )
    scale = view.scale
    calibration = choose_calibration(view.peaks, trace.saved_run)
    keep = row_filter(view.select)
    rooflines = []
    for profile in chosen_profiles(trace, view.method):
        limits = profile_limits(trace, profile, scale.source, calibration)
        rooflines.append(roofline(profile, limits, scale.source, by=view.by, keep=keep))
    if not any(found.has_work for found in rooflines):
        raise MissingDataError(
            "the FLOPs and bytes of the operators are unknown",
            hint="name the ETRecord or the program, too",
        )
    if view.select is not None and not any(found.points for found in rooflines):
        from etscope.analysis.selector_fields import fields_of_row

        rows = (row for found in rooflines for row in found.profile.rows)
        raise nothing_matches(view.select, map(fields_of_row, rows))
    if output.is_text or output.chosen_format == "json":
        limit = _ROWS if view.limit is None and output.is_text else view.limit
        output.write_reports([roofline_report(one, scale, limit) for one in rooflines], SCHEMA)
    else:
        table = joined([operators_table(one, scale) for one in rooflines])
        output.write_tables([table.take(range(len(table))[: view.limit])])
