"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import CyclesError, UsageError
from etscope.units import (
    TimeScale,
    format_bytes,
    format_count,
    format_duration,
    format_durations,
    format_float,
    format_floats,
    format_share,
    scale_factor,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1234.5678, "ms", "1,234.568"),
        (12.3456789, "ms", "12.346"),
        (0.0123, "ms", "0.012300"),
        (15, "us", "15.000"),
        (123456.7, "us", "123,456.7"),
        (1234, "ns", "1,234"),
        (2**62, "cycles", "4,611,686,018,427,387,904"),
        (0, "ms", "0"),
        (-0.0, "ms", "0"),
        (None, "ms", ""),
        (math.nan, "ms", ""),
        (math.inf, "ms", "inf"),
    ],
)
def test_duration(value: float | None, unit: str, text: str) -> None:
    assert format_duration(value, unit) == text


def test_floats() -> None:
    assert format_floats([1.0, 2.0, None]) == ["1", "2", ""]
    assert format_floats([1.5, 22222.0]) == ["1.50", "22,222.00"]
    assert format_floats([1e-9, 3.0, 0.0, math.nan]) == ["1.000e-09", "3", "0", ""]
    assert format_float(12.3456789) == "12.346"
    assert format_float(-math.inf) == "-inf"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (10 * 1024, "10.0 KiB"),
        (1023.6 * 1024, "1.00 MiB"),
        (435 << 20, "435 MiB"),
        (7 << 40, "7.00 TiB"),
        (-2048, "-2.00 KiB"),
        (None, ""),
    ],
)
def test_bytes(size: float | None, text: str) -> None:
    assert format_bytes(size) == text


def test_columns_counts_and_shares() -> None:
    # Durations of a column have equal decimals.
    durations = format_durations([12.3456, 0.001, None, 1e-9, -1e-9], "ms")
    assert durations == ["12.346", "0.001", "", "<0.001", ">-0.001"]
    counts = [format_count(value) for value in (1234567, 3.0, 1.5, None)]
    assert counts == ["1,234,567", "3", "1.50", ""]
    shares = [format_share(value) for value in (1.0, 0.1234, 0.00001, 0.0, None)]
    assert shares == ["100.0%", "12.3%", "<0.1%", "0%", ""]


@given(st.floats(allow_nan=False), st.sampled_from(["ns", "us", "ms", "s", "cycles"]))
def test_only_zero_reads_as_zero(value: float, unit: str) -> None:
    text = format_duration(value, unit)
    assert (text.strip("0.") == "") is (value == 0)


def test_scales() -> None:
    assert TimeScale.of("ms") is TimeScale.MS
    assert TimeScale.of(TimeScale.NS) is TimeScale.NS
    assert scale_factor(TimeScale.NS, TimeScale.MS) == 1e6
    assert scale_factor(TimeScale.CYCLES, TimeScale.CYCLES) == 1
    with pytest.raises(UsageError, match="unknown time scale 'minutes'"):
        TimeScale.of("minutes")
    with pytest.raises(CyclesError):
        scale_factor(TimeScale.CYCLES, TimeScale.MS)
