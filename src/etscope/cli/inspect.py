"""`etscope inspect`: where the time of a run went, and which line of Python that is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli._open import open_trace, trace_options
from etscope.cli._options import output_options, table_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from etscope.analysis.profile import MethodProfile, Row
    from etscope.model.table import Table

GROUPINGS = ("op", "type", "module", "source", "delegate")


@click.command(short_help="Show what ran and how long it took.")
@trace_options
@click.option("--by", type=click.Choice(GROUPINGS), help="Roll the instructions up.")
@click.option("--select", "-s", metavar="SELECTOR", help="Show what matches: 'op:conv* and …'.")
@click.option("--method", "-m", help="Show this method only.")
@table_options
@output_options
def command(
    dump: str,
    etrecord: str | None,
    debug_buffer: str | None,
    program: str | None,
    force: bool,
    source_unit: str,
    by: str | None,
    select: str | None,
    method: str | None,
    columns: tuple[str, ...] | None,
    sort: str | None,
    limit: int | None,
    unit: str | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> None:
    """Show the time of each instruction of DUMP, with its module and line of Python.

    Rows are sorted by time; --sort run is execution order. The avg column adds up to
    Method::execute: what no instruction accounts for is a row of its own, and so is what is not
    shown. Events inside a delegate stand below its call.
    """
    from etscope.cli._output import write_tables

    trace = open_trace(dump, etrecord, debug_buffer, program, force=force)
    tables = [
        _table(profile, source_unit, by, select, sort, limit, unit)
        for profile in _chosen(trace.profiles(), method)
    ]
    if limit != 0:
        tables = _not_empty(tables, select)
    if by is None:
        from etscope.analysis.profile_table import DEFAULT_COLUMNS

        default: tuple[str, ...] | None = DEFAULT_COLUMNS
    else:
        default = None
    write_tables(tables, columns, default, format, output, color)


def _chosen(profiles: list[MethodProfile], method: str | None) -> list[MethodProfile]:
    from etscope.errors import MissingDataError

    chosen = [profile for profile in profiles if method in (None, profile.method)]
    if not chosen:
        known = [profile.method for profile in profiles if profile.method is not None]
        raise MissingDataError(
            f"no run of a method {method!r}" if profiles else "no run of any method in this dump",
            hint=f"methods that ran: {', '.join(known)}"
            if known
            else "which method ran is known with --etrecord or --program"
            if profiles
            else "the dump holds no Method::execute event: run a method with the tracer on",
        )
    return chosen


def _table(
    profile: MethodProfile,
    source_unit: str,
    by: str | None,
    select: str | None,
    sort: str | None,
    limit: int | None,
    unit: str | None,
) -> Table:
    from etscope.analysis.profile_table import profile_table
    from etscope.analysis.rollup import grouped_table
    from etscope.analysis.scale import Scale
    from etscope.errors import UsageError
    from etscope.units import TimeScale

    scale = Scale(TimeScale(source_unit), TimeScale(unit or _default_unit(source_unit)))
    keep = _keep(select)
    if by is None:
        return profile_table(profile, scale, sort=sort or "time", keep=keep, limit=limit)
    if sort not in (None, "time"):
        raise UsageError(f"--sort {sort} does not go with --by: groups are sorted by time")
    return grouped_table(profile, scale, by, keep=keep, limit=limit)


def _default_unit(source_unit: str) -> str:
    return "cycles" if source_unit == "cycles" else "ms"


def _keep(select: str | None) -> Callable[[Row], bool] | None:
    if select is None:
        return None
    from etscope.analysis.select import fields_of_row
    from etscope.model.selector import Selector

    selector = Selector(select)
    return lambda row: selector.matches(fields_of_row(row))


def _not_empty(tables: list[Table], select: str | None) -> list[Table]:
    """The tables in which something was selected. Nothing matched is never a result."""
    from etscope.errors import MissingDataError

    found = [table for table in tables if min(table.breaks) > 0]
    if select is not None and not found:
        raise MissingDataError(
            f"nothing matches {select!r}", hint="without --select all rows are shown"
        )
    return found or tables
