"""How much an operator's result may differ from what PyTorch makes of the same inputs.

Two things are allowed, and the larger of them counts:

- the tolerance: what the metric says of a result ``L`` whose elements are too large and too small
  by turns, by a share ``r`` that goes with the type (`TOLERANCES`); or a number that is given;
- `ROUNDING_FACTOR` times the noise floor: ``N`` is the result in float64, ``L - N`` the error that
  rounding makes in PyTorch, and the limit what the metric says of ``L + k (L - N)``. A kernel that
  adds up in another order has rounding errors of its own, and larger ones. Where numbers are
  quantised, ``N`` has them moved by up to half a step, and k is `QUANTIZED_FACTOR`.

Integers and booleans have no tolerance: only the noise floor, which is 0 unless they come from
rounded numbers.

A NaN that is expected is no error, and is left out; what is nothing but NaN on both sides has the
error NaN, which nobody can call equal, and is not wrong. A NaN in place of a number is wrong in any
metric and with any tolerance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric, measure

ROUNDING_FACTOR = 16.0
QUANTIZED_FACTOR = 2.0
TOLERANCES = {"float64": 1e-10, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
_OTHER_TOLERANCE = 0.2  # of floats with 8 bits

_Array = npt.NDArray[Any]
_Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """The error of a result, in a metric, and what is allowed.

    error, noise, limit: of the metric; `noise` is None without a result in float64. excess: the
    error over what is allowed, both as root mean squares. share: of the elements that are off by
    more than a hundredth of the result's root mean square. is_wrong: whether the error is more than
    is allowed, or there are NaN in place of numbers.
    """

    error: float | None
    noise: float | None
    limit: float | None
    excess: float
    share: float
    is_wrong: bool = False


def exceeds(metric: Metric, error: float | None, limit: float | None) -> bool:
    """Whether an error is more than is allowed. NaN always is, and a limit of NaN allows none."""
    if error is None or limit is None:
        return False
    allowed = metric.perfect if math.isnan(limit) else limit
    return math.isnan(error) or metric.badness(error) > metric.badness(allowed)


def judge(
    metric: Metric,
    local: Any,
    value: Any,
    wide: Any,
    *,
    tolerance: float | None = None,
    quantized: bool = False,
) -> Judged:
    """Hold a device's value against `local`, what it should be, and `wide`, that in float64.

    tolerance: the metric's, in place of that of the type.
    """
    expected, found = agreeing(local, value)
    error = measure(metric, expected, found) if expected.size else None
    if error is None:
        return Judged(None, None, None, 0.0, 0.0)
    if only_nan(value):
        error = math.nan
        if only_nan(local):
            return Judged(error, None, None, 0.0, 0.0)
    numbers = _numbers(expected)
    allowed = _tolerated(expected, numbers)
    limit = tolerance
    if limit is None:
        limit = metric.perfect if allowed is None else measure(metric, expected, allowed)
    noise, rounded = None, None
    if wide is not None and np.shape(wide) == expected.shape:
        exact = _with(expected, wide, where=_both_nan(local, value) | nan_of(wide))
        noise = measure(metric, exact, expected)
        factor = QUANTIZED_FACTOR if quantized else ROUNDING_FACTOR
        rounded = _with_noise(numbers, _numbers(exact), factor)
        limit = _worse(metric, limit, measure(metric, expected, _as(rounded, expected.dtype)))
    excess, share = _excess(numbers, _numbers(found), (allowed, rounded))
    wrong = bool(new_nan(local, value)) or exceeds(metric, error, limit)
    return Judged(error, noise, limit, excess, share, wrong)


def agreeing(one: Any, other: Any) -> tuple[_Array, _Array]:
    """Both as arrays, with 0 where both are NaN: that a NaN was kept is no error."""
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        return first, second
    both = _both_nan(first, second)
    if not both.any():
        return first, second
    return np.where(both, first.dtype.type(0), first), np.where(both, second.dtype.type(0), second)


def nan_of(value: Any) -> npt.NDArray[np.bool_]:
    """Where the NaN are; nowhere in what cannot have any."""
    array = np.asarray(value)
    if array.dtype.kind in "biuO":
        return np.zeros(array.shape, np.bool_)
    found: npt.NDArray[np.bool_] = np.isnan(array)
    return found


def new_nan(expected: Any, value: Any) -> int:
    """How many elements are NaN where another number is expected."""
    found = nan_of(value)
    if not found.any():
        return 0
    known = nan_of(expected)
    if found.shape != known.shape:
        return max(int(found.sum()) - int(known.sum()), 0)
    return int((found & ~known).sum())


def only_nan(value: Any) -> bool:
    """Whether there are elements, and all of them are NaN."""
    array = np.asarray(value)
    if not array.size or not nan_of(array.flat[0]).all():  # the first tells most
        return False
    return bool(nan_of(array).all())


def _both_nan(one: Any, other: Any) -> npt.NDArray[np.bool_]:
    both: npt.NDArray[np.bool_] = nan_of(one) & nan_of(other)
    return both


def difference(metric: Metric, reference: Any, value: Any) -> float | None:
    """The metric of two values, NaN in both being no error; None with nothing to compare. What is
    nothing but NaN has the error NaN."""
    if reference is None or np.shape(reference) != np.shape(value) or not np.size(value):
        return None
    if only_nan(value):
        return math.nan
    return measure(metric, *agreeing(reference, value))


def _with(expected: _Array, wide: Any, where: npt.NDArray[np.bool_]) -> _Array:
    """What float64 gives, with what is expected in some places."""
    exact = np.asarray(wide)
    return np.where(where, _numbers(expected), _numbers(exact)) if where.any() else exact


def _numbers(array: _Array) -> _Float64:
    return array.astype(np.float64)


def _tolerated(expected: _Array, numbers: _Float64) -> _Array | None:
    """The result with the type's relative error, up and down by turns; None if it is exact."""
    if expected.dtype.kind in "biu":
        return None
    share = TOLERANCES.get(expected.dtype.name, _OTHER_TOLERANCE)
    signs = np.ones(expected.size)
    signs[1::2] = -1.0
    with np.errstate(over="ignore"):
        return _as(numbers * (1.0 + share * signs.reshape(expected.shape)), expected.dtype)


