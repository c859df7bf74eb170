"""The runs of a method that count: the one rule, for tables, findings, graphs and comparisons.

An average over runs that other programs interrupted says how busy the machine was, not how long the
model takes. So runs are excluded that are far slower than the others, but never runs that may be
slow by themselves:

* Calls of a language model grow with the position of their tokens. They are compared with a line
  through their neighbours, and not at all where positions are not known or calls take different
  numbers of tokens.
* A drift and two speeds are states of the machine that many runs share. None of them is the usual
  one, so nothing is excluded, and `etscope.analysis.insights.steadiness` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import erfc, log1p, sqrt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.calls import RunCalls
from etscope.analysis.profile.growth import is_enough
from etscope.analysis.profile.profile import Excluded, MethodProfile, Row, Ticks
from etscope.model.statistics import median, percentiles

if TYPE_CHECKING:
    from etscope.analysis.statistics.compare_samples import Comparison

__all__ = ["slow_runs"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# A run that takes this much longer than usual was interrupted, or filled caches and memory as the
# first one. Less is within what runs of a phone vary by.
SLOW_RATIO = 1.5
_SURELY_SLOW = 3.0
# Of fewer runs the median says little: of four, two may be disturbed.
FEWEST = 5
# With three runs, two that agree show that the first was cold; with two, either may be the odd one.
FEWEST_AFTER_FIRST = 2
# A drift must be this large between the halves, and be sure to this confidence: one report in a
# thousand may say it falsely.
DRIFT_EFFECT = 0.05
DRIFT_CONFIDENCE = 0.999
DRIFT_FEWEST = 20  # runs: a half needs ten to be compared
# Half of what makes a run slow: the ends of a smaller drift are not slow by the drift alone.
_DRIFT_TO_SLOW = 1 + (SLOW_RATIO - 1) / 2
# Two speeds: each has this share of the runs and this number of them, they are this far apart, and
# the gap between them is this part of the distance of their means. Samples of one normal, uniform
# or log-normal distribution have such a gap in fewer than one of a thousand sets.
MODE_SHARE = 0.2
MODE_FEWEST = 5
MODE_DISTANCE = 0.10
MODE_GAP = 0.6
_LINE_PARTS = 24  # points of a line through calls by position, each the median of its neighbours


@dataclass(frozen=True, slots=True, eq=False)
class SlowRuns:
    """The runs to exclude, bool [runs]: the first one if it was cold, and disturbed ones."""

    warmup: Mask
    disturbed: Mask

    @property
    def counted(self) -> Mask:
        return ~(self.warmup | self.disturbed)


def slow_runs(
    total: Ticks, calls: RunCalls | None = None, *, is_warmed_up: bool = False
) -> SlowRuns:
    """Find the cold first run and disturbed runs of a method, by the rule in the module's text.

    total: int64 ticks of ``Method::execute``, [runs], in run order. calls: the runs as calls of a
    language model. is_warmed_up: other executions came before the first run.
    """
    none = np.zeros(len(total), np.bool_)
    expected = _expected(total, calls)
    if expected is None or len(total) < 1 + FEWEST_AFTER_FIRST:
        return SlowRuns(none, none)
    ratio = total / np.maximum(expected, 1.0)
    if len(total) < FEWEST:
        cold = none.copy()
        others = total[1:]
        cold[0] = not is_warmed_up and total[0] >= SLOW_RATIO * max(1.0, float(others.max()))
        return SlowRuns(cold, none)
    # Other programs make runs longer, never shorter. Where short runs differ much, times vary by
    # themselves, and only what is twice as far above the median as one in ten is below it (2.6
    # standard deviations of a log-normal distribution) was disturbed. Where half of the runs are,
    # the median is of these, and far above the others: `_SURELY_SLOW` is disturbed in any case.
    below = 1 / max(float(percentiles(ratio, [10])[0]), 1e-9)
    is_slow = ratio >= min(max(SLOW_RATIO, below**2), _SURELY_SLOW)
    cold = none.copy()
    cold[0] = is_slow[0] and not is_warmed_up
    rest = ratio[1:] if cold[0] else ratio
    half = len(rest) // 2
    middles = [median(part) for part in (rest[:half], rest[-half:])]
    is_far = max(middles) >= _DRIFT_TO_SLOW * min(middles)  # some are slow by the drift alone
    if (is_slow & ~cold).any() and (
        two_speeds(rest) is not None or (is_far and drift(rest) is not None)
    ):
        cold[0] &= ratio[0] > rest.max()  # else it is as slow as others of its state
        return SlowRuns(cold, none)
    return SlowRuns(cold, is_slow & ~cold)


def counted(profile: MethodProfile, *, is_warmed_up: bool = False) -> MethodProfile:
    """Return the profile of the counted runs. is_warmed_up: as for `slow_runs`."""
    found = slow_runs(profile.total, profile.calls, is_warmed_up=is_warmed_up)
    kept = found.counted
    if kept.all():
        return profile

    def of_kept(row: Row) -> Row:
        kernel = None if row.kernel_ticks is None else row.kernel_ticks[kept]
        return replace(row, ticks=row.ticks[kept], calls=row.calls[kept], kernel_ticks=kernel)

    runs = profile.runs[kept]
    return replace(
        profile,
        runs=runs,
        total=profile.total[kept],
        rows=tuple(map(of_kept, profile.rows)),
        calls=None if profile.calls is None else profile.calls.of_runs(runs),
        excluded=Excluded(profile, int(found.warmup.sum()), int(found.disturbed.sum())),
    )


def _expected(total: Ticks, calls: RunCalls | None) -> Floats | None:
    """Return the usual time of each run, [runs]; None if runs differ by an unknown amount."""
    middle = np.full(len(total), median(total) if len(total) else 0.0)
    if calls is None:
        return middle
    tokens, position = calls.tokens, calls.position
    if not len(total) or tokens.min() <= 0 or tokens.min() < tokens.max() or position.min() < 0:
        return None
    if position.min() == position.max():
        return middle
    return _line(position, total) if is_enough(position) else None


def _line(position: npt.NDArray[np.int64], total: Ticks) -> Floats:
    """A line through times by position that interrupted calls do not move: the median of the slopes
    between medians of neighbours (H. Theil, 1950; P. Sen, 1968). A call does not get shorter with
    its context: below 0 the slope is the machine's."""
    order = np.argsort(position, kind="stable")
    parts = np.array_split(order, min(_LINE_PARTS, len(order) // 3))
    x = np.array([median(position[part]) for part in parts])
    y = np.array([median(total[part]) for part in parts])
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] > x[first]
    slopes = (y[second] - y[first])[apart] / (x[second] - x[first])[apart]
    slope = max(0.0, median(slopes)) if len(slopes) else 0.0
    return np.asarray(slope * position + median(total - slope * position), np.float64)


def two_speeds(totals: Floats) -> tuple[Floats, Floats] | None:
    """Return the times of runs in two groups with nothing between them, the faster ones first; None
    for other runs. totals: [runs]."""
    ordered = np.sort(totals)
    number = len(ordered)
    fewest = max(MODE_FEWEST, int(np.ceil(MODE_SHARE * number)))
    if number < 2 * fewest:
        return None
    gaps = np.diff(ordered)[fewest - 1 : number - fewest]
    split = int(gaps.argmax()) + fewest
    low, high = ordered[:split], ordered[split:]
    distance = float(high.mean() - low.mean())
    if distance < MODE_DISTANCE * float(low.mean()) or float(gaps.max()) < MODE_GAP * distance:
        return None
    return low, high


def drift(totals: Floats) -> Comparison | None:
    """Compare the later half of the runs with the earlier one, in run order; None unless it is
    surely slower or faster. totals: [runs]."""
    if len(totals) < DRIFT_FEWEST:
        return None
    # Imported here, as Inspector imports this module and compares nothing.
    from etscope.analysis.statistics.compare_samples import (
        Policy,
        Verdict,
        compare_samples,
        locations,
    )

    half = len(totals) // 2
    policy = Policy(min_effect=DRIFT_EFFECT, confidence=DRIFT_CONFIDENCE)
    # A comparison takes milliseconds. What the normal distribution does not call a drift, Student's
    # t does not either.
    halves = locations([totals[:half], totals[-half:]])
    change = abs(np.log(halves.centre[1] / halves.centre[0]))
    error = np.hypot(*(halves.error / halves.centre))
    if change < log1p(policy.min_effect) or erfc(change / error / sqrt(2)) > policy.alpha:
        return None
    found = compare_samples(totals[:half], totals[-half:], policy)
    is_sure = found.verdict in (Verdict.REGRESSED, Verdict.IMPROVED)
    return found if is_sure and found.relative is not None else None
