"""Judge explanations of a wrong value: what, done to the right one, makes the device's of it.

An explanation predicts the device's value. It counts if two things hold. Against the prediction,
the value is within the limits that made it wrong before. And chance does not explain as much: with
p fitted numbers, a random direction of n numbers covers the share ``1 - e`` of a given error with a
probability of about ``e^((n - p) / 2)`` (of a Beta distribution), times the number of explanations
of its kind that were tried. n is the number of elements that the error is made of, (sum of
squares)^2 / (sum of fourth powers). An error that no explanation brings within the limits stays
unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.limits import Rules, epsilon_of, judge

if TYPE_CHECKING:
    from etscope.analysis.numerics.error_location import WrongPart

CHANCE = 1e-8  # that an explanation of a kind is found in an error of another
_LEAST = 0.99  # of the error: an error near its limit is within it when a part is explained
_MOST_NAMED = 3  # of equally good fits; a longer list does not help
# Kinds that say the same of a value that is proportional to all of them: the first is named.
_SCALING = frozenset({"scale", "weight scale"})

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The fault of a value.

    kind: "scale", "transposed", "eps", …: see docs/how-to/numerics.md. text: the fault in words.
    parameters: numbers and names of it. explained: the share of the error's energy that it
    explains; the rest is rounding. node: the graph's operator that computes this way; None if the
    value as a whole shows it. alternatives: others that explain it as well.
    """

    kind: str
    text: str
    parameters: Mapping[str, Any]
    explained: float
    node: str | None = None
    alternatives: tuple[Explanation, ...] = ()

    def __str__(self) -> str:
        share = "all"
        if self.explained < 1.0:
            left = 1.0 - self.explained
            digits = next((n for n in (0, 1, 2) if left >= 0.05 * 10.0**-n), 2)
            percent = math.floor(self.explained * 100 * 10**digits) / 10**digits
            share = f"{percent:.{digits}f} %"
        share += " of the error"
        texts = [self.text, *(one.text for one in self.alternatives)]
        each = "this explains" if len(texts) == 1 else "each explains"
        return f"{', or '.join(texts)}; {each} {share}, and the rest is rounding"


@dataclass(frozen=True, slots=True, eq=False)
class Suspect:
    """A wrong value.

    local: PyTorch's result from the device's own inputs. wide: the same in float64. axis: the
    channels' dimension.
    """

    value: Any
    local: Any
    wide: Any
    metric: Metric
    rules: Rules
    part: WrongPart | None
    axis: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """An explanation to judge.

    value: the values that it predicts. free: how many numbers in it were fitted. choices: how many
    explanations of this kind were tried. rank: 0 for the simplest; by default `free`. count: the
    number of elements with an error, if slices were fitted one by one.
    """

    kind: str
    text: str
    value: Any
    free: int = 0
    choices: int = 1
    parameters: Mapping[str, Any] = field(default_factory=dict)
    node: str | None = None
    rank: int | None = None
    count: float | None = None

    @property
    def order(self) -> int:
        """The place among others, the simplest first."""
        return self.free if self.rank is None else self.rank


