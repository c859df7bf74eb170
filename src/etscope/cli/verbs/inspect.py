"""`etscope inspect`: where the time of a run went, and which line of Python that is."""

from __future__ import annotations

from pathlib import Path

import click

from etscope.cli.options.common import output_options, table_options
from etscope.cli.options.files import open_trace, trace_options
from etscope.cli.output.profiles import GROUPINGS, default_columns, profile_tables


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
    from etscope.cli.output.output import write_tables

    trace = open_trace(dump, etrecord, debug_buffer, program, force=force)
    tables = profile_tables(
        trace, source_unit, by=by, select=select, method=method, sort=sort, limit=limit, unit=unit
    )
    write_tables(tables, columns, default_columns(by), format, output, color)
