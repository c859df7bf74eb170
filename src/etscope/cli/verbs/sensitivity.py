"""`etscope sensitivity`: find what to keep in float in a quantized model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    COUNT,
    POSITIVE,
    choice_option,
    columns_option,
    file_option,
    inputs_option,
    metric_option,
    output_options,
    path_option,
)
from etscope.cli.options.export import (
    backend_option,
    load_torch,
    seed_option,
)
from etscope.cli.output.tables import OutputOptions
from etscope.cli.settings import Setting, setting, switch
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.search.sensitivity import Variant

GROUPINGS = ("module", "op", "node")
_COLUMNS = (
    "what", "source", "gain", "time", "time_cost", "time_cost_percent", "time_spread", "size_cost",
    "verdict", "detail",
)  # fmt: skip


_DETAILS = """\
MODEL is package.module:attribute, path/to/file.py:attribute or a .pt2 file, as for etscope
export. It is exported in int8, in float and with each part alone in float; the programs are run
on the runtime, and compared with the float model in PyTorch. With --tolerance a small set of
parts that reaches it is searched for; the last line shows how to export with it.

Exit code: 1 the tolerance is not reached, 4 nothing could be measured.
"""


@verb(
    {
        "Model": ("--backend", "--inputs"),
        "Parts": ("--group", "--select"),
        "Limits": ("--metric", "--tolerance"),
        "Search": ("--keep", "-X"),
        "Output": ("--limit", "--format", "--output"),
    },
    details=_DETAILS,
)
@click.argument("model", metavar="MODEL")
@backend_option("xnnpack", "Backend of the operators; it must have a quantizer.", runs_here=True)
@inputs_option
@file_option(
    "--calibration",
    cls=Setting,
    metavar="DATA",
    multiple=True,
    help="Inputs to calibrate int8 ranges on: a file with one set, or a folder of such files. "
    "Repeatable. Default: the example inputs.",
)
@file_option(
    "--samples",
    metavar="DATA",
    multiple=True,
    help="Inputs to measure errors on, in the same forms. Default: the example inputs.",
)
@metric_option
@click.option(
    "--tolerance",
    type=float,
    metavar="X",
    help="Acceptable error, in the metric: search for a small set of parts that reaches it.",
)
@choice_option("--group", GROUPINGS, "Unit that is kept in float.")
@click.option("--select", "-s", metavar="SELECTOR", help="Try only what matches: 'module:head'.")
@switch(
    "pairs",
    True,
    "Try pairs of neighbours, too: a value between two parts is in float only if both are.",
)
@setting("rounds", type=POSITIVE, default=7, help="Number of interleaved rounds of timing.")
@click.option(
    "--method", "-m", metavar="NAME", help="Method to try. Default: forward, or the only one."
)
@click.option("--limit", "-n", type=COUNT, metavar="N", help="Show only the N best.")
@path_option(
    "--keep",
    "folder",
    metavar="DIR",
    help="Keep results and programs in DIR. An earlier search in it continues.",
)
@setting(
    "timeout", type=float, metavar="SECONDS", help="Time limit of each run that measures an error."
)
@switch(
    "isolate",
    True,
    "Run each program in a separate process first. Without: faster, but a crash ends everything.",
)
@seed_option
@columns_option
@output_options
def command(
    model: str,
    limit: int | None,
    columns: tuple[str, ...] | None,
    output: OutputOptions,
    **options: Any,
) -> int:
    """Show what each part of MODEL loses in int8, and what it costs to keep it in float.

    \b
    etscope sensitivity model.py:Model
    etscope sensitivity model.py:Model --tolerance 30
    etscope sensitivity model.py:Model --group module --keep kept
    """
    from etscope.cli.output.progress import reporting
    from etscope.export import check_model_name
    from etscope.search.sensitivity import sensitivity

    check_model_name(model)
    load_torch("sensitivity")
    with reporting(f"measuring variants of {model}") as report:

        def measured(what: str, variant: Variant) -> None:
            report(what, "failed" if variant.failure else f"{variant.error:.4g}")

        found = sensitivity(model, progress=measured, **options)
    table = found.table()
    if limit is not None:
        # The best variants, and all rows that they are compared with.
        roles = table.values["role"]
        left_out = [row for row, role in enumerate(roles) if role == "variant"][limit:]
        table = table.take([row for row in range(len(roles)) if row not in left_out])
    default = [*_COLUMNS[:2], found.metric.name, *_COLUMNS[2:]]
    if all(cell is None for cell in table.values["detail"]):
        default.remove("detail")
    output.write_tables([table], columns, default)
    return 1 if found.reached is False else 0
