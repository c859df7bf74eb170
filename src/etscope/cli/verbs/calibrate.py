"""`etscope calibrate`: measure the peaks of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import (
    FILE,
    POSITIVE,
    RUNNERS,
    Function,
    as_one_parameter,
    chosen_setting,
    output_options,
)
from etscope.cli.output.tables import OutputOptions
from etscope.cli.settings import setting
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.cli.output.tables import OutputOptions
    from etscope.formats.calibration import Calibration
    from etscope.run.calibration import CalibrationOptions

__all__ = ["CalibrationArguments", "calibration_options", "warn_of_marks"]


@dataclass(frozen=True, slots=True)
class CalibrationArguments:
    """The values of the options."""

    runner: str
    threads: tuple[int, ...]
    rounds: int
    timeout: float | None

    def options(self) -> CalibrationOptions:
        from etscope.run.calibration import CalibrationOptions

        return CalibrationOptions(self.runner, self.threads, self.rounds, self.timeout)


def calibration_options(function: Function) -> Function:
    """Add the options of measuring to a command, which gets them as `options`."""
    return as_one_parameter(function, "options", CalibrationArguments, _OPTIONS)


def warn_of_marks(calibration: Calibration, output: OutputOptions, device: str = "") -> None:
    """Warn of a calibration's marks if its output goes to a file, where they are easily missed."""
    import warnings

    from etscope.errors import EtscopeWarning

    for mark in calibration.marks if output.path != "-" else ():
        text = f"{device}: {mark}" if device else mark
        warnings.warn(text, EtscopeWarning, stacklevel=2)


_OPTIONS = (
    chosen_setting(
        "runner", RUNNERS, "The runtime in the Python package, or etscope's C++ runner."
    ),
    click.option(
        "--threads",
        type=POSITIVE,
        multiple=True,
        help="Size of the runtime's thread pool. Repeatable.  [default: 1 and the runtime's own]",
        show_default=False,
    ),
    setting("rounds", type=POSITIVE, default=9, help="Rounds of all measurements."),
    setting("timeout", type=float, metavar="SECONDS", help="Of each process."),
)


_DETAILS = """\
How fast XNNPACK multiplies matrices, in each dtype; how fast memory is read and written, by the
size of the arrays; and what an instruction and a call of a delegate take at least. Other
commands compare a model's operators with them. It takes less than a minute, when nothing else
runs; the first time another one or two, to make the program.
"""


@verb(
    {
        "Measure": ("--threads", "-X"),
        "Files": ("--program", "--save", "--format"),
    },
    details=_DETAILS,
)
@calibration_options
@click.option(
    "--program",
    type=FILE,
    help="The program that measures. It is made if FILE does not exist, which needs torch; then "
    "copy it to a machine without torch.  [default: in the user's cache folder]",
    show_default=False,
)
@click.option(
    "--save",
    type=FILE,
    metavar="FILE",
    help="Keep the calibration in this file.  [default: in the user's cache folder, where other "
    "commands find it]",
    show_default=False,
)
@output_options
def command(
    options: CalibrationArguments,
    program: str | None,
    save: str | None,
    output: OutputOptions,
) -> int:
    """Measure the peaks of this machine: compute, memory, and the overhead of an instruction.

    \b
    etscope calibrate
    etscope calibrate --threads 1
    etscope calibrate --program calibration.pte --save board.json
    """
    from etscope.analysis.calibration import SCHEMA, calibration_report
    from etscope.cli.output.progress import counting, progress
    from etscope.formats.calibration import keep_calibration, write_calibration
    from etscope.run.calibration import calibrate, find_program
    from etscope.support.quiet import quiet

    chosen = options.options()
    chosen.check()
    with progress("making the calibration program (once)"), quiet():
        path = find_program(program)
    with counting("measuring") as told:
        found = calibrate(path, chosen, told=told)
    warn_of_marks(found, output)
    if save is None:
        save = str(keep_calibration(found))
    else:
        write_calibration(found, save)
    click.echo(f"kept in {save}", err=True)
    output.write_reports([calibration_report(found)], SCHEMA)
    return 0
