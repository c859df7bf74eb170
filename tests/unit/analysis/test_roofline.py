"""Rooflines: every tick has a place, and the numbers are those of the rows' limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.tables.roofline_table import operators_table, roofline_report
from etscope.analysis.work.limits import COMPUTE, MEMORY, ProfileLimits, profile_limits
from etscope.analysis.work.operation import Traffic, Work, unknown_work
from etscope.analysis.work.profile_work import ProfileWork
from etscope.analysis.work.roofline import (
    COMPUTES,
    GROUPINGS,
    HOW_TO_CALIBRATE,
    LACKS_WORK,
    MOVES,
    NO_WORK,
    OUTSIDE,
    PLACES,
    UNKNOWN,
    Roofline,
    roofline,
)
from etscope.errors import UsageError
from etscope.formats.calibration import Calibration
from etscope.units import TimeScale
from tests.support.analysis.traces import open_trace
from tests.support.calibrations import calibration

MS = Scale(TimeScale.NS, TimeScale.MS)


def row(
    ns: int, name: str = "mm.out", kind: str = "kernel", number: int = 0, depth: int = 0
) -> Row:
    ticks = np.full(2, ns)
    return Row(kind, name, ticks, np.ones(2, int), instruction_id=number, depth=depth)


def work(flops: float, moved: float, **more: Any) -> Work:
    return Work(flops, Traffic(activations_read=moved), **more).in_dtype("float32")


def made(
    rows: list[Row],
    works: dict[int, Work],
    between: int = 0,
    together: dict[int, tuple[Row, ...]] | None = None,
) -> ProfileLimits:
    total = np.full(2, between + sum(int(one.ticks[0]) for one in rows if one.depth == 0))
    profile = MethodProfile("forward", np.arange(2), total, tuple(rows), {}, traced=False)
    of_rows = ProfileWork(profile, {id(rows[at]): one for at, one in works.items()}, together or {})
    return ProfileLimits(of_rows, TimeScale.NS, calibration())


def drawn(limits: ProfileLimits, **options: Any) -> Roofline:
    return roofline(limits.work.profile, limits, TimeScale.NS, **options)


def opened(name: str, given: Calibration | None) -> tuple[Trace, MethodProfile, ProfileLimits]:
    trace = open_trace(name)
    (profile,) = trace.profiles()
    limits = profile_limits(trace, profile, TimeScale.NS, given)
    return trace, profile, limits


def test_each_place_and_its_reason() -> None:
    flops = "the FLOPs of {} are not known"
    sort = Work(traffic=Traffic(activations_read=64), unknown=("aten.sort",))
    cases: list[tuple[str, int, Work | None, str, str | None]] = [
        ("mm.out", 20_000, work(1e6, 50_000), COMPUTES, None),
        ("copy.out", 5_000, work(0, 100_000), MOVES, None),
        ("view", 100, Work(), NO_WORK, None),
        ("sort.out", 1_000, sort, UNKNOWN, flops.format("aten.sort")),
        ("mystery.out", 2_000, unknown_work("my.op"), UNKNOWN, flops.format("my.op")),
        ("conv.out", 3_000, work(1e3, 10, is_bound=True), UNKNOWN,
         "the sizes of the runs are not known"),
        ("add.out", 0, work(10, 120), UNKNOWN, "shorter than a tick of the clock"),
        ("beside", 700, None, UNKNOWN, "the work of beside is not known"),
    ]  # fmt: skip
    rows = [
        row(ns, name, "kernel" if done else "other", number)
        for number, (name, ns, done, _, _) in enumerate(cases)
    ]
    works = {number: case[2] for number, case in enumerate(cases) if case[2] is not None}
    found = drawn(made(rows, works, between=400))
    assert {point.name: point.place for point in found.points} == {
        **{name: place for name, _, _, place, _ in cases},
        "between the instructions": OUTSIDE,
    }
    reasons = {point.name: point.reason for point in found.points if point.reason}
    assert reasons == {name: reason for name, *_, reason in cases if reason}
    assert sum(point.share for point in found.points) == pytest.approx(1)
    first, second = found.points[:2]
    # 1e6 FLOPs in 20 us; 100 GFLOP/s would take 10 us. 100,000 bytes in 5 us are 20 GB/s.
    assert (first.gflops, first.intensity, first.gbps) == pytest.approx((50, 20, 2.5))
    assert first.limits.bound == COMPUTE
    assert (second.gflops, second.intensity, second.gbps) == (None, None, pytest.approx(20))
    assert second.limits.bound == MEMORY
    text = " ".join(found.notes)
    assert "1 operator with 15.5% of the time has no FLOPs" in text
    assert "5 operators with 20.8% of the time have no place in the picture" in text
    assert "1.2% of the time is outside the operators" in text


def test_rows_that_share_their_work_are_one_point_of_all_their_time() -> None:
    rows = [row(3_000, number=0), row(1_000, number=1)]
    limits = made(rows, {0: work(4e5, 100)}, together={id(rows[0]): (rows[0], rows[1])})
    (point,) = drawn(limits).points
    assert (point.rows, point.ns, point.gflops) == (tuple(rows), 4_000, pytest.approx(100))


@pytest.mark.parametrize("known", [True, False])
def test_a_call_is_one_point_if_the_work_of_its_events_is_not_known(known: bool) -> None:
    rows = [
        replace(row(10_000, "XnnpackBackend", "delegate"), leaf=False),
        row(8_000, "GEMM", "delegated", depth=1),
        row(2_000, "(rest)", "unaccounted", depth=1),
    ]
    works = {0: work(1e6, 500)} | ({1: work(1e6, 900)} if known else {})
    found = drawn(made(rows, works))
    named = {point.name: (point.place, point.ns) for point in found.points}
    if known:
        expected = {"GEMM": (COMPUTES, 8_000), "rests of delegate calls": (OUTSIDE, 2_000)}
    else:
        expected = {"XnnpackBackend": (COMPUTES, 10_000)}
    assert named == expected


def test_partly_known_work_is_a_lower_bound_and_said_to_be() -> None:
    limits = made([row(1_000)], {0: work(1e4, 100, unknown=("my.op",))})
    found = drawn(limits)
    assert found.points[0].is_partial and found.points[0].place == COMPUTES
    assert any("at least the number shown" in note for note in found.notes)
    assert operators_table(found, MS).values["partial"] == [True]


def test_a_group_that_computes_has_what_it_moves_and_not_what_is_unknown() -> None:
    rows = [row(1_000, number=0), row(2_000, number=1), row(4_000, number=2)]
    limits = made(rows, {0: work(1e4, 100), 1: work(0, 300), 2: unknown_work("my.op")})
    found = drawn(limits, by="op")
    by_place = {point.place: point for point in found.points}
    assert set(by_place) == {COMPUTES, UNKNOWN}
    assert by_place[COMPUTES].ns == 3_000 and by_place[COMPUTES].intensity == pytest.approx(25)
    assert by_place[UNKNOWN].ns == 4_000


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8"])
def test_all_time_and_all_work_of_a_real_run_are_there(name: str) -> None:
    _, profile, limits = opened(name, calibration())
    found = roofline(profile, limits, TimeScale.NS)
    total = float(profile.total.mean())
    assert sum(point.ns for point in found.points) == pytest.approx(total)
    computing = found.of_place(COMPUTES)
    assert len(computing) > 3
    flops = sum(point.limits.flops or 0 for point in found.points if point.limits is not None)
    left = limits.work.of(row for point in found.of_place(UNKNOWN) for row in point.rows)
    of_unknown = 0 if left is None else left.flops  # of those that no tick of the clock saw
    assert flops + of_unknown == pytest.approx(limits.work.total.flops, rel=1e-6)
    assert flops > of_unknown
    for point in computing:
        own = limits.of(point.rows)
        assert own is not None and point.limits == own
        assert point.gflops == pytest.approx((own.flops or 0) / point.ns)
    for by in GROUPINGS:
        grouped = roofline(profile, limits, TimeScale.NS, by=by)
        assert sum(point.ns for point in grouped.points) == pytest.approx(total)
        added = sum(point.limits.flops or 0 for point in grouped.points if point.limits)
        assert added == pytest.approx(flops)


def test_ceilings_are_those_of_the_calibration() -> None:
    _, profile, limits = opened("cnn_portable", calibration())
    ceilings = roofline(profile, limits, TimeScale.NS).ceilings
    assert ceilings.compute == (("float32", 100), ("8da4w", 200), ("int8", 400))
    assert [(one.name, one.bytes_per_s) for one in ceilings.memory] == [
        ("L1", 5e10),
        ("memory", 1e10),
    ]
    assert any("Test CPU" in note for note in ceilings.notes)


def test_without_a_calibration_or_work_it_says_so() -> None:
    _, profile, limits = opened("cnn_portable", None)
    found = roofline(profile, limits, TimeScale.NS)
    assert found.ceilings is None and HOW_TO_CALIBRATE in found.notes
    assert len(found.of_place(COMPUTES)) > 3
    assert [one.name for one in roofline_report(found, MS).sections] == ["operators", "places"]
    found = roofline(profile, None, TimeScale.NS)
    assert {point.place for point in found.points} == {UNKNOWN, OUTSIDE}
    assert found.notes == (LACKS_WORK,) and not found.has_work
    with pytest.raises(UsageError, match="counts cycles"):
        roofline(profile, limits, TimeScale.CYCLES)
    with pytest.raises(UsageError, match="cannot group by 'colour'"):
        roofline(profile, limits, TimeScale.NS, by="colour")


def test_the_report_limits_operators_and_no_other_section() -> None:
    _, profile, limits = opened("cnn_portable", calibration())
    report = roofline_report(roofline(profile, limits, TimeScale.NS), MS, limit=2)
    sizes = {section.name: len(section.table) for section in report.sections}
    assert sizes["operators"] == 2 and sizes["ceilings"] == 5
    places = report.sections[1].table
    assert set(places.values["place"]) <= set(PLACES)
    assert sum(places.values["share"]) == pytest.approx(1)
