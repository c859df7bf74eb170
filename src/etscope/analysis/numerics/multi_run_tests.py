"""Add up the errors of one operator over many runs. This shows faults that a single run cannot
separate from rounding: a wrong mean, scale or spread of a value, or of a channel, row or element.

Of each value and run e is the device's error to PyTorch's result L from the same inputs, and r the
rounding error of PyTorch, L minus the result in float64, all relative to the root mean square of L
in that run. Sums over the runs give, for each part:

- the mean error, mean(e);
- the scale, sum(e L) / sum(L L): 0.02 for a channel that is 2 % too large;
- the mean square, mean(e e); not of single elements.

Rounding makes the same of r. It is taken to be independent from run to run, and so small in a mean
over n runs; what of it repeats (the weights are the same in each run) is seen in the means of r,
and is allowed for, three times over in the variance. The device's rounding may be k times as large
as PyTorch's (`Rounding.factor`). A mean is wrong when it exceeds its limit, which does not shrink
with the number of runs, and chance does not explain it: with variance v of r and n errors in the
part, the mean has the variance k^2 v / n at most. The probability of a larger one is bounded as in
`analysis.numerics.error_location`, multiplied by the number of parts and tests, and below
`FALSE_ALARMS` over the number of values.

The limit is the tolerance of the type, or a quarter of the rounding's root mean square where
numbers are quantized: kernels may round ties to other sides, and do so in each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.numerics.error_location import (
    FALSE_ALARMS,
    PEAK,
    Rounding,
    chance_text,
    log_tail,
    place_text,
)

LEAST_SAMPLES = 8  # fewer runs do not show what of the rounding repeats
MOST_ELEMENTS = 1 << 21  # of all values together that are kept element by element, 32 bytes each
POWER = 0.9  # with which an error that is called detectable is detected
_POWER_DEVIATIONS = 1.2816  # standard deviations above which a normal number is in a share of 0.9
_TIES = 0.25  # of the rounding's root mean square: kernels round ties to other sides in each run
_SAFETY = 3.0  # the variance of a mean may be this many times its estimate
_CLEARLY = 0.5  # less may be chance
_UNSEEN = 4  # extra means without a repeated part that the estimate assumes
_MOST_FREE = 1e4  # degrees of freedom
_LIKELY = math.log(0.5)  # what chance makes as often is not worth a word

MEAN, SCALE, SQUARE = "mean", "scale", "root mean square error"

_Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Deviation:
    """A mean over runs that is wrong, or possibly wrong.

    test: `MEAN`, `SCALE` or `SQUARE`. axis: the dimension of the slice; None for an element, or for
    the whole value (index empty). size: the size of the dimension, or of the tensor. error, limit:
    relative to the root mean square of the value. log_p: the natural logarithm of an upper bound of
    the probability that rounding makes such an error in any part. sigmas: the error divided by the
    standard deviation that rounding may give it. samples: how many runs have this part. more: how
    many further runs would detect an error of this size with the probability `POWER`; None if no
    number is enough.
    """

    test: str
    axis: int | None
    index: tuple[int, ...]
    size: int
    error: float
    limit: float
    log_p: float
    sigmas: float
    samples: int
    more: int | None = None

    @property
    def excess(self) -> float:
        return abs(self.error) / self.limit if self.limit else math.inf

    @property
    def where(self) -> str:
        return place_text(self.axis, self.index, self.size)

    def __str__(self) -> str:
        return (
            f"over {self.samples} samples the {self.test} of {self.where} is off by "
            f"{self.error:.3g} of the value's size, and {self.limit:.3g} is allowed "
            f"({chance_text(self.log_p)})"
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """The findings on an operator from all runs together.

    samples: how many runs were combined. wrong: among the deviations that chance does not explain,
    the one with the most sigmas. nearest: if there is none, the deviation that more samples may
    confirm. told: the smallest relative mean error that these samples detect in any channel or row
    with the probability `POWER`; None if there are too few. by_element: True if elements were
    tested one by one.
    """

    samples: int
    wrong: Deviation | None = None
    nearest: Deviation | None = None
    told: float | None = None
    by_element: bool = True

    @property
    def is_enough(self) -> bool:
        """False for fewer than `LEAST_SAMPLES`: nothing was concluded."""
        return self.samples >= LEAST_SAMPLES


class AddedRuns:
    """Adds up the errors of values, run by run. Memory does not grow with the number of runs.

    Values of different shapes (dynamic sizes) are added up apart.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[Hashable, tuple[int, ...]], _Value] = {}
        self._room = MOST_ELEMENTS

    def add(
        self,
        key: Hashable,
        expected: Any,
        found: Any,
        wide: Callable[[], Any],
        rounding: Rounding,
    ) -> None:
        """Add a value of a run. expected: PyTorch's value. found: the device's value, with the same
        shape. wide: a function that returns PyTorch's value in float64; it is called only if the
        error is not within the tolerance. rounding: the rules for the value; their noise is not
        used.
        """
        numbers, device = (np.asarray(x).astype(np.float64) for x in (expected, found))
        if numbers.shape != device.shape or not numbers.size:
            return
        precise = numbers
        if not _is_tolerated(device - numbers, numbers, rounding):
            result = wide()
            if result is None or np.shape(result) != numbers.shape:
                return
            precise = np.asarray(result).astype(np.float64)
        known = np.isfinite(numbers) & np.isfinite(device) & np.isfinite(precise)
        if not known.all():
            numbers, device, precise = (np.where(known, x, 0.0) for x in (numbers, device, precise))
        with np.errstate(over="ignore"):
            size = math.sqrt(float(np.mean(np.square(numbers))))
        if size == 0.0 or not math.isfinite(size):
            return
        place = key, numbers.shape
        if place not in self._values:
            by_element = numbers.size <= self._room
            self._room -= numbers.size if by_element else 0
            self._values[place] = _Value(numbers.shape, rounding, by_element)
        relative = numbers / size
        self._values[place].add((device - numbers) / size, (numbers - precise) / size, relative)

    def evidence(self) -> dict[Hashable, Evidence]:
        """Return the evidence of each value by key. If a value has several shapes, take the shape
        with the largest error, else with the most runs.
        """
        found: dict[Hashable, Evidence] = {}
        for (key, _), value in self._values.items():
            one = value.evidence(len(self._values))
            best = found.get(key)
            if best is None or _rank(one) > _rank(best):
                found[key] = one
        return found


