"""The signal-to-noise ratio in dB."""

from __future__ import annotations

from typing import Any

from etscope.inspector.numerical_comparator.numerical_comparator_base import (
    NumericalComparatorBase,
    compared,
)


class SNRComparator(NumericalComparatorBase):
    """The signal-to-noise ratio in dB (the metric "snr" of `etscope.analysis.metrics`)."""

    def element_compare(self, a: Any, b: Any) -> float:
        """The signal-to-noise ratio of `b` against the reference `a`; NaN where one is NaN."""
        return compared("snr", a, b)
