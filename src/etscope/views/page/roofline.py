"""Rooflines for the page: the work and time of each operator, and the ceilings of the machine."""

from __future__ import annotations

from collections.abc import Sequence

from etscope.analysis.profile.profile import Row
from etscope.analysis.tables.roofline_table import ceilings_table
from etscope.analysis.work.limits import BOUNDS
from etscope.analysis.work.roofline import OUTSIDE, PLACES, Ceilings, Roofline, roofline
from etscope.units import TimeScale
from etscope.views.page.elements import Json, table_document
from etscope.views.page.method import ShownMethod


def roofline_document(methods: Sequence[ShownMethod]) -> Json | None:
    """The page's `RooflineDoc` of a run; None if the work of none of its methods is known, or its
    clock counts cycles."""
    found: list[Roofline | None] = []
    for shown in methods:
        source, limits = shown.scale.source, shown.limits
        if limits is None or source is TimeScale.CYCLES:
            return None
        one = roofline(shown.profile, limits, source)
        found.append(one if one.has_work else None)
    known = [one for one in found if one is not None]
    if not known:
        return None
    return {
        "places": list(PLACES),
        "bounds": list(BOUNDS),
        "methods": [
            None if one is None else _points(one, shown.rows)
            for one, shown in zip(found, methods, strict=True)
        ],
        "ceilings": None if known[0].ceilings is None else _ceilings(known[0].ceilings),
    }


def _points(found: Roofline, rows: Sequence[Row]) -> Json:
    """The page's `RooflinePoints`."""
    index = {id(row): number for number, row in enumerate(rows)}
    points = found.points
    limits = [point.limits for point in points]
    return {
        "name": [point.name if point.place == OUTSIDE else None for point in points],
        "rows": [[index[id(row)] for row in point.rows] for point in points],
        "place": [PLACES.index(point.place) for point in points],
        "ns": [point.ns for point in points],
        "share": [point.share for point in points],
        "flops": [None if one is None else one.flops for one in limits],
        "bytes": [None if one is None else one.moved for one in limits],
        "roof": [None if one is None else one.roof_ns for one in limits],
        "bound": [
            None if one is None or not one.bound else BOUNDS.index(one.bound) for one in limits
        ],
        "dtype": [None if one is None else one.dtype for one in limits],
        "level": [None if one is None else one.level for one in limits],
        "partial": [number for number, point in enumerate(points) if point.is_partial],
        "reason": [point.reason for point in points],
        "notes": list(found.notes),
    }


def _ceilings(found: Ceilings) -> Json:
    return {
        "compute": [[dtype, rate] for dtype, rate in found.compute],
        "memory": [[level.name, level.bytes_per_s / 1e9] for level in found.memory],
        "table": table_document(ceilings_table(found)),
    }
