"""The roofline of a method: its operators by arithmetic intensity (FLOP/byte) and achieved GFLOP/s,
below the ceilings that a calibration measured (Williams, Waterman, Patterson 2009).

Every tick of the method counts once: as an operator that computes, as one that only moves data, as
one without work, as one with unknown work, or as time outside the operators.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from etscope.analysis.profile.profile import InstructionRows, MethodProfile, Row
from etscope.analysis.profile.rollup import group_name
from etscope.analysis.profile.scale import Scale
from etscope.analysis.work.limits import Limits, ProfileLimits, calibration_notes
from etscope.analysis.work.operation import Work
from etscope.errors import UsageError
from etscope.formats.bytes.files import PathLike
from etscope.formats.calibration import (
    VARIABLE,
    Calibration,
    MemoryLevel,
    find_calibration,
    read_calibration,
)
from etscope.formats.run_json import SavedRun
from etscope.units import TimeScale

__all__ = ["choose_calibration"]

COMPUTES, MOVES, NO_WORK, UNKNOWN, OUTSIDE = (
    "computes", "moves data", "no work", "unknown", "outside",
)  # fmt: skip
PLACES = (COMPUTES, MOVES, NO_WORK, UNKNOWN, OUTSIDE)
SCHEMA = "etscope.roofline/1"
GROUPINGS = ("op", "module", "source", "delegate")

HOW_TO_CALIBRATE = (
    "Ceilings need a calibration of the run's machine: make one there with etscope calibrate, or "
    "name it with -X peaks."
)
LACKS_WORK = (
    "The work of what ran is not known: add the record (--etrecord) or the program (--program)."
)

_NAMED = 4  # of operators in a sentence


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """An operator, or a group of operators, at one of `PLACES`.

    rows: the rows of the profile; the time between instructions has none. ns: the time in one run,
    as a mean over the runs. share: the share of the method's time. limits: None if it neither
    computes nor moves data. is_partial: True if some of its operators are unknown, so that its
    FLOPs are a lower bound. reason: why its place is `UNKNOWN`.
    """

    name: str
    place: str
    rows: tuple[Row, ...]
    ns: float
    share: float
    limits: Limits | None = None
    is_partial: bool = False
    reason: str | None = None

    @property
    def intensity(self) -> float | None:
        """FLOP/byte; None unless it computes."""
        return None if self.limits is None else self.limits.intensity or None

    @property
    def gflops(self) -> float | None:
        """Achieved GFLOP/s; None unless it computes."""
        rate = None if self.limits is None else self.limits.flop_per_s
        return rate / 1e9 if rate else None

    @property
    def gbps(self) -> float | None:
        """Achieved GB/s, of what it reads and writes; None unless it computes or moves data."""
        rate = None if self.limits is None else self.limits.bytes_per_s
        return rate / 1e9 if rate else None


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The peaks of the machine at a number of threads. compute: GFLOP/s by dtype, the lowest first;
    memory: by level, the fastest first. notes: what makes them less than reliable, in words."""

    device: str
    measured_at: datetime
    threads: int | None
    compute: tuple[tuple[str, float], ...]
    memory: tuple[MemoryLevel, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, limits: ProfileLimits) -> Ceilings | None:
        """Return the ceilings of the limits; None without a calibration."""
        calibration, peaks = limits.calibration, limits.peaks
        if calibration is None or peaks is None:
            return None
        rates = ((dtype, peaks.peak_flops(dtype)) for dtype in peaks.dtypes)
        compute = [(dtype, rate / 1e9) for dtype, rate in rates if rate is not None]
        return cls(
            calibration.device.in_words(),
            calibration.measured_at,
            peaks.threads,
            tuple(sorted(compute, key=lambda one: one[1])),
            limits.levels,
            tuple(calibration_notes(limits)),
        )


