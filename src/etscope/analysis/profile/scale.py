"""From a dump's ticks to the unit that a person reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etscope.units import TimeScale, scale_factor


@dataclass(frozen=True, slots=True)
class Scale:
    """From the dump's ticks to the unit that a person reads."""

    source: TimeScale
    target: TimeScale

    @property
    def unit(self) -> str:
        return self.target.value

    def __call__(self, ticks: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return np.asarray(ticks, dtype=np.float64) / scale_factor(self.source, self.target)
