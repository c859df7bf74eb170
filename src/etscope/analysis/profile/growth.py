"""Growth of times with a token's position in the context: the slope, and how sure it is.

Calls are sorted by position and divided into groups of as many calls each. Through the medians of
the groups, which a few interrupted calls do not move, goes the line of least squares. Its interval
is Student's, for as many degrees of freedom as there are groups but two, and wider where
neighbouring groups deviate alike, as they do when a machine gets warm: by the factor for
autocorrelated residuals, sqrt((1 + r) / (1 - r)), of a first-order process (M. S. Bartlett, 1935).

What all times have in common is the machine's: where it gets slower, it does so for all of them. So
the medians of a group are divided by how much more than usual the times of that group took: the
median over all times, if there are enough of them. A few that grow do not move it.

A time is said to grow when its p value is below 1 - `CONFIDENCE` after Holm's correction for the
number of times that were looked at, and the line rises by at least `LEAST_SHARE` of the mean from
the first position to the last, and by a hundredth of what rises most: less is of no use to anyone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.profile import MethodProfile, Ticks
from etscope.analysis.profile.scale import Scale
from etscope.model.statistics import holm, t_quantile, two_sided_p
from etscope.model.table import Column, Kind
from etscope.units import TimeScale

CONFIDENCE = 0.99
LEAST_SHARE = 0.02
_LEAST_OF_MOST = 0.01  # of the largest rise
_MOST_GROUPS = 24  # more points than a line needs; larger groups have steadier medians
_LEAST_IN_GROUP = 3  # the fewest whose median one interrupted call does not move
_LEAST_GROUPS = 5  # leaves three degrees of freedom
_LEAST_TIMES = 8  # enough that most do not grow

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """Slopes of times over the position, in units of the times for each token; float64 [times].

    low, high: the interval of `CONFIDENCE`, of each slope by itself. grows: bool, True where the
    growth is sure enough. intercept: the line at position 0.
    """

    slope: Floats
    low: Floats
    high: Floats
    intercept: Floats
    grows: npt.NDArray[np.bool_]


def is_enough(position: npt.NDArray[np.int64]) -> bool:
    """Return True for 15 calls or more, at known and different positions."""
    known = len(position) >= _LEAST_GROUPS * _LEAST_IN_GROUP and position.min() >= 0
    return bool(known and position.min() < position.max())


def growth(position: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> Growth:
    """Return how times grow with the position.

    position: int64 [calls], from 0, enough of them (`is_enough`). times: int64 [times, calls], all
    of the same calls.
    """
    groups = min(_MOST_GROUPS, len(position) // _LEAST_IN_GROUP)
    order = np.argsort(position, kind="stable")
    parts = np.array_split(order, groups)
    x = np.array([position[part].mean() for part in parts])
    y = np.stack([np.median(times[:, part], axis=1) for part in parts], axis=1).astype(np.float64)
    took = y[(y > 0).all(axis=1)]  # a clock of whole microseconds shows some as 0
    if len(took) >= _LEAST_TIMES:
        y /= np.median(took / took.mean(axis=1, keepdims=True), axis=0)
    away = x - x.mean()
    spread = float((away**2).sum())
    slope = (y * away).sum(axis=1) / spread
    middle = y.mean(axis=1)  # of the line, at the mean position of the groups
    residuals = y - middle[:, None] - slope[:, None] * away
    squares = (residuals**2).sum(axis=1)
    lagged = (residuals[:, 1:] * residuals[:, :-1]).sum(axis=1)
    alike = np.clip(np.divide(lagged, squares, where=squares > 0, out=np.zeros(len(y))), 0, 0.9)
    error = np.sqrt(squares / (groups - 2) / spread * (1 + alike) / (1 - alike))
    half = t_quantile(1 - CONFIDENCE, groups - 2) * error
    ratio = np.divide(slope, error, where=error > 0, out=np.where(slope > 0, np.inf, 0.0))
    beyond = two_sided_p(ratio, groups - 2) / 2
    p = np.where(ratio > 0, beyond, 1 - beyond)  # one-sided: that it rises
    rise = slope * (x.max() - x.min())
    sure = (holm(p) < 1 - CONFIDENCE) & (rise >= LEAST_SHARE * middle) & (slope > 0)
    return Growth(
        slope=slope,
        low=slope - half,
        high=slope + half,
        intercept=middle - slope * x.mean(),
        grows=sure & (rise >= _LEAST_OF_MOST * rise[sure].max(initial=0.0)),
    )


# -- Columns of tables.

GROWTH = ("growth", "growth_low", "growth_high")


def growth_columns(
    profile: MethodProfile, times: Sequence[Ticks | None], scale: Scale
) -> dict[Column, list[float | None]]:
    """Return the columns for rows with these times: `growth`, in ns per token, where it is sure,
    and its interval from `growth_low` to `growth_high`. There are no columns if positions are
    unknown or too few.

    times: int64 [runs], the ticks of each row; None for a row that is not a time of the method.
    """
    position = _positions(profile)
    if position is None:
        return {}
    # With all of the method's rows, so that a row's growth does not depend on the other rows shown.
    every = {id(row.ticks): row.ticks for row in profile.rows if not row.own_clock}
    shown = {id(one): one for one in times if one is not None}
    looked_at = {**every, **shown}
    found = growth(position, np.stack(list(looked_at.values())))
    number = dict(zip(looked_at, range(len(looked_at)), strict=True))
    is_clock = scale.source is TimeScale.CYCLES
    in_unit = scale if is_clock else Scale(scale.source, TimeScale.NS)
    slope, low, high = (in_unit(one).tolist() for one in (found.slope, found.low, found.high))
    sure = [one if grows else None for one, grows in zip(slope, found.grows, strict=True)]
    unit = "cycles/token" if is_clock else "ns/token"
    return {
        Column(name, Kind.FLOAT, unit, priority=priority): [
            None if one is None else values[number[id(one)]] for one in times
        ]
        for name, priority, values in zip(GROWTH, (1, 8, 8), (sure, low, high), strict=True)
    }


def growth_note(profile: MethodProfile) -> Iterator[str]:
    """Yield the meaning of `growth`, where a table has it; or that nothing grows."""
    position = _positions(profile)
    if position is None:
        return
    rows = [row.ticks for row in profile.rows if not row.own_clock]
    where = f"{position.min():,} to {position.max():,}"
    if not growth(position, np.stack([*rows, profile.total])).grows.any():
        yield f"No time is sure to grow with the position of the token, from {where}."
    else:
        yield (
            f"growth: time for each token of context before it, from position {where}; only where "
            f"{CONFIDENCE:.0%} sure and at least {LEAST_SHARE:.0%} of the time."
        )


def _positions(profile: MethodProfile) -> npt.NDArray[np.int64] | None:
    """Return the position of each run; None if growth cannot be computed."""
    calls = profile.calls
    return calls.position if calls is not None and is_enough(calls.position) else None