def _is_tolerated(error: _Float64, numbers: _Float64, rounding: Rounding) -> bool:
    """True if the error is within the tolerance in each slice and element, whatever PyTorch's own
    rounding is: then it takes no mean beyond its limit."""
    if rounding.is_even or not rounding.tolerance:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        errors, squares = np.square(error), np.square(numbers) * rounding.tolerance**2
        if not errors.max() <= squares.mean():
            return False
        axes = [tuple(b for b in range(error.ndim) if b != a) for a in range(error.ndim)]
        return all(np.all(errors.sum(axis) <= squares.sum(axis)) for axis in axes)


def _rank(evidence: Evidence) -> tuple[float, int]:
    return (0.0 if evidence.wrong is None else evidence.wrong.excess), evidence.samples


@dataclass(slots=True)
class _Sums:
    """Sums over the runs for each of some parts. errors, roundings, squares, noise, size: of e, r,
    e^2, r^2, L^2; by_error, by_rounding: of e L, r L. count: errors of a part in a run."""

    count: int
    errors: Any = 0.0
    roundings: Any = 0.0
    squares: Any = 0.0
    noise: Any = 0.0
    size: Any = 0.0
    by_error: Any = 0.0
    by_rounding: Any = 0.0


@dataclass(slots=True)
class _Value:
    """The sums of a value by its dimensions, as a whole (None), and by element."""

    shape: tuple[int, ...]
    rounding: Rounding
    by_element: bool
    samples: int = 0
    parts: dict[int | None, _Sums] = field(default_factory=dict)
    elements: _Sums = field(default_factory=lambda: _Sums(1))

    def add(self, error: _Float64, rounding: _Float64, numbers: _Float64) -> None:
        self.samples += 1
        total, dimensions = error.size, range(error.ndim)
        axes: list[int | None] = [a for a in dimensions if 1 < error.shape[a] < total]
        columns = {
            "errors": error,
            "roundings": rounding,
            "squares": np.square(error),
            "noise": np.square(rounding),
            "size": np.square(numbers),
            "by_error": error * numbers,
            "by_rounding": rounding * numbers,
        }
        for axis in [None, *axes]:
            count = total if axis is None else total // error.shape[axis]
            sums = self.parts.setdefault(axis, _Sums(count))
            others = None if axis is None else tuple(a for a in dimensions if a != axis)
            for name, column in columns.items():
                setattr(sums, name, getattr(sums, name) + np.atleast_1d(column.sum(axis=others)))
        if self.by_element:
            for name in ("errors", "roundings", "noise", "size"):
                setattr(self.elements, name, getattr(self.elements, name) + columns[name])

    def evidence(self, values: int) -> Evidence:
        """Test the means. values: their number in the program."""
        if self.samples < LEAST_SAMPLES:
            return Evidence(self.samples, by_element=self.by_element)
        tests = 3 * sum(len(sums.errors) for sums in self.parts.values())
        if self.by_element:
            tests += math.prod(self.shape)
        look = _Look(self, self.ratios(), tests, math.log(FALSE_ALARMS / max(values, 1)))
        found = list(look.deviations())
        told = [one for one in found if one.log_p <= look.allowed]
        doubtful = [one for one in found if look.allowed < one.log_p < _LIKELY]
        return Evidence(
            samples=self.samples,
            # A larger square says less than a mean or scale that is off, which makes it larger.
            wrong=min(told, key=lambda one: (one.test == SQUARE, -one.sigmas), default=None),
            nearest=None if told else min(doubtful, key=lambda one: one.log_p, default=None),
            told=look.told(),
            by_element=self.by_element,
        )

    def ratios(self) -> dict[str, tuple[_Float64, _Float64]]:
        """For each test: the squared means of PyTorch's rounding error, divided by the variance
        that independent runs would give them; and the number of errors in each mean.
        """
        found: dict[str, list[tuple[_Float64, float]]] = {MEAN: [], SCALE: []}
        for sums in self.parts.values():
            n = self.samples * sums.count
            noise = np.maximum(sums.noise, (self.rounding.epsilon / 2) ** 2 * sums.size)
            known = noise > 0
            mean = np.square(sums.roundings[known]) / noise[known]
            scale = np.square(sums.by_rounding[known]) / (noise * sums.size / n)[known]
            found[MEAN].append((mean, n))
            found[SCALE].append((scale, n))
        return {
            test: (
                np.concatenate([ratio for ratio, _ in pairs]),
                np.concatenate([np.full(ratio.size, float(n)) for ratio, n in pairs]),
            )
            for test, pairs in found.items()
        }


