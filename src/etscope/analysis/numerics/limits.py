"""Limits on the difference between an operator's result and PyTorch's from the same inputs.

The limit is the larger of two:

- the tolerance: a given number, or the metric of a result ``L`` with elements alternately too
  large and too small by a share ``r``, which depends on the dtype (`TOLERANCES`);
- a multiple of the noise floor: with ``N``, the result in float64, ``L - N`` is the rounding error
  of PyTorch, and the limit is the metric of ``L + k (L - N)``. A kernel that adds up in another
  order has other rounding errors, and larger ones: k is `ROUNDING_FACTOR`. Where numbers are
  quantized, ``N`` is computed from inputs moved by up to half a step, and k is `QUANTIZED_FACTOR`.

Integers and booleans have no tolerance, only the noise floor, which is 0 unless they come from
rounded numbers. Nor have numbers that are moved and not computed.

A result within the limit is looked at in parts, by the same two limits: see
`analysis.numerics.error_location`.

An expected NaN is not an error and is left out. If both results are nothing but NaN, the error is
NaN, and the result is not wrong. A NaN in place of a number is wrong in any metric and with any
tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric, measure
from etscope.analysis.metrics.arrays import PART, Need, Summary, is_integer, plain_sum
from etscope.analysis.numerics.error_location import PEAK, Rounding, WrongPart, wrong_part
from etscope.errors import UsageError

# A kernel that adds in another order may round this many times as much as PyTorch does: with it no
# sound model is accused in `benchmarks/planted_faults.py`.
ROUNDING_FACTOR = 16.0
QUANTIZED_FACTOR = 2.0  # the noise has numbers near a tie on its other side already
# About 4 units in the last place of the half types, and 250 of float32, which has longer sums.
TOLERANCES = {"float64": 1e-10, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
OTHER_TOLERANCE = 0.2  # of floats with 8 bits
BEYOND = 0.01  # of the root mean square: the error of an element that is clearly off
_EPSILONS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}

_Array = npt.NDArray[Any]
_Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """The error of a result, and its limit.

    error, noise, limit: in the metric; `noise` is None if there is no result in float64. excess:
    the error divided by the limit, both as root mean squares. share: the share of elements that are
    off by more than a hundredth of the result's root mean square. is_wrong: True if the error
    exceeds the limit, if there are NaN in place of numbers, or if `part` is set. part: a wrong part
    of a result that as a whole is within the limit; `excess` is then the part's.
    """

    error: float | None
    noise: float | None
    limit: float | None
    excess: float
    share: float
    is_wrong: bool = False
    part: WrongPart | None = None


def exceeds(metric: Metric, error: float | None, limit: float | None) -> bool:
    """True if the error is larger than the limit, or NaN; a limit of NaN allows no error."""
    if error is None or limit is None:
        return False
    allowed = metric.perfect if math.isnan(limit) else limit
    return math.isnan(error) or metric.badness(error) > metric.badness(allowed)


def check_tolerance(tolerance: float | None) -> None:
    """Raise `UsageError` for a tolerance of NaN, which no error exceeds."""
    if tolerance is not None and math.isnan(tolerance):
        raise UsageError("a tolerance must be a number, not NaN")


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for judging a result.

    tolerance: in the metric. By default the dtype's; then parts of the result are judged, too.
    quantized: the result is computed from quantized numbers. exact: it is moved, not computed.
    values: how many values of the run are judged.
    """

    tolerance: float | None = None
    quantized: bool = False
    exact: bool = False
    values: int = 1

    @property
    def factor(self) -> float:
        """Return how many times larger a device's rounding may be than PyTorch's."""
        return QUANTIZED_FACTOR if self.quantized else ROUNDING_FACTOR


_USUAL = Rules()


