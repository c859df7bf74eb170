"""`etscope evaluate`: run a dataset on the runtime and compare it with the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etscope.cli.options.common import (
    FILE,
    SECONDS,
    ErrorOptions,
    as_view,
    check_plot,
    choice_option,
    columns_option,
    data_option,
    error_options,
    etrecord_option,
    library_option,
    limit_option,
    output_options,
    path_option,
    runner_option,
    threads_option,
)
from etscope.cli.options.evaluation import DatasetOptions, dataset_options, save_plot
from etscope.cli.output.tables import OutputOptions, ViewOptions


@click.command()
@click.argument("program", type=FILE)
@etrecord_option
@dataset_options
@click.option("--method", "-m", metavar="NAME", help="The method. Default: forward.")
@error_options
@choice_option(
    "--state",
    ("fresh", "sequence"),
    "For a model with state: start each sample from the initial state, or from the state "
    "after the sample before.",
)
@data_option
@library_option
@threads_option
@runner_option
@click.option(
    "--isolate/--no-isolate",
    default=True,
    help="Run samples in processes of their own. Without: faster, but a crash ends everything.",
)
@click.option(
    "--timeout",
    type=SECONDS,
    metavar="SECONDS",
    help="Time limit of each process of the runtime, which runs up to 64 samples.",
)
@click.option("--force", is_flag=True, help="Continue although program and record do not match.")
@choice_option(
    "--sort", ("run", "error"), "List operators in order of execution, or the worst first."
)
@limit_option
@path_option("--plot", help="Write a plot of the worst local errors: .png or .svg.")
@columns_option
@output_options
@as_view("columns", "sort", "limit")
def command(
    program: str,
    etrecord: str | None,
    dataset_options: DatasetOptions,
    errors: ErrorOptions,
    force: bool,
    plot: Path | None,
    view: ViewOptions,
    output: OutputOptions,
    **options: Any,
) -> int:
    """Run each sample of a dataset on PROGRAM, a .pte or an ETRecord that holds its program, record
    its values, and compare them with PyTorch.

    Shows the errors of each operator over the samples, the worst samples, and for a classifier the
    samples that get another class (--top, --labels).

    The reference is computed from the ETRecord: that of --etrecord, or PROGRAM.

    Exit code 1 when an operator is wrong in a sample, or in all of them together, or more samples
    than --max-flips get another class; 3 when samples were skipped; 4 when none could be compared.
    """
    from etscope.cli.output.progress import counting
    from etscope.evaluation import evaluate
    from etscope.quiet import quiet

    dataset_options.check(output)
    check_plot(plot)
    with counting(f"evaluating {program}") as progress, quiet():
        found = evaluate(
            program,
            dataset_options.dataset,
            etrecord=etrecord,
            verify=not force,
            progress=progress,
            **options,
            **errors.arguments(),
            **dataset_options.arguments(),
        )
    if plot is not None:
        save_plot(found, plot)
    return dataset_options.write(found, output, view)
