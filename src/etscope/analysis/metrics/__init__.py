"""Metrics: the distance of a value from its reference, one number for a pair of arrays.

Sums are taken in float64, part by part: no copy of a large tensor is made. Shapes must be the same,
nothing is broadcast; types may differ. A metric is added in `_builtin`, or by `register_metric`.
The rules for NaN, infinities and empty arrays:

- NaN in either array makes a metric NaN: a broken output never scores as a good one. Only
  `out_of_tolerance` has a number for it: a NaN is out of any tolerance.
- The same infinity at the same place is not an error, and is left out of powers and products. Any
  other infinity is an infinite error.
- Equal arrays are perfect, all-zero ones too. Empty arrays give NaN: nothing was compared.

The table in ``docs/metrics.md`` has every case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from etscope.analysis.metrics._arrays import Array, Quantization, Summary, as_array, summarize
from etscope.analysis.metrics._builtin import BUILTIN, Metric, tolerance_metric
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

_registered: dict[str, Metric] = {metric.name: metric for metric in BUILTIN}

METRICS: Mapping[str, Metric] = MappingProxyType(_registered)
"""All metrics by name; `register_metric` adds to it."""

DEFAULT_METRICS = ("snr", "mse", "cosine_similarity")
"""The default metrics of `compare_results`: upstream's, in its order."""


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
    of two numpy arrays of one shape, in their own types (bfloat16 is that of ml_dtypes); it must
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
        raise UsageError(f"there is a metric {metric.name!r} already", hint="take another name")
    _registered[metric.name] = metric
    return metric


def find_metric(name: str) -> Metric:
    """The metric of that name; `UsageError` with the names there are if it is none of them."""
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

    With a quantization an array of codes is compared as the numbers that the codes stand for;
    without, codes are compared as the integers that they are.

    Raises `UsageError` for an unknown metric, for shapes that differ and for complex numbers.
    """
    found = metric if isinstance(metric, Metric) else find_metric(metric)
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
    """Several metrics by their names, as `measure` gives them, with few passes over the arrays."""
    found = [item if isinstance(item, Metric) else find_metric(item) for item in metrics]
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
    errors_only = all(metric.errors_only for metric in found if metric.of_summary is not None)
    summary: Summary | None = None
    results: dict[str, float | None] = {}
    for metric in found:
        if metric.of_summary is not None:
            if summary is None:
                summary = summarize(first, second, errors_only=errors_only)
            results[metric.name] = metric.of_summary(summary)
        else:
            result = metric.function(first, second)
            try:
                results[metric.name] = float(result)
            except (TypeError, ValueError) as error:
                raise UsageError(
                    f"the metric {metric.name!r} gave a {type(result).__name__} and not a number"
                ) from error
    return results