def judge(metric: Metric, local: Any, value: Any, wide: Any, rules: Rules = _USUAL) -> Judged:
    """Compare a device's value with `local`, PyTorch's result, and `wide`, the same in float64."""
    expected, found = agreeing(local, value)
    error = measure(metric, expected, found) if expected.size else None
    if error is None:
        return Judged(None, None, None, 0.0, 0.0)
    if only_nan(value):
        error = math.nan
        if only_nan(local):
            return Judged(error, None, None, 0.0, 0.0)
    numbers = _numbers(expected)
    allowed = None if rules.exact else tolerated(expected)
    limit = rules.tolerance
    if limit is None:
        limit = metric.perfect if allowed is None else measure(metric, expected, allowed)
    noise, rounding, rounded = None, None, None
    if wide is not None and np.shape(wide) == expected.shape:
        precise = np.asarray(wide)
        unusable = _both_nan(local, value) | nan_of(wide)
        if unusable.any():
            precise = np.where(unusable, numbers, _numbers(precise))
        noise = measure(metric, precise, expected)
        with np.errstate(invalid="ignore", over="ignore"):
            in_float64 = _numbers(precise)
            rounding = np.where(numbers == in_float64, 0.0, numbers - in_float64)
            rounded = numbers + rules.factor * rounding
        limit = metric.worse(limit, measure(metric, expected, _as(rounded, expected.dtype)))
    excess, share = _excess(numbers, _numbers(found), (allowed, rounded))
    wrong = bool(new_nan(local, value)) or exceeds(metric, error, limit)
    if wrong or rules.tolerance is not None or rounding is None:
        return Judged(error, noise, limit, excess, share, wrong)
    known = rounding_of(expected.dtype, rounding, rules)
    part = wrong_part(numbers, _numbers(found), known, rules.values)
    if part is not None:
        excess = part.excess
    return Judged(error, noise, limit, excess, share, part is not None, part)


def rounding_of(dtype: np.dtype[Any], noise: _Float64, rules: Rules) -> Rounding:
    """Return the rounding error that a result may have. noise: PyTorch's rounding error,
    elementwise.
    """
    is_float = dtype.kind not in "biu"
    return Rounding(
        noise=noise,
        factor=rules.factor,
        tolerance=tolerance_of(dtype) if is_float and not rules.exact else 0.0,
        epsilon=epsilon_of(dtype),
        is_even=rules.quantized,
    )


