"""Each operator's errors over the samples, added up as the samples come.

Kept are numbers: two floats for each value that is compared in a sample, and no tensor.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.rows import WRONG, Numerics, NumericsRow

_Key = tuple[int, int | str | None, int, str, int | None, int]


@dataclass(frozen=True, slots=True)
class Spread:
    """Of a metric over samples; numbers are None where no sample has one.

    count: samples that have a number. mean: of the finite ones: an operator without any error has
    an infinite SQNR. median: of all; NaN counts as the worst. worst: NaN if there is one.
    """

    count: int
    mean: float | None
    median: float | None
    worst: float | None

    @classmethod
    def of(cls, numbers: Sequence[float], metric: Metric) -> Spread:
        """The spread of some numbers."""
        values = np.asarray(numbers, np.float64)
        if not values.size:
            return cls(0, None, None, None)
        finite = values[np.isfinite(values)]
        badness = values if metric.better == "lower" else -values
        order = np.argsort(badness, kind="stable")  # NaN last
        return cls(
            count=int(values.size),
            mean=float(finite.mean()) if finite.size else None,
            median=_middle(values[order]),
            worst=float(values[order[-1]]),
        )


def _middle(ranked: npt.NDArray[np.float64]) -> float:
    low, high = float(ranked[(len(ranked) - 1) // 2]), float(ranked[len(ranked) // 2])
    return low if low == high else (low + high) / 2  # of two infinities, too


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """A value of the device over all samples in which it was compared.

    row: as in the first of them, for its place in program and source. samples: their number. wrong:
    in how many the operator's own error is more than is allowed. nan: in how many it has NaN where
    the reference has numbers. local, total: of the operator's own error, and of that to the
    reference. worst_sample: where the own error is worst.
    """

    row: NumericsRow
    samples: int
    wrong: int
    nan: int
    local: Spread
    total: Spread
    worst_sample: str

    @property
    def share(self) -> float:
        """Of the samples, those in which it is out of its limit."""
        return self.wrong / self.samples


@dataclass(slots=True)
class _Sums:
    row: NumericsRow
    samples: int = 0
    wrong: int = 0
    nan: int = 0
    local: array[float] = field(default_factory=lambda: array("d"))
    total: array[float] = field(default_factory=lambda: array("d"))
    worst: tuple[bool, float, float] | None = None
    worst_sample: str = ""


class Statistics:
    """Takes the diagnoses of samples, one after the other."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._sums: dict[_Key, _Sums] = {}

    def add(self, sample: str, found: Numerics) -> None:
        """Count a sample in."""
        for row in found.rows:
            sums = self._sums.setdefault(_key(row), _Sums(row))
            sums.samples += 1
            sums.wrong += row.verdict == WRONG
            sums.nan += bool(row.odd and row.odd.new_nan)
            if row.local is not None:
                sums.local.append(row.local)
            if row.total is not None:
                sums.total.append(row.total)
            badness = self._badness(row)
            if sums.worst is None or badness > sums.worst:
                sums.worst, sums.worst_sample = badness, sample

    def _badness(self, row: NumericsRow) -> tuple[bool, float, float]:
        error = -math.inf if row.local is None else self._metric.badness(row.local)
        return row.verdict == WRONG, error, row.excess

    def operators(self) -> tuple[OperatorStatistics, ...]:
        """The statistics, in order of execution."""
        found = sorted(self._sums.values(), key=lambda sums: sums.row.order)
        return tuple(self._of(sums) for sums in found)

    def _of(self, sums: _Sums) -> OperatorStatistics:
        return OperatorStatistics(
            row=sums.row,
            samples=sums.samples,
            wrong=sums.wrong,
            nan=sums.nan,
            local=Spread.of(sums.local, self._metric),
            total=Spread.of(sums.total, self._metric),
            worst_sample=sums.worst_sample,
        )


def _key(row: NumericsRow) -> _Key:
    pair = row.pair
    place = pair.instruction, pair.delegate_id, pair.output, pair.node, pair.element
    return (*place, row.loop_pass)


def worst_of(metric: Metric, numbers: Iterable[float | None]) -> float | None:
    """The worst of some numbers, None for none."""
    known = [number for number in numbers if number is not None]
    return max(known, key=metric.badness) if known else None


__all__ = ["OperatorStatistics", "Spread", "Statistics", "worst_of"]
