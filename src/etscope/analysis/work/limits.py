"""The limits of a profile's rows: the rates at which they worked, the share of what the machine can
do, and what bounds them.

The roofline (S. Williams, A. Waterman, D. Patterson: Roofline: An Insightful Visual Performance
Model for Multicore Architectures, Communications of the ACM 52(4), 2009) says that work of F FLOPs
and B bytes takes at least

    max(F / peak FLOP/s, B / peak bytes/s)

or, divided by it, that no more than min(peak FLOP/s, F / B * peak bytes/s) can be reached. `etscope
calibrate` measures the peaks:

- FLOP/s: the best product of matrices in the type of numbers of the work. Work in several types
  takes the sum of their times. A type that was not measured cannot be faster than a measured one
  with elements that are not wider: float64, int32 and int64 have the peak of float32.
- bytes/s: at the size of all that one call reads and writes, its working set: what fits a cache has
  the bandwidth of the cache. The FLOPs of functions (an exponential is one) never reach the peak of
  multiply-adds; such operators are bound by memory all the same, if their kernels are good.
- As a third limit, a call takes at least the time of a call that computes next to nothing: of a
  kernel's dispatch, or of a delegate's call with one tiny operator.

A row's share of the peak is the time of the roofline by the measured one. Bytes are counted once,
as read from where all of the call fits: a share above 1 says that some came from a faster level, or
that other work slowed the measurement of the peak, which a calibration's marks record.

A row is bound by "overhead" if the third limit is larger than the roofline and explains a quarter
of its time or more (the overheads are measured without a trace; each event of a traced run costs
about as much again), or if there is nothing to compute and to move. Else it is bound by "compute"
or "memory", the larger of the two. That says which of them it would run into first, not that it
has: with a small share it is the kernel that is slow. Rows that are faster than the overheads have
a share too, but their time says little. A row with unknown or partly known work has no
share and no bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.work.formulas import FLOATS
from etscope.analysis.work.operation import NO_WORK
from etscope.analysis.work.profile_work import ProfileWork, profile_work
from etscope.errors import UsageError
from etscope.formats.calibration import FLOAT16, FLOAT32, INT8, Calibration, MemoryLevel, Peaks
from etscope.formats.program.scalar_type import scalar_type_of
from etscope.formats.run_json import SavedRun
from etscope.support.shown import Shown
from etscope.units import TimeScale

__all__ = ["BOUNDS", "OVERHEAD_SHARE", "ProfileLimits"]

COMPUTE, MEMORY, OVERHEAD = "compute", "memory", "overhead"
BOUNDS = (COMPUTE, MEMORY, OVERHEAD)
OVERHEAD_SHARE = 0.25  # of a row's time, from which on the overhead bounds it


@dataclass(frozen=True, slots=True)
class Limits:
    """Work in a time with its rates, and the least time that each limit of the machine allows for
    it.

    ns: the time; 0 if it was not measured. flops, moved: FLOPs and bytes read and written; None
    where not known. compute_ns, memory_ns, overhead_ns: the least times; None without a
    calibration, and where the work or the peak is unknown. For a row that calls nothing,
    `overhead_ns` is 0. dtype: the type of most FLOPs. level: the memory of the working set, "L2" or
    "memory". roof_ns: the time of the roofline; of several rows, the sum of theirs. bound: one of
    `BOUNDS`, or None; of several rows, the bound with most time.
    """

    ns: float
    flops: float | None = None
    moved: float | None = None
    compute_ns: float | None = None
    memory_ns: float | None = None
    overhead_ns: float | None = None
    roof_ns: float | None = None
    bound: str | None = None
    dtype: str | None = None
    level: str | None = None

    @property
    def flop_per_s(self) -> float | None:
        return None if self.flops is None or self.ns <= 0 else self.flops / self.ns * 1e9

    @property
    def bytes_per_s(self) -> float | None:
        return None if self.moved is None or self.ns <= 0 else self.moved / self.ns * 1e9

    @property
    def intensity(self) -> float | None:
        """FLOPs for each byte; None without bytes."""
        return None if self.flops is None or not self.moved else self.flops / self.moved

    @property
    def share(self) -> float | None:
        """The share of the peak that was reached, 0 to 1. The peak is the attainable FLOP/s at this
        intensity, or the bytes/s if they limit more.
        """
        return None if self.roof_ns is None or self.ns <= 0 else self.roof_ns / self.ns


@dataclass(frozen=True)
class ProfileLimits(Shown):
    """The limits of the rows of a profile.

    source: the unit of the dump's ticks. calibration: None for the rates alone. threads: the run's
    thread pool size; None if unknown. run: the machine in the run's run.json, to warn if the
    calibration is of another one.
    """

    work: ProfileWork
    source: TimeScale = TimeScale.NS
    calibration: Calibration | None = None
    threads: int | None = None
    run: SavedRun | None = None
    _known: dict[int, Limits | None] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def peaks(self) -> Peaks | None:
        """The peaks of as many threads as the run had, or of the nearest number."""
        return None if self.calibration is None else self.calibration.peaks(self.threads)

    @cached_property
    def levels(self) -> tuple[MemoryLevel, ...]:
        """The levels of memory, the smallest first."""
        found = self.calibration
        return () if found is None else found.memory_levels(self.threads)

    def of(self, rows: Sequence[Row]) -> Limits | None:
        """Return the limits of rows together. None if they would say nothing: no known work, ticks
        that are not times, or unknown sizes of the runs.

        With several rows, the share is for the rows with known work, in the time of all.
        """
        if self.source is TimeScale.CYCLES or any(row.own_clock for row in rows):
            return None
        parts = list(self._parts(rows))
        if len(parts) == 1 and parts[0] is rows[0]:
            return self._of_row(parts[0])
        work = self.work.of(rows) or NO_WORK
        if work.is_bound:
            return None
        known = [found for row in parts if (found := self._of_row(row)) is not None]
        if not known:
            return None
        bounds: dict[str, float] = {}
        for one in known:
            if one.bound is not None:
                bounds[one.bound] = bounds.get(one.bound, 0) + one.ns
        return Limits(
            self._ns(self.work.ticks_of(rows)),
            None if work is NO_WORK else work.known_flops,
            None if work is NO_WORK else work.known_bytes,
            compute_ns=_sum(one.compute_ns for one in known),
            memory_ns=_sum(one.memory_ns for one in known),
            overhead_ns=_sum(one.overhead_ns for one in known),
            roof_ns=_sum(one.roof_ns for one in known),
            bound=_largest(bounds),
            dtype=_largest(dict(work.dtypes)),
        )

    # -- one row

    def _of_row(self, row: Row) -> Limits | None:
        if id(row) not in self._known:
            is_rest = row.kind == "unaccounted"
            self._known[id(row)] = self._of_rest(row) if is_rest else self._of_work(row)
        return self._known[id(row)]

    def _of_rest(self, row: Row) -> Limits | None:
        """The rest of a delegate's call: its overhead, unless something was computed in it."""
        overhead = self._overhead_ns(row)
        if not overhead or self.work.of([row]) is not None:
            return None
        ns = self._ns(float(row.ticks.mean()))
        bound = OVERHEAD if overhead >= OVERHEAD_SHARE * ns else None
        return Limits(ns, overhead_ns=overhead, bound=bound)

    def _of_work(self, row: Row) -> Limits | None:
        work = self.work.of([row])
        if work is None or work.is_bound:
            return None
        found = Limits(
            self._ns(self.work.ticks_of([row])),
            work.known_flops,
            work.known_bytes,
            dtype=_largest(dict(work.dtypes)),
        )
        calls, peaks = float(row.calls.mean()), self.peaks
        if peaks is None or calls <= 0:
            return found
        together = self.work.together.get(id(row), (row,))
        overhead = _sum(map(self._overhead_ns, together))
        rates = [(flops, self._peak_flops(peaks, dtype)) for dtype, flops in work.dtypes if flops]
        moved, working_set = work.traffic.total, work.traffic.total / calls
        bandwidth = peaks.bandwidth(working_set) if moved else None
        is_known = (bandwidth or not moved) and all(peak is not None for _, peak in rates)
        if work.unknown or not is_known:
            return replace(found, overhead_ns=overhead)
        compute = sum(flops / (peak or 1.0) * 1e9 for flops, peak in rates)
        memory = moved / (bandwidth or 1.0) * 1e9
        roof = max(compute, memory)
        bound = COMPUTE if compute > memory else MEMORY
        explained = overhead or 0.0
        if roof == 0 or (explained > roof and explained >= OVERHEAD_SHARE * found.ns):
            bound = OVERHEAD
        fitting = (
            one.name
            for one in self.levels
            if one.up_to_bytes is None or working_set <= one.up_to_bytes
        )
        return replace(
            found,
            compute_ns=compute,
            memory_ns=memory,
            overhead_ns=overhead,
            roof_ns=roof,
            bound=bound,
            level=next(fitting, None) if moved else None,
        )

    def _parts(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows with limits that these rows sum."""
        for row in rows:
            if row.kind == "total":
                yield from (group.head for group in self.work.profile.instructions)
            elif row.parts:
                yield from self._parts(row.parts)
            else:
                yield row

    @staticmethod
    def _peak_flops(peaks: Peaks, dtype: str) -> float | None:
        found = peaks.peak_flops(dtype)
        if found is not None:
            return found
        # Of a measured type with elements that are not wider, which cannot be slower.
        if dtype in FLOATS:
            return peaks.peak_flops(FLOAT32 if dtype == "float64" else FLOAT16)
        try:
            size = scalar_type_of(dtype).nbytes(1)
        except UsageError:
            return None
        return peaks.peak_flops(FLOAT32 if size >= 4 else INT8)

    def _overhead_ns(self, row: Row) -> float | None:
        """Return the least time of a row's calls, as measured with next to nothing to compute; None
        if that was not measured. A delegate's call and its rest have the call's."""
        peaks = self.peaks
        if peaks is None or (row.kind == "unaccounted" and row.instruction_id is None):
            return None
        if row.kind in ("kernel", "control"):
            each = peaks.dispatch_ns
        elif row.kind == "delegate" or (row.kind == "unaccounted" and row.depth == 1):
            each = peaks.delegate_call_ns
        else:
            return 0.0
        return None if each is None else each * float(row.calls.mean())

    def _ns(self, ticks: float) -> float:
        return float(Scale(self.source, TimeScale.NS)(ticks))


def profile_limits(
    trace: Trace,
    profile: MethodProfile,
    source: TimeScale = TimeScale.NS,
    calibration: Calibration | None = None,
) -> ProfileLimits | None:
    """Return the limits of a profile's rows; None if its work is unknown, without a record
    and a program."""
    work = profile_work(trace, profile)
    run = trace.saved_run
    threads = None if run is None else run.count("threads")
    return None if work is None else ProfileLimits(work, source, calibration, threads, run)


def calibration_notes(limits: ProfileLimits) -> Iterator[str]:
    """Yield notes on the shares of the peak: where they come from, and why they may be wrong."""
    found, peaks = limits.calibration, limits.peaks
    if found is None or peaks is None:
        yield (
            "Shares of the peak, and what bounds a row, need a calibration of the machine: make "
            "one there with etscope calibrate, or name it with -X peaks."
        )
        return
    threads = "" if peaks.threads is None else f", threads: {peaks.threads}"
    yield (
        f"Peaks: {found.device.in_words()}{threads}, measured {found.measured_at:%Y-%m-%d} "
        f"({found.path}). peak: the share of what the machine can do at the row's FLOPs a byte; "
        "bound: the limit that the row would run into first."
    )
    yield from calibration_doubts(limits)


def calibration_doubts(limits: ProfileLimits) -> Iterator[str]:
    """Yield reasons to doubt a calibration: it belongs to another machine, or is marked as
    doubtful.
    """
    found = limits.calibration
    if found is None:
        return
    differences = () if limits.run is None else found.mismatch_with(limits.run)
    if differences:
        yield f"The calibration is not of this run: {'; '.join(differences)}."
    conditions = None if limits.run is None else limits.run.conditions
    if conditions is None or not conditions.cpu:
        yield "The machine of the run is unknown: the peaks may be another machine's."
    if found.marks:
        yield f"The calibration is marked: {'; '.join(found.marks)}."


def _largest(parts: dict[str, float]) -> str | None:
    return max(parts, key=lambda name: parts[name], default=None)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
