"""Student's t distribution in numpy: scipy's `stats.t` for those who do not install it.

Source of the formulas: Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.1 (t by the
incomplete beta function), and Press et al., Numerical Recipes, 6.4 (its continued fraction by
Lentz's method).
"""

from __future__ import annotations

from math import lgamma

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_TERMS = 300  # of the continued fraction; it needs about the square root of the degrees of freedom
_TINY = 1e-300
_STEPS = 60  # of Newton's method; some ten are enough


def two_sided_p(t: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """The probability that |T| is at least |t|, for each t; NaN stays NaN.

    freedom: the degrees of freedom (> 0, fractions allowed), in the shape of `t` or a scalar.
    """
    values, degrees = np.broadcast_arrays(
        np.asarray(t, dtype=np.float64), np.asarray(freedom, dtype=np.float64)
    )
    with np.errstate(over="ignore"):
        return _beta(degrees / 2, 0.5, degrees / (degrees + values**2))


def quantile(p: float, freedom: npt.ArrayLike) -> Floats:
    """The t for which `two_sided_p` is `p` (0 < p < 1), for each number of degrees of freedom.

    Degrees are rounded down to tenths, which makes t larger, never smaller.
    """
    degrees = np.floor(np.atleast_1d(np.asarray(freedom, dtype=np.float64)) * 10) / 10
    distinct, places = np.unique(np.maximum(degrees, 0.1), return_inverse=True)
    # The logarithm of p falls ever faster with that of t, so Newton's method on these converges
    # from anywhere: a step too far is followed by steps back.
    t = np.ones_like(distinct)
    for _ in range(_STEPS):
        now = two_sided_p(t, distinct)
        slope = 2 * np.exp(_log_density(t, distinct)) * t / now
        step = np.log(now / p) / slope
        t = t * np.exp(np.clip(step, -2, 2))
        if not (np.abs(step) > 1e-12).any():
            break
    found: Floats = t[places.reshape(degrees.shape)]
    return found


def _log_density(t: Floats, freedom: Floats) -> Floats:
    """The logarithm of the density of Student's t; Abramowitz & Stegun, 26.7.2."""
    front = [lgamma((n + 1) / 2) - lgamma(n / 2) for n in freedom.flat]
    log: Floats = (
        np.reshape(front, freedom.shape)
        - np.log(np.pi * freedom) / 2
        - (freedom + 1) / 2 * np.log1p(t**2 / freedom)
    )
    return log


def _beta(a: Floats, b: float, x: Floats) -> Floats:
    """The regularised incomplete beta function I_x(a, b), element by element."""
    swap = x > (a + 1) / (a + b + 2)
    first = np.where(swap, b, a)
    second = np.where(swap, a, b)
    at = np.clip(np.where(swap, 1 - x, x), 0.0, 1.0)
    logs = np.array([lgamma(v + b) - lgamma(v) - lgamma(b) if v > 0 else np.nan for v in a.flat])
    with np.errstate(divide="ignore", invalid="ignore"):
        front = np.exp(
            logs.reshape(a.shape) + first * np.log(at) + second * np.log1p(-at) - np.log(first)
        )
        value = front * _fraction(first, second, at)
    # At the ends the logarithms are infinite; the value is not.
    value = np.where(at == 0, 0.0, np.where(at == 1, 1.0, value))
    result: Floats = np.where(np.isnan(x), np.nan, np.where(swap, 1 - value, value))
    return result


def _fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """The continued fraction of the incomplete beta function."""
    c = np.ones_like(x)
    d = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value: Floats = d.copy()
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            value = value * (step := c * d)
        if not (np.abs(step - 1) > 1e-14).any():
            break
    return value


def _not_zero(x: Floats) -> Floats:
    safe: Floats = np.where(np.abs(x) < _TINY, _TINY, x)
    return safe
