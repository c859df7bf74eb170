"""Measure the peaks of a machine through kernels of ExecuTorch.

from etscope.run.calibration import calibrate

print(calibrate().peaks().peak_flops("float32"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.run.calibration.measure import CalibrationOptions, calibrate
    from etscope.run.calibration.program import find_program, make_program

__all__ = ["CalibrationOptions", "calibrate", "find_program", "make_program"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CalibrationOptions": "etscope.run.calibration.measure",
        "calibrate": "etscope.run.calibration.measure",
        "find_program": "etscope.run.calibration.program",
        "make_program": "etscope.run.calibration.program",
    },
)
