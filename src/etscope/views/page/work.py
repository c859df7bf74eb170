"""The work of a run for the page: measures that colour the nodes of graphs, and rooflines."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from etscope.analysis.graphs.node_costs import node_work
from etscope.analysis.profile.profile import Row
from etscope.analysis.tables.roofline_table import ceilings_table
from etscope.analysis.work.limits import BOUNDS, ProfileLimits
from etscope.analysis.work.roofline import OUTSIDE, PLACES, Roofline, roofline
from etscope.model.table import Column, Kind
from etscope.units import TimeScale
from etscope.views.page.elements import Json, table_document
from etscope.views.page.graphs import GroupValues, ShownGraph, measure_document
from etscope.views.page.method import ShownMethod

_TITLES = {"flops": "FLOPs", "moved_bytes": "bytes read and written"}


def work_measures(shown: ShownGraph, document: Json, method: ShownMethod | None) -> list[Json]:
    """Return the `Measure`s of the work of a graph's nodes: FLOPs, bytes, FLOPs for each byte; with
    a calibration, the share of the peak.

    document: of the graph. method: its method, if it ran.
    """
    groups = document["groups"]
    group_of = [node["group"] for node in document["nodes"]]
    work_of = node_work(shown.view.linked)
    works = [work_of(placed.node) for placed in shown.view.nodes]
    calls = [placed.call for placed in shown.view.nodes]
    inside = {
        number: shown.index[call]
        for number, call in enumerate(calls)
        if call is not None and works[shown.index[call]].known_flops
    }
    in_groups = GroupValues(groups, group_of, inside)
    found: list[Json] = []
    sums: dict[str, list[Any]] = {}
    numbers: dict[str, list[Any]] = {
        "flops": [work.known_flops or None for work in works],  # what only moves data has none
        "moved_bytes": [work.known_bytes or None for work in works],
    }
    for name, values in numbers.items():
        if not any(values):
            continue
        sums[name] = in_groups.combined(values, operator.add)
        kind = Kind.COUNT if name == "flops" else Kind.BYTES
        column = Column(name, kind, None if name == "flops" else "B", title=_TITLES[name])
        found.append(measure_document(column, values, sums[name]))
    if len(sums) == 2:
        ratios = [
            [_ratio(*pair) for pair in zip(*pairs, strict=True)]
            for pairs in (numbers.values(), sums.values())
        ]
        column = Column("intensity", Kind.FLOAT, title="FLOPs for each byte")
        found.append(measure_document(column, *ratios))
    limits = None if method is None else method.limits
    if method is not None and limits is not None and limits.peaks is not None:
        found += _peak(shown, limits, method.rows, GroupValues(groups, group_of))
    return found


def _peak(
    shown: ShownGraph, limits: ProfileLimits, rows: Sequence[Row], in_groups: GroupValues
) -> list[Json]:
    """The share of the peak of each node: of the row that it has most time in. A row of several
    nodes counts at the first of them for the groups around it."""
    size = len(shown.view.nodes)
    shares: list[Any] = [None] * size
    longest = [0.0] * size
    roofs: list[Any] = [None] * size
    times: list[Any] = [None] * size
    for row, nodes in zip(rows, shown.rows(rows), strict=True):
        one = limits.of([row]) if nodes and row.kind != "unaccounted" else None
        if one is None or one.share is None:
            continue
        for number in nodes:
            if one.ns > longest[number]:
                shares[number], longest[number] = one.share, one.ns
        first = nodes[0]
        roofs[first] = (roofs[first] or 0.0) + (one.roof_ns or 0.0)
        times[first] = (times[first] or 0.0) + one.ns
    if not any(share is not None for share in shares):
        return []
    of_groups = zip(*(in_groups.combined(one, operator.add) for one in (roofs, times)), strict=True)
    column = Column("peak", Kind.SHARE, title="share of the peak")
    measure = measure_document(column, shares, [_ratio(*pair) for pair in of_groups])
    return [{**measure, "largerIsWorse": False}]


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


# -- Rooflines: the work and time of each operator, and the ceilings of the machine.


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
    ceilings = known[0].ceilings
    return {
        "places": list(PLACES),
        "bounds": list(BOUNDS),
        "methods": [
            None if one is None else _points(one, shown.rows)
            for one, shown in zip(found, methods, strict=True)
        ],
        "ceilings": None
        if ceilings is None
        else {
            "compute": [[dtype, rate] for dtype, rate in ceilings.compute],
            "memory": [[level.name, level.bytes_per_s / 1e9] for level in ceilings.memory],
            "table": table_document(ceilings_table(ceilings)),
        },
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
