"""Student's t distribution. scipy has it, too, but has 145 MB and takes longer to import than
everything else in a comparison."""

from __future__ import annotations

from math import lgamma, log, pi

import numpy as np
import numpy.typing as npt

__all__ = ["t_quantile"]

Floats = npt.NDArray[np.float64]


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
