"""`etscope_lab.devices.calibration` with a small program and small arrays, or without a program."""

from __future__ import annotations

import os
from typing import NoReturn
from unittest import mock

from etscope.errors import MissingDependencyError
from etscope_lab.devices import calibration
from tests.support.run.calibration import small_program

BROKEN = "ETSCOPE_TEST_NO_PROGRAM"


def main(name: str) -> None:
    with (
        mock.patch("etscope.analysis.calibration.WORKING_SETS", (16 << 10, 64 << 10)),
        mock.patch.object(calibration, "REST_SECONDS", 0.0),
        mock.patch.object(
            calibration, "find_program", _missing if BROKEN in os.environ else small_program
        ),
        mock.patch("etscope.run.calibration.ROUNDS", 1),
    ):
        calibration.main(name)


def _missing() -> NoReturn:
    raise MissingDependencyError("the program of the calibration cannot be made here")
