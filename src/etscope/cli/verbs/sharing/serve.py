"""`etscope serve`: show reports in a browser, and update them when their files change."""

from __future__ import annotations

import click

from etscope.cli.options.common import (
    FILE,
    PORT,
    debug_buffer_option,
    etrecord_option,
    force_option,
    program_option,
    show_address,
    source_unit_option,
    unit_option,
)
from etscope.cli.options.kept import kept_runs
from etscope.cli.verb import verb


@verb(
    {
        "Server": ("--port", "--host", "--open"),
        "Report": ("--numerics",),
    }
)
@click.argument("paths", nargs=-1, type=FILE, metavar="[RUN]...", callback=kept_runs(1))
@etrecord_option
@debug_buffer_option()
@program_option
@click.option("--port", type=PORT, default=0, help="Port; 0: any free port.")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--open", "open_it", is_flag=True, help="Open a browser.")
@click.option("--numerics/--no-numerics", default=None, help="See etscope report.")
@source_unit_option
@unit_option
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
    """Serve the pages of etscope report on this machine; they follow changed and new files. Ctrl-C
    stops it.

    \b
    etscope serve
    etscope serve .etscope/runs --open
    etscope serve run.etdp model.etrecord --port 8000

    \f
    The FILEs make one report. Each FOLDER makes a report of its files, and one of each folder in
    it. The page follows changed and new files. Ctrl-C stops the server.
    """
    from etscope.optional import require
    from etscope.reporting.report import ReportOptions
    from etscope.reporting.serve import WANTED_BY, ReportStore, serve
    from etscope.views.page import built_page

    require("werkzeug", wanted_by=WANTED_BY)
    built_page()  # fails before the work if the page is not built
    options = ReportOptions(force, source_unit, unit, numerics)
    store = ReportStore(paths, options, etrecord, debug_buffer, program)
    serve(store, host=host, port=port, ready=lambda address: show_address(address, open_it))
