"""Decide whether times regressed, improved, show no difference, or cannot tell.

The test, for the samples of each side in the order of their measurement:

1. *Location.* The 20 % trimmed mean: a fifth of the samples at each end is left out, so a page
   fault or a preempted run moves nothing.
2. *Its standard error.* Yuen's, from the winsorized sum of squares ``SSD``:
   ``se^2 = SSD / (h (h - 1))`` with the ``h`` samples left after trimming (K. Yuen, "The two-sample
   trimmed t for unequal population variances", Biometrika 61, 1974; R. Wilcox, "Introduction to
   Robust Estimation and Hypothesis Testing", 5.3). It has ``h - 1`` degrees of freedom.
3. *Samples that hang together* say less than independent ones. The squared error is multiplied, and
   the degrees of freedom divided, by the integrated autocorrelation time of the winsorized samples,
   the larger of two estimates. Of any process: ``1 + 2 sum rho``, summed while the sums of
   neighbouring pairs are positive, none counted larger than the one before (C. Geyer, "Practical
   Markov chain Monte Carlo", Statistical Science 7, 1992). Of an autoregression, for short series:
   ``(1 + r) / (1 - r)`` with ``r = (n rho_1 + 1) / (n - 4)``, from 0 to 0.95, which undoes the bias
   of rho_1 (M. Kendall, "Note on bias in the estimation of autocorrelation", and F. Marriott and
   J. Pope, "Bias in the estimation of autocorrelations", Biometrika 41, 1954).
4. *Drift.* When the trimmed means of the two halves differ by more than the standard error of such
   a difference (a third of steady series do), the whole difference is taken for the standard error
   of the location: times that drift within a dump have drifted between two dumps as well.
5. *The clock.* A time is the difference of two readings, each rounded to a step of the clock. Runs
   that start in the same phase are all rounded alike, so rounding does not average out. When the
   runs differ by few steps, the error is at least ``step / sqrt(6)``, the standard deviation of
   such a difference. A location below one step counts as a step: the ratio is then a lower bound
   of the change. When neither side's location has three steps, the verdict is *cannot tell*.
6. *The range.* When few runs hang together, hardly a degree of freedom is left, and t at 99 % grows
   from 3 to 63. Then ``max(16 / n, 0.6)`` times the range of the runs is the error, with ``n - 2``
   degrees of freedom, where it gives the shorter interval at the level of the strictest test of the
   call (E. Lord, "The use of range in place of standard deviation in the t-test", Biometrika 34,
   1947). The range is ``log(longest / shortest)`` of the runs without the longest and the shortest
   one, a step of the clock added to it. ``16 / n`` covers an autoregression of correlation 0.95:
   the standard deviation of its location is 1.14 times the mean range of 10 runs, 0.63 times that
   of 19 and 0.44 of 30. 0.6 remains for drifts: one that goes on moves the location by the range.
   In A/A comparisons this adds at most 0.1 % of false alarms, except where a dump stays in one of
   two states; `benchmarks/diff_power.py` simulates it.
7. *Comparison.* The logarithm of the ratio of the two locations, its error by the delta method
   ``se^2 = (se_a / a)^2 + (se_b / b)^2``, against Student's t with the degrees of freedom of Welch
   and Satterthwaite (B. Welch, Biometrika 34, 1947). Two-sided. Nothing is drawn at random: equal
   samples give equal answers.
8. *The fastest runs.* Other work on the device makes runs longer, never shorter: the mean of the
   fastest fifth, which was disturbed least, must have changed by the minimum effect as well, in the
   same direction. A change that only the slow runs show is not reported.
9. *Dumps differ.* Two processes that run the same program differ by more than their samples show:
   in the state of the processor and the place of memory. Only further dumps of one program measure
   it. With the standard deviation ``s`` of the logarithms of the locations of ``k`` such dumps,
   the squared error is ``2 s^2`` with ``k - 1`` degrees of freedom if that is more than above; or
   ``s^2 (1 / m + 1 / n)`` where the samples of the sides come from ``m`` and ``n`` dumps.
10. *Several at once.* Holm's step-down correction (S. Holm, Scandinavian Journal of Statistics 6,
    1979): among all that are compared in one call, the probability of one false alarm or more is at
    most ``1 - confidence``.

A dump that is judged by several earlier ones of the same program (`compare_dump`), as one job of a
series by those before it, needs no samples: how dumps differ is seen from dump to dump. Its
difference from the mean logarithm of ``k`` locations has the squared error ``s^2 (1 + 1 / k)``
with ``k - 1`` degrees of freedom, as in 9 with ``m = k`` and ``n = 1``: Student's prediction of
one more observation (W. Meeker, G. Hahn and L. Escobar, "Statistical intervals", 2nd edition, 4.7).

Rounds with a run of each side, in random order, are compared in pairs
(`compare_rounds`), by ``d = log(after / before)`` of each round: *p* is of Wilcoxon's signed-rank
test, two-sided and exact (F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics
Bulletin 1, 1945; ties have their mean rank, rounds without a difference keep their rank, J. Pratt,
JASA 54, 1959); beyond 500 rounds by its normal approximation. The change is Hodges and Lehmann's
estimate, the median of all means of two rounds, and its interval lies between two of these means,
as far from the ends as the exact distribution allows (J. Hodges and E. Lehmann, Annals of
Mathematical Statistics 34, 1963; M. Hollander and D. Wolfe, "Nonparametric statistical methods",
3.2 and 3.3).

The verdict, of both: *regressed* or *improved* when the corrected p is at most ``1 - confidence``,
and the ratio differs from 1 by at least the minimum effect (for samples, the ratio of the fastest
runs, too). *No difference* when the confidence interval of the ratio lies inside the minimum
effect. All else is *cannot tell*: too few or too noisy samples are never a pass. An interval that
contains 1 and spans more than a factor of ten is shown as unknown.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import exp, log, log1p, sqrt

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.model.statistics import (
    fewest_differences,
    holm,
    signed_rank_p,
    signed_rank_shift,
    t_quantile,
    two_sided_p,
)
from etscope.support.shown import Shown

__all__ = [
    "Comparison",
    "Noise",
    "Policy",
    "Verdict",
    "compare_all",
    "compare_dump",
    "compare_rounds",
    "compare_samples",
    "drawn_orders",
    "locations",
    "pooled_noise",
]

Floats = npt.NDArray[np.float64]

TRIMMED = 0.2  # of the samples, at each end
_FEWEST = 10  # with fewer, how much they hang together cannot be seen
_FASTEST = 5  # one of so many samples, rounded up
_MOST_ALIKE = 0.95  # the correlation of neighbouring runs: the most that the range covers
_RANGES, _LEAST_RANGE = 16.0, 0.6  # the error by the range: 16 / n of it, 0.6 at least
_FEW_STEPS = 3.0  # of the clock: of shorter times rounding is a third, so no percentage
_TICKS = "it takes a few ticks of the clock at most"
_WIDEST = 10.0  # ratio of the ends of an interval that says something
UNBOUNDED = "the runs are too unsteady to bound the change"


class Verdict(Enum):
    """The result of comparing two sets of samples; "regressed" means longer times."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    NO_DIFFERENCE = "no difference"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Policy:
    """The criteria for a change.

    min_effect: the smallest relative change that matters (0.03: 3 %), in both directions.
    confidence: the confidence of the interval; 1 - confidence is the rate of false alarms (0.99: 1
    %). min_samples: with fewer samples on a side there is no verdict; at least 10. dumps: how many
    dumps are compared with the first; p is multiplied by it (Bonferroni), so the rate of false
    alarms holds for all of them together.

    Raises `UsageError` for values that make no sense.
    """

    min_effect: float = 0.03
    confidence: float = 0.99
    min_samples: int = _FEWEST
    dumps: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.min_effect < 1:
            raise UsageError(f"a minimum effect of {self.min_effect:g} is not between 0 and 1")
        if not 0.5 <= self.confidence < 1:
            raise UsageError(f"a confidence of {self.confidence:g} is not from 0.5 to below 1")
        if self.dumps < 1:
            raise UsageError(f"{self.dumps} dumps cannot be compared with the first")
        if self.min_samples < _FEWEST:
            raise UsageError(f"{self.min_samples} samples are too few: at least {_FEWEST}")

    @property
    def alpha(self) -> float:
        return 1 - self.confidence

    def in_words(self) -> str:
        """Return "by 3.0% at least, at 99% confidence"."""
        return f"by {self.min_effect:.1%} at least, at {100 * self.confidence:g}% confidence"

    def beyond(self, ratio: float, least: float) -> bool:
        """Return whether a ratio differs from 1 by `least` at least: 1.03 by 3 %, as 1 / 1.03."""
        return ratio <= 0 or not abs(log(ratio)) < log1p(least)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one pair of sets of samples.

    before, after: their trimmed means, in the samples' unit. relative: after / before - 1; `low`
    and `high` are the ends of its confidence interval (for this pair alone). fastest: the same as
    `relative` for the fastest fifths. All are None if unknown, or if a time is only a few ticks of
    the clock, which gives no percentage. p: the p-value of "no change", corrected for all pairs of
    the call. noise_floor: the relative change that the noise between dumps alone explains at this
    confidence, 0 if unknown. reason: why there is no verdict, else "".
    """

    verdict: Verdict
    before: float
    after: float
    samples: tuple[int, int]
    relative: float | None = None
    low: float | None = None
    high: float | None = None
    fastest: float | None = None
    p: float | None = None
    noise_floor: float = 0.0
    reason: str = ""

    @property
    def is_unbounded(self) -> bool:
        """True if 1 lies in the interval, and its ends are more than tenfold apart."""
        return (
            self.low is not None
            and self.high is not None
            and _says_nothing(1 + self.low, 1 + self.high)
        )


@dataclass(frozen=True, slots=True)
class Noise:
    """The variation between dumps of one program.

    spread: the standard deviation of the logarithm of the trimmed mean; NaN where a dump has none.
    dumps: their number, 2 at least; of several programs' dumps, the degrees of freedom + 1. sides:
    the number of dumps of each side that is compared.
    """

    spread: float
    dumps: int
    sides: tuple[int, int] = (1, 1)

    @property
    def error(self) -> float:
        """The standard error that it gives to the logarithm of the ratio of the sides."""
        return self.spread * sqrt(1 / self.sides[0] + 1 / self.sides[1])

    def floor(self, policy: Policy) -> float:
        """The relative change between the sides that is noise at the policy's confidence."""
        return float(np.expm1(t_quantile(policy.alpha, self.dumps - 1) * self.error))


