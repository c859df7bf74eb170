"""`etscope report`: write one HTML file about runs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    FILE,
    OUTPUT_FILE,
    PORT,
    ChosenCalls,
    as_one_parameter,
    calls_options,
    debug_buffer_option,
    files_option,
    force_option,
    given_inputs,
    inputs_option,
    numerics_of_graphs,
    path_option,
    peaks_option,
    program_option,
    read_given,
    show_address,
    source_unit_option,
    unit_option,
    with_option,
)
from etscope.cli.options.kept_runs import kept_runs
from etscope.cli.settings import setting, switch
from etscope.cli.verb import verb
from etscope.errors import MissingDataError, RuntimeFailure, UsageError

if TYPE_CHECKING:
    from etscope.capture.files import RunFiles
    from etscope.reporting.report import ReportOptions
    from etscope.reporting.serve import ReportStore


_DETAILS = """\
\b
etscope report run.etdp model.etrecord            a run
etscope report before.etdp after.etdp m.etrecord  two runs to compare
etscope report folder/                            a run folder
etscope report model.etrecord                     graphs only
etscope report model.pte                          a program only
etscope report a.pte b.pte a.etrecord b.etrecord  two programs to compare

etscope finds the kind of a file from its content. A dump goes with the record, program and debug
buffer of the same name, else of the same folder, else with the only ones. Records and programs of
another name go with the dumps that they fit. A .ptd goes with the programs that have its keys.
"""


_FILES = ("debug_buffer", "program", "data")  # options that name files
_OPTIONS = (  # of `ReportOptions`
    "numerics", "inputs", "method", "calls", "backend_files", "peaks", "source_unit", "unit",
    "force",
)  # fmt: skip


def _named(**values: Any) -> RunFiles:
    from etscope.capture.files import RunFiles

    return RunFiles.given(**values)


def _options(
    inputs: str | None,
    calls: ChosenCalls,
    backend_files: tuple[str, ...],
    **values: Any,
) -> ReportOptions:
    from etscope.reporting.report import ReportOptions

    return ReportOptions(
        inputs=given_inputs(inputs),
        choose=calls.of,
        backend_files=read_given(backend_files),
        **values,
    )


@verb(
    {
        "Report": ("--output", "--serve", "--open", "--tensorboard"),
        "Run": ("--method", "--calls", "--inputs", "--with", "-X"),
    },
    details=_DETAILS,
)
@click.argument("files", nargs=-1, type=FILE, metavar="[RUN]...", callback=kept_runs(1))
@files_option(
    "--etrecord",
    "-r",
    "etrecords",
    metavar="ETRECORD",
    help="The ETRecord of the export; or one for each dump or program, in order. Repeatable.",
)
@debug_buffer_option()
@program_option
@files_option(
    "--data",
    "data",
    metavar="PTD",
    help="External weights of the programs with the same keys. Repeatable.",
)
@click.option(
    "--output",
    "-o",
    type=OUTPUT_FILE,
    default=Path("report.html"),
    metavar="FILE",
    help="Write to FILE. - is standard output; a .json file has only the data.",
)
@click.option(
    "--serve",
    is_flag=True,
    help="Serve the reports on this machine until Ctrl-C. Files make one report. A folder makes a "
    "report of its files, and one of each folder in it. Reports follow changed and new files.",
)
@path_option(
    "--tensorboard",
    metavar="DIR",
    help="Write a log directory for TensorBoard instead. Prints the command that shows it; --serve "
    "runs it.",
)
@setting("port", type=PORT, default=0, help="Port of --serve; 0: any free port.")
@setting("host", default="127.0.0.1", help="Address that --serve listens on.")
@click.option("--open", "open_it", is_flag=True, help="With --serve: open a browser.")
@switch("numerics", None, "Compare logged values with the reference. Default: if both are there.")
@inputs_option
@click.option(
    "--method",
    "-m",
    metavar="NAME",
    help="Compare the values of this method. Default: forward, else the only one that ran, else "
    "the one that takes the inputs.",
)
@calls_options
@with_option
@peaks_option
@source_unit_option
@unit_option
@force_option
@partial(as_one_parameter, parameter="named", make=_named, names=_FILES)
@partial(as_one_parameter, parameter="options", make=_options, names=_OPTIONS)
def command(
    files: tuple[str, ...],
    etrecords: tuple[str, ...],
    named: RunFiles,
    options: ReportOptions,
    output: Path,
    serve: bool,
    tensorboard: Path | None,
    port: int,
    host: str,
    open_it: bool,
) -> None:
    """Write an HTML report of RUN, a program or graphs. Several runs are compared. Default: the
    last run.

    \b
    etscope report
    etscope report @1 @0 -o compared.html
    etscope report .etscope/runs --serve --open
    """
    from etscope.capture.files import one_of_each, runs_of_files
    from etscope.cli.output.progress import progress
    from etscope.reporting.report import report_inputs
    from etscope.reporting.serve import ReportStore
    from etscope.support.quiet import quiet
    from etscope.views.output import dumps, open_output
    from etscope.views.page import built_page, document_of, page_html

    if len(etrecords) == 1:
        named = replace(named, record=Path(etrecords[0]))
    if tensorboard is not None:
        _write_logdir(runs_of_files(files, named), tensorboard, options)
        if serve:
            _run_tensorboard(tensorboard, port)
        return
    if serve:
        _serve(ReportStore(files, options, named), host, port, open_it=open_it)
        return
    as_data = output.name.endswith(".json")
    if not as_data:
        built_page()  # raises before the long work
    runs = runs_of_files(files, named)
    if len(etrecords) > 1:
        runs = one_of_each(runs, "record", etrecords, "dumps or programs")
    with progress(f"reporting on {runs[0].name}"), quiet():
        document = document_of(list(report_inputs(runs, options)))
        text = dumps(document) if as_data else page_html(document)
    with open_output(output) as out:
        out.write(text)
    if str(output) != "-":
        click.echo(f"wrote {output}", err=True)


def _serve(store: ReportStore, host: str, port: int, *, open_it: bool) -> None:
    """Serve reports until Ctrl-C, and print the address. open_it: open a browser, too."""
    from etscope.reporting.serve import WANTED_BY, serve
    from etscope.support.optional import require
    from etscope.views.page import built_page

    require("werkzeug", wanted_by=WANTED_BY)
    built_page()  # raises before the long work
    serve(store, host=host, port=port, ready=lambda address: show_address(address, open_it))


def _write_logdir(runs: Sequence[RunFiles], folder: Path, options: ReportOptions) -> None:
    """Write the graphs of a run with its times, and with errors if values were logged. Print the
    command that shows them.

    options: `numerics` True raises without values, False leaves the errors out.

    Raises `UsageError` for several runs, or one without graphs.
    """
    from etscope.analysis.profile.trace import Trace
    from etscope.reporting.tensorboard import write_tensorboard
    from etscope.support.optional import require
    from etscope.views.tensorboard import WANTED_BY

    require("tensorboard", wanted_by=WANTED_BY)
    if len(runs) != 1:
        raise UsageError(
            f"--tensorboard takes one run, not {len(runs)}: {', '.join(run.name for run in runs)}",
            hint="name the dump of one run",
        )
    run = runs[0]
    if run.record is None and run.program is None:
        raise UsageError(
            f"{run.name} has neither an ETRecord nor a program",
            hint="graphs are in an ETRecord or a program: name one, too",
        )
    capture = run.capture(force=options.force)
    if isinstance(capture, Trace):
        capture = options.choose(capture)
    values = None
    if run.logged[1] is not None and run.dump is not None and options.numerics is not False:
        values = run.open(force=options.force, with_values=True)
    elif options.numerics or options.inputs is not None:
        raise MissingDataError(
            f"{run.name} has no logged values", hint="etscope run --debug-level records them"
        )
    written = write_tensorboard(
        folder,
        capture,
        numerics=numerics_of_graphs(values, options.inputs, run.bundle),
        source=options.scale.source,
        target=options.scale.target,
    )
    click.echo(f"wrote {len(written)} runs: {', '.join(written)}", err=True)
    click.echo(f"tensorboard --logdir {shlex.quote(str(folder))}")


def _run_tensorboard(folder: Path, port: int) -> None:
    """Run TensorBoard until it is interrupted. port: 0 for any free one."""
    address = ["--logdir", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-m", "tensorboard.main", *address])
    try:
        code = process.wait()
    finally:  # interrupted or terminated
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
    if code:
        raise RuntimeFailure(
            f"TensorBoard ended with exit code {code}",
            hint="if the port is in use, take a free one: -X port=0",
        )
