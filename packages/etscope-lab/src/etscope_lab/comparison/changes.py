"""Points at which a model changed in a series of jobs, and points at which it may have.

*Levels.* The times are split into levels so that the squared distances of their logarithms from
the means of their levels, plus a price for each level, are smallest (optimal partitioning:
B. Jackson and others, "An algorithm for optimal partitioning of data on an interval", 2005). The
price is `_PRICE` · log n · noise²: a price proportional to log n finds the right number of levels
as series grow (Y.-C. Yao, "Estimating the number of change-points via Schwarz' criterion", 1988).
A level has two points or more, so one bad job never is a change; a slow drift is a staircase.

*Noise* is the root mean square of the distances from a running median, each bounded at
`_FAR` times a robust estimate. A point that is further from its two neighbours' level counts as
being at the bound: outliers move no level (P. Fearnhead and G. Rigaill, "Changepoint detection in
the presence of outliers", 2019).

*Alternating levels.* A device that switches between two speeds, such as a processor whose clock
follows the room, gives a series that goes up and down all the time. With `_TURNS` turns, and one or
more in `_POINTS_A_TURN` points, the changes say nothing about the model: none is reported.

*Suspicions.* Levels are sure but late: of a step of 5 % under noise of 2 %, half are found after
three points. So the newest points are also tested with little confidence: a suspicion is
no verdict, but a reason to run an A/B job (`etscope_lab.watch`), which decides whatever the nights
do. Without a change, 2 to 4 % of the points are suspicious. Rates: `benchmarks/lab_watches.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import exp, expm1, log, log1p

import numpy as np
import numpy.typing as npt

from etscope.analysis.statistics.compare_samples import Policy
from etscope.model.statistics import t_quantile
from etscope_lab.comparison.noise import kind_of
from etscope_lab.jobs.records import TOLD, Alarm, AlarmState, Point, Series, Standing

FEWEST = 5  # points before a point that is judged
_PRICE = 3.5
_FAR = 3.0  # noises
_WINDOW = 11  # points of the running median that noise is measured from
_NEIGHBOURS = 3  # points of the one that outliers are bounded at: two in a row are none
_TURNS, _POINTS_A_TURN = 3, 12
_SHORTEST = 2  # points of a level
_SAME_CHANGE = 2  # points: so far off a level's first point may be found
# Two-sided rates of false suspicions at one split. The newest point alone may be an outlier, of
# which heavy-tailed noise has many, so it has to be further off.
_SUSPECT, _ALONE = 0.035, 0.001
_LEAST = 2 / 3  # of the minimum effect: a smaller change is not worth an A/B job
_ROUNDING = 1e-6  # noise of times that are equal: clocks have steps

_ALTERNATES = (
    "The times alternate between levels, as a device does whose clock changes: no change of the "
    "model is reported. Fix the device's clock or its cooling."
)

Floats = npt.NDArray[np.float64]


def judged(series: Series, policy: Policy | None = None) -> Series:
    """Judge each point of a series. Its alarms say what A/B jobs have shown: a slower level begins
    where they confirmed it, and where they showed no difference the level goes on.

    Points with marks are not judged and do not count.
    """
    policy = policy or Policy()
    points = list(series.points)
    fair = [i for i, point in enumerate(points) if not point.marked and point.p50_ms > 0]
    times = np.log([points[i].p50_ms for i in fair])
    starts = levels(times, policy.min_effect)
    if starts is None:
        return replace(series, unjudged=_ALTERNATES)
    places = {points[i].job_id: n for n, i in enumerate(fair)}
    confirmed, settled = _by_alarms(series.alarms, places)
    starts = [
        start
        for start in starts
        if start > settled and all(abs(start - one) > _SAME_CHANGE for one in confirmed)
    ]
    edges = sorted({0, *starts, *confirmed, len(fair)})
    bound = max(_FAR * noise_of(times), log1p(policy.min_effect)) if len(times) else 0.0
    level: float | None = None  # the middle of the level before
    for start, end in pairwise(edges):
        before, level = level, float(np.median(times[start:end]))
        for n in range(max(start, FEWEST if before is None else 0), end):
            point = points[fair[n]]
            if n == start and before is not None:
                change = Standing.REGRESSED if level > before else Standing.IMPROVED
                earlier = points[fair[n - 1]].job_id
                points[fair[n]] = _at(point, change, before, bound, level - before, earlier)
                continue
            off = float(times[n] - level)
            standing = Standing.STEADY
            if abs(off) > bound:
                standing = Standing.OUTLIER if n < len(fair) - 1 else Standing.SUSPICIOUS
            points[fair[n]] = _at(point, standing, level, bound, off)
    first = edges[-2] if len(edges) > 1 else 0
    since = suspicion(times[first:], policy.min_effect, settled - first)
    if since is not None:
        n = first + since
        expected, now = float(times[first:n].mean()), float(times[n:].mean())
        earlier = points[fair[n - 1]].job_id
        found = _at(points[fair[n]], Standing.SUSPICIOUS, expected, bound, now - expected, earlier)
        points[fair[n]] = found
    return replace(series, points=tuple(points), unjudged=_why_unjudged(points))


def _by_alarms(alarms: Collection[Alarm], places: Mapping[str, int]) -> tuple[set[int], int]:
    """First points of slower levels that A/B jobs confirmed, and the last point that one has
    compared with those before. places: of the points that count, by job."""
    confirmed: set[int] = set()
    settled = 0
    for alarm in alarms:
        if alarm.state in TOLD and alarm.job in places:
            confirmed.add(places[alarm.job])
        if alarm.state is not AlarmState.DISMISSED or alarm.verdict:
            settled = max(settled, places.get(alarm.newest, 0))
    return confirmed, settled


def _why_unjudged(points: Sequence[Point]) -> str:
    """Say why none of the points of a series is judged, with a count of each kind of mark, and what
    to do; "" when some are."""
    fair = sum(not point.marked and point.p50_ms > 0 for point in points)
    if not points or fair > FEWEST:
        return ""
    number = len(points)
    kinds = Counter(kind for one in points for kind in {kind_of(mark) for mark in one.marks})
    counted = [f"{kind.replace('#', '…')} ({count})" for kind, count in kinds.most_common()]
    caveats = "; ".join(counted)
    words = [
        f"None of {number} results is judged." if number > 1 else "The only result is not judged.",
        f"Caveats, with the number of results: {caveats}." if caveats else "",
        f"A result is judged when it has no caveat and {FEWEST} results without one are before it.",
        "Measure again under other conditions: etscope lab submit --again." if caveats else "",
    ]
    return " ".join(filter(None, words))


def _at(
    point: Point,
    standing: Standing,
    expected: float,
    bound: float,
    off: float,
    before: str | None = None,
) -> Point:
    return replace(
        point,
        standing=standing,
        expected_ms=exp(expected),
        low_ms=exp(expected - bound),
        high_ms=exp(expected + bound),
        relative=expm1(off),
        before=before,
    )


def levels(times: Floats, min_effect: float = 0.0) -> list[int] | None:
    """The first points of all levels but the first, oldest first; None for alternating levels.

    times: [points], logarithms. Neighbouring levels differ by at least min_effect (a fraction).
    """
    if len(times) < FEWEST + _SHORTEST or not np.ptp(times):
        return []
    noise = noise_of(times)
    bounded = _bounded(times, noise)
    starts = _cheapest(bounded, _PRICE * log(len(times)) * noise**2)
    steps = _steps(bounded, starts)
    turns = int(np.count_nonzero(np.diff(np.sign(steps))))
    if turns >= _TURNS and (turns + 1) * _POINTS_A_TURN > len(times):
        return None
    # Join the levels that differ least, while that is too little.
    while starts and np.abs(steps).min() < log1p(min_effect):
        del starts[int(np.abs(steps).argmin())]
        steps = _steps(bounded, starts)
    return starts


def _steps(times: Floats, starts: Sequence[int]) -> Floats:
    """The differences between the means of neighbouring levels."""
    return np.diff([times[a:b].mean() for a, b in pairwise([0, *starts, len(times)])])


def _bounded(times: Floats, noise: float) -> Floats:
    """The times without outliers: none is further than the bound from its neighbours' median."""
    near = _running_median(times, _NEIGHBOURS)
    found: Floats = near + np.clip(times - near, -_FAR * noise, _FAR * noise)
    return found


