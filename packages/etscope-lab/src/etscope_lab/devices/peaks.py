"""The peaks that the lab keeps of a device, one calibration for each runner, and when it is due.

A calibration holds for one description of a device: its driver and options, its CPU and cores, and
the version of ExecuTorch. When one of these changes, or a job has another number of threads, the
device is measured again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from etscope.formats.calibration import Calibration, parse_calibration
from etscope_lab.jobs.records import DeviceConfig

_DESCRIBING = ("cpu", "cores", "arch", "soc", "model", "os")  # attributes of a device
_MOST_SIZES = 6  # of the thread pool: for further ones the peaks of the nearest are taken


@dataclass(frozen=True, slots=True)
class CalibrationOrder:
    """An order to calibrate a device.

    token: identifies this attempt. store: the URL of the lab's store. threads: thread pool sizes to
    measure; () for 1 and the runtime's default. description: see `description_of`.
    """

    token: str
    device: DeviceConfig
    store: str
    runner: str
    threads: tuple[int, ...]
    description: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceCalibration:
    """The calibration of a device with one runner, or the reason why there is none.

    threads: the requested or measured thread pool sizes. content: the content of the calibration's
    file (`etscope.formats.calibration`), None if there is an `error`.
    """

    device: str
    runner: str
    description: Mapping[str, Any]
    threads: tuple[int, ...]
    at: datetime
    content: Mapping[str, Any] | None = None
    error: str = ""

    @property
    def marks(self) -> Sequence[str]:
        """Reasons to trust it less, such as a busy machine."""
        found: Sequence[str] = (self.content or {}).get("marks", ())
        return found

    @property
    def calibration(self) -> Calibration | None:
        """The peaks. Raises `FormatError` for content that is damaged."""
        if self.content is None:
            return None
        return parse_calibration(self.content)

    def summary(self) -> dict[str, Any]:
        """Return it in short, for people: the best rates of all sizes of the thread pool, FLOP/s by
        dtype and bytes/s by level of memory."""
        found = self.calibration
        flops: dict[str, float] = {}
        memory: dict[str, float] = {}
        for peaks in () if found is None else found.all_peaks:
            for dtype in peaks.dtypes:
                flops[dtype] = max(peaks.peak_flops(dtype) or 0.0, flops.get(dtype, 0.0))
            for level in found.memory_levels(peaks.threads) if found is not None else ():
                memory[level.name] = max(level.bytes_per_s, memory.get(level.name, 0.0))
        return {
            "runner": self.runner,
            "measured_at": self.at.isoformat(timespec="seconds"),
            "threads": [] if found is None else [peaks.threads for peaks in found.all_peaks],
            "flop_per_s": flops,
            "bytes_per_s": memory,
            "marks": [] if found is None else list(found.marks),
            "error": self.error,
        }


def peaks_in_words(summary: Mapping[str, Any]) -> str:
    """Say the peaks of a `DeviceCalibration.summary`: "float32 91.2 GFLOP/s, L1 80.1 GB/s, …", or
    why there are none."""
    if summary["error"]:
        return f"not calibrated: {summary['error']}"
    rates = [
        f"{name} {rate / 1e9:.3g} {unit}"
        for names, unit in (("flop_per_s", "GFLOP/s"), ("bytes_per_s", "GB/s"))
        for name, rate in summary[names].items()
    ]
    threads = ", ".join(str(one) for one in summary["threads"] if one)
    return ", ".join(rates) + (f" (threads: {threads})" if threads else "")


def description_of(
    config: DeviceConfig, attributes: Mapping[str, str], executorch: str | None
) -> dict[str, Any]:
    """Return everything that a calibration of a device depends on. attributes: the device's
    attributes from its driver and its configuration.
    """
    return {
        "driver": config.driver,
        "options": dict(config.options),
        "executorch": executorch,
        **{name: attributes[name] for name in _DESCRIBING if name in attributes},
    }


def due_threads(
    kept: DeviceCalibration | None, description: Mapping[str, Any], threads: int | None
) -> tuple[int, ...] | None:
    """Return the sizes of the thread pool to calibrate a device with, () for one and the runtime's
    default; None if the kept calibration is valid for a job with that number of threads.
    """
    before = kept.threads if kept is not None and kept.description == description else None
    if before is None:
        return () if threads is None else tuple(sorted({1, threads}))
    if threads is None or threads in before or len(before) >= _MOST_SIZES:
        return None
    return tuple(sorted({*before, threads}))