def epsilon_of(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of a dtype; 0 for integers."""
    return _EPSILONS.get(dtype.name, 0.25) if dtype.kind not in "biu" else 0.0


def agreeing(one: Any, other: Any) -> tuple[_Array, _Array]:
    """Both as arrays, with 0 where both are NaN: a kept NaN is not an error."""
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        return first, second
    both = _both_nan(first, second)
    if not both.any():
        return first, second
    return np.where(both, first.dtype.type(0), first), np.where(both, second.dtype.type(0), second)


def nan_of(value: Any) -> npt.NDArray[np.bool_]:
    array = np.asarray(value)
    if array.dtype.kind in "biuO":
        return np.zeros(array.shape, np.bool_)
    found: npt.NDArray[np.bool_] = np.isnan(array)
    return found


def new_nan(expected: Any, value: Any) -> int:
    """The number of elements that are NaN where a number is expected."""
    found = nan_of(value)
    if not found.any():
        return 0
    known = nan_of(expected)
    if found.shape != known.shape:
        return max(int(found.sum()) - int(known.sum()), 0)
    return int((found & ~known).sum())


def only_nan(value: Any) -> bool:
    """True if there are elements, and all of them are NaN."""
    array = np.asarray(value)
    if not array.size or not nan_of(array.flat[0]).all():  # the first element decides in most cases
        return False
    return bool(nan_of(array).all())


def _both_nan(one: Any, other: Any) -> npt.NDArray[np.bool_]:
    both: npt.NDArray[np.bool_] = nan_of(one) & nan_of(other)
    return both


def difference(metric: Metric, reference: Any, value: Any) -> float | None:
    """The metric of two values; None with nothing to compare, NaN if `value` is nothing but NaN.
    NaN in both is not an error."""
    if reference is None or np.shape(reference) != np.shape(value) or not np.size(value):
        return None
    if metric.of_summary is not None:  # it is NaN for any NaN
        found = measure(metric, reference, value)
        if found is None or not math.isnan(found):
            return found
    if only_nan(value):
        return math.nan
    return measure(metric, *agreeing(reference, value))


def _numbers(array: _Array) -> _Float64:
    return array.astype(np.float64)


def tolerated(expected: _Array, share: float | None = None) -> _Array | None:
    """Return the result with a relative error, up and down in turn; None for exact dtypes. share:
    the relative error, by default the dtype's tolerance.
    """
    if expected.dtype.kind in "biu":
        return None
    share = tolerance_of(expected.dtype) if share is None else share
    signs = np.ones(expected.size)
    signs[1::2] = -1.0
    factors = 1.0 + share * signs.reshape(expected.shape)
    with np.errstate(over="ignore"):
        return _as(_numbers(expected) * factors, expected.dtype)


def tolerance_of(dtype: np.dtype[Any]) -> float:
    return TOLERANCES.get(dtype.name, OTHER_TOLERANCE)


def _as(numbers: _Float64, dtype: np.dtype[Any]) -> _Array:
    if dtype.kind in "biu":  # the noise of integers may be a fraction
        return numbers
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(dtype)


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
        off = ~(np.abs(errors) <= BEYOND * size)
    error = _rms(errors)
    share = float(off.mean())
    if not math.isfinite(error):
        return math.inf, share
    if limit == 0.0:
        return (math.inf if error else 0.0), share
    return error / limit, share


def _rms(errors: _Float64) -> float:
    return float(np.sqrt(np.mean(np.square(errors)))) if errors.size else 0.0


# -- without noise
#
# The noise floor only ever makes a limit larger, for a value as for its parts. So a value that is
# within the tolerance of its dtype, and each part of it too, needs no result in float64. This is
# what most values of a sound model are. The sums of `judge` and `error_location.wrong_part` are
# taken in one pass over memory, in blocks that stay in the cache.


_SLACK = 1 - 1e-9  # sums in another order differ by less

# 1 for numbers with an even index, -1 for others.
_SIGNS = np.resize(np.array([1.0, -1.0]), PART + 2)


def screened(metric: Metric, local: Any, value: Any, rules: Rules) -> Judged | None:
    """Judge a value that its tolerance alone shows to be fine; return None for any other value, and
    for floats that are not finite.
    """
    expected, found = np.asarray(local), np.asarray(value)
    if expected.shape != found.shape or not expected.size:
        return None
    if is_integer(expected.dtype):
        if not np.array_equal(expected, found):
            return None
        allowed = metric.perfect if rules.tolerance is None else rules.tolerance
        error = measure(metric, expected, found)
        return None if exceeds(metric, error, allowed) else Judged(error, None, allowed, 0.0, 0.0)
    if not (_is_float(expected.dtype) and _is_float(found.dtype)):
        return None
    sums = _Sums.of(expected, found, rules)
    if sums is None:
        return None
    error, limit = sums.error_in(metric, expected, found), rules.tolerance
    if limit is None:
        limit = sums.limit_in(metric, expected)
    if exceeds(metric, error, limit) or (rules.tolerance is None and sums.has_part_beyond(found)):
        return None
    return Judged(error, None, limit, sums.excess, sums.share(found))


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name in TOLERANCES


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Indices of parts of an array, in order, of at most `PART` elements."""
    if not shape:
        yield ()
        return
    inner = math.prod(shape[1:])
    if inner > PART:
        for at in range(shape[0]):
            for rest in _blocks(shape[1:]):
                yield slice(at, at + 1), *rest
        return
    step = PART // inner
    for at in range(0, shape[0], step):
        yield (slice(at, at + step),)


@dataclass(slots=True)
class _Sums:
    """Sums over the elements of an expected array L and of the errors e = V - L.

    numbers, error, allowed: of squares, of L, e, and of what the tolerance allows. largest: |e|.
    error_along, numbers_along: sums of squares for each index of each dimension; empty without a
    look at parts.
    """

    rules: Rules
    expected: _Array
    numbers: float = 0.0
    error: float = 0.0
    allowed: float = 0.0
    largest: float = 0.0
    error_along: list[_Float64] = field(default_factory=list)
    numbers_along: list[_Float64] = field(default_factory=list)

    @classmethod
    def of(cls, expected: _Array, found: _Array, rules: Rules) -> _Sums | None:
        """Add up the errors; None if a sum is not precise (numbers not finite, or far from 1)."""
        # Dimensions of one index have the sums of the whole.
        expected, found = expected.squeeze(), found.squeeze()
        sums, shape = cls(rules, expected), expected.shape
        if rules.tolerance is None and len(shape) > 1:
            sums.error_along = [np.zeros(size) for size in shape]
            sums.numbers_along = [np.zeros(size) for size in shape]
        room = np.empty((3, min(PART, expected.size)))
        start = 0
        with np.errstate(all="ignore"):
            for block in _blocks(shape):
                part = expected[block]
                size = part.size
                rows = room[:, :size]
                np.copyto(rows[0].reshape(part.shape), part, casting="unsafe")
                np.copyto(rows[1].reshape(part.shape), found[block], casting="unsafe")
                if not sums._add(rows, block, part.shape, start):
                    return None
                start += size
        return sums

    def _add(
        self, rows: _Float64, block: tuple[slice, ...], shape: tuple[int, ...], start: int
    ) -> bool:
        """Add a block of elements that begins at the index `start`. rows: L, V and room."""
        numbers, errors, room = rows
        np.subtract(errors, numbers, out=errors)
        squares = plain_sum(numbers), plain_sum(errors)
        if squares[0] is None or squares[1] is None:
            return False
        self.numbers += squares[0]
        self.error += squares[1]
        if not self.rules.exact:
            first = start % 2
            signs = _SIGNS[first : first + numbers.size]
            np.multiply(signs, tolerance_of(self.expected.dtype), out=room)
            room += 1.0
            room *= numbers
            np.subtract(room.astype(self.expected.dtype), numbers, out=room)
            allowed = plain_sum(room)
            if allowed is None:
                return False
            self.allowed += allowed
        if squares[1]:
            self.largest = max(self.largest, float(errors.max()), -float(errors.min()))
        if self.error_along:
            np.multiply(numbers, numbers, out=numbers)
            _add_along(self.numbers_along, numbers.reshape(shape), block)
            if squares[1]:
                np.multiply(errors, errors, out=errors)
                _add_along(self.error_along, errors.reshape(shape), block)
        return True

    def error_in(self, metric: Metric, expected: _Array, found: _Array) -> float | None:
        known = self._in(metric, self.error)
        return measure(metric, expected, found) if known is None else known

    def limit_in(self, metric: Metric, expected: _Array) -> float | None:
        """The error that the tolerance allows, in the metric."""
        if self.rules.exact:
            return metric.perfect
        known = self._in(metric, self.allowed)
        return measure(metric, expected, tolerated(expected)) if known is None else known

    def _in(self, metric: Metric, error: float) -> float | None:
        """The metric of an error by its sum of squares; None if it takes more than sums."""
        if metric.of_summary is None or metric.need is Need.ALL:
            return None
        summary = Summary(metric.need, self.expected.size)
        summary.r.add_sum(self.numbers, 0.0)
        summary.error.add_sum(error, 0.0)
        return metric.of_summary(summary)

    @property
    def excess(self) -> float:
        """The error over what the tolerance allows."""
        if self.allowed == 0.0:
            return math.inf if self.error else 0.0
        return math.sqrt(self.error / self.allowed)

    def share(self, found: _Array) -> float:
        """The share of elements that are clearly off."""
        most = BEYOND * math.sqrt(self.numbers / self.expected.size)
        if self.largest <= most:
            return 0.0
        off = sum(
            np.count_nonzero(np.abs(errors) > most) for errors, _ in self._errors(found.squeeze())
        )
        return float(off) / self.expected.size

    def _errors(self, found: _Array) -> Iterator[tuple[_Float64, _Float64]]:
        """Yield the errors and the expected numbers, block by block."""
        for block in _blocks(found.shape):
            numbers = self.expected[block].astype(np.float64)
            yield found[block].astype(np.float64) - numbers, numbers

    def has_part_beyond(self, found: _Array) -> bool:
        """True if a part may be wrong: see `error_location.wrong_part`, without noise."""
        if not self.error:
            return False
        rounding = rounding_of(self.expected.dtype, np.empty(0), self.rules)
        mean = self.numbers / self.expected.size
        least = rounding.epsilon**2 * mean
        share = rounding.tolerance**2  # which the mean of a part is held against
        for error, numbers in zip(self.error_along, self.numbers_along, strict=True):
            each = self.expected.size / error.size
            limit = np.maximum(share * numbers / each, least)
            if (error / each > _SLACK * limit).any():
                return True
        tolerated = _SLACK * (PEAK * rounding.tolerance) ** 2
        if self.largest**2 <= tolerated * mean:
            return False
        return any(
            (np.square(errors) > tolerated * np.maximum(np.square(numbers), mean)).any()
            for errors, numbers in self._errors(found.squeeze())
        )


def _add_along(sums: list[_Float64], squares: _Float64, block: tuple[slice, ...]) -> None:
    """Add the squares of a block to the sums for each index of each dimension. block: its indices,
    of the first dimensions."""
    rest = squares
    for axis in reversed(range(len(sums))):
        size = rest.shape[-1]
        own = sums[axis][block[axis]] if axis < len(block) else sums[axis]
        own += rest.reshape(-1, size).sum(axis=0)
        rest = rest.sum(axis=-1)
