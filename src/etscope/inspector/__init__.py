"""Upstream's `executorch.devtools.inspector`: the Inspector, its events, and `compare_results`."""

from __future__ import annotations

from etscope.backends.arm.delegates import (
    parse_vgf_neural_statistics_delegate_metadata,
    parse_vgf_neural_statistics_metadata,
)
from etscope.inspector._inspector import Inspector, compare_results
from etscope.model.events import Event, EventBlock, PerfData
from etscope.units import TimeScale

__all__ = [
    "Event",
    "EventBlock",
    "Inspector",
    "PerfData",
    "TimeScale",
    "compare_results",
    "parse_vgf_neural_statistics_delegate_metadata",
    "parse_vgf_neural_statistics_metadata",
]
