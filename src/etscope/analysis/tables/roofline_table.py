"""Rooflines as tables: the operators, where the time is, and the ceilings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.correlate import UNATTRIBUTED
from etscope.analysis.program.source_location import short_lines
from etscope.analysis.tables.profile_table import profile_title
from etscope.analysis.work.limits import Limits
from etscope.analysis.work.roofline import (
    COMPUTES,
    MOVES,
    NO_WORK,
    OUTSIDE,
    PLACES,
    UNKNOWN,
    Ceilings,
    Roofline,
    RooflinePoint,
)
from etscope.model.report import Report, Section, limited
from etscope.model.table import Column, Kind, Table
from etscope.units import TimeScale

_MEANINGS = {
    COMPUTES: "by intensity and rate",
    MOVES: "no FLOPs: at the left border",
    NO_WORK: "views and constants",
    UNKNOWN: "work or time not known: not in the picture",
    OUTSIDE: "the runtime's and the delegates' own time",
}


def roofline_report(found: Roofline, scale: Scale, limit: int | None = None) -> Report:
    """Return the operators (at most `limit`), the sums by place and the ceilings of a roofline."""
    about = {"method": found.profile.method or ""}
    if found.profile.phase is not None:
        about["phase"] = found.profile.phase
    operators = Section("operators", operators_table(found, scale))
    if limit is not None:
        (operators,) = limited(Report(about, (operators,)), limit).sections
    sections = [operators, Section("places", places_table(found, scale))]
    if found.ceilings is not None:
        sections.append(Section("ceilings", ceilings_table(found.ceilings)))
    return Report(about, tuple(sections))


def operators_table(found: Roofline, scale: Scale) -> Table:
    """Return a row for each point, those with most time first."""
    name = found.by or "event"
    origin = (
        Column("module", Kind.PATH, priority=1),
        Column("source", Kind.PATH, priority=2),
        Column("backend", priority=6),
    )
    columns = (
        Column("method", priority=9),
        Column("phase", priority=9),
        Column("instruction", Kind.INT, title="#"),
        Column(name, Kind.PATH if name in ("module", "source") else Kind.TEXT),
        Column("events", Kind.COUNT, priority=7),
        Column("avg", Kind.DURATION, scale.unit),
        Column("share", Kind.SHARE),
        Column("intensity", Kind.FLOAT, title="FLOP/B"),
        Column("gflops", Kind.FLOAT, title="GFLOP/s"),
        Column("gbps", Kind.FLOAT, title="GB/s"),
        Column("peak", Kind.SHARE),
        Column("bound"),
        Column("memory_level", title="level", priority=4),
        Column("dtype", priority=5),
        Column("place", priority=3),
        Column("flops", Kind.COUNT, title="FLOPs", priority=5),
        Column("bytes", Kind.BYTES, priority=5),
        *(() if found.by else origin),
        Column("partial", Kind.BOOL, title="at least", priority=8),
        Column("reason", priority=8),
    )
    title = f"{profile_title(found.profile, scale)} · roofline"
    cells = [
        {"method": found.profile.method, "phase": found.profile.phase, **_cells(point, name, scale)}
        for point in found.points
    ]
    by = f" by {found.by}" if found.by else ""
    return Table.of_cells(columns, cells, title=title + by, notes=found.notes)


def _cells(point: RooflinePoint, name: str, scale: Scale) -> dict[str, Any]:
    limits = point.limits or Limits(point.ns)
    rows = point.rows if name == "event" and point.place != OUTSIDE else ()
    about = rows[0].attribution if rows else UNATTRIBUTED
    return {
        "instruction": rows[0].instruction_id if rows else None,
        name: point.name,
        "events": len(point.rows),
        "avg": _time([point], scale),
        "share": point.share,
        "intensity": point.intensity,
        "gflops": point.gflops,
        "gbps": point.gbps,
        "peak": limits.share,
        "bound": limits.bound,
        "memory_level": limits.level,
        "dtype": limits.dtype,
        "place": point.place,
        "flops": limits.flops,
        "bytes": limits.moved,
        "module": about.module,
        "source": short_lines(about.lines[:1]) or None,
        "backend": about.backend_id,
        "partial": point.is_partial,
        "reason": point.reason,
    }


def _time(points: Sequence[RooflinePoint], scale: Scale) -> float:
    return float(Scale(TimeScale.NS, scale.target)(sum(point.ns for point in points)))


def places_table(found: Roofline, scale: Scale) -> Table:
    """Return the number of points of each place, and their time, which adds up to the method's."""
    of_place = {place: points for place in PLACES if (points := found.of_place(place))}
    return Table.of_rows(
        (
            Column("place"),
            Column("meaning", is_sentence=True),
            Column("points", Kind.COUNT, title="groups" if found.by else "operators"),
            Column("time", Kind.DURATION, scale.unit),
            Column("share", Kind.SHARE),
        ),
        [
            (
                place,
                _MEANINGS[place],
                len(points),
                _time(points, scale),
                sum(point.share for point in points),
            )
            for place, points in of_place.items()
        ],
        title="Where the time is",
    )


def ceilings_table(ceilings: Ceilings) -> Table:
    """Return a table with a row for each ceiling: compute by dtype, memory by level."""
    threads = "" if ceilings.threads is None else f", {ceilings.threads} threads"
    return Table.of_rows(
        (
            Column("kind"),
            Column("name"),
            Column("gflops", Kind.FLOAT, title="GFLOP/s"),
            Column("gbps", Kind.FLOAT, title="GB/s"),
            Column("up_to", Kind.BYTES, title="working sets up to"),
        ),
        [
            *(("compute", name, rate, None, None) for name, rate in ceilings.compute),
            *(
                ("memory", level.name, None, level.bytes_per_s / 1e9, level.up_to_bytes)
                for level in ceilings.memory
            ),
        ],
        title=f"Ceilings: {ceilings.device}{threads}, measured "
        f"{ceilings.measured_at:%Y-%m-%d %H:%M}",
    )
