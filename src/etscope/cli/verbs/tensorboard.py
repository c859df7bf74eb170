"""`etscope tensorboard`: the graphs of a record with what was measured, in TensorBoard."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.options.files import (
    FILE,
    force_option,
    open_trace,
    read_inputs,
    source_unit_option,
)

if TYPE_CHECKING:
    from etscope.analysis.numerics.rows import Numerics
    from etscope.analysis.profile.trace import Trace
    from etscope.formats.program.bpte import BundledFile


@click.command(short_help="Show the graphs with times, memory and errors in TensorBoard.")
@click.argument("record", type=FILE)
@click.argument("dump", type=FILE, required=False)
@click.option(
    "--logdir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where to write. Default: runs/<name of RECORD>.",
)
@click.option("--launch", is_flag=True, help="Start TensorBoard on it, on this machine only.")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=6006,
    show_default=True,
    help="Port for --launch; 0: any that is free.",
)
@click.option(
    "--debug-buffer", "-b", type=FILE, metavar="BIN", help="The file of logged tensors, for errors."
)
@click.option("--inputs", type=FILE, metavar="FILE", help="The inputs that ran: .pt, .npz, …")
@click.option("--program", "-p", type=FILE, metavar="PTE", help="The .pte or .bpte that ran.")
@source_unit_option
@force_option
def command(
    record: str,
    dump: str | None,
    logdir: Path | None,
    launch: bool,
    port: int,
    debug_buffer: str | None,
    inputs: str | None,
    program: str | None,
    source_unit: str,
    force: bool,
) -> None:
    """Write the graphs of RECORD, with the times of DUMP, into a log directory of TensorBoard, and
    print the command that shows it.

    RECORD is an ETRecord or a .pte file, of which the executed program is shown. Each graph is a
    run: choose a tag in the Graphs tab, then "Profile" and "Compute time". With --debug-buffer the
    tags have numeric errors, too (needs torch). The tables are in the Text tab.
    """
    from etscope.formats.etrecord.reader import read_etrecord
    from etscope.formats.identify import PTE, identify
    from etscope.formats.program.bpte import read_program_file
    from etscope.optional import require
    from etscope.reporting.tensorboard import write_tensorboard
    from etscope.units import TimeScale
    from etscope.views.tensorboard.event_files import WANTED_BY

    if inputs is not None and debug_buffer is None:
        raise click.UsageError("--inputs are for numeric errors: they go with --debug-buffer.")
    if debug_buffer is not None and dump is None:
        raise click.UsageError("--debug-buffer holds the values of a run: it goes with a DUMP.")
    require("tensorboard", wanted_by=WANTED_BY)
    is_program = identify(record) == PTE
    if is_program and program is not None:
        raise click.UsageError("RECORD is a program already: --program goes with an ETRecord.")
    program = record if is_program else program
    trace = None
    if dump is not None:
        etrecord = None if is_program else record
        trace = open_trace(dump, etrecord, debug_buffer, program, force=force)
    folder = logdir or Path("runs") / (Path(record).stem or "model")
    source = TimeScale(source_unit)
    opened, bundle = (None, None) if program is None else read_program_file(program)
    numerics: list[Numerics] = []
    if debug_buffer is not None and trace is not None:
        numerics = _numerics(trace, inputs, bundle)
    runs = write_tensorboard(
        folder,
        record=None if is_program else read_etrecord(record),
        trace=trace,
        program=opened,
        numerics=numerics,
        source=source,
        target=TimeScale.CYCLES if source is TimeScale.CYCLES else TimeScale.MS,
    )
    click.echo(f"wrote {len(runs)} runs: {', '.join(runs)}", err=True)
    click.echo(f"tensorboard --logdir {shlex.quote(str(folder))}")
    if launch:
        _launch(folder, port)


def _numerics(trace: Trace, inputs: str | None, bundle: BundledFile | None) -> list[Numerics]:
    from etscope.cli.output.progress import progress
    from etscope.quiet import quiet
    from etscope.reporting.tensorboard import numerics_if_known

    given = None if inputs is None else lambda method: read_inputs(trace, method, inputs)
    with progress("computing the reference"), quiet():
        return numerics_if_known(trace, given, bundle)


def _launch(folder: Path, port: int) -> None:
    """Run TensorBoard until it is interrupted."""
    import subprocess
    import sys

    from etscope.errors import RuntimeFailure

    place = ["--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), *place]
    )
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
            hint="another port may be free: --port 0",
        )
