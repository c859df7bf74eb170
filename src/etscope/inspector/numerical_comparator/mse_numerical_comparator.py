"""The mean squared error."""

from __future__ import annotations

from typing import Any

from etscope.inspector.numerical_comparator.numerical_comparator_base import (
    NumericalComparatorBase,
    compared,
)


class MSEComparator(NumericalComparatorBase):
    """The mean squared error (the metric "mse" of `etscope.analysis.metrics`)."""

    def element_compare(self, a: Any, b: Any) -> float:
        """The mean squared error of `b` against the reference `a`; NaN where one is NaN."""
        return compared("mse", a, b)
