"""Statistics of samples, along the last axis of an array, and Wilcoxon's signed-rank test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, erfc, floor, lgamma, log, log2, pi, sqrt

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError

__all__ = ["fewest_differences", "statistic", "summarize", "t_quantile"]

Floats = npt.NDArray[np.float64]

# All statistics of `summarize` but percentiles, which are "p" and a number ("p50").
_FUNCTIONS: dict[str, Callable[..., Floats]] = {
    "avg": np.mean,
    "min": np.min,
    "max": np.max,
    "std": np.std,
}


def summarize(samples: npt.ArrayLike, names: Sequence[str]) -> dict[str, Floats]:
    """Return the statistics `names` of samples, shape [..., runs], as arrays of shape [...].

    names: "avg", "min", "max", "std" (of the population), "first", or a percentile such as "p90",
    interpolated linearly. All are NaN without samples. Raises `UsageError` for another name.
    """
    values = np.asarray(samples, dtype=np.float64)
    percents = {name: _percent(name) for name in names if name not in (*_FUNCTIONS, "first")}
    if not values.shape[-1]:
        return {name: np.full(values.shape[:-1], np.nan) for name in names}
    found_percentiles = iter(percentiles(values, list(percents.values())) if percents else ())
    found: dict[str, Floats] = {}
    for name in names:
        if name in percents:
            found[name] = next(found_percentiles)
        else:
            found[name] = values[..., 0] if name == "first" else _FUNCTIONS[name](values, axis=-1)
    return found


def percentiles(samples: npt.ArrayLike, percents: Sequence[float]) -> Floats:
    """Return percentiles of samples, shape [..., runs], as [percents, ...], interpolated linearly.

    The values are `np.percentile`'s, which imports numpy.ma: 15 ms of each `etscope inspect`.
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64), axis=-1)
    found = np.empty((len(percents), *ordered.shape[:-1]))
    last = ordered.shape[-1] - 1
    for number, percent in enumerate(percents):
        place = last * (percent / 100)
        below = int(place)
        low, high = ordered[..., below], ordered[..., min(below + 1, last)]
        part = place - below
        # From the nearer end, as numpy does: the result is then exact at both ends.
        found[number] = (
            low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
        )
    found[:, np.isnan(ordered[..., -1])] = np.nan
    return found


def _percent(name: str) -> int:
    if name[:1] != "p" or not name[1:].isdecimal() or int(name[1:]) > 100:
        raise UsageError(
            f"unknown statistic {name!r}",
            hint=f"statistics are: {', '.join(_FUNCTIONS)}, first, and percentiles such as p90",
        )
    return int(name[1:])


def summarize_rows(
    samples: npt.ArrayLike, ran: npt.NDArray[np.bool_], names: Sequence[str]
) -> dict[str, Floats]:
    """Return the statistics `names` of each row of samples, shape [rows, runs], over the runs in
    the mask `ran` of that shape. NaN for a row that never ran."""
    values = np.asarray(samples, dtype=np.float64)
    counts = ran.sum(axis=1)
    found = {name: np.full(len(values), np.nan) for name in names}
    for count in sorted(set(counts[counts > 0].tolist())):  # np.unique imports numpy.ma, too
        rows = np.flatnonzero(counts == count)
        chosen = values[rows] if count == ran.shape[1] else values[rows][ran[rows]]
        for name, column in summarize(chosen.reshape(len(rows), count), names).items():
            found[name][rows] = column
    return found


def statistic(samples: npt.ArrayLike, name: str) -> float:
    """Return one statistic of a series; see `summarize`."""
    return float(summarize(samples, (name,))[name])


def median(samples: npt.ArrayLike) -> float:
    """Return the median of a series: `np.median`'s, without its import of numpy.ma."""
    return statistic(samples, "p50")


# -- Wilcoxon's signed-rank test, with its estimate and interval.
#
# Sources: F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1, 1945;
# J. Hodges and E. Lehmann, "Estimates of location based on rank tests", Annals of Mathematical
# Statistics 34, 1963; J. Pratt, "Remarks on zeros and ties in the Wilcoxon signed rank procedures",
# JASA 54, 1959; M. Hollander and D. Wolfe, "Nonparametric statistical methods", 3.1 to 3.3.

Ints = npt.NDArray[np.int64]

_EXACT = 500  # differences; with more, the normal approximation is right to four digits
_HALVINGS = 64  # each halves the interval: a float64 has 53 bits


