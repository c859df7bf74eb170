"""The log directory of `etscope report --tensorboard`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import numerics_of_graphs
from etscope.errors import MissingDataError, RuntimeFailure, UsageError

if TYPE_CHECKING:
    from etscope.capture.files import RunFiles
    from etscope.reporting.report import ReportOptions


def write_run(runs: Sequence[RunFiles], folder: Path, options: ReportOptions) -> None:
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
            hint="name the dump of one of them",
        )
    run = runs[0]
    if run.record is None and run.program is None:
        raise UsageError(
            f"{run.name} has neither an ETRecord nor a program",
            hint="graphs are in both: name one, too",
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


def launch(folder: Path, port: int) -> None:
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
