"""`etscope inspect`: show where the time of a run went, and which line of Python that is."""

from __future__ import annotations

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
from etscope.cli.output.rooflines import write_rooflines
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.cli.verb import verb
from etscope.errors import UsageError
from etscope.model.report import filled_columns

_DETAILS = """\
Rows are sorted by time; --sort run is execution order. The avg column adds up to
Method::execute: time outside the instructions has a row of its own, and so have the rows that
are not shown: it is over all runs. The other statistics are over the runs in which a row ran,
so that in a branch the average may be less than the median. Events inside a delegate stand
below its call. The calls of a language model have a table for each phase, after one of all
phases.

--roofline shows what each operator achieves next to what the machine can do. FLOP/B is the
arithmetic intensity: the FLOPs for each byte that is read or written. GFLOP/s and GB/s are
achieved in the time measured. With a calibration, it has the share of the peak at this
intensity, and what bounds it: compute, memory (of the level whose size the working set has) or
overhead. No tick is left out: operators that only move data, those whose work is not known, and
time outside of operators are counted with their shares.

Below the table stands what matters, in sentences, each with the command that shows more. Files
of --with have a table each below it; their numbers are part of no sum.
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
@click.option("--method", "-m", help="Show this method only.")
@calls_options
@click.option(
    "--roofline",
    is_flag=True,
    help="Show the rate of each operator next to what the machine can do. Groups: --by op, module, "
    "source or delegate.",
)
@click.option(
    "--coverage",
    is_flag=True,
    help="Show for each backend how much of its time has a line of Python, and why not all.",
)
@with_option
@view_options
@output_options
def command(
    files: GivenFiles,
    method: str | None,
    calls: ChosenCalls,
    roofline: bool,
    coverage: bool,
    backend_files: tuple[str, ...],
    view: ViewOptions,
    output: OutputOptions,
) -> None:
    """Show the time of each instruction of RUN, with its module and line of Python. RUN is by
    default the last run.

    \b
    etscope inspect --by module
    etscope inspect @1 --select 'op:conv* and share>5%'
    etscope inspect run.etdp model.etrecord -o events.csv
    """
    if roofline:
        if coverage or backend_files:
            raise UsageError("--roofline goes with neither --coverage nor --with")
        write_rooflines(calls.of(files.open()), files.source_unit, method, view, output)
        return
    if coverage and backend_files:
        raise UsageError("--with does not go with --coverage")
    trace = calls.of(files.open())
    if coverage:
        tables = view.coverage(trace, files.source_unit, method)
        filled = dict.fromkeys(name for table in tables for name in filled_columns(table))
        names = [name for name in tables[0].names if name in filled]
        output.write_tables(tables, view.columns, names)
        return
    placed = placed_files(trace, backend_files, files.source_unit)
    tables = view.tables(
        trace,
        files.source_unit,
        method,
        files.findings(trace),
        for_programs=not output.is_text,
        most=output.most_rows,
    )
    if not placed:
        phases = view.phases(trace, files.source_unit, method)
        output.write_tables(tables, view.columns, view.default_columns(tables), phases)
        return
    chosen = [one for one in placed if method in (None, one.calls[0].method)]
    if not chosen:
        others = ", ".join(dict.fromkeys(str(one.calls[0].method) for one in placed))
        raise UsageError(f"no file of --with is of the method {method!r}: they are of {others}")
    output.write_with_files(tables, chosen, view)