@dataclass(frozen=True, slots=True)
class Locations(Shown):
    """Trimmed means and how well they are known: arrays of one element a set of samples.

    error, freedom: the standard error in the samples' unit and its degrees of freedom. by_range:
    the error by the range of the samples, with two degrees fewer than there are samples. These are
    NaN for fewer than four samples. fastest: the mean of the fastest fifth. least, most: of all
    samples. unsteady: they drift, or hang together so much that they count for less than a third of
    their number.
    """

    count: npt.NDArray[np.int64]
    centre: Floats
    error: Floats
    freedom: Floats
    by_range: Floats
    fastest: Floats
    least: Floats
    most: Floats
    unsteady: npt.NDArray[np.bool_]


def compare_samples(
    before: npt.ArrayLike,
    after: npt.ArrayLike,
    policy: Policy | None = None,
    *,
    noise: Noise | None = None,
    step: float | tuple[float, float] = 0.0,
) -> Comparison:
    """Compare two sets of samples [n] and [m], each in the order of time.

    The first run of a process fills caches: leave it out. noise: how much dumps of one program
    differ on this device. step: the step of the clock, in the samples' unit; a pair if the two
    sides have different clocks. Raises `UsageError` for negative or infinite samples.
    """
    return compare_all([before], [after], policy, noise=[noise], steps=[step])[0]


