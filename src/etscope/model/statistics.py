"""Statistics of samples, along the last axis of an array, and Student's t distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.optional import require

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
    interpolated linearly. All are NaN when there are no samples. Raises `UsageError` for another
    name.
    """
    values = np.asarray(samples, dtype=np.float64)
    percents = {name: _percent(name) for name in names if name not in (*_FUNCTIONS, "first")}
    if not values.shape[-1]:
        return {name: np.full(values.shape[:-1], np.nan) for name in names}
    percentiles = iter(np.percentile(values, list(percents.values()), axis=-1) if percents else ())
    found: dict[str, Floats] = {}
    for name in names:
        if name in percents:
            found[name] = next(percentiles)
        else:
            found[name] = values[..., 0] if name == "first" else _FUNCTIONS[name](values, axis=-1)
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
    which it `ran`, a mask of that shape. NaN for a row that never ran."""
    values = np.asarray(samples, dtype=np.float64)
    counts = ran.sum(axis=1)
    found = {name: np.full(len(values), np.nan) for name in names}
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        chosen = values[rows] if count == ran.shape[1] else values[rows][ran[rows]]
        for name, column in summarize(chosen.reshape(len(rows), count), names).items():
            found[name][rows] = column
    return found


def statistic(samples: npt.ArrayLike, name: str) -> float:
    """Return one statistic of a series; see `summarize`."""
    return float(summarize(samples, (name,))[name])


def two_sided_p(t: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """Return the probability that |T| of Student's t is at least |t|; NaN stays NaN.

    freedom: the degrees of freedom (> 0, fractions allowed), in the shape of `t` or a scalar.
    """
    special = require("scipy.special", wanted_by="a comparison of samples")
    degrees = np.asarray(freedom, dtype=np.float64)
    with np.errstate(over="ignore"):
        squares = np.asarray(t, dtype=np.float64) ** 2
    found: Floats = special.betainc(degrees / 2, 0.5, degrees / (degrees + squares))
    return found


def t_quantile(p: float, freedom: npt.ArrayLike) -> Floats:
    """Return the t for which `two_sided_p` is `p` (0 < p < 1), for each number of degrees of
    freedom.

    Degrees are rounded down to tenths, which makes t larger, never smaller.
    """
    special = require("scipy.special", wanted_by="a comparison of samples")
    degrees = np.floor(np.asarray(freedom, dtype=np.float64) * 10) / 10
    found: Floats = -special.stdtrit(np.maximum(degrees, 0.1), p / 2)
    return found
