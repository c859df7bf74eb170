"""`etscope bisect`: find the smallest piece of a model that fails on the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from etscope.cli.options.common import (
    choice_option,
    chosen_setting,
    file_option,
    output_options,
    path_option,
)
from etscope.cli.options.export import (
    ExportCommand,
    backend_option,
    load_torch,
    quantize_option,
    seed_option,
)
from etscope.cli.output.tables import OutputOptions
from etscope.cli.settings import Setting, setting, switch
from etscope.cli.verb import verb
from etscope.errors import UsageError

STRATEGIES = ("bisect", "modules", "linear")
AGAINST = ("quantized", "float")


_DETAILS = """\
MODEL is a .pt2 file, an ETRecord with its exported program, package.module:attribute or
path/to/file.py:attribute. Python code that MODEL names is run.

Pieces of its graph are cut out, given the values that PyTorch computes there, lowered, run and
compared. Results are kept in DIR/state.json as they come. Exit code: 1 a failing piece was
found, 0 the whole model is good, 4 the model could not be judged.
"""


@verb(
    {
        "Model": ("--backend", "--quantize", "--inputs"),
        "Check": ("--check", "--tolerance", "--command", "--against"),
        "Search": ("--output", "-X"),
        "Output": ("--format",),
    },
    details=_DETAILS,
    cls=ExportCommand,
)
@click.argument("model", metavar="MODEL")
@backend_option("portable", runs_here=True)
@quantize_option
@file_option(
    "--calibration",
    cls=Setting,
    multiple=True,
    help="Inputs that set the ranges of int8: a file of one set, or a folder of such files. "
    "Repeatable. Default: --inputs.",
)
@choice_option(
    "--against",
    AGAINST,
    "Compare with the graph that is lowered, or with the one before it was quantized.",
)
@file_option(
    "--inputs",
    "-i",
    multiple=True,
    help="A sample of inputs. Repeatable. Default: the model's example inputs.",
)
@click.option(
    "--method", "-m", metavar="NAME", help="Method to search. Default: forward, or the only one."
)
@click.option(
    "--check", metavar="METRIC", help="Metric that compares outputs with PyTorch's. Default: snr."
)
@click.option(
    "--tolerance", type=float, metavar="X", help="Limit of the metric. Default for snr: 40."
)
@click.option(
    "--command",
    metavar="CMD",
    help="Decide by a command instead of a metric, with {program}, {inputs}, {expected} in it: "
    "exit status 0 good, 125 unknown, 1 to 124 bad.",
)
@chosen_setting(
    "strategy",
    STRATEGIES,
    "Search by order of execution, from the outermost module inwards, or each node alone.",
)
@path_option(
    "--output",
    "-o",
    "folder",
    metavar="DIR",
    required=True,
    help="Folder for state.json and repro/. An interrupted search in it continues.",
)
@setting("timeout", type=float, metavar="SECONDS", help="Time limit of each run of a piece.")
@switch(
    "isolate",
    True,
    "Run each piece in a separate process. Without: faster, but a crash ends the search.",
)
@seed_option
@lambda function: output_options(function, to_file=False)
def command(
    model: str,
    folder: Path,
    inputs: tuple[str, ...],
    quantize: str | None,
    output: OutputOptions,
    **options: Any,
) -> int:
    """Find the smallest piece of MODEL that fails on the runtime, and write a script that
    reproduces the failure.

    \b
    etscope bisect model.py:Model --backend xnnpack
    etscope bisect model.etrecord --check crash
    etscope bisect model.py:Model -o found
    """
    from etscope.cli.output.progress import progress
    from etscope.export import check_model_name
    from etscope.search.bisect import bisect
    from etscope.support.quiet import quiet

    if Path(model).suffix == ".py" or not Path(model).is_file():  # other files may be records
        check_model_name(model)
    if quantize not in (None, "int8"):
        raise UsageError(f"bisect does not quantize to {quantize}", hint="--quantize int8")
    load_torch("bisect")
    with progress(f"bisecting {model}"), quiet():
        found = bisect(model, folder, inputs=inputs, quantize=quantize is not None, **options)
    output.write_tables([found.table()])
    return 1 if found.found else 0
