"""Decide whether times regressed, improved, show no difference, or cannot tell.

The test, for the samples of each side in the order in which they were taken:

1. *Location.* The 20 % trimmed mean: a fifth of the samples at each end is left out, so a page
   fault or a preempted run moves nothing.
2. *Its standard error.* Yuen's, from the winsorized sum of squares ``SSD``:
   ``se^2 = SSD / (h (h - 1))`` with the ``h`` samples left after trimming (K. Yuen, "The two-sample
   trimmed t for unequal population variances", Biometrika 61, 1974; R. Wilcox, "Introduction to
   Robust Estimation and Hypothesis Testing", 5.3). It has ``h - 1`` degrees of freedom.
3. *Samples that hang together* say less than independent ones. The squared error is multiplied, and
   the degrees of freedom divided, by the integrated autocorrelation time of the winsorized samples,
   ``tau = 1 + 2 sum rho``, summed while the sums of neighbouring pairs are positive, none counted
   larger than the one before (C. Geyer, "Practical Markov chain Monte Carlo", Statistical Science
   7, 1992). Measured around their own mean, n samples show a rho about ``tau / n`` too small; over
   the w lags that are summed ``tau / (1 - w / n)`` makes up for it.
4. *Drift.* When the trimmed means of the two halves differ by more than the standard error of such
   a difference (a third of steady series do), the whole difference is taken for the standard error
   of the location: times that drift within a dump have drifted between two dumps as well.
5. *The clock.* Samples that all lie within one step of the clock are known to a step only: the
   error is at least ``step / sqrt(12)``, the standard deviation of rounding.
6. *Comparison.* The logarithm of the ratio of the two locations, its error by the delta method
   ``se^2 = (se_a / a)^2 + (se_b / b)^2``, against Student's t with the degrees of freedom of Welch
   and Satterthwaite (B. Welch, Biometrika 34, 1947). Two-sided. Nothing is drawn at random: equal
   samples give equal answers.
7. *The fastest runs.* Other work on the device makes runs longer, never shorter: the mean of the
   fastest fifth, which was disturbed least, must have changed by the minimum effect as well, in the
   same direction. A change that only the slow runs show is not reported.
8. *Dumps differ.* Two processes that run the same program differ by more than their samples show:
   by the state of the processor, by where memory lies. Only further dumps of one program tell how
   much. With the standard deviation ``s`` of the logarithms of the locations of ``k`` such dumps,
   the squared error is ``2 s^2`` with ``k - 1`` degrees of freedom if that is more than above.
9. *Several at once.* Holm's step-down correction (S. Holm, Scandinavian Journal of Statistics 6,
   1979): among all that are compared in one call, the probability of one false alarm or more is at
   most ``1 - confidence``.

The verdict: *regressed* or *improved* when the corrected p is at most ``1 - confidence``, the ratio
differs from 1 by the minimum effect at least, and that of the fastest runs does. *No difference*
when the confidence interval of the ratio lies inside the minimum effect. All else is *cannot tell*:
too few or too noisy samples are never a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import log, log1p, sqrt

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.model.statistics import t_quantile, two_sided_p

Floats = npt.NDArray[np.float64]

TRIMMED = 0.2  # of the samples, at each end
_FEWEST = 10  # with fewer, how much they hang together cannot be seen
_FASTEST = 5  # one of so many samples, rounded up
_MOST_LAGS = 0.9  # of the samples


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
    confidence: of the interval, and 1 - the rate of false alarms (0.99).
    min_samples: fewer of a side are never judged; at least 10.

    Raises `UsageError` for values that make no sense.
    """

    min_effect: float = 0.03
    confidence: float = 0.99
    min_samples: int = _FEWEST

    def __post_init__(self) -> None:
        if not 0 < self.min_effect < 1:
            raise UsageError(f"a minimum effect of {self.min_effect:g} is not between 0 and 1")
        if not 0.5 <= self.confidence < 1:
            raise UsageError(f"a confidence of {self.confidence:g} is not from 0.5 to below 1")
        if self.min_samples < _FEWEST:
            raise UsageError(f"{self.min_samples} samples are too few: at least {_FEWEST}")

    @property
    def alpha(self) -> float:
        return 1 - self.confidence

    def beyond(self, ratio: float, least: float) -> bool:
        """Return whether a ratio differs from 1 by `least` at least: 1.03 does by 3 %, as 1 /
        1.03."""
        return ratio <= 0 or not abs(log(ratio)) < log1p(least)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer for one pair of sets of samples.

    before, after: their trimmed means, in the samples' unit. relative: after / before - 1, and
    `low` and `high` the ends of its confidence interval (of this pair alone); `fastest` that of
    the fastest fifths; None when nothing can be said. p: of no change, corrected for all pairs of
    the call. noise_floor: the relative change that the noise between dumps alone explains at this
    confidence, 0 when it is not known. reason: why it cannot be told, else "".
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


