"""Statistics of samples, along the last axis of an array, and Wilcoxon's signed-rank test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, erfc, floor, log2, sqrt

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError

__all__ = ["fewest_differences", "statistic", "summarize"]

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
