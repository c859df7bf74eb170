"""A calibration as tables."""

from __future__ import annotations

from etscope.formats.calibration import Calibration
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind

__all__ = ["SCHEMA", "calibration_report"]

SCHEMA = "etscope.calibration-report/1"

_THREADS = Column("threads", Kind.COUNT)
_SPREAD = Column("spread", Kind.SHARE, priority=1)


def calibration_report(calibration: Calibration) -> Report:
    """Return a report of the peaks: products by dtype, memory by level and by working set,
    overheads. Its summary lists the marks (reasons to doubt them).
    """
    about = {
        "device": calibration.device.in_words(),
        "runner": calibration.runner,
        "executorch": calibration.executorch or "unknown",
        "measured at": calibration.measured_at.isoformat(timespec="seconds"),
    }
    sections = (
        _products(calibration),
        _levels(calibration),
        _bandwidth(calibration),
        _overheads(calibration),
    )
    marks = tuple(f"{mark[:1].upper()}{mark[1:]}." for mark in calibration.marks)
    return Report(about, tuple(one for one in sections if len(one.table)), marks)


def _products(calibration: Calibration) -> Section:
    content = []
    for peaks in calibration.all_peaks:
        for dtype in peaks.dtypes:
            mine = [point for point in peaks.gemm if point.dtype == dtype]
            best = max(mine, key=lambda point: point.flop_per_s.median)
            size = f"[{best.m}, {best.k}] by [{best.k}, {best.n}]"
            rate = best.flop_per_s
            content.append((dtype, peaks.threads, rate.median / 1e9, rate.spread, size))
    columns = (
        Column("dtype"),
        _THREADS,
        Column("peak", Kind.FLOAT, "GFLOP/s"),
        _SPREAD,
        Column("product", title="best product", priority=2),
    )
    return rows("products", "Matrix products (XNNPACK)", columns, content)


def _levels(calibration: Calibration) -> Section:
    content = [
        (level.name, level.up_to_bytes, peaks.threads, level.bytes_per_s / 1e9)
        for peaks in calibration.all_peaks
        for level in peaks.memory_levels(calibration.device.caches)
    ]
    columns = (
        Column("level"),
        Column("up_to", Kind.BYTES, title="up to"),
        _THREADS,
        Column("peak", Kind.FLOAT, "GB/s"),
    )
    return rows("memory", "Levels of memory", columns, content)


def _bandwidth(calibration: Calibration) -> Section:
    content = [
        (
            point.working_set_bytes,
            peaks.threads,
            point.bytes_per_s.median / 1e9,
            point.bytes_per_s.spread,
        )
        for peaks in calibration.all_peaks
        for point in peaks.memory
    ]
    columns = (
        Column("working_set", Kind.BYTES, title="working set"),
        _THREADS,
        Column("rate", Kind.FLOAT, "GB/s"),
        _SPREAD,
    )
    return rows("bandwidth", "Bandwidth (additions by XNNPACK)", columns, content)


def _overheads(calibration: Calibration) -> Section:
    content = [
        (what, peaks.threads, estimate.median / 1e3, estimate.spread)
        for peaks in calibration.all_peaks
        for what, estimate in (
            ("instruction with a portable kernel", peaks.dispatch),
            ("call of an XNNPACK delegate", peaks.delegate_call),
        )
        if estimate is not None
    ]
    columns = (Column("what"), _THREADS, Column("time", Kind.DURATION, "us"), _SPREAD)
    return rows("overheads", "Overheads", columns, content)