@dataclass(frozen=True)
class Roofline:
    """A method's runs in one phase. points: most time first; their shares add up to 1. by: what
    they are grouped by. has_work: False if neither a record nor a program has any work."""

    profile: MethodProfile
    points: tuple[RooflinePoint, ...]
    ceilings: Ceilings | None
    by: str | None = None
    has_work: bool = True

    def of_place(self, place: str) -> list[RooflinePoint]:
        return [point for point in self.points if point.place == place]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the roofline leaves out, and on its ceilings."""
        if not self.has_work:
            return (LACKS_WORK,)
        about = (HOW_TO_CALIBRATE,) if self.ceilings is None else self.ceilings.notes
        return (*self._on_places(), *about)

    def _counted(self, points: Sequence[RooflinePoint]) -> str:
        """Return "12 operators with 3.4% of the time have"."""
        share = sum(point.share for point in points)
        noun, verb = "operator" if self.by is None else "group", "has"
        if len(points) != 1:
            noun, verb = f"{noun}s", "have"
        return f"{len(points):,} {noun} with {share:.1%} of the time {verb}"

    def _on_places(self) -> Iterator[str]:
        moving, unknown = self.of_place(MOVES), self.of_place(UNKNOWN)
        if moving:
            yield (
                f"{self._counted(moving)} no FLOPs, only bytes that are moved: at the left border, "
                "at the height of the bandwidth achieved."
            )
        if unknown:
            reasons = dict.fromkeys(point.reason for point in unknown if point.reason is not None)
            listed = "; ".join(list(reasons)[:_NAMED])
            more = len(reasons) - _NAMED
            listed += f"; and {more:,} more" if more > 0 else ""
            yield f"{self._counted(unknown)} no place in the picture: {listed}."
        if partial := [point for point in self.of_place(COMPUTES) if point.is_partial]:
            yield (
                f"{self._counted(partial)} operators inside with unknown FLOPs: the rate is at "
                "least the number shown."
            )
        if idle := self.of_place(NO_WORK):
            yield f"{self._counted(idle)} no work, as views and constants."
        if outside := self.of_place(OUTSIDE):
            share = sum(point.share for point in outside)
            yield f"{share:.1%} of the time is outside the operators."


def roofline(
    profile: MethodProfile,
    limits: ProfileLimits | None,
    source: TimeScale,
    *,
    by: str | None = None,
    keep: Callable[[Row], bool] | None = None,
) -> Roofline:
    """Return the roofline of a method.

    limits: None if neither a record nor a program has the work. source: the unit of the ticks.
    by: one of `GROUPINGS`, for a point for each group and
    place; None: for each operator. keep: selects operators; the others have no point.

    Raises `UsageError` for another grouping, and for a clock that counts cycles.
    """
    if by not in (None, *GROUPINGS):
        raise UsageError(f"cannot group by {by!r}", hint="group by one of: " + ", ".join(GROUPINGS))
    if source is TimeScale.CYCLES:
        raise UsageError(
            "a roofline needs times, and the clock of the dump counts cycles",
            hint="if the clock counts a unit of time, name the unit: --source-unit",
        )
    found = _Operators(profile, limits, Scale(source, TimeScale.NS))
    points = list(found.points(by, keep))
    if keep is None:
        points += found.outside()
    points.sort(key=lambda point: -point.ns)
    ceilings = None if limits is None else Ceilings.of(limits)
    return Roofline(profile, tuple(points), ceilings, by, limits is not None)


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator: the row that has its work, and all of its rows with their time, ticks."""

    group: InstructionRows
    row: Row
    rows: tuple[Row, ...]
    ticks: float
    work: Work | None

    def place(self) -> tuple[str, str | None]:
        """Return its place, and the reason if that is not known."""
        work, name = self.work, self.row.kernel_name
        if work is None:
            return UNKNOWN, f"the work of {name} is not known"
        if work.is_bound:
            return UNKNOWN, "the sizes of the runs are not known"
        if not work.flops and not work.traffic and not work.unknown:
            return NO_WORK, None
        if self.ticks <= 0:
            return UNKNOWN, "shorter than a tick of the clock"
        if work.flops and work.traffic:
            return COMPUTES, None
        if work.unknown:
            return UNKNOWN, f"the FLOPs of {', '.join(work.unknown[:_NAMED])} are not known"
        if work.flops:
            return UNKNOWN, f"the bytes of {name} are not known"
        return MOVES, None


