"""The table of `etscope inspect --roofline`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.cli.output.tables import (
    OutputOptions,
    ViewOptions,
    nothing_matches,
    row_filter,
    time_scale,
)
from etscope.errors import UsageError

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Trace

_ROWS = 25  # rows of a text: one screen, with the notes below
_GROUPS = ("op", "module", "source", "delegate")


def write_rooflines(
    trace: Trace, source_unit: str, method: str | None, view: ViewOptions, output: OutputOptions
) -> None:
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
    scale = time_scale(source_unit, view.unit)
    calibration = choose_calibration(view.peaks, trace.saved_run)
    keep = row_filter(view.select)
    rooflines = []
    for profile in chosen_profiles(trace, method):
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
