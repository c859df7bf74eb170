"""Tell values that are fine whatever PyTorch's rounding is.

The noise floor only ever makes a limit larger, for a value as for its parts. So a value that is
within the tolerance of its dtype, and each part of it too, needs no result in float64. This is what
most values of a sound model are. The sums of `limits.judge` and `parts.wrong_part` are taken in
one pass over memory, in blocks that stay in the cache.
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
from etscope.analysis.numerics.limits import (
    BEYOND,
    TOLERANCES,
    Judged,
    Rules,
    exceeds,
    rounding_of,
    tolerance_of,
    tolerated,
)
from etscope.analysis.numerics.parts import PEAK

_Array = npt.NDArray[Any]
_Float64 = npt.NDArray[np.float64]
_SLACK = 1 - 1e-9  # sums in another order differ by less

# 1 for numbers with an even index, -1 for others.
_SIGNS = np.resize(np.array([1.0, -1.0]), PART + 2)


def screened(metric: Metric, local: Any, value: Any, rules: Rules) -> Judged | None:
    """`limits.judge` a value that is fine by its tolerance alone; None for any other, and for
    floats that are not finite."""
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
        """Add up; None for sums that are not precise, of numbers not finite or far from 1."""
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
        """Add a block, whose elements begin at the index `start`. rows: L, V and room."""
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
        """The error in the metric."""
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
        """True if a part may be wrong: see `parts.wrong_part`, without noise."""
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
