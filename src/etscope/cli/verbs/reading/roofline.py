"""`etscope roofline`: show what each operator achieves beside what the machine can do."""

from __future__ import annotations

import click

from etscope.cli.options.common import (
    ChosenCalls,
    TraceOptions,
    as_view,
    calls_options,
    limit_option,
    output_options,
    peaks_option,
    select_option,
    trace_options,
    unit_option,
)
from etscope.cli.output.tables import (
    OutputOptions,
    ViewOptions,
    chosen_profiles,
    nothing_matches,
    row_filter,
    time_scale,
)
from etscope.cli.verb import verb

_ROWS = 25


@verb(
    {
        "Rows": ("--by", "--select", "--limit", "--phase"),
        "Machine": ("--peaks",),
        "Output": ("--format", "--output"),
    }
)
@trace_options
@click.option("--method", "-m", help="Show this method only.")
@calls_options
@peaks_option
@click.option(
    "--by",
    type=click.Choice(("op", "module", "source", "delegate")),
    help="Show a point for each group. Default: for each operator.",
)
@select_option
@limit_option
@unit_option
@output_options
@as_view("by", "select", "limit", "unit")
def command(
    files: TraceOptions,
    method: str | None,
    calls: ChosenCalls,
    peaks: str | None,
    view: ViewOptions,
    output: OutputOptions,
) -> None:
    """Show what each operator of RUN achieves next to what the machine can do. RUN is by default
    the last run.

    \b
    etscope roofline
    etscope roofline --by module
    etscope roofline @1 --peaks board.json

    \f
    FLOP/B is the arithmetic intensity: the FLOPs for each byte that is read or written. GFLOP/s and
    GB/s are achieved in the time measured. With a calibration, the share of the peak at this
    intensity is told, and what bounds it: compute, memory (of the level whose size the working set
    has) or overhead. No tick is left out: operators that only move data, those whose work is not
    known, and time outside of operators are counted with their shares.

    The calls of a language model have a roofline for each method and phase. CSV, TSV, JSON lines
    and Parquet have one table: a row for each operator. The picture with all names is in etscope
    report.
    """
    from etscope.analysis.work.limits import profile_limits
    from etscope.analysis.work.roofline import SCHEMA, given_or_found, roofline
    from etscope.analysis.work.roofline_table import operators_table, roofline_report
    from etscope.errors import MissingDataError
    from etscope.model.table import joined

    trace = calls.of(files.open())
    scale = time_scale(files.source_unit, view.unit)
    calibration = given_or_found(peaks, trace.saved_run)
    keep = row_filter(view.select)
    rooflines = []
    for profile in chosen_profiles(trace, method):
        limits = profile_limits(trace, profile, scale.source, calibration)
        rooflines.append(roofline(profile, limits, scale.source, by=view.by, keep=keep))
    if not any(found.has_work for found in rooflines):
        raise MissingDataError(
            "the work of what ran is not known",
            hint="it is told by the record or the program: add --etrecord or --program",
        )
    if view.select is not None and not any(found.points for found in rooflines):
        from etscope.analysis.selector_fields import fields_of_row

        rows = (row for found in rooflines for row in found.profile.rows)
        raise nothing_matches(view.select, map(fields_of_row, rows))
    if output.is_text or output.chosen_format == "json":
        limit = _ROWS if view.limit is None and output.is_text else view.limit
        reports = [roofline_report(found, scale, limit) for found in rooflines]
        output.write_reports(reports, SCHEMA)
    else:
        table = joined([operators_table(found, scale) for found in rooflines])
        output.write_tables([table if view.limit is None else table.take(range(view.limit))])
