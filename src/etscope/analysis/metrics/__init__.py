"""How far a value is from its reference: one number for a pair of arrays.

Sums are taken in float64, part by part: no copy of a large tensor is made. Shapes must be the same,
nothing is broadcast; types may differ. The rules for what is not an ordinary number:

- NaN in either array makes a metric NaN: a broken output never scores as a good one. Only
  `out_of_tolerance` has a number for it: a NaN is out of any tolerance.
- The same infinity at the same place is no error, and is left out of powers and products. Any other
  infinity is an infinite error.
- Equal arrays are perfect, all-zero ones too. Empty arrays give NaN: nothing was compared.

The table in ``docs/metrics.md`` has every case.
"""

from __future__ import annotations

from etscope.analysis.metrics._arrays import Array, Quantization
from etscope.analysis.metrics._builtin import Metric, tolerance_metric
from etscope.analysis.metrics._measure import (
    DEFAULT_METRICS,
    METRICS,
    find_metric,
    measure,
    measure_all,
    register_metric,
)

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