@dataclass(frozen=True, slots=True)
class Noise:
    """The variation between dumps of one program.

    spread: the standard deviation of the logarithm of the trimmed mean; NaN where a dump has none.
    dumps: their number, 2 at least.
    """

    spread: float
    dumps: int

    def floor(self, policy: Policy) -> float:
        """The relative change between two dumps that is noise at the policy's confidence."""
        return float(np.expm1(t_quantile(policy.alpha, self.dumps - 1) * sqrt(2) * self.spread))


@dataclass(frozen=True, slots=True)
class Locations:
    """Trimmed means and how well they are known: arrays of one element a set of samples.

    error, freedom: the standard error in the samples' unit and its degrees of freedom, NaN for
    fewer than two samples. fastest: the mean of the fastest fifth. unsteady: they drift, or
    hang together so much that they count for less than a third of their number.
    """

    count: npt.NDArray[np.int64]
    centre: Floats
    error: Floats
    freedom: Floats
    fastest: Floats
    unsteady: npt.NDArray[np.bool_]


def compare_samples(
    before: npt.ArrayLike,
    after: npt.ArrayLike,
    policy: Policy | None = None,
    *,
    noise: Noise | None = None,
    step: float = 0.0,
) -> Comparison:
    """The comparison of two sets of samples [n] and [m], each in the order of time.

    The first run of a process fills caches: leave it out. noise: how much dumps of one program
    differ on this device. step: of the clock, in the samples' unit. Raises `UsageError` for
    negative or infinite samples.
    """
    return compare_all([before], [after], policy, noise=[noise], steps=[step])[0]


def compare_all(
    before: Sequence[npt.ArrayLike],
    after: Sequence[npt.ArrayLike],
    policy: Policy | None = None,
    *,
    noise: Sequence[Noise | None] | None = None,
    steps: Sequence[float] | None = None,
) -> list[Comparison]:
    """The comparisons of `before[i]` with `after[i]`, corrected as one family; see
    `compare_samples`."""
    if len(before) != len(after):
        raise UsageError(f"{len(before)} sets of samples cannot be compared with {len(after)}")
    policy = policy or Policy()
    between = [None] * len(before) if noise is None else noise
    return _compared(locations(before, steps), locations(after, steps), between, policy)


def noise_between(dumps: Sequence[Sequence[npt.ArrayLike]]) -> list[Noise]:
    """Estimate the variation of each set of samples between dumps of one program.

    dumps: [dumps, sets] of samples; two dumps at least, else `UsageError`.
    """
    if len(dumps) < 2:
        raise UsageError("noise between dumps takes two dumps of one program at least")
    centres = np.array([locations(sets).centre for sets in dumps])
    with np.errstate(divide="ignore", invalid="ignore"):
        spreads = np.log(centres).std(axis=0, ddof=1)
    return [Noise(float(spread), len(dumps)) for spread in spreads]