def _running_median(times: Floats, width: int) -> Floats:
    """The median of the points around each; at the ends, of the first and the last points."""
    width = min(width, len(times) - 1 + len(times) % 2)  # odd
    inner = np.median(np.lib.stride_tricks.sliding_window_view(times, width), axis=1)
    found: Floats = np.pad(inner, width // 2, mode="edge")
    return found


def noise_of(times: Floats) -> float:
    """The standard deviation of times (logarithms) around their levels."""
    off = times - _running_median(times, _WINDOW)
    normal = 0.6745  # the median distance of a normal distribution from its mean, in deviations
    robust = max(
        float(np.median(np.abs(off))) / normal,
        float(np.median(np.abs(np.diff(times)))) / normal / np.sqrt(2) if len(times) > 1 else 0.0,
        _ROUNDING,
    )
    square = float(np.mean(np.clip(off, -_FAR * robust, _FAR * robust) ** 2))
    # A median of so many points has about their mean's share of the noise.
    return max(float(np.sqrt(square * _WINDOW / (_WINDOW - 1))), _ROUNDING)


def _cheapest(times: Floats, price: float) -> list[int]:
    """The first points of the levels but the first, for which squares and prices are smallest."""
    count = len(times)
    sums = np.concatenate([[0.0], np.cumsum(times - times.mean())])
    squares = np.concatenate([[0.0], np.cumsum((times - times.mean()) ** 2)])
    best = np.full(count + 1, np.inf)
    best[0] = -price
    begins = np.zeros(count + 1, dtype=np.int64)
    for end in range(_SHORTEST, count + 1):
        start = np.arange(end - _SHORTEST + 1)
        inside = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / (end - start)
        cost = best[start] + inside + price
        begins[end] = cost.argmin()
        best[end] = cost[begins[end]]
    found, end = [], count
    while (end := int(begins[end])) > 0:
        found.append(end)
    return found[::-1]


def suspicion(times: Sequence[float] | Floats, min_effect: float, settled: int = 0) -> int | None:
    """The point since which a level may have become slower; None without a suspicion.

    times: [points], logarithms, since the level began. settled: only later points can be the first.
    """
    values = np.asarray(times, dtype=np.float64)
    count = len(values)
    if count <= FEWEST:
        return None
    # The newest point is not bounded: it has no later ones to be judged by.
    values = np.append(_bounded(values, noise_of(values))[:-1], values[-1])
    splits = np.arange(max(FEWEST, settled + 1), count)
    if not len(splits):
        return None
    later = count - splits
    sums, squares = np.cumsum(values), np.cumsum(values**2)
    low, high = sums[splits - 1] / splits, (sums[-1] - sums[splits - 1]) / later
    rest = squares[-1] - low**2 * splits - high**2 * later
    deviation = np.sqrt(np.maximum(rest / (count - 2), _ROUNDING**2))
    step = high - low
    t = step / (deviation * np.sqrt(1 / splits + 1 / later))
    needed = np.where(later == 1, _t(_ALONE, count - 2), _t(_SUSPECT, count - 2))
    over = np.where(step >= _LEAST * log1p(min_effect), t / needed, 0.0)
    best = int(over.argmax())
    return int(splits[best]) if over[best] >= 1 else None


@lru_cache(maxsize=1024)
def _t(p: float, freedom: int) -> float:
    return float(t_quantile(p, freedom))


def changes_of(series: Series) -> list[Point]:
    """The points at which the model changed, and suspicious points."""
    shown = (Standing.REGRESSED, Standing.IMPROVED, Standing.SUSPICIOUS)
    return [point for point in series.points if point.standing in shown]
