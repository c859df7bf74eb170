"""`etscope evaluate`: a dataset on the runtime, against the reference."""

from __future__ import annotations

from pathlib import Path

import click

from etscope.cli.options.common import GRAPHS, error_options, output_options
from etscope.cli.options.evaluation import DatasetOptions, dataset_options
from etscope.cli.options.files import FILE


@click.command(short_help="Run a dataset on the runtime, and compare each sample with PyTorch.")
@click.argument("etrecord", metavar="ETRECORD", type=FILE)
@click.argument("program", metavar="[PTE]", type=FILE, required=False)
@dataset_options
@click.option("--method", "-m", metavar="NAME", help="The method. Default: forward.")
@error_options
@click.option(
    "--state",
    type=click.Choice(["fresh", "sequence"]),
    default="fresh",
    show_default=True,
    help="A model that keeps state: each sample from the first state, or from the one before.",
)
@click.option("--data", type=FILE, metavar="PTD", help="The program's external weights.")
@click.option(
    "--library",
    multiple=True,
    type=FILE,
    metavar="SO",
    help="Load a library of operators or backends first. Repeatable.",
)
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="Of the runtime's thread pool."
)
@click.option(
    "--runner",
    type=click.Choice(("auto", "python", "native")),
    default="auto",
    show_default=True,
    help="auto: python, unless only native can do it.",
)
@click.option(
    "--isolate/--no-isolate",
    default=True,
    show_default=True,
    help="Run samples in processes of their own. Without: faster, and a crash ends it all.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Of each process of the runtime, which runs up to 64 samples.",
)
@click.option("--force", is_flag=True, help="Go on though program and record do not match.")
@click.option(
    "--sort",
    type=click.Choice(["run", "error"]),
    default="run",
    show_default=True,
    help="Operators in order of execution, or the worst first.",
)
@click.option("--limit", "-n", type=click.IntRange(min=0), metavar="N", help="Show N rows at most.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a plot of the worst local errors: .png or .svg.",
)
@click.option("--columns", metavar="NAME,…", help="Show these columns, in order, of one table.")
@output_options
def command(
    etrecord: str,
    program: str | None,
    dataset_options: DatasetOptions,
    method: str | None,
    metric: str,
    tolerance: float | None,
    graph: str,
    state: str,
    data: str | None,
    library: tuple[str, ...],
    threads: int | None,
    runner: str,
    isolate: bool,
    timeout: float | None,
    force: bool,
    sort: str,
    limit: int | None,
    plot: Path | None,
    columns: str | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> int:
    """Run each sample of a dataset on the ExecuTorch runtime, its values recorded, and compare them
    with PyTorch: errors of each operator over the samples, the worst samples, and of a classifier
    the samples that get another class (--top, --labels).

    ETRECORD holds the program; else name it, PTE.

    Exit code 1 when an operator is wrong in a sample, or more than --max-flips have another class;
    3 when samples were skipped; 4 when none could be compared.
    """
    from etscope.cli.output.output import for_people
    from etscope.cli.output.progress import counting
    from etscope.evaluation import evaluate
    from etscope.quiet import quiet

    dataset_options.check(for_people(format, output))
    if plot is not None:
        from etscope.views.plots.figures import checked_suffix

        checked_suffix(plot)
    with counting(f"evaluating {etrecord}") as progress, quiet():
        found = evaluate(
            etrecord if program is None else program,
            dataset_options.dataset,
            etrecord=None if program is None else etrecord,
            method=method,
            metric=metric,
            tolerance=tolerance,
            reference_graph=GRAPHS[graph],
            state=state,
            data=data,
            libraries=library,
            threads=threads,
            runner=runner,
            isolate=isolate,
            timeout=timeout,
            verify=not force,
            progress=progress,
            **dataset_options.asked,
        )
    return dataset_options.write(found, sort, limit, plot, columns, format, output, color)
