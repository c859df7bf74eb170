"""The metrics that come with etscope."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics._arrays import (
    Array,
    Summary,
    integer_distance,
    is_integer,
    parts,
    summarize,
)
from etscope.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Metric:
    """A named number for a pair of arrays.

    name: the word for commands and columns (snake_case). title, unit: for people; the unit of a
        plain number is "". better: "lower" or "higher", whichever is nearer to the reference.
    perfect: the value of equal arrays.
    function: ``(reference, value) -> float``. Both are arrays of one shape, in their own types.
    doc: its meaning, with the formula.
    of_summary: the number from a `Summary`, for metrics that can share one pass over the arrays.
    errors_only: True if `of_summary` needs the errors alone.
    """

    name: str
    title: str
    unit: str
    better: Literal["lower", "higher"]
    perfect: float
    function: Callable[[Array, Array], float]
    doc: str = ""
    of_summary: Callable[[Summary], float] | None = field(default=None, repr=False)
    errors_only: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} is not a name for a metric",
                hint="names have lower-case letters, digits and _, and begin with a letter",
            )
        if self.better not in ("lower", "higher"):
            raise UsageError(f'better must be "lower" or "higher", not {self.better!r}')

    def badness(self, number: float | None) -> float:
        """A key to sort by, the worst last: NaN and None (no value) are worse than any number."""
        if number is None or math.isnan(number):
            return math.inf
        return number if self.better == "lower" else -number


def largest_ulp_distance(reference: Array, value: Array) -> float:
    """The largest distance in units in the last place, of the value's own float type.

    The reference is rounded to that type first. IEEE floats of one sign are ordered as their bits
    are, read as integers; negated for negative numbers, the integers count all floats in order, and
    -0 and +0 are the same. The distance of two floats is the difference of their integers: the
    number of steps of `nextafter` between them (Bruce Dawson, "Comparing Floating Point Numbers",
    2012).

    For integers and booleans the unit is 1. An infinity is infinitely far from all but itself, also
    one that the reference becomes in a narrower type.
    """
    largest = 0.0
    for part in parts(reference, value):
        if not is_integer(value.dtype):
            distance = _float_distance(*part)
        elif is_integer(reference.dtype):
            distance = float(np.max(integer_distance(*part)))
        else:
            numbers, codes = (array.astype(np.float64) for array in part)
            distance = float(np.max(np.abs(numbers - codes)))
        if math.isnan(distance):
            return math.nan
        largest = max(largest, distance)
    return largest if reference.size else math.nan


def _float_distance(reference: Array, value: Array) -> float:
    dtype = value.dtype.newbyteorder("=")
    with np.errstate(over="ignore", invalid="ignore"):
        rounded, value = reference.astype(dtype), value.astype(dtype)
    wide, wide_rounded, wide_value = (x.astype(np.float64) for x in (reference, rounded, value))
    if np.isnan(wide).any() or np.isnan(wide_value).any():
        return math.nan
    far = ~np.isfinite(wide) | ~np.isfinite(wide_rounded) | ~np.isfinite(wide_value)
    if np.any(wide[far] != wide_value[far]):
        return math.inf
    return float(np.max(integer_distance(_ordered(rounded), _ordered(value))))


def _ordered(floats: Array) -> npt.NDArray[np.int64]:
    """Integers that count the floats of a type in order, 0 for both zeros."""
    size = floats.dtype.itemsize
    bits: npt.NDArray[Any] = floats.view(f"u{size}").astype(np.uint64)
    sign = np.uint64(1 << (8 * size - 1))
    magnitude = (bits & ~sign).astype(np.int64)
    ordered: npt.NDArray[np.int64] = np.where(bits & sign, -magnitude, magnitude)
    return ordered


RTOL, ATOL = 1e-5, 1e-8  # those of numpy.allclose


def _snr(s: Summary) -> float:
    """Signal-to-noise ratio: ``10 log10(mean(ref^2) / mean((ref - value)^2))``.

    -inf for an infinite error, and for an all-zero reference that was not met. The formula is that
    of upstream's `compare_results`, and of coremltools' `compute_snr_and_psnr` without the epsilons
    there.
    """
    return _decibels(s, s.r.log10 - math.log10(s.count))


def _sqnr(s: Summary) -> float:
    """Signal-to-quantisation-noise ratio: ``20 log10(|ref| / |ref - value|)``, with 2-norms.

    The number is that of "snr", by the name and the formula of `torch.ao.ns.fx.utils.compute_sqnr`.
    """
    return _decibels(s, s.r.log10 - math.log10(s.count))


def _psnr(s: Summary) -> float:
    """Peak signal-to-noise ratio: ``10 log10(max(ref^2) / mean((ref - value)^2))``.

    The peak is the largest magnitude in the reference, as in coremltools' `compute_snr_and_psnr`;
    for images the range of the pixel type is in use instead.
    """
    return _decibels(s, 2 * math.log10(s.r.largest) if s.r.largest else -math.inf)


def _decibels(s: Summary, log_signal: float) -> float:
    if s.infinite or s.overflow:
        return -math.inf
    if s.equal:
        return math.inf
    return 10 * (log_signal - (s.error.log10 - math.log10(s.count)))


def _mse(s: Summary) -> float:
    """Mean squared error: ``mean((ref - value)^2)``."""
    return _error(s, s.error.scale * s.error.scale * (s.error.total / s.count))


def _rms(s: Summary) -> float:
    """Root of the mean squared error: ``sqrt(mean((ref - value)^2))``, in the value's own unit."""
    return _error(s, s.error.scale * math.sqrt(s.error.total / s.count))


