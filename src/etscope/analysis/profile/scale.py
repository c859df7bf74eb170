"""Conversion of a dump's ticks to the unit for shown times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.model.event_table import Block
from etscope.units import TimeScale, scale_factor

__all__ = ["Scale"]

# From an event's name and a time on its delegate's clock to a time in the target scale.
TimeConverter = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Scale:
    """Conversion from the dump's ticks, of unit `source`, to the unit `target`."""

    source: TimeScale
    target: TimeScale

    @classmethod
    def of(cls, source: str, unit: str | None = None) -> Scale:
        """Return the scale from a clock to `unit`; None: ms, or cycles if the clock counts cycles.

        Raises `UsageError` for an unknown unit.
        """
        clock = TimeScale.of(source)
        default = TimeScale.CYCLES if clock is TimeScale.CYCLES else TimeScale.MS
        return cls(clock, default if unit is None else TimeScale.of(unit))

    @property
    def unit(self) -> str:
        return self.target.value

    def __call__(self, ticks: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return np.asarray(ticks, dtype=np.float64) / scale_factor(self.source, self.target)

    def one(self, ticks: float | None) -> float | None:
        """Convert one number of ticks; None stays None."""
        return None if ticks is None else float(self(ticks))


def block_samples(
    block: Block, scale: Scale, convert: TimeConverter | None = None
) -> npt.NDArray[np.float64]:
    """Return the elapsed times of a block, shape [keys, runs], in the target unit.

    convert: the user's function that converts times of events inside delegates. It is applied to
    start and end, not to the duration.
    """
    samples = scale(block.ticks)
    for index, key in enumerate(block.keys if convert is not None else ()):
        if convert is not None and key.delegate_id is not None:
            starts, ends = block.starts[index], block.starts[index] + block.ticks[index]
            samples[index] = [
                convert(key.name, end) - convert(key.name, start)
                for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
            ]
    return samples
