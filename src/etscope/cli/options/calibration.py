"""Options of `etscope calibrate` and `etscope lab calibrate`, and their warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import (
    POSITIVE,
    RUNNERS,
    Function,
    as_one_parameter,
    chosen_setting,
)
from etscope.cli.settings import setting

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
