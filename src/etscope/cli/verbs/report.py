"""`etscope report`: one HTML file with all that is known of a model's runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import UNITS
from etscope.cli.options.files import FILE, force_option, read_inputs, source_unit_option

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Trace


@click.command(short_help="Write an HTML report: graphs, times, lines, memory, numerics.")
@click.argument("files", nargs=-1, type=FILE, metavar="FILE...")
@click.option("--etrecord", "-r", type=FILE, metavar="ETRECORD", help="The ETRecord of the export.")
@click.option("--debug-buffer", "-b", type=FILE, metavar="BIN", help="The file of logged tensors.")
@click.option("--program", "-p", type=FILE, metavar="PTE", help="The .pte or .bpte that ran.")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="Write to FILE; - is standard output, a name that ends in .json gets the data alone.",
)
@click.option("--title", metavar="TEXT", help="Title of the report.")
@click.option(
    "--numerics/--no-numerics",
    default=None,
    help="Compare logged values with a reference. Default: where values and reference are there.",
)
@click.option("--inputs", type=FILE, metavar="FILE", help="The inputs that ran: .pt, .npz, …")
@click.option(
    "--method",
    "-m",
    metavar="NAME",
    help="Whose values are compared. Default: forward, the one that ran, the one that the inputs "
    "fit.",
)
@source_unit_option
@click.option("--unit", type=click.Choice(UNITS), help="Unit of the times shown.")
@force_option
def command(
    files: tuple[str, ...],
    etrecord: str | None,
    debug_buffer: str | None,
    program: str | None,
    output: Path,
    title: str | None,
    numerics: bool | None,
    inputs: str | None,
    method: str | None,
    source_unit: str,
    unit: str | None,
    force: bool,
) -> None:
    """Write one HTML file that opens anywhere, without network: the runs' times by operator,
    module, line and graph node, their memory and their numerics.

    \b
    etscope report run.etdp model.etrecord            a run
    etscope report before.etdp after.etdp -r m.etrecord   two runs to compare
    etscope report folder/                            what etscope run --save wrote
    etscope report model.etrecord                     graphs alone
    etscope report model.pte                          the program alone

    FILEs are told by their content. A dump goes with the record, program and debug buffer of its
    name, or of its folder, or with the only ones.
    """
    from etscope.cli.output.progress import progress
    from etscope.quiet import quiet
    from etscope.reporting.report import ReportOptions, report_inputs, runs_of_files
    from etscope.views.output import open_output
    from etscope.views.page import built_page, document_of, page_html
    from etscope.views.strict_json import dumps

    as_data = output.name.endswith(".json")
    if not as_data:
        built_page()  # missing, it is better missing now
    given = None if inputs is None else _inputs(inputs)
    options = ReportOptions(force, source_unit, unit, numerics, given, method)
    runs = runs_of_files(files, etrecord, debug_buffer, program)
    with progress(f"reporting on {runs[0].name}"), quiet():
        document = document_of(list(report_inputs(runs, options)), title)
        text = dumps(document) if as_data else page_html(document)
    with open_output(output) as out:
        out.write(text)
    if str(output) != "-":
        click.echo(f"wrote {output}", err=True)


def _inputs(path: str) -> Any:
    """What reads the inputs of a run from a file."""

    def read(trace: Trace, method: str) -> Any:
        return read_inputs(trace, method, path)

    return read
