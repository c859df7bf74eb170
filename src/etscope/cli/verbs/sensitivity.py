"""`etscope sensitivity`: what to keep in float in a quantised model."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from etscope.cli.options.common import output_options
from etscope.cli.options.files import FILE
from etscope.cli.verbs.export import BACKENDS

if TYPE_CHECKING:
    from etscope.model.table import Table
    from etscope.sensitivity import Sensitivity, Variant

GROUPINGS = ("module", "op", "node")
_COLUMNS = (
    "what", "source", "gain", "time", "time_cost", "time_cost_percent", "time_spread", "size_cost",
    "verdict", "detail",
)  # fmt: skip
_DATA = click.Path(exists=False, path_type=str)


@click.command(short_help="Find what to keep in float in a quantised model.")
@click.argument("model", metavar="MODEL")
@click.option(
    "--backend",
    "-b",
    type=click.Choice(BACKENDS),
    default="xnnpack",
    show_default=True,
    help="What operators run on; it must have a quantizer.",
)
@click.option(
    "--inputs",
    type=FILE,
    metavar="FILE",
    help="Example inputs: .npz, .npy, .safetensors or .pt.",
)
@click.option(
    "--calibration",
    type=_DATA,
    metavar="DATA",
    multiple=True,
    help="Inputs to set int8 ranges by: a file a set, or a folder of such files. Repeatable. "
    "Default: the example inputs.",
)
@click.option(
    "--samples",
    type=_DATA,
    metavar="DATA",
    multiple=True,
    help="Inputs to measure errors on, in the same forms. Default: the example inputs.",
)
@click.option("--metric", default="sqnr", show_default=True, metavar="NAME", help="Of the errors.")
@click.option(
    "--tolerance",
    type=float,
    metavar="X",
    help="What is good enough, in the metric: search for a small set that reaches it.",
)
@click.option(
    "--group",
    type=click.Choice(GROUPINGS),
    default="module",
    show_default=True,
    help="What is kept in float together.",
)
@click.option("--select", "-s", metavar="SELECTOR", help="Try only what matches: 'module:head'.")
@click.option(
    "--pairs/--no-pairs",
    default=True,
    show_default=True,
    help="Try neighbours together, too: a value between two is in float only when both are.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=7,
    show_default=True,
    help="Of the times, interleaved.",
)
@click.option("--method", "-m", metavar="NAME", help="Default: forward, or the only one.")
@click.option(
    "--limit", "-n", type=click.IntRange(min=0), metavar="N", help="Show the N best only."
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a plot of errors and time costs: .png or .svg.",
)
@click.option(
    "--keep",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep answers and programs in DIR.",
)
@click.option("--resume", is_flag=True, help="Go on with what is known in DIR.")
@click.option("--timeout", type=float, metavar="SECONDS", help="For each run for an error.")
@click.option(
    "--isolate/--no-isolate",
    default=True,
    show_default=True,
    help="Run each program in a process of its own first. Without: faster, and a crash ends it "
    "all.",
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
@click.option("--columns", metavar="NAME,…", help="Show these columns, in order.")
@output_options
def command(
    model: str,
    limit: int | None,
    plot: Path | None,
    columns: str | None,
    format: str | None,
    output: Path | None,
    color: str,
    **options: Any,
) -> int:
    """Tell what each part of MODEL loses in int8, and what it would cost to keep it in float.

    MODEL is package.module:attribute, path/to/file.py:attribute or a .pt2 file, as for etscope
    export. It is exported in int8, in float and with each part alone in float; the programs are run
    on the runtime, and held against the float model in PyTorch. With --tolerance a small set of
    parts that is enough is searched for; the last line says how to export with it.

    Exit code: 1 the tolerance is not reached, 4 nothing could be measured.
    """
    from etscope.cli.output.output import write_tables
    from etscope.cli.output.progress import progress
    from etscope.optional import require
    from etscope.quiet import quiet
    from etscope.sensitivity import sensitivity

    if plot is not None:
        from etscope.views.plots.figures import checked_suffix

        checked_suffix(plot)
        require("matplotlib.figure", wanted_by="--plot")
    with progress("loading PyTorch and ExecuTorch"), quiet():
        require("torch", wanted_by="sensitivity")
        require("executorch.exir", wanted_by="sensitivity")
    with _said() as terminal, progress(f"measuring variants of {model}"), quiet():
        found = sensitivity(model, progress=_teller(terminal), **options)
    if plot is not None:
        from etscope.sensitivity.plot import save_plot

        save_plot(found, plot)
        click.echo(f"wrote {plot}", err=True)
    table = _limited(found, limit)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    write_tables([table], names, _shown(found, table), format, output, color)
    return 1 if found.reached is False else 0


@contextmanager
def _said() -> Iterator[IO[str]]:
    """Standard error as it is now, whatever is done to it meanwhile."""
    sys.stderr.flush()
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        yield terminal


def _teller(terminal: IO[str]) -> Any:
    """Tells of each variant on a line."""

    def tell(what: str, variant: Variant) -> None:
        number = "failed" if variant.failure else f"{variant.error:.4g}"
        print(f"{what}: {number}", file=terminal, flush=True)

    return tell


def _shown(found: Sensitivity, table: Table) -> list[str]:
    """The columns for people: `detail` only where something failed."""
    failed = any(cell is not None for cell in table.values["detail"])
    shown = [name for name in _COLUMNS if name != "detail" or failed]
    return [*shown[:2], found.metric.name, *shown[2:]]


def _limited(found: Sensitivity, limit: int | None) -> Table:
    """The table with the best variants only; what they are held against stays."""
    table = found.table()
    if limit is None:
        return table
    rows, seen = [], 0
    for index, role in enumerate(table.values["role"]):
        seen += role == "variant"
        if role != "variant" or seen <= limit:
            rows.append(index)
    return table.take(rows)