def signed_rank_p(differences: npt.ArrayLike) -> float:
    """Return the two-sided probability of ranks at least as uneven, if all signs are random.

    differences: [n]. Exact for their sizes: ties have their mean rank, zeros keep their rank and
    count for neither side. Return 1 if all differences are zero.
    """
    values = np.asarray(differences, dtype=np.float64)
    _, places, counts = np.unique(np.abs(values), return_inverse=True, return_counts=True)
    # Twice the mean rank of each, from 2: whole numbers, also for ties.
    doubled: Ints = (2 * np.cumsum(counts) - counts + 1)[places]
    signed = doubled[values != 0]
    total = int(signed.sum())
    positive = int(doubled[values > 0].sum())
    least = min(positive, total - positive)
    if len(signed) <= _EXACT:
        return min(1.0, 2 * float(_cumulative(signed)[least]))
    # A rank r is on one side or the other: variance r^2 / 4, doubled ranks r^2.
    z = (total / 2 - least - 0.5) / (sqrt(float((signed.astype(np.float64) ** 2).sum())) / 2)
    return min(1.0, erfc(max(z, 0.0) / sqrt(2)))


def signed_rank_shift(differences: npt.ArrayLike, alpha: float) -> tuple[float, float, float]:
    """Estimate the size of the differences: the median of all means of two of them (each also with
    itself), and the ends of its confidence interval at `1 - alpha`.

    The ends are infinite for fewer than `fewest_differences(alpha)` differences.
    """
    ordered = np.sort(np.asarray(differences, dtype=np.float64))
    count = len(ordered)
    means = count * (count + 1) // 2
    middle = (_mean_of_two(ordered, (means + 1) // 2) + _mean_of_two(ordered, means // 2 + 1)) / 2
    left_out = _left_out(count, alpha)
    if left_out == 0:
        return middle, -np.inf, np.inf
    low, high = _mean_of_two(ordered, left_out), _mean_of_two(ordered, means + 1 - left_out)
    return middle, low, high


def fewest_differences(alpha: float) -> int:
    """Return the number of differences needed for a p of `alpha`: 2 / 2^n must be that small."""
    return ceil(1 - log2(alpha))


def _left_out(count: int, alpha: float) -> int:
    """Return the index, from either end, of the mean of two that ends the interval; 0 if the
    interval is infinite."""
    if count <= _EXACT:
        ranks = np.arange(1, count + 1)
        return int(np.searchsorted(_cumulative(ranks), alpha / 2, side="right"))
    from statistics import NormalDist  # imports fractions and decimal: milliseconds

    middle = count * (count + 1) / 4
    deviation = sqrt(count * (count + 1) * (2 * count + 1) / 24)
    return max(floor(middle + NormalDist().inv_cdf(alpha / 2) * deviation), 0)


def _cumulative(ranks: Ints) -> Floats:
    """Return the probability that the ranks with positive sign sum to at most 0, 1, …, all."""
    chances = np.zeros(int(ranks.sum()) + 1)
    chances[0] = 1.0
    reached = 0
    for rank in np.sort(ranks).tolist():
        now = chances[: reached + 1] / 2
        chances[: reached + 1] = now
        chances[rank : reached + rank + 1] += now
        reached += rank
    cumulative: Floats = np.cumsum(chances)
    return cumulative


def _mean_of_two(ordered: Floats, place: int) -> float:
    """The `place`-th smallest (from 1) of all (x_i + x_j) / 2 with i <= j, by halving.

    n values have n (n + 1) / 2 such means: too many to list for thousands of values.
    """
    low, high = float(ordered[0]), float(ordered[-1])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        pairs = int(np.searchsorted(ordered, 2 * middle - ordered, side="right").sum())
        alone = int(np.searchsorted(ordered, middle, side="right"))
        if (pairs + alone) // 2 >= place:
            high = middle
        else:
            low = middle
    return high


# -- Student's t distribution. scipy has it, too, but has 145 MB and takes longer to import than
# everything else in a comparison.


def two_sided_p(t: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """Return the probability that |T| of Student's t is at least |t|; NaN stays NaN.

    freedom: the degrees of freedom (> 0, fractions allowed), in the shape of `t` or a scalar.
    """
    values, degrees = np.broadcast_arrays(
        np.abs(np.asarray(t, dtype=np.float64)), np.asarray(freedom, dtype=np.float64)
    )
    degrees = degrees.ravel()
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = values.ravel() ** 2 / degrees
        # Exact at both ends: x = 1 / (1 + ratio), and 1 - x.
        beyond = np.where(np.isinf(ratio), 1.0, ratio / (1 + ratio))
        found = _regularized_beta(degrees / 2, 1 / (1 + ratio), beyond)
    return found.reshape(values.shape)


def t_quantile(p: float, freedom: npt.ArrayLike) -> Floats:
    """Return the t for which `two_sided_p` is `p` (0 < p < 1), for each number of degrees of
    freedom.

    Degrees are rounded down to tenths, which makes t larger, never smaller.
    """
    rounded = np.maximum(np.floor(np.asarray(freedom, dtype=np.float64) * 10) / 10, 0.1)
    degrees, places = np.unique(rounded, return_inverse=True)
    # Newton's method for log p as a function of log t. The start is near the normal distribution's
    # t, from exp(-t^2 / 2) > p. A step that leaves the interval halves it.
    low, high = np.full((2, len(degrees)), [[-350.0], [350.0]])  # e^350: the square is a float
    step = np.full(len(degrees), log(-2 * log(p)) / 2)
    for _ in range(100):
        chances = two_sided_p(np.exp(step), degrees)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.log(chances) - log(p)
            falls = 2 * np.exp(step + _log_t_density(step, degrees)) / chances
            newton = step + error / falls
        low, high = np.where(error > 0, step, low), np.where(error > 0, high, step)
        inside = (newton >= low) & (newton <= high)
        before, step = step, np.where(inside, newton, (low + high) / 2)
        if not np.any(np.abs(step - before) > 1e-12):
            break
    found: Floats = np.where(np.isnan(degrees), np.nan, np.exp(step))[places.reshape(rounded.shape)]
    return found


def _log_t_density(log_t: Floats, degrees: Floats) -> Floats:
    """Return the logarithm of the density of Student's t at exp(`log_t`)."""
    spread = np.logaddexp(0.0, 2 * log_t - np.log(degrees))
    return -(degrees + 1) / 2 * spread - np.log(degrees) / 2 - _log_beta(degrees / 2)


def _log_beta(a: Floats) -> Floats:
    """Return log B(a, 1/2)."""
    # log Γ(a) - log Γ(a + 1/2), for large a by DLMF 5.11.8: there the difference loses digits.
    found: Floats = 1 / (8 * a) - 1 / (192 * a**3) - np.log(a) / 2
    small = a < 100
    found[small] = [lgamma(one) - lgamma(one + 0.5) for one in a[small]]
    return found + log(pi) / 2


def _regularized_beta(a: Floats, x: Floats, y: Floats) -> Floats:
    """Return I_x(a, 1/2), with `y` = 1 - x.

    DLMF 8.17.22: a continued fraction that converges fast for x below (a + 1) / (a + b + 2); above
    it, I_x(a, b) = 1 - I_y(b, a) (8.17.4).
    """
    left = x < (a + 1) / (a + 2.5)
    first, second = np.where(left, a, 0.5), np.where(left, 0.5, a)
    argument = np.where(left, x, y)
    # NaN and the ends 0 and 1 need no terms.
    todo = (argument > 0) & np.isfinite(first + second)
    fraction = np.ones(np.shape(argument))
    fraction[todo] = _beta_fraction(first[todo], second[todo], argument[todo])
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = a * np.log(x) + np.log(y) / 2 - _log_beta(a)
        part = np.where(argument > 0, np.exp(logarithm) * fraction / first, 0.0)
    found: Floats = np.where(np.isnan(x), np.nan, np.where(left, part, 1 - part))
    return found


def _beta_fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """Return the continued fraction of DLMF 8.17.22, by Lentz' method."""
    tiny = 1e-300  # in place of a denominator of 0
    c, d = np.ones_like(x), 1 - (a + b) * x / (a + 1)
    d = 1 / np.where(d == 0, tiny, d)
    fraction: Floats = d.copy()
    # Some sqrt(a) terms are needed: enough for ten million degrees of freedom.
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 + term * d, 1 + term / c
            d, c = 1 / np.where(d == 0, tiny, d), np.where(c == 0, tiny, c)
            change = c * d
            fraction = fraction * change
        if np.all(np.abs(change - 1) < 1e-14):
            break
    return fraction


def holm(p: Floats) -> Floats:
    """Correct p values, [tests], for their number: the k-th smallest of m times m - k + 1, none
    below the one before (S. Holm, Scandinavian Journal of Statistics 6, 1979)."""
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return corrected
