"""`etscope serve`: reports in a browser, which follow their files."""

from __future__ import annotations

import click

from etscope.cli.options.common import UNITS
from etscope.cli.options.files import FILE, force_option, source_unit_option


@click.command(short_help="Show reports in a browser; they follow their files.")
@click.argument("paths", nargs=-1, type=FILE, metavar="FILE|FOLDER...")
@click.option("--etrecord", "-r", type=FILE, metavar="ETRECORD", help="The ETRecord of the export.")
@click.option("--debug-buffer", "-b", type=FILE, metavar="BIN", help="The file of logged tensors.")
@click.option("--program", "-p", type=FILE, metavar="PTE", help="The .pte or .bpte that ran.")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=0,
    show_default=True,
    help="Port; 0: any that is free.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--open", "open_it", is_flag=True, help="Open a browser on it.")
@click.option("--numerics/--no-numerics", default=None, help="As for etscope report.")
@source_unit_option
@click.option("--unit", type=click.Choice(UNITS), help="Unit of the times shown.")
@force_option
def command(
    paths: tuple[str, ...],
    etrecord: str | None,
    debug_buffer: str | None,
    program: str | None,
    port: int,
    host: str,
    open_it: bool,
    numerics: bool | None,
    source_unit: str,
    unit: str | None,
    force: bool,
) -> None:
    """Show what etscope report writes, at an address of this machine that is printed.

    The FILEs make one report. Each FOLDER makes a report of the files in it, and one of each folder
    in it. When a file changes, or a new one appears, the page shows it. Ctrl-C ends it.
    """
    from etscope.optional import require
    from etscope.reporting.report import ReportOptions
    from etscope.reporting.serve import WANTED_BY, Shelf, serve
    from etscope.views.page import built_page

    require("werkzeug", wanted_by=WANTED_BY)
    built_page()  # missing, it is better missing now
    options = ReportOptions(force, source_unit, unit, numerics)
    shelf = Shelf(paths, options, etrecord, debug_buffer, program)

    def ready(address: str) -> None:
        click.echo(address)
        click.echo("Ctrl-C ends it", err=True)
        if open_it:
            import webbrowser

            webbrowser.open(address)

    serve(shelf, host=host, port=port, ready=ready)