@dataclass(frozen=True, slots=True)
class _Look:
    """Looks at the means of a value. ratios: see `_Value.ratios`. tests: the number of means.
    allowed: natural logarithm of the probability that is allowed."""

    value: _Value
    ratios: dict[str, tuple[_Float64, _Float64]]
    tests: int
    allowed: float

    def deviations(self) -> Iterator[Deviation]:
        """Yield the means beyond their limits: for each test and dimension, the mean that chance is
        least likely to explain.
        """
        for axis, sums in self.value.parts.items():
            n = self.value.samples * sums.count
            noise, tolerance = self._noise(sums, n), self.value.rounding.tolerance
            size = np.sqrt(sums.size / n)
            ties = _TIES * np.sqrt(noise) if self.value.rounding.is_even else 0.0
            yield from self._means(
                MEAN, axis, sums, sums.errors / n, np.maximum(tolerance * size, ties), noise
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                scale = np.where(size > 0, sums.by_error / sums.size, 0.0)
                relative = np.where(size > 0, noise / np.square(size), 0.0)
            ties = _TIES * np.sqrt(relative) if self.value.rounding.is_even else 0.0
            limit = np.broadcast_to(np.maximum(tolerance, ties), scale.shape)
            yield from self._means(SCALE, axis, sums, scale, limit, relative)
            yield from self._squares(axis, sums, noise, tolerance * size)
        if self.value.by_element and math.prod(self.value.shape) > 1:
            yield from self._elements()

    def told(self) -> float | None:
        """The mean error that is detected in any slice with the probability `POWER`."""
        worst = 0.0
        for axis, sums in self.value.parts.items():
            if axis is None and len(self.value.parts) > 1:
                continue
            n = self.value.samples * sums.count
            noise = self._noise(sums, n)
            repeated = max(self._repeated(MEAN, n), _CLEARLY)
            deviation = np.sqrt(noise * _SAFETY * (1 + repeated) / n)
            ties = _TIES * np.sqrt(noise) if self.value.rounding.is_even else 0.0
            limit = np.maximum(self.value.rounding.tolerance * np.sqrt(sums.size / n), ties)
            errors = self.value.rounding.factor * math.sqrt(self._ratio(n)) * deviation
            errors = np.maximum(limit, errors) + _POWER_DEVIATIONS * np.sqrt(sums.squares) / n
            worst = max(worst, float(errors.max()))
        return worst or None

    def _repeated(self, test: str, n: int) -> float:
        """The part of the variance of a mean over n errors that repeats from run to run, over the
        rest. It is n times as large as for one error, so larger means predict smaller ones."""
        ratio, count = self.ratios[test]
        larger = count >= n
        found = float(np.sum((ratio[larger] - 1) * n / count[larger]))
        return max(found / (int(np.count_nonzero(larger)) + _UNSEEN), 0.0)

    def _noise(self, sums: _Sums, n: int) -> _Float64:
        """The mean square of PyTorch's rounding, at least half a unit in the last place."""
        least = (self.value.rounding.epsilon / 2) ** 2 * sums.size / n
        noise: _Float64 = np.maximum(sums.noise / n, least)
        if self.value.rounding.is_even:
            noise = np.maximum(noise, noise.mean())
        return noise

    def _ratio(self, free: float) -> float:
        """The square of an error over its variance, above which chance does not explain it."""
        free = min(free, _MOST_FREE)
        low: float = 1.0
        high: float = 1e12
        for _ in range(100):
            middle = math.sqrt(low * high)
            one = np.asarray(1.0)
            log_p = float(log_tail(one, np.asarray(free), np.asarray(middle), one))
            if log_p + math.log(self.tests) <= self.allowed:
                high = middle
            else:
                low = middle
        return high

    def _means(
        self,
        test: str,
        axis: int | None,
        sums: _Sums,
        errors: _Float64,
        limit: _Float64,
        noise: _Float64,
    ) -> Iterator[Deviation]:
        n = self.value.samples * sums.count
        repeated = self._repeated(test, n)
        variance = self.value.rounding.factor**2 * noise * _SAFETY * (1 + repeated) / n
        beyond = np.flatnonzero(np.abs(errors) > limit)
        if not beyond.size:
            return
        free = np.full(beyond.size, float(min(n, _MOST_FREE)))
        one = np.ones(beyond.size)
        log_p = log_tail(one, free, np.square(errors[beyond]), variance[beyond])
        at = int(log_p.argmin())
        index = int(beyond[at])
        own = sums.squares[index] / n / n
        if test == SCALE:
            own = own / max(float(sums.size[index]) / n, 1e-300)
        yield self._deviation(
            test, axis, () if axis is None else (index,),
            (errors[index], limit[index], float(log_p[at]), variance[index]),
            self._more(errors[index], variance[index], own, (n, repeated)),
        )  # fmt: skip

    def _squares(
        self, axis: int | None, sums: _Sums, noise: _Float64, tolerated: _Float64
    ) -> Iterator[Deviation]:
        n = self.value.samples * sums.count
        by_noise = self.value.rounding.factor**2 * noise
        square, limit = sums.squares / n, np.maximum(by_noise, np.square(tolerated))
        beyond = np.flatnonzero(square > limit)
        if not beyond.size:
            return
        # Of errors with a few large ones among them a third counts: see `parts`. Errors of one run
        # may have one cause, and count as errors of a part of it.
        free = np.full(beyond.size, min(n / 3, self.value.samples * math.sqrt(sums.count)))
        log_p = log_tail(free, free, square[beyond], by_noise[beyond])
        at = int(log_p.argmin())
        index = int(beyond[at])
        yield self._deviation(
            SQUARE, axis, () if axis is None else (index,),
            (math.sqrt(square[index]), math.sqrt(limit[index]), float(log_p[at]), by_noise[index]),
            None,
        )  # fmt: skip

    def _elements(self) -> Iterator[Deviation]:
        n, sums, rounding = self.value.samples, self.value.elements, self.value.rounding
        errors, size = sums.errors / n, np.maximum(sums.size / n, 1.0)
        noise = np.maximum(sums.noise / n, (rounding.epsilon / 2) ** 2 * size)
        noise = np.maximum(noise, noise.mean())
        peak = max(1.0, PEAK / math.sqrt(n))
        ties = _TIES * np.sqrt(noise) if rounding.is_even else 0.0
        limit = np.maximum(rounding.tolerance * peak * np.sqrt(size), ties)
        beyond = np.flatnonzero(np.abs(errors) > limit)
        if not beyond.size:
            return
        errors, limit, noise = (x.reshape(-1)[beyond] for x in (errors, limit, noise))
        repeated = self._repeated(MEAN, n)
        variance = rounding.factor**2 * noise * _SAFETY * (1 + repeated) / n
        one = np.ones(beyond.size)
        log_p = log_tail(one, float(n) * one, np.square(errors), variance)
        at = int(log_p.argmin())
        index = tuple(map(int, np.unravel_index(int(beyond[at]), self.value.shape)))
        yield self._deviation(
            MEAN, None, index, (errors[at], limit[at], float(log_p[at]), variance[at]),
            self._more(errors[at], variance[at], noise[at] / n, (n, repeated)),
        )  # fmt: skip

    def _deviation(
        self,
        test: str,
        axis: int | None,
        index: tuple[int, ...],
        numbers: tuple[float, float, float, float],
        more: int | None,
    ) -> Deviation:
        error, limit, log_p, variance = map(float, numbers)
        return Deviation(
            test=test,
            axis=axis,
            index=index,
            size=math.prod(self.value.shape) if axis is None else self.value.shape[axis],
            error=error,
            limit=limit,
            log_p=min(log_p + math.log(self.tests), 0.0),
            sigmas=abs(error) / math.sqrt(variance) if variance > 0 else math.inf,
            samples=self.value.samples,
            more=more,
        )

    def _more(
        self, error: float, variance: float, own: float, runs: tuple[int, float]
    ) -> int | None:
        """The number of further samples needed to detect `error`. variance: of the mean that
        rounding makes; own: of the errors seen. runs: errors in the mean, and what repeats of
        it."""
        n, repeated = runs
        samples, random = self.value.samples, variance / (1 + repeated)
        random *= 1 + _CLEARLY  # other samples may seem to have as much that repeats
        repeated = repeated if repeated > _CLEARLY else 0.0
        ratio = self._ratio(n)
        left = error * error - ratio * random * repeated  # what repeats does not shrink
        if left <= 0:
            return None
        threshold = math.sqrt(ratio * random) + _POWER_DEVIATIONS * math.sqrt(max(own, 0.0))
        return max(math.ceil(samples * threshold**2 / left) - samples, 1)