def compare_all(
    before: Sequence[npt.ArrayLike],
    after: Sequence[npt.ArrayLike],
    policy: Policy | None = None,
    *,
    noise: Sequence[Noise | None] | None = None,
    steps: Sequence[float | tuple[float, float]] | None = None,
) -> list[Comparison]:
    """Compare `before[i]` with `after[i]`, corrected as one family; see `compare_samples`."""
    if len(before) != len(after):
        raise UsageError(f"{len(before)} sets of samples cannot be compared with {len(after)}")
    policy = policy or Policy()
    between = [None] * len(before) if noise is None else noise
    clocks = np.zeros((len(before), 2))
    if steps is not None:
        clocks[:] = [one if isinstance(one, tuple) else (one, one) for one in steps] or 0.0
    sides = locations(before, clocks[:, 0]), locations(after, clocks[:, 1])
    found = _compared(sides, clocks, between, policy)
    for i in np.flatnonzero(_apart(sides, policy)).tolist():
        if found[i].verdict is Verdict.CANNOT_TELL and found[i].relative is not None:
            own = slice(i, i + 1)
            one, other = (
                locations([_faster_half(side[i])], clocks[own, place])
                for place, side in enumerate((before, after))
            )
            family = replace(policy, dumps=policy.dumps * len(found))
            (again,) = _compared((one, other), clocks[own], between[own], family)
            if again.verdict is not Verdict.CANNOT_TELL:
                shown = {"before": found[i].before, "after": found[i].after}
                found[i] = replace(again, **shown, samples=found[i].samples)
    return found