def locations(samples: Sequence[npt.ArrayLike], steps: Sequence[float] | None = None) -> Locations:
    """The location of each set of samples; see the module for the formulas. steps: of the clock of
    each."""
    arrays: list[Floats] = [np.asarray(one, dtype=np.float64) for one in samples]
    for array in arrays:
        if array.ndim != 1:
            raise UsageError(f"samples have one dimension, not {array.ndim}")
        if not (np.isfinite(array) & (array >= 0)).all():
            raise UsageError("samples are times: finite and not negative")
    clocks = np.zeros(len(arrays)) if steps is None else np.asarray(steps, dtype=np.float64)
    count = np.array([len(one) for one in arrays], dtype=np.int64)
    centre, error, freedom, fastest = (np.full(len(arrays), np.nan) for _ in range(4))
    unsteady = np.zeros(len(arrays), dtype=bool)
    for length in np.unique(count[count > 0]).tolist():
        rows = np.flatnonzero(count == length)
        matrix = np.stack([arrays[row] for row in rows])
        fastest[rows] = np.sort(matrix, axis=1)[:, : -(-length // _FASTEST)].mean(axis=1)
        centre[rows], error[rows], freedom[rows], unsteady[rows] = _located(matrix, clocks[rows])
    return Locations(count, centre, error, freedom, fastest, unsteady)


def _located(matrix: Floats, steps: Floats) -> tuple[Floats, Floats, Floats, npt.NDArray[np.bool_]]:
    """Centre, error, degrees of freedom and steadiness of each row of [sets, samples]."""
    length = matrix.shape[1]
    ordered = np.sort(matrix, axis=1)
    cut = int(TRIMMED * length)
    left = length - 2 * cut
    centre = _trimmed_means(ordered)
    none = np.full_like(centre, np.nan)
    if left < 2:
        return centre, none, none, np.zeros(len(matrix), dtype=bool)
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
    within_a_step = (high - low)[:, 0] <= steps
    error = np.where(within_a_step, np.maximum(error, steps / np.sqrt(12)), error)
    return centre, error, np.maximum((left - 1) / together, 1.0), drifts | (together > 3)


def _trimmed_means(ordered: Floats) -> Floats:
    length = ordered.shape[1]
    cut = int(TRIMMED * length)
    means: Floats = ordered[:, cut : length - cut].mean(axis=1)
    return means


def _autocorrelation_times(centred: Floats) -> Floats:
    """The integrated autocorrelation time of each row, 1 at least."""
    rows, length = centred.shape
    spectrum = np.fft.rfft(centred, 2 * length, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, : length // 2 * 2]
    variance = covariance[:, :1]
    correlation = np.divide(covariance, variance, out=np.zeros_like(covariance), where=variance > 0)
    pairs = correlation.reshape(rows, -1, 2).sum(axis=2)
    monotone = np.minimum.accumulate(pairs, axis=1)
    times = np.maximum(2 * np.where(monotone > 0, monotone, 0.0).sum(axis=1) - 1, 1.0)
    lags = 2 * (monotone > 0).sum(axis=1) / length
    corrected: Floats = times / (1 - np.minimum(lags, _MOST_LAGS))
    return corrected


def _compared(
    before: Locations, after: Locations, noise: Sequence[Noise | None], policy: Policy
) -> list[Comparison]:
    unknown = [one is not None and not np.isfinite(one.spread) for one in noise]
    judged = (np.minimum(before.count, after.count) >= policy.min_samples) & (
        (before.centre > 0) & (after.centre > 0) & ~np.array(unknown, dtype=bool)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.log(after.centre / before.centre)
        fast = after.fastest / before.fastest
        parts = [(side.error / side.centre) ** 2 for side in (before, after)]
        variance = parts[0] + parts[1]
        weights = parts[0] ** 2 / before.freedom + parts[1] ** 2 / after.freedom
        freedom = np.where(weights > 0, variance**2 / weights, before.freedom + after.freedom)
        spread = np.array([0.0 if one is None else sqrt(2) * one.spread for one in noise])
        larger = spread**2 > variance
        variance = np.where(larger | np.isnan(spread), spread**2, variance)
        fewer = [1.0 if one is None else one.dumps - 1.0 for one in noise]
        freedom = np.where(larger, fewer, freedom)
        t = np.where(difference == 0, 0.0, difference / np.sqrt(variance))
    p = np.full(len(difference), np.nan)
    half = np.full(len(difference), np.nan)
    if judged.any():
        p[judged] = _holm(two_sided_p(t[judged], freedom[judged]))
        half[judged] = t_quantile(policy.alpha, freedom[judged]) * np.sqrt(variance[judged])
    found = []
    for i in range(len(difference)):
        unsteady = bool(before.unsteady[i] or after.unsteady[i])
        counts = (int(before.count[i]), int(after.count[i]))
        places = (float(before.centre[i]), float(after.centre[i]))
        between = noise[i]
        if not judged[i]:
            reason = "it takes less than a tick of the clock"
            if min(counts) < policy.min_samples:
                reason = f"{min(counts)} runs to compare: at least {policy.min_samples} are needed"
            elif unknown[i]:
                reason = "a dump of noise has no times of it"
            found.append(Comparison(Verdict.CANNOT_TELL, *places, counts, reason=reason))
            continue
        ratio, low, high = np.exp(difference[i] + half[i] * np.array([0.0, -1.0, 1.0])).tolist()
        verdict, reason = _verdict(
            (ratio, low, high), float(fast[i]), float(p[i]), policy, unsteady
        )
        found.append(
            Comparison(
                verdict,
                *places,
                counts,
                relative=ratio - 1,
                low=low - 1,
                high=high - 1,
                fastest=float(fast[i]) - 1,
                p=float(p[i]),
                noise_floor=0.0 if between is None else between.floor(policy),
                reason=reason,
            )
        )
    return found


def _verdict(
    ratios: Sequence[float], fast: float, p: float, policy: Policy, unsteady: bool
) -> tuple[Verdict, str]:
    """The verdict for a ratio and the ends of its interval, and why there is none."""
    ratio, low, high = ratios
    least = policy.min_effect
    why = "; the times are not steady within a dump" if unsteady else ""
    if p <= policy.alpha and policy.beyond(ratio, least):
        if not (policy.beyond(fast, least) and (fast > 1) == (ratio > 1)):
            return Verdict.CANNOT_TELL, (
                f"{ratio - 1:+.1%}, but the fastest runs changed by {fast - 1:+.1%}: "
                "something else may have run on the device"
            )
        return (Verdict.REGRESSED if ratio > 1 else Verdict.IMPROVED), ""
    if not (policy.beyond(low, least) or policy.beyond(high, least)):
        return Verdict.NO_DIFFERENCE, ""
    interval = f"{low - 1:+.1%} to {high - 1:+.1%}"
    return Verdict.CANNOT_TELL, f"{interval} is not inside ±{least:.1%}, nor surely outside{why}"


def _holm(p: Floats) -> Floats:
    """Holm's corrected p: the k-th smallest of m times m - k + 1, none below the one before."""
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return corrected


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that stands for several: the worst that is sure, else whether all are known."""
    found = set(verdicts)
    for verdict in (Verdict.REGRESSED, Verdict.CANNOT_TELL, Verdict.IMPROVED):
        if verdict in found:
            return verdict
    return Verdict.NO_DIFFERENCE if found else Verdict.CANNOT_TELL
