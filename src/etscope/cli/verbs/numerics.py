"""`etscope numerics`: which operator's numbers go wrong, and which line of Python that is."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import GRAPHS, error_options, output_options
from etscope.cli.options.evaluation import DatasetOptions, dataset_options
from etscope.cli.options.files import FILE, open_trace, read_inputs, trace_options

if TYPE_CHECKING:
    from etscope.analysis.numerics.rows import Numerics
    from etscope.analysis.profile.trace import Trace
    from etscope.evaluation import Evaluation
    from etscope.model.table import Table

_COLUMNS = (
    "instruction", "op", "node", "total", "local", "inherited", "noise", "limit", "verdict",
    "non_finite", "module", "source",
)  # fmt: skip


@click.command(short_help="Find the operator whose numbers go wrong, and its line.")
@trace_options
@click.option("--inputs", type=FILE, metavar="FILE", help="The inputs that ran: .pt, .npz, …")
@functools.partial(dataset_options, required=False)
@error_options
@click.option("--method", "-m", metavar="NAME", help="The method. Default: the one that ran.")
@click.option("--run", type=click.IntRange(min=0), metavar="N", help="Which of its runs, from 0.")
@click.option(
    "--sort",
    type=click.Choice(["run", "error"]),
    default="run",
    show_default=True,
    help="Order of execution, or the worst first.",
)
@click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help="Show N rows at most.")
@click.option("--coverage", is_flag=True, help="Show what was not compared instead, and why.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a plot of the local errors: .png or .svg.",
)
@click.option("--columns", metavar="NAME,…", help="Show these columns, in order.")
@output_options
def command(
    dump: str,
    etrecord: str | None,
    debug_buffer: str | None,
    program: str | None,
    force: bool,
    source_unit: str,
    inputs: str | None,
    dataset_options: DatasetOptions,
    metric: str,
    tolerance: float | None,
    graph: str,
    method: str | None,
    run: int | None,
    sort: str,
    limit: int | None,
    coverage: bool,
    plot: Path | None,
    columns: str | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> int:
    """Tell which operator of DUMP goes wrong, in which line of Python.

    Each recorded value is compared with the reference (total), with what PyTorch makes of the
    device's own inputs of that operator (local), and that with the reference (inherited). An
    operator is wrong when its local error is worse than the limit: the tolerance, or a multiple of
    what rounding alone does (noise).

    With --dataset each sample is the inputs of one run, in order, and what is shown is of all runs.

    Exit code 1 when an operator is wrong, or there are NaN that the reference has not.
    """
    from etscope.cli.output.output import for_people, write_tables
    from etscope.cli.output.progress import progress
    from etscope.quiet import quiet

    dataset_options.check(for_people(format, output))
    if plot is not None:
        from etscope.views.plots.figures import checked_suffix

        checked_suffix(plot)
    trace = open_trace(dump, etrecord, debug_buffer, program, force=force)
    if dataset_options.dataset is not None:
        if inputs is not None or coverage:
            from etscope.errors import UsageError

            other = "--coverage" if inputs is None else "--inputs"
            raise UsageError(f"--dataset and {other} exclude each other")
        many = _evaluated(trace, dataset_options, metric, tolerance, GRAPHS[graph], method, run)
        return dataset_options.write(many, sort, limit, plot, columns, format, output, color)
    with progress("computing the reference"), quiet():
        found = _diagnosed(trace, program, inputs, metric, tolerance, GRAPHS[graph], method, run)
    if plot is not None:
        _plot(found, plot)
    table = found.table(sort)
    if coverage:
        table = replace(found.coverage.table(), notes=found.notes)
    if limit is not None:
        table = table.take(range(min(limit, len(table))))
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    default = None if coverage else _shown(table)
    write_tables([table], names, default, format, output, color)
    return 0 if found.is_fine else 1


def _diagnosed(
    trace: Trace,
    program: str | None,
    inputs: str | None,
    metric: str,
    tolerance: float | None,
    graph: str,
    method: str | None,
    run: int | None,
) -> Numerics:
    from etscope.diagnosis.numeric_gap import method_that_ran
    from etscope.diagnosis.numerics import numerics_of
    from etscope.formats.program.bpte import read_program_file

    given = None
    if inputs is not None:
        given = read_inputs(trace, method_that_ran(trace, method), inputs)
    return numerics_of(
        trace,
        metric=metric,
        tolerance=tolerance,
        reference_graph=graph,
        method=method,
        run=run,
        inputs=given,
        bundle=None if program is None else read_program_file(program)[1],
    )


def _evaluated(
    trace: Trace,
    options: DatasetOptions,
    metric: str,
    tolerance: float | None,
    graph: str,
    method: str | None,
    run: int | None,
) -> Evaluation:
    from etscope.cli.output.progress import counting
    from etscope.evaluation import evaluate_dump
    from etscope.quiet import quiet

    with counting("comparing runs") as progress, quiet():
        return evaluate_dump(
            trace,
            options.dataset,
            method=method,
            metric=metric,
            tolerance=tolerance,
            reference_graph=graph,
            run=run,
            progress=progress,
            **options.asked,
        )


def _shown(table: Table) -> list[str]:
    """The columns for people: `non_finite` only where a value has NaN or infinities."""
    has_non_finite = any(cell is not None for cell in table.values["non_finite"])
    return [name for name in _COLUMNS if name != "non_finite" or has_non_finite]


def _plot(found: Numerics, path: Path) -> None:
    from etscope.model.table import Column, Kind
    from etscope.views.plots.metric_plots import save_error_plot

    table = found.table()
    name = found.metric.name
    measured = replace(
        table,
        columns=(*table.columns, Column(name, Kind.FLOAT)),
        values={**table.values, name: table.values["local"]},
    )
    save_error_plot(
        measured,
        path,
        name,
        noise_floor=table.values["noise"],
        title=f"Local error of {found.method}",
    )
