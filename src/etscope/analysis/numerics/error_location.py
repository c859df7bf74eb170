"""Find the part of a value with a larger error than rounding explains.

One number for a whole tensor hides a wrong channel among larger ones, a wrong last row, a single
wrong element. So each slice along each dimension and each element has its own limit. A part is
wrong when its error exceeds the limit there and chance does not explain it. Errors of one sign, as
from a rounding that floors, show in their mean; each slice and the whole have a limit on the mean,
too.

The test assumes normal rounding errors, on the device up to k times as large as in PyTorch. For a
slice, x is the mean square of the error over k^2 times the mean square of PyTorch's rounding (at
least half a unit in the last place). With n elements each, x is at most F-distributed: Chernoff
bounds the probability of a larger one (`log_tail`). Of numbers of many sizes the
large ones alone count, so n is (sum of squares)^2 / (sum of fourth powers) of the roundings, which
is a third of the elements if all are alike. An element is compared in the same way with the slices
that it lies in, and with the whole, by the mean square of their large numbers: (sum of fourth
powers) / (sum of squares). The mean of an error is one normal number. Its variance is the
rounding's variance over the number of elements, or k^2 times the mean square of the other slices'
mean roundings if that is larger, as roundings of one input go into many elements alike.

The probability is multiplied by the number of parts that were looked at. What remains must be below
`FALSE_ALARMS` over the number of values in the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

FALSE_ALARMS = 1e-4  # share of faultless runs in which a part is reported as wrong
PEAK = 16.0  # an element's error may be as many times the tolerance of its tensor

_Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WrongPart:
    """A part of a value that is wrong.

    axis: the dimension of the slice; None for an element and for the whole value. index: the
    slice's (one number) or the element's; empty for the whole value. size: the dimension's, or the
    tensor's. error, limit: root mean squares over the part, or absolute means with `is_mean`.
    log_p: upper bound of the natural logarithm of the probability that rounding makes such an error
    in any part of a sound value.
    """

    axis: int | None
    index: tuple[int, ...]
    size: int
    error: float
    limit: float
    log_p: float
    is_mean: bool = False

    @property
    def excess(self) -> float:
        return self.error / self.limit if self.limit else math.inf

    def __str__(self) -> str:
        where = place_text(self.axis, self.index, self.size)
        if not self.index:
            where = f"the whole of {self.size} elements"
        if self.is_mean:
            where = f"the mean of {where}"
        return (
            f"{where} is off by {self.error:.3g}, and {self.limit:.3g} is allowed there "
            f"({chance_text(self.log_p)})"
        )


def place_text(axis: int | None, index: Sequence[int], size: int) -> str:
    """A part in words: "index 3 of 8 in dimension 1", "element [0, 3]", "the whole value"."""
    if axis is not None:
        return f"index {index[0]} of {size} in dimension {axis}"
    return f"element [{', '.join(map(str, index))}]" if index else "the whole value"


def chance_text(log_p: float) -> str:
    """An upper bound of a probability, as a power of 10, by its natural logarithm."""
    return f"p < 1e{math.floor(max(log_p, -690.0) / math.log(10.0)) + 1}"


@dataclass(frozen=True, slots=True)
class Rounding:
    """The rounding error that a sound value may have.

    noise: PyTorch's rounding error, elementwise. factor: how much larger a device's may be.
    tolerance: relative error that passes. epsilon: the distance from 1 to the next number of the
    dtype; 0 for integers. is_even: any element may have the noise of any other, as after
    quantization.
    """

    noise: _Float64
    factor: float
    tolerance: float
    epsilon: float
    is_even: bool


def wrong_part(
    expected: _Float64, found: _Float64, rounding: Rounding, values: int
) -> WrongPart | None:
    """Return the part of `found` that is farthest beyond its limit, among the parts whose error
    chance does not explain; None if there is none.

    expected: an array of the same shape. Elements that are not finite in both are left out. values:
    how many values of the run are tested.
    """
    known = np.isfinite(expected) & np.isfinite(found) & np.isfinite(rounding.noise)
    if not known.all():
        expected, found = np.where(known, expected, 0.0), np.where(known, found, 0.0)
        rounding = replace(rounding, noise=np.where(known, rounding.noise, 0.0))
    errors = found - expected
    if not errors.any():
        return None
    with np.errstate(over="ignore"):
        squares = [np.square(one) for one in (expected, errors, rounding.noise)]
    if not np.isfinite(squares[0]).all():
        return None  # numbers near the end of float64
    allowed = math.log(FALSE_ALARMS / max(values, 1))
    look = _Look(squares[0], squares[1], squares[2], errors, rounding, allowed)
    parts = [*look.slices(), *look.elements()] or look.means()
    return max(parts, key=lambda part: part.excess, default=None)


@dataclass(frozen=True, slots=True)
class _Look:
    """Looks at the parts of a value. numbers, error, noise: their squares. signed: the errors
    themselves. allowed: natural logarithm of the probability that is allowed for a part."""

    numbers: _Float64
    error: _Float64
    noise: _Float64
    signed: _Float64
    rounding: Rounding
    allowed: float

    def slices(self) -> Iterator[WrongPart]:
        """Yield the slice along each dimension that is farthest beyond its limit, if any is."""
        parts = sum(size for size in self.error.shape if size > 1)
        for axis, size in enumerate(self.error.shape):
            if size < 2 or self.error.size == size:
                continue
            others = tuple(other for other in range(self.error.ndim) if other != axis)
            error, numbers = self.error.mean(axis=others), self.numbers.mean(axis=others)
            by_noise, _, count = (one.reshape(size) for one in self._by_noise(others))
            limit = np.maximum(by_noise, self.rounding.tolerance**2 * numbers)
            limit = np.maximum(limit, self.rounding.epsilon**2 * self.numbers.mean())
            beyond = np.flatnonzero(error > limit)
            if not beyond.size:
                continue
            log_p = log_tail(count[beyond], count[beyond], error[beyond], by_noise[beyond])
            log_p += math.log(parts)
            at = _farthest(error[beyond], limit[beyond], log_p <= self.allowed)
            if at is not None:
                index = int(beyond[at])
                off, most = math.sqrt(error[index]), math.sqrt(limit[index])
                yield WrongPart(axis, (index,), size, off, most, float(log_p[at]))

    def elements(self) -> Iterator[WrongPart]:
        """Yield the element that is farthest beyond its limit, if any is."""
        size, dimensions = self.error.size, range(self.error.ndim)
        tolerated = (PEAK * self.rounding.tolerance) ** 2
        tolerated = tolerated * np.maximum(self.numbers, self.numbers.mean())
        beyond = np.flatnonzero(self.error > tolerated)
        if size < 2 or not beyond.size:
            return
        error, best = self.error.reshape(-1)[beyond], np.zeros(beyond.size)
        tolerated = limit = tolerated.reshape(-1)[beyond]
        groups = {tuple(dimensions), *(tuple(set(dimensions) - {axis}) for axis in dimensions)}
        # One element is too few to estimate rounding: PyTorch's may be 0 by chance.
        groups = {one for one in groups if math.prod(self.error.shape[axis] for axis in one) > 1}
        for group in groups:
            _, by_noise, count = (
                np.broadcast_to(one, self.error.shape).reshape(-1)[beyond]
                for one in self._by_noise(group)
            )
            log_p = log_tail(np.ones_like(count), count, error, by_noise)
            is_better = log_p < best
            best = np.where(is_better, log_p, best)
            limit = np.where(is_better, np.maximum(tolerated, by_noise), limit)
        best += math.log(size * len(groups))
        at = _farthest(error, limit, best <= self.allowed)
        if at is not None:
            index = np.unravel_index(int(beyond[at]), self.error.shape)
            off, most = math.sqrt(error[at]), math.sqrt(limit[at])
            yield WrongPart(None, tuple(map(int, index)), size, off, most, float(best[at]))

    def means(self) -> list[WrongPart]:
        """The slice along each dimension, and the whole, with the mean error farthest beyond its
        limit, if any."""
        dimensions = tuple(range(self.error.ndim))
        groups = {tuple(one for one in dimensions if one != axis): axis for axis in dimensions}
        looked_at = 1 + sum(size for size in self.error.shape if size > 1)
        found = [self._mean(dimensions, None, looked_at)]
        found += [self._mean(axes, axis, looked_at) for axes, axis in groups.items() if axes]
        return [part for part in found if part is not None]

    def _mean(self, axes: tuple[int, ...], axis: int | None, looked_at: int) -> WrongPart | None:
        by_noise, large, count = (one.reshape(-1) for one in self._by_noise(axes))
        elements = self.error.size / by_noise.size
        if elements < 2:
            return None
        mean, rounded = (
            np.square(one.mean(axis=axes)).reshape(-1) for one in (self.signed, self.rounding.noise)
        )
        rounded = self.rounding.factor**2 * np.maximum(rounded, rounded.mean())
        numbers = self.numbers.mean(axis=axes).reshape(-1)
        limit = np.maximum(rounded, self.rounding.tolerance**2 * numbers)
        limit = np.maximum(limit, self.rounding.epsilon**2 * self.numbers.mean())
        below = np.maximum(large / elements, rounded)
        log_p = log_tail(np.ones_like(count), count, mean, below) + math.log(looked_at)
        at = _farthest(mean, limit, (mean > limit) & (log_p <= self.allowed))
        if at is None:
            return None
        index = () if axis is None else (at,)
        size = self.error.size if axis is None else self.error.shape[axis]
        off, most = math.sqrt(mean[at]), math.sqrt(limit[at])
        return WrongPart(axis, index, size, off, most, float(log_p[at]), is_mean=True)

    def _by_noise(self, axes: tuple[int, ...]) -> tuple[_Float64, _Float64, _Float64]:
        """The mean square of the device's possible rounding over `axes`; the mean square of its
        large numbers alone; and the number of elements behind both. All have the dimensions of the
        value, `axes` of size 1."""
        noise = self.noise.mean(axis=axes, keepdims=True)
        fourth = np.square(self.noise).mean(axis=axes, keepdims=True)
        elements = self.noise.size / noise.size
        alike = np.full_like(noise, 1 / 3)  # of normal numbers
        share = np.divide(np.square(noise), fourth, out=alike, where=fourth > 0)
        least = self.numbers.mean(axis=axes, keepdims=True) * (self.rounding.epsilon / 2) ** 2
        if self.rounding.is_even:
            least = np.maximum(least, self.noise.mean())
        allowed = self.rounding.factor**2 * np.maximum(noise, least)
        return allowed, allowed / share, elements * share


def log_tail(m: _Float64, n: _Float64, above: _Float64, below: _Float64) -> _Float64:
    """A bound of the logarithm of P(F > above / below), F of m and n degrees of freedom; 0 where
    that ratio is at most 1. Chernoff's: the least E exp(s (U - y V)), of chi-squared U and V."""
    with np.errstate(divide="ignore", invalid="ignore"):
        y = above / below * m / n
        found = -m / 2 * np.log(m * (1 + 1 / y) / (m + n)) - n / 2 * np.log(n * (1 + y) / (m + n))
    return np.where(above > below, found, 0.0)


def _farthest(error: _Float64, limit: _Float64, counts: npt.NDArray[np.bool_]) -> int | None:
    """The position with the largest excess among those that count."""
    if not counts.any():
        return None
    with np.errstate(divide="ignore"):
        return int(np.where(counts, error / limit, -1.0).argmax())
