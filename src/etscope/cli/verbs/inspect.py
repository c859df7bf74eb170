"""`etscope inspect`: show where the time of a run went, and which line of Python that is."""

from __future__ import annotations

import click

from etscope.cli.options.common import TraceOptions, output_options, trace_options, view_options
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.model.report import filled_columns


@click.command()
@trace_options
@click.option("--method", "-m", help="Show this method only.")
@click.option(
    "--coverage",
    is_flag=True,
    help="Show for each backend how much of its time has a line of Python, and why not all.",
)
@view_options
@output_options
def command(
    files: TraceOptions,
    method: str | None,
    coverage: bool,
    view: ViewOptions,
    output: OutputOptions,
) -> None:
    """Show the time of each instruction of DUMP, with its module and line of Python.

    Rows are sorted by time; --sort run is execution order. The avg column adds up to
    Method::execute: time outside the instructions has a row of its own, and so have the rows that
    are not shown: it is over all runs. The other statistics are over the runs in which a row ran,
    so that in a branch the average may be less than the median. Events inside a delegate stand
    below its call.

    Below the table stands what matters, in sentences, each with the command that shows more.
    """
    trace = files.open()
    if coverage:
        tables = view.coverage(trace, files.source_unit, method)
        filled = dict.fromkeys(name for table in tables for name in filled_columns(table))
        names = [name for name in tables[0].names if name in filled]
        output.write_tables(tables, view.columns, names)
        return
    tables = view.tables(trace, files.source_unit, method, files.findings(trace))
    output.write_tables(tables, view.columns, view.default_columns(tables))
