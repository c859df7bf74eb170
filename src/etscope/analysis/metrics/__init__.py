"""Metrics: the distance of a value from its reference, one number for a pair of arrays.

Sums are taken in float64, part by part: no copy of a large tensor is made. Shapes must be the same,
nothing is broadcast; types may differ. A metric is added by `register_metric`.
The rules for NaN, infinities and empty arrays:

- NaN in either array makes a metric NaN: a broken output never scores as a good one. Only
  `out_of_tolerance` has a number for it: a NaN is out of any tolerance.
- The same infinity at the same place is not an error, and is left out of powers and products. Any
  other infinity is an infinite error.
- Equal arrays are perfect, all-zero ones too. Empty arrays give NaN: nothing was compared.

The table in ``docs/reference/metrics.md`` has every case.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics.arrays import (
    Array,
    Need,
    Quantization,
    Summary,
    as_array,
    integer_distance,
    is_integer,
    parts,
    summarize,
)
from etscope.errors import UsageError

__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "Array",
    "Metric",
    "Quantization",
    "find_metric",
    "measure",
    "measure_all",
    "register_metric",
    "tolerance_metric",
]

_NAME = re.compile(r"[a-z][a-z0-9_]*")

Formula = Callable[[Summary], float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A named number for a pair of arrays.

    name: the word for commands and columns (snake_case). title, unit: for people; the unit of a
        plain number is "". better: "lower" or "higher", whichever is nearer to the reference.
    perfect: the value of equal arrays.
    function: ``(reference, value) -> float``. Both are arrays of one shape, in their own types.
    doc: its meaning, with the formula.
    of_summary: the number from a `Summary`, for metrics that can share one pass over the arrays.
    need: the sums that `of_summary` uses.
    """

    name: str
    title: str
    unit: str
    better: Literal["lower", "higher"]
    perfect: float
    function: Callable[[Array, Array], float]
    doc: str = ""
    of_summary: Callable[[Summary], float] | None = field(default=None, repr=False)
    need: Need = field(default=Need.ALL, repr=False)

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

    def text(self, number: float) -> str:
        """A number with the metric's unit: "31.2 dB"."""
        return f"{number:.4g} {self.unit}".rstrip()

    def worst(self, numbers: Iterable[float | None]) -> float | None:
        """The worst of the numbers that are not None; None if all are."""
        known = (number for number in numbers if number is not None)
        return max(known, key=self.badness, default=None)

    def worse(self, one: float | None, other: float | None) -> float | None:
        """The worse of two numbers: a number rather than NaN, and NaN rather than None."""
        if one is None or other is None:
            return one if other is None else other
        if math.isnan(one) or math.isnan(other):
            return one if math.isnan(other) else other
        return max(one, other, key=self.badness)


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


RTOL, ATOL = 1e-5, 1e-8  # as in numpy.allclose

_registered: dict[str, Metric] = {}

METRICS: Mapping[str, Metric] = MappingProxyType(_registered)
"""All metrics by name; `register_metric` adds to it."""

DEFAULT_METRICS = ("snr", "mse", "cosine_similarity")
"""The default metrics of `compare_results`: upstream's, in its order."""


def _builtin(
    name: str, title: str, unit: str = "", *, perfect: float = 0.0, need: Need = Need.ALL
) -> Callable[[Formula], Formula]:
    """Register a metric by its formula; the docstring is its meaning. A metric with 0 for equal
    arrays is better when lower."""

    def register(formula: Formula) -> Formula:
        def of_summary(summary: Summary) -> float:
            return math.nan if summary.nan or not summary.count else formula(summary)

        _registered[name] = Metric(
            name,
            title,
            unit,
            "higher" if perfect else "lower",
            perfect,
            lambda reference, value: of_summary(summarize(reference, value, need)),
            inspect.cleandoc(formula.__doc__ or ""),
            of_summary,
            need,
        )
        return formula

    return register


def _decibels(s: Summary, log_signal: float) -> float:
    if s.infinite or s.overflow:
        return -math.inf
    if s.equal:
        return math.inf
    return 10 * (log_signal - (s.error.log10 - math.log10(s.count)))


def _error(s: Summary, number: float) -> float:
    """The number; infinite if an element's error is, and not 0 by underflow."""
    if s.infinite or s.overflow:
        return math.inf
    return number if number or s.equal else math.ulp(0.0)


@_builtin("snr", "SNR", "dB", perfect=math.inf, need=Need.SIGNAL)
def _snr(s: Summary) -> float:
    """Signal-to-noise ratio: ``10 log10(mean(ref^2) / mean((ref - value)^2))``.

    -inf for an infinite error, and for an all-zero reference that was not met. The formula is that
    of upstream's `compare_results`, and of coremltools' `compute_snr_and_psnr` without the epsilons
    there.
    """
    return _decibels(s, s.r.log10 - math.log10(s.count))


@_builtin("mse", "MSE", need=Need.ERRORS)
def _mse(s: Summary) -> float:
    """Mean squared error: ``mean((ref - value)^2)``."""
    return _error(s, s.error.scale * s.error.scale * (s.error.total / s.count))


@_builtin("cosine_similarity", "cosine similarity", perfect=1.0)
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


@_builtin("sqnr", "SQNR", "dB", perfect=math.inf, need=Need.SIGNAL)
def _sqnr(s: Summary) -> float:
    """Signal-to-quantization-noise ratio: ``20 log10(|ref| / |ref - value|)``, with 2-norms.

    Same number as "snr", under the name and with the formula of
    `torch.ao.ns.fx.utils.compute_sqnr`.
    """
    return _snr(s)


