"""`etscope check`: check a program or a run against a baseline, as for a pull request."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    FILE,
    OUTPUT_FILE,
    as_one_parameter,
    force_option,
    names_of,
    source_unit_option,
)
from etscope.cli.options.kept_runs import kept_runs
from etscope.cli.settings import setting
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.check import CheckOptions

_FORMATS = ("table", "md", "json", "sarif", "junit", "github")

_DETAILS = """\
BASE and NEW are each a kept run (@0 is the last), the folder of a run, a program (.pte, .bpte), an
ETRecord, or the JSON of an earlier check. More files are grouped as etscope diff does. NEW alone is
only measured: its JSON is a baseline.

Each quantity has a threshold; off turns one off. Without a clock: program bytes, planned memory,
FLOPs, bytes moved, the share of nodes in delegates, new kernels and backends, changed inputs and
outputs, new faults. With a run: the time, by the statistics of etscope diff, and the SQNR of
outputs to the expected ones (of the .bpte or ETRecord of the run).

If the clock cannot tell, NEW passes only if it runs no other operators, and no more FLOPs and
bytes. The table [tool.etscope.check] of pyproject.toml has the same keys (max-size = "1%").

Exit code 1: a quantity is worse than its threshold. 3: another model. 4: one cannot be told
(--allow-unknown passes), or nothing could be compared.
"""


def _threshold(name: str, help: str) -> Any:
    return click.option(f"--{name}", metavar="X", help=help)


_OPTIONS = (
    _threshold("max-size", "Largest allowed growth of the program's bytes. Default: 2%."),
    _threshold("max-memory", "Largest allowed growth of planned memory. Default: 2%."),
    _threshold("max-time", "Largest allowed growth of the time. Default: 5%."),
    _threshold("max-sqnr-drop", "Largest allowed fall of the SQNR of outputs. Default: 1dB."),
    click.option("--allow-unknown", is_flag=True, help="Pass if a quantity cannot be determined."),
    click.option("--method", "-m", metavar="NAME", help="Check this method only."),
    setting("max_flops", metavar="X", help="Largest allowed growth of FLOPs. Default: 2%."),
    setting(
        "max_bytes", metavar="X", help="Largest allowed growth of the bytes moved. Default: 2%."
    ),
    setting(
        "max_undelegated",
        metavar="X",
        help="Largest allowed fall of the delegated share. Default: 1%.",
    ),
    setting(
        "max_kernels",
        metavar="N",
        help="Largest allowed number of new kernels and backends. Default: 0.",
    ),
    setting(
        "max_interface",
        metavar="N",
        help="Largest allowed number of changed inputs and outputs. Default: 0.",
    ),
    setting(
        "max_faults",
        metavar="N",
        help="Largest allowed number of new faults of the program. Default: 0.",
    ),
    setting(
        "max_worst_drop",
        metavar="X",
        help="Largest allowed fall of the worst sample's SQNR. Default: 3dB.",
    ),
    force_option,
    source_unit_option,
)


def _options(**given: Any) -> CheckOptions:
    """Return the options of pyproject.toml, with those of the command line before them."""
    from etscope.check import CheckOptions, read_options

    default = CheckOptions()
    changes = {name: one for name, one in given.items() if one != getattr(default, name)}
    return replace(read_options(), **changes)


@verb(
    {
        "Thresholds": ("--max-size", "--max-memory", "--max-time", "--max-sqnr-drop", "-X"),
        "Check": ("--allow-unknown", "--method"),
        "Output": ("--format", "--output"),
    },
    details=_DETAILS,
)
@click.argument("files", nargs=-1, metavar="[[BASE] NEW]...", type=FILE, callback=kept_runs(2))
@partial(
    as_one_parameter,
    parameter="options",
    make=_options,
    options=_OPTIONS,
    names=names_of(_OPTIONS),
)
@click.option(
    "--format", "-f", type=click.Choice(_FORMATS),
    help="Output format. Default: from the suffix of --output, else table.",
)  # fmt: skip
@click.option(
    "--output", "-o", "outputs", type=OUTPUT_FILE, metavar="FILE", multiple=True,
    help="Write to FILE. - is standard output. Repeatable.",
)  # fmt: skip
@click.pass_obj
def command(
    session: Any,
    files: tuple[str, ...],
    options: CheckOptions,
    format: str | None,
    outputs: tuple[Path, ...],
) -> int:
    """Check NEW against BASE: size, memory, work, delegation, faults, outputs and time. Default:
    the last two runs.

    \b
    etscope check main/ branch/ --max-time 10%
    etscope check branch/ -o baseline.json
    etscope check baseline.json branch/ -o comment.md -o new.json
    """
    from etscope.check import check, open_sides
    from etscope.cli.output.progress import progress
    from etscope.cli.output.tables import COLOR
    from etscope.views import format_of
    from etscope.views.check import CHECK_VIEWS, write_check
    from etscope.views.output import open_output

    paths = [str(path) for path in outputs] or ["-"]
    views = [format or format_of(path, CHECK_VIEWS, default="table") for path in paths]
    with progress(f"checking {files[-1]}"):
        base, new = open_sides(files, force=options.force)
        checked = check(base, new, options=options)
    for path, view in zip(paths, views, strict=True):
        with open_output(path) as out:
            write_check(checked, view, out, color=COLOR[session.color])
    if "-" not in paths:
        click.echo(checked.headline, err=True)
    return checked.exit_code
