"""The sum of absolute errors."""

from __future__ import annotations

from typing import Any

from etscope.inspector.numerical_comparator.numerical_comparator_base import (
    NumericalComparatorBase,
    compared,
)


class L1Comparator(NumericalComparatorBase):
    """The sum of absolute errors (the metric "l1" of `etscope.analysis.metrics`)."""

    def element_compare(self, a: Any, b: Any) -> float:
        """The sum of absolute errors of `b` against the reference `a`; NaN where one is NaN."""
        return compared("l1", a, b)
