"""`etscope replay`: run one operator of a run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    GivenFiles,
    output_options,
    path_option,
    run_files_options,
)
from etscope.cli.options.export import backends_option, each_thread_count_option, load_torch
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.search.trial import Trial

_DETAILS = """\
The operator is cut out of the exported program of RUN's ETRecord, with its weights, and gets the
values that it had in PyTorch with the inputs of RUN. Of several matching rows, the operator with
the most time is taken.

The folder (.etscope/replay/OPERATOR, or --save) has operator.pt2, its inputs and expected outputs,
the programs, their runs, and report.md: attach it to a bug report. Exit code: 4 no program ran.
"""


@verb(
    {
        "Operator": ("--select",),
        "Rows": ("--backend", "--quantize", "--threads"),
        "Output": ("--save", "--format", "--output"),
    },
    details=_DETAILS,
)
@run_files_options
@click.option(
    "--select", "-s", required=True, metavar="EXPR", help="Operator: see etscope inspect."
)
@backends_option
@click.option(
    "--quantize",
    "-q",
    multiple=True,
    default=("float",),
    type=click.Choice(("float", "int8", "8da4w", "8da8w")),
    help="Quantization of an operator in float, repeatable.",
)
@each_thread_count_option
@path_option("--save", "folder", metavar="DIR", help="Keep the operator and its runs in DIR.")
@output_options
def command(files: GivenFiles, select: str, output: OutputOptions, **options: Any) -> int:
    """Run one operator of RUN alone, with its shapes, types and weights, on each backend. Default:
    the last run.

    \b
    etscope replay --select 'op:convolution'
    etscope replay @1 -s 'module:blocks.3.attn' --backend xnnpack --threads 4
    etscope replay ran/ -s 'file:model.py:34' --save bug/
    """
    from etscope.cli.output.progress import reporting
    from etscope.search.replay import replay

    load_torch("replay")
    with reporting(f"measuring {select}") as report:

        def measured(what: str, trial: Trial) -> None:
            report(what, trial.detail or "measured")

        found = replay(files.open(), select, progress=measured, **options)
    table = found.table()
    if output.is_text:
        table = table.select([name for name in table.names if name not in ("detail", "run")])
    output.write_tables([table])
    return 0 if any(one.run is not None for one in found.found.cells) else 4
