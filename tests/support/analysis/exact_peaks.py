"""Calibrations whose peaks are known exactly, as tests of explanations want them."""

from __future__ import annotations

from datetime import datetime, timezone

from etscope.formats.calibration import (
    CalibratedDevice,
    Calibration,
    Estimate,
    GemmPoint,
    MemoryPoint,
    Peaks,
)

ENDLESS = 1e18  # bytes/s: no operator waits for memory


def number(value: float) -> Estimate:
    return Estimate(value, value, value, 9)


def peaks(
    threads: int = 1,
    bandwidth: float = ENDLESS,
    dispatch: float = 100.0,
    call: float = 1000.0,
    **flops: float,
) -> Peaks:
    """Peaks per second by the type of numbers; of a dispatch and of a delegate call in ns."""
    gemm = tuple(GemmPoint(name, 256, 256, 256, number(rate)) for name, rate in flops.items())
    memory = (MemoryPoint(1 << 16, number(bandwidth)),)
    return Peaks(threads, gemm, memory, number(dispatch), number(call))


def calibration(*all_peaks: Peaks, cpu: str | None = "a chip") -> Calibration:
    device = CalibratedDevice("it", cpu, 2) if cpu else CalibratedDevice("it")
    at = datetime(2026, 5, 1, tzinfo=timezone.utc)
    return Calibration(device, "native", "1.4.0", "1.5.1", at, all_peaks, path="peaks.json")
