"""`etscope tensorboard`: show the graphs of a record, with measurements, in TensorBoard."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from etscope.cli.options.common import (
    FILE,
    PORT,
    GraphFiles,
    as_one_parameter,
    debug_buffer_option,
    file_option,
    force_option,
    inputs_option,
    numerics_of_graphs,
    path_option,
    program_option,
    source_unit_option,
)
from etscope.cli.options.kept import kept_runs, last_runs
from etscope.cli.verb import verb


@verb(
    {
        "Write": ("--logdir",),
        "Show": ("--launch", "--port"),
        "Values": ("--inputs",),
    }
)
@click.argument("dump", type=FILE, required=False, callback=kept_runs())
@file_option("--etrecord", "-r", "record", metavar="ETRECORD", help="The ETRecord of the export.")
@path_option(
    "--logdir", metavar="DIR", help="Folder to write to. Default: runs/<name of the record>."
)
@click.option("--launch", is_flag=True, help="Start TensorBoard on it, for this machine only.")
@click.option("--port", type=PORT, default=6006, help="Port for --launch; 0: any free port.")
@debug_buffer_option("The file of logged tensors, for errors.")
@inputs_option
@program_option
@source_unit_option
@force_option
@partial(as_one_parameter, parameter="files", make=GraphFiles)
def command(
    files: GraphFiles, logdir: Path | None, launch: bool, port: int, source_unit: str
) -> None:
    """Write the graphs of a run with its times to a log directory of TensorBoard, and print the
    command that shows it.

    \b
    etscope tensorboard --launch
    etscope tensorboard @1 --logdir logs
    etscope tensorboard ran/

    \f
    Without --etrecord the executed program of --program is shown. Each graph is a run: choose a tag
    in the Graphs tab, then "Profile" and "Compute time". With --debug-buffer the tags have numeric
    errors, too (needs torch). The tables are in the Text tab.
    """
    from etscope.cli.output.tables import time_scale
    from etscope.formats.identify import BPTE, PTE, identify
    from etscope.optional import require
    from etscope.reporting.tensorboard import write_tensorboard
    from etscope.views.tensorboard import WANTED_BY

    if files.inputs is not None and files.debug_buffer is None:
        raise click.UsageError("--inputs are for numeric errors: they need --debug-buffer.")
    if files.debug_buffer is not None and files.dump is None:
        raise click.UsageError("--debug-buffer holds the values of a run: it needs a DUMP.")
    require("tensorboard", wanted_by=WANTED_BY)
    if files.record and identify(files.record) in (PTE, BPTE):
        raise click.UsageError(f"{files.record} is a program: give it as --program.")
    if files.dump is not None:
        files = files.of_run()
    elif not files.record:
        if files.program is None:
            files = replace(files, dump=last_runs()[0]).of_run()
        else:
            files = replace(files, record=files.program, program=None)
    folder = logdir or Path("runs") / (Path(files.record).stem or "model")
    record, trace, program, bundle = files.open()
    scale = time_scale(source_unit, None)
    runs = write_tensorboard(
        folder,
        record=record,
        trace=trace,
        program=program,
        numerics=numerics_of_graphs(trace, files.inputs, bundle),
        source=scale.source,
        target=scale.target,
    )
    click.echo(f"wrote {len(runs)} runs: {', '.join(runs)}", err=True)
    click.echo(f"tensorboard --logdir {shlex.quote(str(folder))}")
    if launch:
        _launch(folder, port)


def _launch(folder: Path, port: int) -> None:
    """Run TensorBoard until it is interrupted."""
    from etscope.errors import RuntimeFailure

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
            hint="if the port is in use, take a free one: --port 0",
        )
