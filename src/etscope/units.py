"""Time scales, and the formatter of times, bytes, counts and shares in human-readable output.

`format_duration` and similar functions format one value; `format_durations` and `format_floats`
format a column with one number of decimals, so that the decimal points align. A missing value (None
or NaN) is the empty text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import Enum

from etscope.errors import CyclesError, UsageError

__all__ = [
    "TimeScale",
    "duration_decimals",
    "format_bytes",
    "format_count",
    "format_duration",
    "format_durations",
    "format_float",
    "format_floats",
    "format_share",
]


class TimeScale(Enum):
    """The unit of a time value. Same members and values as upstream's `TimeScale`."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"
    CYCLES = "cycles"

    @classmethod
    def of(cls, value: TimeScale | str) -> TimeScale:
        """The scale named by `value`: a `TimeScale`, upstream's too, or one of "ns us ms s
        cycles"."""
        try:
            return cls(value.value if isinstance(value, Enum) else value)
        except ValueError as error:
            names = ", ".join(scale.value for scale in cls)
            raise UsageError(f"unknown time scale {value!r}: expected one of {names}") from error


_PER_SECOND = {TimeScale.NS: 1e9, TimeScale.US: 1e6, TimeScale.MS: 1e3, TimeScale.S: 1.0}


def scale_factor(source: TimeScale, target: TimeScale) -> float:
    """Return the divisor that converts a value in `source` to `target` (ns to ms: 1e6).

    Cycles convert to cycles only: no file records their duration.
    """
    if source is target:
        return 1.0
    if TimeScale.CYCLES in (source, target):
        raise CyclesError(
            "For TimeScale in cycles both the source and target time scale have to be in cycles."
        )
    return _PER_SECOND[source] / _PER_SECOND[target]


# unit -> (decimals that are always shown, decimals that reach the clock's nanosecond)
_DURATION_DECIMALS = {"ns": (0, 0), "us": (1, 3), "ms": (3, 6), "s": (3, 9), "cycles": (0, 0)}
_FIGURES = 5  # of the largest value of a column
# Floats outside of this range are written with an exponent.
_PLAIN_FLOATS = (1e-4, 1e7)


def format_duration(value: float | None, unit: str) -> str:
    """A time in the given `unit`, which the text does not repeat: 1234.5678 ms is "1,234.568"."""
    return format_durations([value], unit)[0]


def format_durations(
    values: Sequence[float | None], unit: str, decimals: int | None = None
) -> list[str]:
    """Return times in one `unit` with the same number of decimals: `decimals`, or as many as fit
    the largest.
    """
    if decimals is None:
        decimals = duration_decimals(values, unit)
    return [_fixed(value, decimals) for value in values]


def duration_decimals(values: Iterable[float | None], unit: str) -> int:
    """The number of decimals for the largest of `values`; they reach to the nanosecond at most."""
    least, most = _DURATION_DECIMALS.get(unit, (0, 9))
    return min(max(_decimals_for(values), least), most)


def format_float(value: float | None) -> str:
    """A number without a unit, in five figures: 12.3456789 is "12.346", 1.5e-9 is "1.500e-09"."""
    return format_floats([value])[0]


def format_floats(values: Sequence[float | None]) -> list[str]:
    """Numbers without a unit: equal decimals, or five figures each if some are tiny or huge."""
    sizes = [abs(value) for value in _finite(values) if value]
    low, high = _PLAIN_FLOATS
    if sizes and (min(sizes) < low or max(sizes) >= high):
        return [_figures(value) for value in values]
    if all(value.is_integer() for value in sizes):
        return [_fixed(value, 0) for value in values]
    decimals = min(max(_decimals_for(values), 2), 6)
    return [_fixed(value, decimals) for value in values]


def format_share(value: float | None) -> str:
    """A fraction as percent: 0.1234 is "12.3%"."""
    text = _fixed(None if value is None else 100 * value, 1)
    return text and text + "%"


def format_count(value: float | None) -> str:
    """A count with thousands separators; a mean of counts keeps two decimals."""
    whole = value is None or not math.isfinite(value) or float(value).is_integer()
    return _fixed(value, 0 if whole else 2)


def format_change(one: float, other: float) -> str:
    """A change of bytes: "+11.3%", or "+96 bytes" where that rounds to nothing."""
    share = f"{other / one - 1:+.1%}" if one else "+0.0%"
    return f"{other - one:+,} bytes" if share[1:] == "0.0%" else share


def format_bytes(value: float | None) -> str:
    """Bytes in binary units with three figures: 1536 is "1.50 KiB"."""
    if value is None or not math.isfinite(value):
        return _fixed(value, 0)
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        # 1023.7 would be written as "1024 KiB": it belongs to the next unit.
        if abs(size) < 1023.5 or unit == "TiB":
            break
        size /= 1024
    if unit == "B":
        return f"{size:.0f} B"
    return f"{size:.{2 if abs(size) < 9.995 else 1 if abs(size) < 99.95 else 0}f} {unit}"


def _finite(values: Iterable[float | None]) -> list[float]:
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def _decimals_for(values: Iterable[float | None]) -> int:
    """Decimals with which the largest value has `_FIGURES` figures; may be negative."""
    largest = max(map(abs, _finite(values)), default=0.0)
    return 0 if largest == 0 else _FIGURES - 1 - math.floor(math.log10(largest))


def _fixed(value: int | float | None, decimals: int) -> str:
    if value == 0:
        return "0"
    if isinstance(value, int) and not decimals:
        return f"{value:,d}"  # exact where a float is not
    if value is None or math.isnan(value):
        return ""
    text = f"{value:,.{decimals}f}"
    # A small value must not read as zero.
    if float(text.replace(",", "")) == 0:
        smallest = f"{10.0**-decimals:.{decimals}f}"
        return f"<{smallest}" if value > 0 else f">-{smallest}"
    return text


def _figures(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    low, high = _PLAIN_FLOATS
    plain = value == 0 or low <= abs(value) < high
    return f"{value:.{_FIGURES}g}" if plain else f"{value:.3e}"


def listed(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Names as a text: the first `most`, and the number of the others: "a, b and 3 more"."""
    more = len(names) - most
    return between.join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def count(number: int, noun: str) -> str:
    """Format a number with its noun: "1 place", "2 places"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