class Residual:
    """The finite part of a value's error; predictions are compared with it.

    found, expected: the device's value, and the value that PyTorch computes.
    """

    def __init__(self, suspect: Suspect) -> None:
        self.suspect = suspect
        self.dtype = np.asarray(suspect.value).dtype
        self.found = np.asarray(suspect.value).astype(np.float64)
        self.expected = np.asarray(suspect.local).astype(np.float64)
        self.known = np.isfinite(self.found) & np.isfinite(self.expected)
        with np.errstate(invalid="ignore"):
            self.error: Float64 = np.where(self.known, self.found - self.expected, 0.0)
        self.epsilon = epsilon_of(self.dtype)

    @cached_property
    def weight(self) -> Float64:
        """The weight of each error: 1, or the reciprocal of its slice's mean square if larger
        slices hide the wrong part.
        """
        part = self.suspect.part
        if part is None or part.axis is None:
            return np.ones((1,) * self.error.ndim)
        others = tuple(axis for axis in range(self.error.ndim) if axis != part.axis)
        squares = np.square(np.where(self.known, self.expected, 0.0))
        size = squares.mean(axis=others, keepdims=True)
        least = self.epsilon**2 * max(float(size.max()), 1e-300)
        weight: Float64 = 1.0 / np.maximum(size, least)
        return weight

    @cached_property
    def energy(self) -> Float64:
        """The weighted square of each error."""
        energy: Float64 = self.weight * np.square(self.error)
        return energy

    @cached_property
    def total(self) -> float:
        return float(self.energy.sum())

    @cached_property
    def count(self) -> float:
        """The effective number of elements with an error: it is small if a few have most of it."""
        fourth = float(np.square(self.energy / self.total).sum()) if self.total else 0.0
        return 1.0 / fourth if fourth else 0.0

    @cached_property
    def resolution(self) -> float:
        """The share of the error that rounding alone would leave."""
        known = np.where(self.known, self.found, 0.0)
        rounding = self.epsilon**2 * float((self.weight * np.square(known)).sum())
        return max(rounding / self.total, 1e-15) if self.total else 1.0

    def explained(self, prediction: Any) -> float:
        """The share of the error's energy that a prediction explains; at most 1."""
        if not self.total or np.shape(prediction) != self.found.shape:
            return 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            left = np.where(self.known, self.found - prediction, 0.0)
            share = 1.0 - float((self.weight * np.square(left)).sum()) / self.total
        return share if math.isfinite(share) else -math.inf

    def has_same_non_finite(self, prediction: Any) -> bool:
        """True if a prediction has the NaN and infinities that the device has, where it has any."""
        if np.shape(prediction) != self.found.shape:
            return False
        odd = ~np.isfinite(self.found)
        found, expected = self.found[odd], np.asarray(prediction)[odd]
        return bool(((found == expected) | (np.isnan(found) & np.isnan(expected))).all())

    def is_told(self, explained: float, one: Candidate) -> bool:
        """True if a candidate explains more of the error than chance would."""
        left = max(1.0 - explained, self.resolution)
        count = self.count if one.count is None else one.count
        if count <= one.free or left >= 1.0:
            return False
        log_p = (count - one.free) / 2 * math.log(left) + math.log(one.choices)
        return log_p <= math.log(CHANCE)

    def leaves_rounding(self, prediction: Float64) -> bool:
        """True if the value passes, judged against a prediction in place of PyTorch's result."""
        suspect, rounded = self.suspect, self.rounded(prediction)
        wide = suspect.wide
        if wide is not None and np.shape(wide) == self.expected.shape:
            with np.errstate(invalid="ignore", over="ignore"):
                noise = np.asarray(wide).astype(np.float64) - self.expected
                wide = rounded.astype(np.float64) + np.where(np.isfinite(noise), noise, 0.0)
        rules = replace(suspect.rules, exact=False)
        return not judge(suspect.metric, rounded, suspect.value, wide, rules).is_wrong

    def rounded(self, prediction: Any) -> Any:
        """The prediction in the type of the value."""
        with np.errstate(invalid="ignore", over="ignore"):
            if self.dtype.kind in "iu":
                ends = np.iinfo(self.dtype)
                prediction = np.clip(np.rint(prediction), ends.min, ends.max)
            return np.asarray(prediction).astype(self.dtype)


def best_explanation(residual: Residual, candidates: Iterable[Candidate]) -> Explanation | None:
    """Return the simplest candidate that leaves only rounding, and the equally simple ones as
    alternatives. None if there are none, or too many.
    """
    told = []
    for one in candidates:
        share = residual.explained(one.value)
        if share >= _LEAST and residual.is_told(share, one):
            told.append((share, one))
    fitting: list[tuple[float, Candidate]] = []
    for share, one in sorted(told, key=lambda pair: pair[1].order):
        if fitting and one.order > fitting[0][1].order:
            break
        if residual.leaves_rounding(one.value):
            fitting.append((share, one))
    fitting = _without_repeats(fitting)
    if not fitting or len(fitting) > _MOST_NAMED:
        return None
    first, *others = (
        Explanation(one.kind, one.text, dict(one.parameters), share, one.node)
        for share, one in fitting
    )
    return replace(first, alternatives=tuple(others))


def _without_repeats(found: Sequence[tuple[float, Candidate]]) -> list[tuple[float, Candidate]]:
    """One candidate of each kind and node, the one that explains most, where numbers were fitted;
    others are different claims."""
    best: dict[tuple[str, str | None, str], tuple[float, Candidate]] = {}
    is_scaled = False
    for share, one in found:
        key = one.kind, one.node, "" if one.free else one.text
        if one.kind in _SCALING:
            if is_scaled and key not in best:
                continue
            is_scaled = True
        if key not in best or share > best[key][0]:
            best[key] = share, one
    return list(best.values())
