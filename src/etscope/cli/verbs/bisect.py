"""`etscope bisect`: find the smallest piece of a model that fails on the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etscope.cli.options.files import FILE
from etscope.cli.verbs.export import BACKENDS
from etscope.views import TABLE_VIEWS

STRATEGIES = ("bisect", "modules", "linear")


@click.command(short_help="Find the smallest piece of a model that fails.")
@click.argument("model", metavar="MODEL")
@click.option(
    "--backend",
    "-b",
    type=click.Choice(BACKENDS),
    default="portable",
    show_default=True,
    help="What operators run on.",
)
@click.option("--quantize", "-q", is_flag=True, help="int8 weights and activations.")
@click.option(
    "--inputs",
    type=FILE,
    metavar="FILE",
    multiple=True,
    help="A sample of inputs; repeat it for more. Default: those that come with the model.",
)
@click.option("--method", metavar="NAME", help="Default: forward, or the only one.")
@click.option(
    "--check", metavar="METRIC", help="How outputs are compared with PyTorch's. Default: snr."
)
@click.option("--tolerance", type=float, metavar="X", help="What is good enough. Of snr: 40.")
@click.option(
    "--command",
    metavar="CMD",
    help="Decides instead of a metric, with {program}, {inputs}, {expected} in it: exit status "
    "0 good, 125 unknown, else bad.",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="bisect",
    show_default=True,
    help="By order of execution, from the outermost module inwards, or each node alone.",
)
@click.option(
    "--output", "-o", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    required=True, help="Folder for state.json and repro/.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with what is known in DIR.")
@click.option("--timeout", type=float, metavar="SECONDS", help="For each run of a piece.")
@click.option(
    "--isolate/--no-isolate",
    default=True,
    show_default=True,
    help="Run each piece in a process of its own. Without: faster, and a crash ends it all.",
)
@click.option(
    "--strict/--no-strict",
    default=None,
    help="How torch.export traces. Default: strictly, else not strictly with a warning.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of torch's random numbers, set before the model is made.",
)
@click.option(
    "--format",
    "-f",
    type=click.Choice(list(TABLE_VIEWS)),
    help="Form of the report. Default: table.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour the table; auto: on a terminal, unless NO_COLOR is set.",
)
def command(
    model: str,
    output: Path,
    inputs: tuple[str, ...],
    format: str | None,
    color: str,
    **options: Any,
) -> int:
    """Find the smallest piece of MODEL that fails on the runtime, and write it to DIR/repro as a
    program, its values, and a script that fails by itself.

    MODEL is a .pt2 file, an ETRecord with its exported program, package.module:attribute or
    path/to/file.py:attribute. Python code that MODEL names is run.

    Pieces of its graph are cut out, fed with the values that PyTorch has there, lowered, run and
    compared. Answers are kept in DIR/state.json as they come. Exit code: 1 a failing piece was
    found, 0 the whole model is good, 4 nothing can be said of it.
    """
    from etscope.bisect import bisect
    from etscope.cli.output.output import write_tables
    from etscope.cli.output.progress import progress
    from etscope.optional import require
    from etscope.quiet import quiet

    with progress("loading PyTorch and ExecuTorch"), quiet():
        require("torch", wanted_by="bisect")
        require("executorch.exir", wanted_by="bisect")
    with progress(f"bisecting {model}"), quiet():
        found = bisect(model, output, inputs=inputs, **options)
    write_tables([found.table()], None, None, format, None, color)
    return 1 if found.found else 0
