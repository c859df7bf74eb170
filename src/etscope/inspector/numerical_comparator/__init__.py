"""Upstream's `executorch.devtools.inspector.numerical_comparator`: distances of two values.

A comparator is given to `Inspector.calculate_numeric_gap`; one's own is a subclass of
`NumericalComparatorBase` with an `element_compare`.
"""

from __future__ import annotations

from etscope.inspector.numerical_comparator.l1_numerical_comparator import L1Comparator
from etscope.inspector.numerical_comparator.mse_numerical_comparator import MSEComparator
from etscope.inspector.numerical_comparator.numerical_comparator_base import (
    DebugHandle,
    IntermediateOutputMapping,
    NumericalComparatorBase,
)
from etscope.inspector.numerical_comparator.snr_numerical_comparator import SNRComparator

__all__ = [
    "DebugHandle",
    "IntermediateOutputMapping",
    "L1Comparator",
    "MSEComparator",
    "NumericalComparatorBase",
    "SNRComparator",
]