@_builtin("psnr", "PSNR", "dB", perfect=math.inf)
def _psnr(s: Summary) -> float:
    """Peak signal-to-noise ratio: ``10 log10(max(ref^2) / mean((ref - value)^2))``.

    The peak is the largest magnitude in the reference, as in coremltools' `compute_snr_and_psnr`;
    for images the range of the pixel type is in use instead.
    """
    return _decibels(s, 2 * math.log10(s.r.largest) if s.r.largest else -math.inf)


@_builtin("rms", "RMS error", need=Need.ERRORS)
def _rms(s: Summary) -> float:
    """Root of the mean squared error: ``sqrt(mean((ref - value)^2))``, in the value's own unit."""
    return _error(s, s.error.scale * math.sqrt(s.error.total / s.count))


@_builtin("l1", "L1")
def _l1(s: Summary) -> float:
    """Sum of absolute errors: ``sum(|ref - value|)``. As in upstream's `L1Comparator`, no mean."""
    return _error(s, s.error_sum)


@_builtin("mae", "mean absolute error")
def _mae(s: Summary) -> float:
    """Mean absolute error: ``mean(|ref - value|)``."""
    return _error(s, s.error_sum / s.count)


@_builtin("max_abs", "largest absolute error")
def _max_abs(s: Summary) -> float:
    """Largest absolute error: ``max(|ref - value|)``."""
    return _error(s, s.error_max)


@_builtin("max_rel", "largest relative error")
def _max_rel(s: Summary) -> float:
    """Largest relative error: ``max(|ref - value| / |ref|)``; of equal elements it is 0.

    Infinite when the reference is 0 and the value is not: near zeros, "max_abs" and
    "out_of_tolerance" say more.
    """
    return _error(s, s.relative_max)


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


# The order of the built-in metrics is also their order in errors and documentation.
for _metric in (
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
):
    _registered[_metric.name] = _metric

BUILTIN: tuple[Metric, ...] = tuple(_registered.values())


def register_metric(
    name: str | Metric,
    function: Callable[[Array, Array], float] | None = None,
    *,
    title: str | None = None,
    unit: str = "",
    better: Literal["lower", "higher"] = "lower",
    perfect: float = 0.0,
    doc: str | None = None,
) -> Metric:
    """Add a metric to `METRICS`; it can then be used by its name wherever metrics are.

    name: the name, with `function`, or a whole `Metric`. function: ``(reference, value) -> float``
    of two numpy arrays of one shape, in their own types (bfloat16 from ml_dtypes); it must
    handle NaN and empty arrays itself. doc: by default the function's docstring.

    Raises `UsageError` for a name that is taken.
    """
    metric = name if isinstance(name, Metric) else None
    if metric is None:
        if not callable(function):
            raise UsageError(f"the metric {name!r} needs a function of two arrays")
        doc = (function.__doc__ or "") if doc is None else doc
        metric = Metric(str(name), title or str(name), unit, better, perfect, function, doc)
    if metric.name in _registered:
        raise UsageError(f"the metric {metric.name!r} already exists", hint="take another name")
    _registered[metric.name] = metric
    return metric


def find_metric(name: str | Metric) -> Metric:
    """The metric of that name, or itself. Raises `UsageError` with the known names for another."""
    if isinstance(name, Metric):
        return name
    if not isinstance(name, str) or name not in METRICS:
        raise UsageError(f"unknown metric {name!r}", hint="metrics are: " + ", ".join(METRICS))
    return METRICS[name]


def measure(
    metric: str | Metric,
    reference: Any,
    value: Any,
    *,
    reference_quantization: Quantization | None = None,
    value_quantization: Quantization | None = None,
) -> float | None:
    """A metric for two arrays, tensors or numbers; None unless both are numeric.

    With a quantization, codes are dequantized before they are compared. Without one, they are
    compared as integers.

    Raises `UsageError` for an unknown metric, for shapes that differ and for complex numbers.
    """
    found = find_metric(metric)
    return measure_all(
        [found],
        reference,
        value,
        reference_quantization=reference_quantization,
        value_quantization=value_quantization,
    )[found.name]


def measure_all(
    metrics: Iterable[str | Metric],
    reference: Any,
    value: Any,
    *,
    reference_quantization: Quantization | None = None,
    value_quantization: Quantization | None = None,
) -> dict[str, float | None]:
    """Return several metrics by name, as `measure` does, with few passes over the arrays."""
    found = list(map(find_metric, metrics))
    first, second = as_array(reference), as_array(value)
    if first is None or second is None:
        return {metric.name: None for metric in found}
    if first.shape != second.shape:
        raise UsageError(
            f"Input tensors must have the same shape: the reference has {list(first.shape)}, "
            f"the value {list(second.shape)}"
        )
    if reference_quantization is not None:
        first = reference_quantization.dequantized(first)
    if value_quantization is not None:
        second = value_quantization.dequantized(second)
    need = max((one.need for one in found if one.of_summary is not None), default=Need.ERRORS)
    summary: Summary | None = None
    results: dict[str, float | None] = {}
    for metric in found:
        if metric.of_summary is not None:
            if summary is None:
                summary = summarize(first, second, need)
            results[metric.name] = metric.of_summary(summary)
        else:
            result = metric.function(first, second)
            try:
                results[metric.name] = float(result)
            except (TypeError, ValueError) as error:
                raise UsageError(
                    f"the metric {metric.name!r} returned a {type(result).__name__}, not a number"
                ) from error
    return results