@dataclass(frozen=True)
class _Operators:
    """Makes the points of a profile's operators, and of the time outside of them."""

    profile: MethodProfile
    limits: ProfileLimits | None
    in_ns: Scale

    def operators(self) -> Iterator[_Operator]:
        """Yield each operator. Rows that share their work are one, with the time of all."""
        together = {} if self.limits is None else self.limits.work.together
        absorbed = {
            id(member): stands for stands, members in together.items() for member in members
        }
        for group in self.profile.instructions:
            for row in self._rows(group):
                if absorbed.get(id(row), id(row)) == id(row):
                    rows = tuple(together.get(id(row), (row,)))
                    ticks = sum(float(one.ticks.mean()) for one in rows)
                    work = None if self.limits is None else self.limits.work.of([row])
                    yield _Operator(group, row, rows, ticks, work)

    def _rows(self, group: InstructionRows) -> list[Row]:
        """The operators of an instruction: the events of a delegate's call, or the call itself if
        the work of none of them is known."""
        leaves = [row for row in group.leaves if row.kind != "unaccounted"]
        if not group.is_split or self.limits is None:
            return leaves
        works = self.limits.work.works
        tells = any(work.flops or work.traffic for row in leaves if (work := works.get(id(row))))
        return leaves if tells or id(group.head) not in works else [group.head]

    def points(self, by: str | None, keep: Callable[[Row], bool] | None) -> Iterator[RooflinePoint]:
        """Yield a point for each operator, or for each group and place. In a group that computes,
        data movement without FLOPs belongs to the same point.
        """
        named: list[tuple[str, _Operator, str, str | None]] = []
        for one in self.operators():
            if keep is None or any(map(keep, (one.group.head, *one.rows))):
                name = one.row.name if by is None else group_name(one.group, one.row, by)
                named.append((name, one, *one.place()))
        computing = {name for name, _, place, _ in named if by is not None and place == COMPUTES}
        groups: dict[tuple[str | int, str], list[tuple[str, _Operator, str | None]]] = {}
        for number, (name, one, place, reason) in enumerate(named):
            place = COMPUTES if place == MOVES and name in computing else place
            key = number if by is None else name, place
            groups.setdefault(key, []).append((name, one, reason))
        for (_, place), members in groups.items():
            operators = [one for _, one, _ in members]
            limits = None
            if self.limits is not None and place in (COMPUTES, MOVES):
                limits = self.limits.of([one.row for one in operators])
            reasons = dict.fromkeys(reason for _, _, reason in members if reason is not None)
            has_unknown = any(one.work is not None and one.work.unknown for one in operators)
            yield self._made(
                members[0][0],
                place,
                tuple(row for one in operators for row in one.rows),
                sum(one.ticks for one in operators),
                limits,
                has_unknown and place == COMPUTES,
                "; ".join(reasons) or None,
            )

    def _made(
        self, name: str, place: str, rows: tuple[Row, ...], ticks: float, *more: Any
    ) -> RooflinePoint:
        share = ticks / max(1.0, float(self.profile.total.mean()))
        return RooflinePoint(name, place, rows, float(self.in_ns(ticks)), share, *more)

    def outside(self) -> Iterator[RooflinePoint]:
        """Yield the time between the instructions, and the rests of the calls of delegates."""
        between = float(self.profile.unaccounted.mean())
        if between > 0:
            yield self._made("between the instructions", OUTSIDE, (), between)
        rests = tuple(
            row
            for group in self.profile.instructions
            if all(row is not group.head for row in self._rows(group))
            for row in group.leaves
            if row.kind == "unaccounted"
        )
        ticks = sum(float(row.ticks.mean()) for row in rests)
        if ticks > 0:
            yield self._made("rests of delegate calls", OUTSIDE, rests, ticks)


def choose_calibration(path: PathLike | None, run: SavedRun | None) -> Calibration | None:
    """Return the calibration in a file, or the one kept for the machine of a run; None without
    either. Without run.json the machine is unknown: then only a named file counts. Raises as
    `read_calibration`.
    """
    if path is not None:
        return read_calibration(path)
    if run is None and VARIABLE not in os.environ:
        return None
    return find_calibration(run)