def _apart(sides: tuple[Locations, Locations], policy: Policy) -> npt.NDArray[np.bool_]:
    """Return where each run of one side is slower than each of the other, by the minimum effect."""
    before, after = sides
    least = 1 + policy.min_effect
    return (after.least > before.most * least) | (after.most * least < before.least)


def _faster_half(samples: npt.ArrayLike) -> Floats:
    """Return the samples up to the median, in their order."""
    array = np.asarray(samples, dtype=np.float64)
    return array[array <= np.median(array)]


def compare_rounds(
    before: npt.ArrayLike, after: npt.ArrayLike, policy: Policy | None = None
) -> Comparison:
    """Compare two sides by the times of rounds, one of each side in a round; the module describes
    the test.

    `low` and `high` are None if the confidence needs more rounds. Raises `UsageError` for times
    that are not finite and above 0, or no rounds.
    """
    policy = policy or Policy()
    sides = [np.asarray(one, dtype=np.float64) for one in (before, after)]
    if sides[0].shape != sides[1].shape or sides[0].ndim != 1 or not len(sides[0]):
        raise UsageError("each round needs one time of each side")
    if not all((np.isfinite(one) & (one > 0)).all() for one in sides):
        raise UsageError("the times of rounds must be finite and above 0")
    differences = np.log(sides[1]) - np.log(sides[0])
    p = signed_rank_p(differences)
    ends = signed_rank_shift(differences, policy.alpha)
    ratio, low, high = np.exp(ends).tolist()
    known = bool(np.isfinite(ends[1]))
    verdict, reason = _verdict((ratio, low, high), ratio, p, policy, unsteady=False)
    if verdict is Verdict.CANNOT_TELL and not known:
        least = fewest_differences(policy.alpha)
        reason = f"{len(differences)} rounds: a confidence of {policy.confidence:g} takes {least}"
    elif verdict is Verdict.CANNOT_TELL and p <= policy.alpha:
        interval = f"{low - 1:+.1%} to {high - 1:+.1%}"
        reason = f"{interval}: a change, but perhaps of less than {policy.min_effect:.1%}"
    return Comparison(
        verdict,
        before=float(np.median(sides[0])),
        after=float(np.median(sides[1])),
        samples=(len(differences), len(differences)),
        relative=ratio - 1,
        low=low - 1 if known else None,
        high=high - 1 if known else None,
        p=p,
        reason=reason,
    )


def compare_dump(before: npt.ArrayLike, after: float, policy: Policy | None = None) -> Comparison:
    """Compare one dump with earlier dumps of the same program, by one time of each dump.

    before: [k] times, one of each earlier dump, 2 at least. after: the time of the judged dump, in
    the same unit. `samples` of the answer counts the dumps. Raises `UsageError` for fewer times, or
    times that are not above 0 and finite.
    """
    policy = policy or Policy()
    earlier = np.asarray(before, dtype=np.float64)
    noise = replace(pooled_noise([earlier]), sides=(len(earlier), 1))
    if not 0 < after < np.inf:
        raise UsageError("the times of dumps must be finite and above 0")
    middle = float(np.log(earlier).mean())
    difference = log(after) - middle
    if noise.error:
        p = float(two_sided_p(difference / noise.error, noise.dumps - 1))
    else:
        p = float(difference == 0)
    floor = noise.floor(policy)
    ratio = exp(difference)
    low, high = ratio / (1 + floor), ratio * (1 + floor)
    verdict, reason = _verdict((ratio, low, high), ratio, p, policy, unsteady=False)
    return Comparison(
        verdict,
        before=exp(middle),
        after=after,
        samples=(len(earlier), 1),
        relative=ratio - 1,
        low=low - 1,
        high=high - 1,
        p=p,
        noise_floor=floor,
        reason=reason,
    )