def _l1(s: Summary) -> float:
    """Sum of absolute errors: ``sum(|ref - value|)``. As in upstream's `L1Comparator`, no mean."""
    return _error(s, s.error_sum)


def _mae(s: Summary) -> float:
    """Mean absolute error: ``mean(|ref - value|)``."""
    return _error(s, s.error_sum / s.count)


def _max_abs(s: Summary) -> float:
    """Largest absolute error: ``max(|ref - value|)``."""
    return _error(s, s.error_max)


def _max_rel(s: Summary) -> float:
    """Largest relative error: ``max(|ref - value| / |ref|)``; of equal elements it is 0.

    Infinite when the reference is 0 and the value is not: near zeros, "max_abs" and
    "out_of_tolerance" say more.
    """
    return _error(s, s.relative_max)


def _error(s: Summary, number: float) -> float:
    """The number; infinite if an element's error is, and not 0 by underflow."""
    if s.infinite or s.overflow:
        return math.inf
    return number if number or s.equal else math.ulp(0.0)


def _cosine_similarity(s: Summary) -> float:
    """Cosine of the angle between both: ``sum(ref * value) / (|ref| |value|)``.

    It does not see scale: a value that is the reference times 3 has 1, and a constant array has 1
    with any other of its sign. 0 when one of them is all zero and the other is not, as in
    scikit-learn; NaN for an infinite element.
    """
    if s.equal:
        return 1.0
    if s.infinite:
        return math.nan
    if not (s.r.scale and s.v.scale):
        return 0.0
    return max(-1.0, min(1.0, s.dot / math.sqrt(s.r.total * s.v.total)))


def tolerance_metric(
    *, rtol: float = RTOL, atol: float = ATOL, equal_nan: bool = False, name: str | None = None
) -> Metric:
    """The share of elements out of ``|ref - value| <= atol + rtol * |ref|`` (`numpy.allclose`).

    NaN is out of tolerance, unless both are and `equal_nan`; an infinity is, unless both are the
    same. The name is "out_of_tolerance" by default; give another to register it.

    Raises `UsageError` for a tolerance that is negative or not finite.
    """
    for word, tolerance in (("rtol", rtol), ("atol", atol)):
        if not 0 <= tolerance < math.inf:
            raise UsageError(f"{word} must be a number from 0 on, not {tolerance}")

    def share(reference: Array, value: Array) -> float:
        out = 0
        for r, v in parts(reference, value):
            wide_r, wide_v = r.astype(np.float64), v.astype(np.float64)
            both_finite = np.isfinite(wide_r) & np.isfinite(wide_v)
            with np.errstate(invalid="ignore", over="ignore"):
                if is_integer(r.dtype) and is_integer(v.dtype):
                    error = integer_distance(r, v)
                    same = error == 0
                else:
                    error = np.abs(wide_r - wide_v)
                    same = wide_r == wide_v
                close = same | (both_finite & (error <= atol + rtol * np.abs(wide_r)))
            if equal_nan:
                close |= np.isnan(wide_r) & np.isnan(wide_v)
            out += int(np.count_nonzero(~close))
        return out / reference.size if reference.size else math.nan

    return Metric(
        name or "out_of_tolerance",
        "out of tolerance",
        "share",
        "lower",
        0.0,
        share,
        "Share of elements out of tolerance: those that are not within "
        f"``{atol:g} + {rtol:g} * |ref|`` of the reference, NaN among them.",
    )


def _of_summary(
    name: str,
    title: str,
    unit: str,
    better: Literal["lower", "higher"],
    perfect: float,
    formula: Callable[[Summary], float],
    *,
    errors_only: bool = False,
) -> Metric:
    def of_summary(summary: Summary) -> float:
        return math.nan if summary.nan or not summary.count else formula(summary)

    return Metric(
        name,
        title,
        unit,
        better,
        perfect,
        lambda reference, value: of_summary(summarize(reference, value, errors_only=errors_only)),
        inspect.cleandoc(formula.__doc__ or ""),
        of_summary,
        errors_only,
    )


BUILTIN: tuple[Metric, ...] = (
    _of_summary("snr", "SNR", "dB", "higher", math.inf, _snr),
    _of_summary("mse", "MSE", "", "lower", 0.0, _mse, errors_only=True),
    _of_summary("cosine_similarity", "cosine similarity", "", "higher", 1.0, _cosine_similarity),
    _of_summary("sqnr", "SQNR", "dB", "higher", math.inf, _sqnr),
    _of_summary("psnr", "PSNR", "dB", "higher", math.inf, _psnr),
    _of_summary("rms", "RMS error", "", "lower", 0.0, _rms, errors_only=True),
    _of_summary("l1", "L1", "", "lower", 0.0, _l1),
    _of_summary("mae", "mean absolute error", "", "lower", 0.0, _mae),
    _of_summary("max_abs", "largest absolute error", "", "lower", 0.0, _max_abs),
    _of_summary("max_rel", "largest relative error", "", "lower", 0.0, _max_rel),
    Metric(
        "ulp",
        "largest ULP distance",
        "ulp",
        "lower",
        0.0,
        largest_ulp_distance,
        inspect.cleandoc(largest_ulp_distance.__doc__ or ""),
    ),
    tolerance_metric(),
)
