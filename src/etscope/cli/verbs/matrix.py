"""`etscope matrix`: compare a model's backends, quantizations and threads in one table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import POSITIVE, file_option, output_options, path_option
from etscope.cli.options.export import (
    backends_option,
    each_thread_count_option,
    inputs_by_kind,
    inputs_or_types_option,
    load_torch,
    seed_option,
)
from etscope.cli.output.tables import COLOR, OutputOptions
from etscope.cli.settings import Setting
from etscope.cli.verb import verb
from etscope.errors import MissingDataError
from etscope.views import TABLE_VIEWS, ViewSpec, format_of

if TYPE_CHECKING:
    from etscope.model.table import Table
    from etscope.search.matrix import Matrix
    from etscope.search.trial import Trial

_VIEWS = {name: TABLE_VIEWS[name] for name in ("table", "md", "csv", "json")} | {
    "html": ViewSpec("", ".html", "the report of all runs"),
    "v3": ViewSpec("", ".v3.json", "records of PyTorch's benchmark database"),
}

_DETAILS = """\
MODEL is package.module:attribute, path/to/file.py:attribute, a .pt2 file or a language model, as
for etscope export. A combination that cannot be exported or run is a row with the reason.

Programs that run are timed in turn, in rounds. The last lines name the fastest program that
reaches --tolerance and --fits, with the command that exports it; or say that the times do not tell
which is fastest.

Each row's run, and all results, are kept in .etscope/matrix, or in --save. The same command goes
on where an interrupted one stopped, and with other options measures the new rows only. Remove the
folder to measure again.

With --lab each row is a job of the lab ($ETSCOPE_LAB_SERVER, or that of this machine), and the
kept run is the device's. SQNR is taken here.

Exit code: 1 no program reaches --tolerance and --fits, 4 no program ran, or the times do not tell.
"""


def _size(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    from etscope.capture.kept_runs import size_of

    return None if text is None else size_of(text)


@verb(
    {
        "Rows": ("--backend", "--quantize", "--threads", "--context", "--lab"),
        "Model": ("--inputs", "-X"),
        "Choice": ("--tolerance", "--fits"),
        "Output": ("--save", "--format", "--output"),
    },
    details=_DETAILS,
)
@click.argument("model", metavar="MODEL")
@backends_option
@click.option(
    "--quantize",
    "-q",
    multiple=True,
    default=("float", "int8"),
    type=click.Choice(("float", "int8", "8da4w", "8da8w")),
    help="Quantization, repeatable; see etscope export.",
)
@each_thread_count_option
@click.option(
    "--context",
    "contexts",
    type=POSITIVE,
    multiple=True,
    metavar="N",
    help="Context length of a language model in tokens, repeatable.",
)
@click.option(
    "--lab",
    multiple=True,
    metavar="DEVICE",
    help="Run on this device of the lab, by its name or attributes, repeatable.",
)
@inputs_or_types_option
@file_option(
    "--calibration",
    cls=Setting,
    metavar="DATA",
    multiple=True,
    help="Inputs to calibrate int8 ranges on: files, or folders of them.",
)
@seed_option
@click.option(
    "--tolerance", type=float, default=20.0, metavar="DB", help="The least SQNR of the outputs."
)
@click.option(
    "--fits",
    callback=_size,
    metavar="SIZE",
    help="The most bytes of program and planned memory: 500kB, 2MiB.",
)
@path_option("--save", "folder", metavar="DIR", help="Keep results, programs and runs in DIR.")
@partial(output_options, formats=_VIEWS)
def command(model: str, inputs: tuple[str, ...], output: OutputOptions, **options: Any) -> int:
    """Compare the backends, quantizations and numbers of threads of MODEL in one table, and choose
    the fastest that keeps the numbers.

    \b
    etscope matrix model.py:Model
    etscope matrix model.py:Model --threads 1 --threads 4 -o matrix.html
    etscope matrix llama/ --quantize 8da4w --context 512 --context 2048
    """
    from etscope.cli.output.progress import reporting
    from etscope.export import check_model_name, load_model
    from etscope.search.matrix import matrix

    check_model_name(model)
    types, files = inputs_by_kind(inputs)
    load_torch("matrix")
    with reporting(f"measuring {model}") as report:

        def measured(what: str, trial: Trial) -> None:
            report(what, trial.detail or "measured")

        source = load_model(model, inputs=next(iter(files), None), seed=options["seed"])
        found = matrix(source.with_inputs(types), progress=measured, **options)
    _write(found, output)
    if all(choice.cell is not None for choice in found.choices):
        return 0
    ran = any(cell.run is not None for cell in found.cells)
    return 4 if not ran or any(choice.ties for choice in found.choices) else 1


def _write(found: Matrix, output: OutputOptions) -> None:
    from etscope.views import write_table
    from etscope.views.output import dumps, open_output

    chosen = output.format or format_of(output.path, _VIEWS, default="table")
    table = found.table()
    if chosen in ("table", "md", "html"):  # the notes have the details, and a page the runs
        left_out = ("detail", "run") if chosen == "html" else ("detail",)
        table = table.select([name for name in table.names if name not in left_out])
    with open_output(output.path) as out:
        if chosen == "html":
            out.write(_page(found, table))
        elif chosen in ("json", "v3"):
            content = found.to_json() if chosen == "json" else [*found.records()]
            out.write(dumps(content) + "\n")
        else:
            write_table(table, chosen, out, color=COLOR[output.color])


def _page(found: Matrix, table: Table) -> str:
    """Return the report of the rows' runs, with the table before all else."""
    from etscope.capture.files import runs_of_files
    from etscope.model.report import Section
    from etscope.reporting.report import report_inputs
    from etscope.support.quiet import quiet
    from etscope.views.page import document_of, page_html

    if all(cell.run is None for cell in found.cells):
        raise MissingDataError("no program ran, and a report is of runs", hint="use --format json")
    with quiet():
        files = [runs_of_files([cell.run])[0] for cell in found.cells if cell.run is not None]
        first, *others = report_inputs(files)
        section = Section("matrix", table)
        first = replace(first, sections=[section, *first.sections])
        return page_html(document_of([first, *others], f"Matrix of {found.model}"))
