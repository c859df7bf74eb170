"""Measure the peaks of a machine through kernels of ExecuTorch.

from etscope.run.calibration import calibrate

print(calibrate().peaks().peak_flops("float32"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etscope.support.lazy import lazy_names

if TYPE_CHECKING:
    from etscope.run.calibration.measure import (
        CalibrationOptions,
        calibrate,
        find_program,
        make_program,
    )

__all__ = ["CalibrationOptions", "calibrate", "find_program", "make_program"]

__getattr__, __dir__ = lazy_names(
    __name__, dict.fromkeys(__all__, "etscope.run.calibration.measure")
)
