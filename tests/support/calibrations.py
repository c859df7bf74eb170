"""A calibration with round peaks."""

from __future__ import annotations

from datetime import datetime, timezone

from etscope.formats.calibration import (
    Cache,
    CalibratedDevice,
    Calibration,
    Estimate,
    GemmPoint,
    MemoryPoint,
    Peaks,
)

KIB = 1 << 10


def measured(value: float) -> Estimate:
    return Estimate(value, value, value, 7)


def peaks(threads: int, factor: float = 1.0) -> Peaks:
    """Float at 100 GFLOP/s, int8 at 400; 50 GB/s up to 64 KiB, 10 GB/s from 64 MiB on."""
    rates = {"float32": 1e11, "int8": 4e11, "8da4w": 2e11}
    memory = ((64 * KIB, 5e10), (64 << 20, 1e10))
    return Peaks(
        threads,
        tuple(
            GemmPoint(name, 256, 256, 256, measured(rate * factor)) for name, rate in rates.items()
        ),
        tuple(MemoryPoint(size, measured(rate * factor)) for size, rate in memory),
        measured(200.0),
        measured(2000.0),
    )


def calibration(*all_peaks: Peaks) -> Calibration:
    caches = (Cache(1, 64 * KIB, 1, 2), Cache(2, 4 << 20, 2, 1))
    device = CalibratedDevice("bench", "Test CPU", 2, "x86_64", "Linux", caches)
    when = datetime(2026, 5, 1, tzinfo=timezone.utc)
    return Calibration(device, "native", "1", "1.5.1", when, all_peaks or (peaks(1),))
