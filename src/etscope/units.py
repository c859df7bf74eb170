"""Time scales, and the one formatter of times, bytes, counts and shares for people."""

from __future__ import annotations

import math
from enum import Enum

from etscope.errors import CyclesError, UsageError

__all__ = ["TimeScale", "format_bytes", "format_count", "format_duration", "format_share"]


class TimeScale(Enum):
    """The unit of a time value. Same members and values as upstream's `TimeScale`."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"
    CYCLES = "cycles"

    @classmethod
    def of(cls, value: TimeScale | str) -> TimeScale:
        """The scale named by `value`, a `TimeScale` or one of "ns us ms s cycles"."""
        try:
            return value if isinstance(value, cls) else cls(value)
        except ValueError as error:
            names = ", ".join(scale.value for scale in cls)
            raise UsageError(f"unknown time scale {value!r}: expected one of {names}") from error


_PER_SECOND = {TimeScale.NS: 1e9, TimeScale.US: 1e6, TimeScale.MS: 1e3, TimeScale.S: 1.0}


def scale_factor(source: TimeScale, target: TimeScale) -> float:
    """What a value in `source` is divided by to be in `target` (ns to ms: 1e6).

    Cycles convert to cycles only: how long one lasts is not in any file.
    """
    if source is target:
        return 1.0
    if TimeScale.CYCLES in (source, target):
        raise CyclesError(
            "For TimeScale in cycles both the source and target time scale have to be in cycles."
        )
    return _PER_SECOND[source] / _PER_SECOND[target]


def format_duration(value: float | None, unit: str) -> str:
    """A time in a fixed `unit`, with a precision fit for its size: never more than 7 characters
    for what fits in the unit, so that columns line up."""
    if value is None or math.isnan(value):
        return ""
    if unit in ("cycles", "ns"):
        return f"{value:,.0f}"
    magnitude = abs(value)
    if magnitude >= 1000:
        return f"{value:,.1f}"
    if magnitude >= 100:
        return f"{value:.2f}"
    return f"{value:.4f}" if unit in ("ms", "s") else f"{value:.3f}"


def format_share(value: float | None) -> str:
    """A fraction as percent: 0.1234 is "12.3%"."""
    return "" if value is None or math.isnan(value) else f"{100 * value:.1f}%"


def format_count(value: float | None) -> str:
    """A whole number with thousands separators."""
    return "" if value is None or math.isnan(value) else f"{value:,.0f}"


def format_bytes(value: float | None) -> str:
    """Bytes in binary units with three figures: 1536 is "1.50 KiB"."""
    if value is None or math.isnan(value):
        return ""
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            break
        size /= 1024
    else:
        unit = "TiB"
    if unit == "B":
        return f"{size:.0f} B"
    return f"{size:.{2 if abs(size) < 10 else 1 if abs(size) < 100 else 0}f} {unit}"
