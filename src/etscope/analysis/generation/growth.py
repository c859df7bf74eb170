"""Growth of a time over the position in the context: a line through the times, with its
confidence."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.optional import require

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.99
_LEAST_POSITIONS = 8
_MOST_POINTS = 128
# Growth over the whole range that is worth a word, of the mean.
_LEAST_EFFECT = 0.01


@dataclass(frozen=True, slots=True)
class Growth:
    """A line through times over positions: `slope` ns a token, between `low` and `high` with the
    confidence of `CONFIDENCE`; at_first, at_last: its times at the ends of the range, in ns."""

    slope: float
    low: float
    high: float
    first_position: int
    last_position: int
    at_first: float
    at_last: float
    mean: float

    @property
    def effect(self) -> float:
        """The growth over the range, as a fraction of the mean time."""
        return (self.at_last - self.at_first) / self.mean if self.mean else 0.0

    @property
    def is_certain(self) -> bool:
        """Return whether growth (or decline) may be claimed: the interval excludes 0, and the
        effect is more than 1 % of the mean."""
        return (self.low > 0 or self.high < 0) and abs(self.effect) > _LEAST_EFFECT


def growth(positions: npt.ArrayLike, times: npt.ArrayLike) -> Growth | None:
    """Fit a line to times [n] at positions [n]; None for fewer than 8 different positions.

    Of several times at a position, and of neighbouring positions where there are many, the median
    is taken, so that a moment's disturbance does not count. The line is Theil's and Sen's: the
    median of the slopes between all pairs of points; its interval is Kendall's (Sen, J. Am. Stat.
    Assoc. 63, 1968), widened by sqrt((1 + r) / (1 - r)) for a correlation r of neighbouring
    residuals: what disturbs one token lasts for the next ones.
    """
    stats: Any = require("scipy.stats", wanted_by="a fit of growth")
    at, medians = _medians(np.asarray(positions, np.float64), np.asarray(times, np.float64))
    if len(at) < _LEAST_POSITIONS:
        return None
    x, y = _points(at, medians)
    slope, intercept, low, high = map(float, stats.theilslopes(y, x, CONFIDENCE))
    wider = _widening(y - (intercept + slope * x))
    return Growth(
        slope=slope,
        low=slope - (slope - low) * wider,
        high=slope + (high - slope) * wider,
        first_position=int(at[0]),
        last_position=int(at[-1]),
        at_first=intercept + slope * float(at[0]),
        at_last=intercept + slope * float(at[-1]),
        mean=float(medians.mean()),
    )


def _medians(positions: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Return the different positions, sorted, and the median time at each."""
    at, group = np.unique(positions, return_inverse=True)
    order = np.lexsort((times, group))
    starts = np.searchsorted(group[order], np.arange(len(at) + 1))
    sorted_times = times[order]
    counts = np.diff(starts)
    lower = sorted_times[starts[:-1] + (counts - 1) // 2]
    upper = sorted_times[starts[:-1] + counts // 2]
    return at, (lower + upper) / 2


def _points(at: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Return the points of the fit: all, or medians of neighbours."""
    if len(at) <= _MOST_POINTS:
        return at, times
    edges = np.linspace(0, len(at), _MOST_POINTS + 1).astype(int)
    pairs = [(at[a:b].mean(), np.median(times[a:b])) for a, b in pairwise(edges)]
    x, y = np.array(pairs).T
    return x, y


def _widening(residuals: Floats) -> float:
    """Return the factor of the interval for residuals that follow each other."""
    spread = residuals - residuals.mean()
    squares = float(spread @ spread)
    r = float(spread[1:] @ spread[:-1]) / squares if squares else 0.0
    # The estimate is too small for few points (Kendall, Biometrika 41, 1954).
    r = min(max(r + (1 + 4 * r) / len(residuals), 0.0), 0.9)
    return float(np.sqrt((1 + r) / (1 - r)))
