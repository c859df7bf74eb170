"""The program of a calibration, and the peaks of a machine from the times of its methods.

Every method takes a [rows, 1] and b [1, columns], and returns a few numbers: the large arrays are
made and used inside, so that nothing large is kept, copied or sent to a device. A method holds a
chain of equal operators; each takes the output of the one before:

    gemm_float32_512   PRODUCTS products [ROWS, 512] by [512, 512], in one delegate
    adds_2             2 additions of arrays [rows, COLUMNS], in one delegate
    kernels_4          4 instructions, each of a portable kernel
    delegates_2        2 calls of delegates, each of one operator

The last three have a short chain and a long one. The difference of their times is the time of the
additional operators, without the other costs of a method.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etscope.formats.calibration import DTYPES, Calibration, Estimate, GemmPoint, MemoryPoint, Peaks
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind

__all__ = ["SCHEMA", "calibration_report"]

GEMM, ADDITIONS, KERNELS, DELEGATES = "gemm", "adds", "kernels", "delegates"

ROWS = 256  # of the activations
PRODUCTS = 3
# Small products are done before another process gets the core; large ones fill many cores.
WIDTHS = (256, 1024)
COLUMNS = 1024  # of the arrays of additions
CHAINS = {ADDITIONS: (2, 10), KERNELS: (4, 36), DELEGATES: (2, 10)}
WORKING_SETS = tuple((16 << 10) * 4**step for step in range(8))  # bytes: 16 KiB to 256 MiB

# An addition reads two arrays and writes one, in the place of one of the two.
_ARRAYS, _ACCESSES = 2, 3
_FLOAT32_BYTES = 4
_ROW_BYTES = _ARRAYS * COLUMNS * _FLOAT32_BYTES  # of a working set
MOST_ROWS = max(WORKING_SETS) // _ROW_BYTES
_GEMM = re.compile(rf"{GEMM}_({'|'.join(DTYPES)})_([1-9]\d{{0,5}})")
_CHAIN = re.compile(rf"({'|'.join(CHAINS)})_([1-9]\d{{0,5}})")


@dataclass(frozen=True, slots=True)
class Execution:
    """A method of the calibration program, and its sizes.

    group: "gemm float32", "adds", and so on. size: the width of the matrix products, or the number
    of operators in a chain. rows, columns: the sizes of the inputs.
    """

    method: str
    group: str
    size: int
    rows: int = 1
    columns: int = 1

    @property
    def dtype(self) -> str:
        """The type of the matrix products; float32 for other methods."""
        return self.group.removeprefix(f"{GEMM} ") if self.group.startswith(GEMM) else "float32"

    @property
    def working_set_bytes(self) -> int:
        """The bytes of the arrays of an addition."""
        return _ARRAYS * self.rows * self.columns * _FLOAT32_BYTES


# The times of an execution, ns, one a round.
Times = Mapping[Execution, Sequence[float]]


def executions_of(methods: Iterable[str], most_bytes: int | None = None) -> list[Execution]:
    """Return the methods to time. Methods with other names are left out. most_bytes: the largest
    working set; None for any.
    """
    found = []
    for method in methods:
        if product := _GEMM.fullmatch(method):
            width = int(product[2])
            found.append(Execution(method, f"{GEMM} {product[1]}", width, ROWS, width))
        elif chain := _CHAIN.fullmatch(method):
            size = int(chain[2])
            if chain[1] != ADDITIONS:
                found.append(Execution(method, chain[1], size))
                continue
            sets = [one for one in WORKING_SETS if most_bytes is None or one <= most_bytes]
            found += [
                Execution(method, ADDITIONS, size, one // _ROW_BYTES, COLUMNS) for one in sets
            ]
    return found


def peaks_of(threads: int | None, times: Times) -> Peaks:
    """Return the peaks from the measured times. A chain of operators is left out if its long form
    took no longer than its short form.
    """
    gemm, memory = [], []
    for one, rounds in times.items():
        if one.group.startswith(GEMM):
            flop = 2 * one.rows * one.size * one.size * PRODUCTS
            rate = _rate(flop, np.asarray(rounds, np.float64))
            if rate is not None:
                gemm.append(GemmPoint(one.dtype, one.rows, one.size, one.size, rate))
    for size, each in _by_operator(times, ADDITIONS).items():
        rate = _rate(size / _ARRAYS * _ACCESSES, each)
        if rate is not None:
            memory.append(MemoryPoint(size, rate))
    return Peaks(
        threads,
        tuple(gemm),
        tuple(memory),
        dispatch=_time(_by_operator(times, KERNELS)),
        delegate_call=_time(_by_operator(times, DELEGATES)),
    )


def _by_operator(times: Times, group: str) -> dict[int, npt.NDArray[np.float64]]:
    """Return the time of one operator in each round by working set, from the shortest and the
    longest chain."""
    chains: dict[int, dict[int, npt.NDArray[np.float64]]] = {}
    for one, rounds in times.items():
        if one.group == group:
            by_length = chains.setdefault(one.working_set_bytes, {})
            by_length[one.size] = np.asarray(rounds, np.float64)
    found = {}
    for size, by_length in sorted(chains.items()):
        short, long = min(by_length), max(by_length)
        if short < long:
            found[size] = (by_length[long] - by_length[short]) / (long - short)
    return found


def _rate(amount: float, times: npt.NDArray[np.float64]) -> Estimate | None:
    """The amount a second, from times in ns."""
    each = _estimate(times)
    if each is None:
        return None
    fast, median, slow = (amount / time * 1e9 for time in (each.low, each.median, each.high))
    return Estimate(median, slow, fast, each.rounds)


def _time(found: Mapping[int, npt.NDArray[np.float64]]) -> Estimate | None:
    return next((_estimate(each) for each in found.values()), None)


def _estimate(values: npt.NDArray[np.float64]) -> Estimate | None:
    """The median and the quartiles; None unless they are positive."""
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Estimate(median, low, high, len(values)) if low > 0 else None


# -- a calibration as tables

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