def _with_noise(numbers: _Float64, exact: _Float64, factor: float) -> _Float64:
    with np.errstate(invalid="ignore", over="ignore"):
        noise = np.where(numbers == exact, 0.0, numbers - exact)  # of infinities, too
        return numbers + factor * noise


def _as(numbers: _Float64, dtype: np.dtype[Any]) -> _Array:
    if dtype.kind in "biu":  # of integers, the noise may be a part of one
        return numbers
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(dtype)


def _worse(metric: Metric, one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    if math.isnan(one) or math.isnan(other):
        return one if math.isnan(other) else other
    return max(one, other, key=metric.badness)


def _excess(
    expected: _Float64, found: _Float64, allowed: tuple[_Array | None, _Array | None]
) -> tuple[float, float]:
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.where(expected == found, 0.0, found - expected)
        limits = [
            _rms(np.where(expected == _numbers(other), 0.0, _numbers(other) - expected))
            for other in allowed
            if other is not None
        ]
        limit = max((x for x in limits if math.isfinite(x)), default=0.0)
        size = _rms(expected[np.isfinite(expected)])
        off = ~(np.abs(errors) <= 0.01 * size)
    error = _rms(errors)
    share = float(off.mean())
    if not math.isfinite(error):
        return math.inf, share
    if limit == 0.0:
        return (math.inf if error else 0.0), share
    return error / limit, share


def _rms(errors: _Float64) -> float:
    return float(np.sqrt(np.mean(np.square(errors)))) if errors.size else 0.0
