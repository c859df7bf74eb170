"""Where in a history a model became slower (or faster), and whether it stayed so.

Each point of a series is a job, and the noise that counts is that between jobs, so a point is
judged by the points before it and not by its own samples. The policy:

1. *The window* is the up to 12 points before, 5 at least, since the last change that was confirmed.
   Points with marks (conditions that were not held) are shown, but neither judged nor in a window.
2. *A point is off* when it is outside the interval that the window predicts for one more point,
   and by the minimum effect at least. The prediction is Student's, of the logarithms x of the
   medians: ``mean +- t(n - 1) s sqrt(1 + 1 / n)`` (W. Meeker, G. Hahn and L. Escobar, "Statistical
   intervals", 2nd edition, 4.7). Points that were found to be outliers are not in it.
3. *It is suspicious* until the next point (without marks) is there. When that is off as well, by
   the same window and in the same direction, the first of the two is where the model *regressed*
   or *improved*, and the window begins anew there; else it was an *outlier*.

So one bad job never makes a regression, as in FAI-PEP (both of the last two runs must be bad, by up
to 12 runs and 5 at least) and in PyTorch's HUD (two violations at the end); unlike theirs, the
bounds follow from the noise of the series and from a stated confidence. A drift that is slow
against the window moves the window with it and is not found; nor is a second change before the
fifth point after the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from math import exp, inf, log, log1p, sqrt
from typing import Any

import numpy as np

from etscope.analysis.comparison.compare_samples import Policy
from etscope.analysis.comparison.student import quantile
from etscope.errors import UsageError
from etscope.lab.jobs.api import Point, Series

WINDOW, FEWEST = 12, 5


class Standing(str, Enum):
    """What a point is, by those before it and the one after it."""

    UNJUDGED = "unjudged"
    """Marked, or fewer than five points before it."""
    STEADY = "steady"
    SUSPICIOUS = "suspicious"
    """Off, and the next one is not there yet."""
    OUTLIER = "outlier"
    """Off, but the next one was not."""
    REGRESSED = "regressed"
    """Slower, and so was the next one: the change lies between this point and the one before."""
    IMPROVED = "improved"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Judged:
    """A point and what it is. expected_ms: the middle of the window; low_ms, high_ms: what the
    window allows; relative: how far the point is from the middle. None without a window.
    before: the job before the point, when it is where a change happened."""

    point: Point
    standing: Standing
    expected_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    relative: float | None = None
    before: str | None = None

    def plain(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "job": self.point.job_id,
            "standing": self.standing.value,
            "expected_ms": self.expected_ms,
            "low_ms": self.low_ms,
            "high_ms": self.high_ms,
            "relative": self.relative,
            "before": self.before,
        }


def judge_series(
    series: Series, policy: Policy | None = None, *, window: int = WINDOW, fewest: int = FEWEST
) -> list[Judged]:
    """What each point of a series is, oldest first. Raises `UsageError` for a window of fewer than
    two points, or smaller than the fewest."""
    if not 2 <= fewest <= window:
        raise UsageError(f"a window of {fewest} to {window} points makes no sense")
    policy = policy or Policy()
    found: list[Judged] = []
    level: list[float] = []  # logarithms of the points that later ones are held against
    pending: tuple[int, _Window] | None = None  # a point that is off, and its window
    last: str | None = None
    for point in series.points:
        if point.marked or not point.p50_ms > 0:
            found.append(Judged(point, Standing.UNJUDGED))
            continue
        value = log(point.p50_ms)
        if pending is not None:
            index, expected = pending
            first = found[index]
            off = expected.off(log(first.point.p50_ms))
            if expected.off(value) == off:
                standing = Standing.REGRESSED if off > 0 else Standing.IMPROVED
                found[index] = _with(first, standing)
                level = [log(first.point.p50_ms)]
            else:
                found[index] = _with(first, Standing.OUTLIER)
            pending = None
        now = _Window.of(level[-window:], policy) if len(level) >= fewest else None
        if now is None:
            found.append(Judged(point, Standing.UNJUDGED))
            level.append(value)
        elif now.off(value):
            pending = len(found), now
            found.append(now.judged(point, Standing.SUSPICIOUS, last))
        else:
            found.append(now.judged(point, Standing.STEADY, None))
            level.append(value)
        last = point.job_id
    return found


def changes_of(judged: Sequence[Judged]) -> list[Judged]:
    """The points at which the model changed, and those that are suspicious."""
    told = (Standing.REGRESSED, Standing.IMPROVED, Standing.SUSPICIOUS)
    return [one for one in judged if one.standing in told]


@dataclass(frozen=True, slots=True)
class _Window:
    """What the points before predict, in logarithms."""

    middle: float
    half: float

    @classmethod
    def of(cls, level: Sequence[float], policy: Policy) -> _Window:
        values = np.asarray(level)
        count = len(values)
        t = _quantile(policy.alpha, count - 1) if count > 1 else inf
        half = t * float(values.std(ddof=1)) * sqrt(1 + 1 / count)
        return cls(float(values.mean()), max(half, log1p(policy.min_effect)))

    def off(self, value: float) -> int:
        """-1 below, 1 above, 0 inside what is allowed."""
        return int(value > self.middle + self.half) - int(value < self.middle - self.half)

    def judged(self, point: Point, standing: Standing, before: str | None) -> Judged:
        return Judged(
            point=point,
            standing=standing,
            expected_ms=exp(self.middle),
            low_ms=exp(self.middle - self.half),
            high_ms=exp(self.middle + self.half),
            relative=point.p50_ms / exp(self.middle) - 1,
            before=before,
        )


@cache  # of few windows' lengths, for thousands of points
def _quantile(alpha: float, freedom: int) -> float:
    return float(quantile(alpha, freedom)[0])


def _with(judged: Judged, standing: Standing) -> Judged:
    before = judged.before if standing is not Standing.OUTLIER else None
    return replace(judged, standing=standing, before=before)