def pooled_noise(programs: Sequence[npt.ArrayLike]) -> Noise:
    """Estimate the variation between dumps of one program from the dumps of several programs.

    programs: for each program the times of its dumps, one for each dump, at least 2. The variance
    is pooled: ``s^2 = sum (k_i - 1) s_i^2 / sum (k_i - 1)``, with the sum in the denominator as its
    degrees of freedom. Raises `UsageError` for fewer times, or times that are not above 0 and
    finite.
    """
    times = [np.asarray(one, dtype=np.float64) for one in programs]
    if not times or min(map(len, times)) < 2:
        raise UsageError(
            "to measure the noise between dumps, pass two or more dumps of one program"
        )
    if not all((np.isfinite(one) & (one > 0)).all() for one in times):
        raise UsageError("the times of dumps must be finite and above 0")
    freedom = sum(len(one) - 1 for one in times)
    logs = [np.log(one) for one in times]
    squares = sum(float(((one - one.mean()) ** 2).sum()) for one in logs)
    return Noise(sqrt(squares / freedom), freedom + 1)


def noise_between(dumps: Sequence[npt.ArrayLike]) -> Noise:
    """Estimate the variation of a set of samples between dumps of one program; NaN or infinite for
    times of 0. dumps: the samples of each dump. Raises `UsageError` for fewer than two dumps.
    """
    if len(dumps) < 2:
        raise UsageError(
            "to measure the noise between dumps, pass two or more dumps of one program"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.log(locations(dumps).centre).std(ddof=1)
    return Noise(float(spread), len(dumps))


def locations(samples: Sequence[npt.ArrayLike], steps: npt.ArrayLike | None = None) -> Locations:
    """Return the location (trimmed mean) of each set of samples; the formulas are in the module's
    docstring. steps: the step of each set's clock.
    """
    arrays: list[Floats] = [np.asarray(one, dtype=np.float64) for one in samples]
    for array in arrays:
        if array.ndim != 1:
            raise UsageError(f"samples must have one dimension, not {array.ndim}")
        if not (np.isfinite(array) & (array >= 0)).all():
            raise UsageError("samples must be times: finite and not negative")
    clocks = np.zeros(len(arrays)) if steps is None else np.asarray(steps, dtype=np.float64)
    count = np.array([len(one) for one in arrays], dtype=np.int64)
    known = np.full((4, len(arrays)), np.nan)  # centre, error, freedom, by range
    fastest, least, most = np.full((3, len(arrays)), np.nan)
    unsteady = np.zeros(len(arrays), dtype=bool)
    for length in np.unique(count[count > 0]).tolist():
        rows = np.flatnonzero(count == length)
        matrix = np.stack([arrays[row] for row in rows])
        fastest[rows] = np.sort(matrix, axis=1)[:, : -(-length // _FASTEST)].mean(axis=1)
        least[rows], most[rows] = matrix.min(axis=1), matrix.max(axis=1)
        known[:, rows], unsteady[rows] = _located(matrix, clocks[rows])
    centre, error, freedom, by_range = known
    return Locations(count, centre, error, freedom, by_range, fastest, least, most, unsteady)


def _located(matrix: Floats, steps: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Centre, error, degrees of freedom and error by the range of each row of [sets, samples], as
    [4, sets], and which are unsteady."""
    length = matrix.shape[1]
    ordered = np.sort(matrix, axis=1)
    cut = int(TRIMMED * length)
    left = length - 2 * cut
    centre = _trimmed_means(ordered)
    if length < 4:
        none = np.full_like(centre, np.nan)
        return np.stack([centre, none, none, none]), np.zeros(len(matrix), dtype=bool)
    low, high = ordered[:, cut, None], ordered[:, length - 1 - cut, None]
    winsorized = np.clip(matrix, low, high)
    centred = winsorized - winsorized.mean(axis=1, keepdims=True)
    together = _autocorrelation_times(centred)
    squares = (centred**2).sum(axis=1)
    error = np.sqrt(together * squares / (left * (left - 1)))
    half = length // 2
    first, last = np.sort(matrix[:, :half], axis=1), np.sort(matrix[:, length - half :], axis=1)
    drift = np.abs(_trimmed_means(last) - _trimmed_means(first))
    # A half's mean has twice the variance; of two halves the difference has four times.
    drifts = drift > 2 * error
    error = np.where(drifts, np.maximum(error, drift), error)
    few_steps = (high - low)[:, 0] <= _FEW_STEPS * steps
    error = np.where(few_steps, np.maximum(error, steps / np.sqrt(6)), error)
    freedom = np.maximum((left - 1) / together, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        longest, shortest = (np.maximum(ordered[:, place], steps) for place in (-2, 1))
        ranges = np.log((longest + steps) / shortest)
        by_range = np.maximum(centre, steps) * max(_RANGES / length, _LEAST_RANGE) * ranges
    by_range[np.isnan(by_range)] = np.inf  # of times of 0
    return np.stack([centre, error, freedom, by_range]), drifts | (together > 3)


def _trimmed_means(ordered: Floats) -> Floats:
    length = ordered.shape[1]
    cut = int(TRIMMED * length)
    means: Floats = ordered[:, cut : length - cut].mean(axis=1)
    return means


def _autocorrelation_times(centred: Floats) -> Floats:
    """The integrated autocorrelation time of each row of four samples or more, 1 at least."""
    rows, length = centred.shape
    spectrum = np.fft.rfft(centred, 2 * length, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, : length // 2 * 2]
    variance = covariance[:, :1]
    correlation = np.divide(covariance, variance, out=np.zeros_like(covariance), where=variance > 0)
    pairs = correlation.reshape(rows, -1, 2).sum(axis=2)
    monotone = np.minimum.accumulate(pairs, axis=1)
    summed = 2 * np.where(monotone > 0, monotone, 0.0).sum(axis=1) - 1
    alike = (length * correlation[:, 1] + 1) / max(length - 4, 1)
    alike = np.where(variance[:, 0] > 0, np.clip(alike, 0, _MOST_ALIKE), 0.0)
    times: Floats = np.maximum(summed, (1 + alike) / (1 - alike))
    return times


def _squared_errors(
    sides: tuple[Locations, Locations],
    places: Sequence[Floats],
    noise: Sequence[Noise | None],
    level: float,
) -> tuple[Floats, Floats]:
    """The squared errors of the logarithms of the ratios, and their degrees of freedom.

    places: the locations. level: at which an error by the range must give the shorter interval.
    """
    parts, degrees = [], []
    with np.errstate(divide="ignore", invalid="ignore"):
        for side, place in zip(sides, places, strict=True):
            remaining = side.count - 2.0
            widths = t_quantile(level, side.freedom) * side.error
            by_range = t_quantile(level, remaining) * side.by_range < widths
            parts.append((np.where(by_range, side.by_range, side.error) / place) ** 2)
            degrees.append(np.where(by_range, remaining, side.freedom))
        variance = parts[0] + parts[1]
        weights = parts[0] ** 2 / degrees[0] + parts[1] ** 2 / degrees[1]
        freedom = np.where(weights > 0, variance**2 / weights, degrees[0] + degrees[1])
    spread = np.array([0.0 if one is None else one.error for one in noise])
    larger = spread**2 > variance
    fewer = [1.0 if one is None else one.dumps - 1.0 for one in noise]
    variance = np.where(larger | np.isnan(spread), spread**2, variance)
    return variance, np.where(larger, fewer, freedom)


def _compared(
    sides: tuple[Locations, Locations],
    clocks: Floats,
    noise: Sequence[Noise | None],
    policy: Policy,
) -> list[Comparison]:
    """Compare sides; clocks: the step of each side's clock, [sets, 2]."""
    before, after = sides
    unknown = [one is not None and not np.isfinite(one.spread) for one in noise]
    centres = np.stack([before.centre, after.centre], axis=1)
    few_steps = (centres < _FEW_STEPS * clocks) | (centres == 0)
    # At least a step: the clock cannot resolve less.
    first, last = np.maximum(centres, clocks).T
    judged = (np.minimum(before.count, after.count) >= policy.min_samples) & (
        (first > 0) & (last > 0) & ~few_steps.all(axis=1) & ~np.array(unknown, dtype=bool)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.log(last / first)
        fast = np.maximum(after.fastest, clocks[:, 1]) / np.maximum(before.fastest, clocks[:, 0])
    family = policy.dumps * int(judged.sum())
    p, half = np.full((2, len(difference)), np.nan)
    if judged.any():
        variance, freedom = _squared_errors(sides, (first, last), noise, policy.alpha / family)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(difference == 0, 0.0, difference / np.sqrt(variance))
        p[judged] = np.minimum(policy.dumps * holm(two_sided_p(t[judged], freedom[judged])), 1.0)
        half[judged] = t_quantile(policy.alpha, freedom[judged]) * np.sqrt(variance[judged])
    found = []
    for i in range(len(difference)):
        unsteady = bool(before.unsteady[i] or after.unsteady[i])
        counts = (int(before.count[i]), int(after.count[i]))
        places = (float(before.centre[i]), float(after.centre[i]))
        between = noise[i]
        if not judged[i]:
            reason = _why_unjudged(min(counts), unknown[i], policy)
            found.append(Comparison(Verdict.CANNOT_TELL, *places, counts, reason=reason))
            continue
        ratio, low, high = np.exp(difference[i] + half[i] * np.array([0.0, -1.0, 1.0])).tolist()
        verdict, reason = _verdict(
            (ratio, low, high), float(fast[i]), float(p[i]), policy, unsteady, family
        )
        answer = Comparison(
            verdict,
            *places,
            counts,
            p=float(p[i]),
            noise_floor=0.0 if between is None else between.floor(policy),
            reason=reason,
        )
        if few_steps[i].any():
            found.append(replace(answer, reason=reason and _TICKS))
            continue
        shares = {"relative": ratio - 1, "low": low - 1, "high": high - 1}
        found.append(replace(answer, **shares, fastest=float(fast[i]) - 1))
    return found


def _why_unjudged(least: int, unknown_noise: bool, policy: Policy) -> str:
    if least < policy.min_samples:
        return f"{least} runs to compare: at least {policy.min_samples} are needed"
    return "a dump of noise has no times of it" if unknown_noise else _TICKS


def _verdict(
    ratios: Sequence[float], fast: float, p: float, policy: Policy, unsteady: bool, family: int = 1
) -> tuple[Verdict, str]:
    """The verdict for a ratio and the ends of its interval, and why there is none. family: how many
    are compared together, for which p is corrected, but not the interval."""
    ratio, low, high = ratios
    least = policy.min_effect
    why = "; the times are not steady within a dump" if unsteady else ""
    is_large = policy.beyond(ratio, least)
    did_fastest = policy.beyond(fast, least) and (fast > 1) == (ratio > 1)
    if p <= policy.alpha and is_large:
        if not did_fastest:
            return Verdict.CANNOT_TELL, (
                f"{ratio - 1:+.1%}, but the fastest runs changed by {fast - 1:+.1%}: "
                "something else may have run on the device"
            )
        return (Verdict.REGRESSED if ratio > 1 else Verdict.IMPROVED), ""
    if not (policy.beyond(low, least) or policy.beyond(high, least)):
        return Verdict.NO_DIFFERENCE, ""
    if _says_nothing(low, high):
        return Verdict.CANNOT_TELL, UNBOUNDED
    interval = f"{low - 1:+.1%} to {high - 1:+.1%}"
    if family > 1 and is_large and did_fastest and not low <= 1 <= high:
        return Verdict.CANNOT_TELL, (
            f"{interval} shows a change of this row alone, but not after the correction for "
            f"{family:,} comparisons{why}"
        )
    return Verdict.CANNOT_TELL, f"{interval} is not inside ±{least:.1%}, nor surely outside{why}"


def _says_nothing(low: float, high: float) -> bool:
    return low < 1 < high and high > _WIDEST * low


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """Return one verdict for several: the worst verdict that is sure; if none is, whether all are
    known.
    """
    found = set(verdicts)
    for verdict in (Verdict.REGRESSED, Verdict.CANNOT_TELL, Verdict.IMPROVED):
        if verdict in found:
            return verdict
    return Verdict.NO_DIFFERENCE if found else Verdict.CANNOT_TELL


# -- the order of the sides of a comparison in rounds


def drawn_orders(rounds: int, seed: int, sides: int = 2) -> tuple[tuple[int, ...], ...]:
    """Draw the order of the sides in each round. Each side goes first equally often, give or take
    one round.
    """
    draw = random.Random(seed)
    firsts = [number % sides for number in range(rounds - rounds % sides)]
    firsts += draw.sample(range(sides), rounds % sides)
    draw.shuffle(firsts)
    return tuple(
        (first, *draw.sample([side for side in range(sides) if side != first], sides - 1))
        for first in firsts
    )
