"""`etscope run`: run a program on the ExecuTorch runtime, and see what it did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import output_options, table_options
from etscope.cli.options.files import FILE
from etscope.cli.options.run import RunOptions, run_options
from etscope.cli.output.profiles import GROUPINGS, EventsView

if TYPE_CHECKING:
    from etscope.run import Run


@click.command(short_help="Run a program on the runtime: times, outputs, values.")
@click.argument("program", type=FILE)
@run_options()
@click.option("--data", type=FILE, metavar="PTD", help="The program's external weights.")
@click.option("--etrecord", "-r", type=FILE, metavar="ETRECORD", help="The ETRecord of the export.")
@click.option("--force", is_flag=True, help="Go on though program and record do not match.")
@click.option("--by", type=click.Choice(GROUPINGS), help="Roll the instructions up.")
@click.option("--select", "-s", metavar="SELECTOR", help="Show what matches: 'op:conv* and …'.")
@table_options
@output_options
def command(
    program: str,
    options: RunOptions,
    data: str | None,
    etrecord: str | None,
    force: bool,
    by: str | None,
    select: str | None,
    columns: tuple[str, ...] | None,
    sort: str | None,
    limit: int | None,
    unit: str | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> int:
    """Run PROGRAM, a .pte, a .bpte or an ETRecord that holds its program, and show how long it
    and each of its instructions took.

    Latency is measured without tracing; times of instructions, and values, in runs of their own.
    The test cases of a .bpte are verified: exit code 1 when an output is not as expected.
    """
    from etscope.cli.output.output import for_people
    from etscope.cli.output.progress import progress

    options.check(for_people(format, output))
    view = EventsView(by, select, columns, sort, limit, unit)
    with progress(f"running {program}"):
        run = options.run(program, data=data, etrecord=etrecord, verify=not force)
    return finish(run, options, view, format, output, color)


def finish(
    run: Run,
    options: RunOptions,
    view: EventsView,
    format: str | None,
    output: Path | None,
    color: str,
) -> int:
    """Write the files and the tables of a run that were asked for; the exit code."""
    from etscope.cli.output.output import for_people, write_tables

    if run.is_traced and not run.forced:
        run.trace.verify()
    options.write_files(run)
    tables = options.shown(run, view, for_people(format, output))
    write_tables(tables, None, None, format, output, color)
    return options.exit_code(run)
