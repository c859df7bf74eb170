"""Limits of rows: the roofline of a calibration with round peaks, on real runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.tables.profile_table import grouped_table, profile_table
from etscope.analysis.work.limits import (
    BOUNDS,
    COMPUTE,
    MEMORY,
    OVERHEAD,
    OVERHEAD_SHARE,
    Limits,
    ProfileLimits,
    calibration_notes,
    profile_limits,
)
from etscope.analysis.work.operation import Traffic, Work, unknown_work
from etscope.analysis.work.profile_work import ProfileWork
from etscope.formats.calibration import Peaks
from etscope.formats.run_json import SavedRun
from etscope.units import TimeScale
from tests.support.analysis.traces import open_trace
from tests.support.calibrations import KIB, calibration, peaks

NS = Scale(TimeScale.NS, TimeScale.NS)


def row(ns: float, kind: str = "kernel", name: str = "mm.out", calls: int = 1) -> Row:
    runs = 2
    return Row(kind, name, np.full(runs, int(ns)), np.full(runs, calls), instruction_id=0)


def limits_of(rows_and_work: list[tuple[Row, Work]], *all_peaks: Peaks) -> ProfileLimits:
    rows = tuple(one for one, _ in rows_and_work)
    total = np.sum([one.ticks for one in rows], axis=0)
    profile = MethodProfile("forward", np.arange(2), total, rows, {}, traced=False)
    works = {id(one): work for one, work in rows_and_work}
    return ProfileLimits(ProfileWork(profile, works, {}), TimeScale.NS, calibration(*all_peaks))


def work(flops: float, moved: float, dtype: str = "float32") -> Work:
    return Work(flops, Traffic(activations_read=moved)).in_dtype(dtype)


def alone(one: Row, done: Work) -> Limits | None:
    """The limits of a row that is all of its run."""
    return limits_of([(one, done)]).of([one])


# -- one row, by hand


def test_a_row_of_much_arithmetic_is_bound_by_compute() -> None:
    # 1e6 FLOPs at 100 GFLOP/s are 10 us, 50,000 bytes at 50 GB/s are 1 us
    found = alone(row(20_000), work(1e6, 50_000))
    assert (found.compute_ns, found.memory_ns, found.overhead_ns) == pytest.approx((1e4, 1e3, 200))
    assert (found.share, found.bound, found.level) == (pytest.approx(0.5), COMPUTE, "L1")
    assert found.flop_per_s == pytest.approx(5e10) and found.bytes_per_s == pytest.approx(2.5e9)
    assert (found.intensity, found.dtype) == (20, "float32")


def test_the_type_of_numbers_chooses_the_peak() -> None:
    shares = {}
    one = row(100_000)
    for dtype in ("float32", "int8", "8da4w", "float64", "int64", "bool"):
        found = alone(one, work(1e6, 64, dtype))
        assert found.dtype == dtype
        shares[dtype] = found.share
    wide, narrow = pytest.approx(0.1), pytest.approx(0.025)
    assert shares == {
        "float32": wide, "float64": wide, "int64": wide, "int8": narrow, "bool": narrow,
        "8da4w": pytest.approx(0.05),
    }  # fmt: skip
    # Types of one row take the sum of their times.
    mixed = replace(work(2e6, 64), dtypes=(("float32", 1e6), ("int8", 1e6)))
    assert alone(one, mixed).compute_ns == pytest.approx(1e4 + 2.5e3)
    for dtype in ("float16", "bfloat16"):  # half-precision products were not measured
        found = alone(one, work(1e6, 64, dtype))
        assert (found.share, found.bound) == (None, None)
        assert found.flop_per_s == pytest.approx(1e10)


def test_the_working_set_of_a_call_chooses_the_bandwidth() -> None:
    large, small = row(100_000_000), row(100_000_000, calls=2048)
    moved = float(128 << 20)
    limits = limits_of([(large, work(1e3, moved)), (small, work(1e3, moved))])
    whole, parts = limits.of([large]), limits.of([small])
    assert whole.memory_ns == pytest.approx(moved / 10)  # 10 GB/s
    assert parts.memory_ns == pytest.approx(moved / 50)  # each call of 64 KiB fits the cache
    assert (whole.level, parts.level) == ("memory", "L1")
    assert (whole.bound, parts.bound) == (MEMORY, MEMORY)
    assert whole.share == pytest.approx(moved / 10 / 1e8)


def test_overhead_bounds_what_it_explains() -> None:
    tiny = work(10, 40)  # takes 0.8 ns
    for ns, bound in (
        (100, OVERHEAD),  # faster than the overhead as it was measured
        (200 / OVERHEAD_SHARE, OVERHEAD),
        (200 / OVERHEAD_SHARE + 1, MEMORY),  # a slow kernel: not the dispatch
    ):
        found = alone(row(ns), tiny)
        assert found.bound == bound, ns
        assert found.share == pytest.approx(0.8 / int(ns))
    large = row(500)  # 300 ns of memory are more than the 200 ns of the dispatch
    found = alone(large, work(10, 15_000))
    assert found.bound == MEMORY


def test_a_delegate_call_and_a_loop_have_their_own_overhead() -> None:
    call, loop = row(4000, "delegate"), row(4000, calls=5)
    limits = limits_of([(call, work(10, 40)), (loop, work(10, 40))])
    both = [limits.of([call]), limits.of([loop])]
    assert [one and one.overhead_ns for one in both] == [2000, 1000]
    inner = replace(row(4000, "delegated"), depth=1)
    found = alone(inner, work(10, 40))
    assert (found.overhead_ns, found.bound) == (0, MEMORY)


def test_what_moves_nothing_is_overhead() -> None:
    found = alone(row(10_000, name="et_view.default"), Work())
    assert (found.bound, found.share) == (OVERHEAD, 0)


def test_the_rest_of_a_call_is_overhead_if_its_call_explains_it() -> None:
    call = row(10_000, "delegate")
    for ns, bound in ((4000, OVERHEAD), (9000, None)):
        rest = replace(row(ns, "unaccounted", "(rest of the delegate call)"), depth=1)
        limits = limits_of([(call, work(10, 40))])
        found = limits.of([rest])
        assert (found.bound, found.share) == (bound, None)
    unaccounted = Row("unaccounted", "unaccounted", np.full(2, 100), np.ones(2, np.int64))
    assert limits.of([unaccounted]) is None


def test_unknown_work_has_neither_share_nor_bound() -> None:
    one, partly = row(1000), row(1000)
    known = work(100, 400)
    limits = limits_of([(one, unknown_work("my.op")), (partly, replace(known, unknown=("x.y",)))])
    nothing, some = limits.of([one]), limits.of([partly])
    assert (nothing.flop_per_s, nothing.share, nothing.bound) == (None, None, None)
    assert (some.flop_per_s, some.share, some.bound) == (pytest.approx(1e8), None, None)
    assert limits.of([row(5)]) is None


def test_rows_without_limits() -> None:
    one = row(1000)
    limits = limits_of([(one, work(10, 40))])
    assert replace(limits, source=TimeScale.CYCLES).of([one]) is None
    # The largest sizes of a program are not those of a run.
    assert alone(one, replace(work(10, 40), is_bound=True)) is None
    unseen = row(0)  # by the clock
    found = alone(unseen, work(1e6, 40))
    assert (found.share, found.flop_per_s, found.bound) == (None, None, COMPUTE)


def test_rows_together_have_the_share_of_their_time() -> None:
    fast, slow, other = row(10_000), row(30_000), row(60_000)
    limits = limits_of(
        [(fast, work(1e6, 64)), (slow, work(10, 75_000)), (other, unknown_work("my.op"))]
    )
    found = limits.of([fast, slow, other])
    parts = [limits.of([one]) for one in (fast, slow)]
    assert all(parts)
    assert found.roof_ns == pytest.approx(sum(one.roof_ns or 0 for one in parts if one is not None))
    assert found.share == pytest.approx((found.roof_ns or 0) / 100_000)
    assert found.bound == MEMORY  # of most of the time that is known


def test_the_peaks_are_those_of_the_runs_threads() -> None:
    one = row(20_000)
    limits = limits_of([(one, work(1e6, 64))], peaks(1), peaks(2, 2.0))
    for threads, share in ((1, 0.5), (2, 0.25), (None, 0.25)):
        of_run = replace(limits, threads=threads)
        found = of_run.of([one])
        assert found.share == pytest.approx(share)


def test_without_a_calibration_there_are_rates_alone() -> None:
    one = row(20_000)
    limits = replace(limits_of([(one, work(1e6, 64))]), calibration=None)
    found = limits.of([one])
    assert found.flop_per_s == pytest.approx(5e10)
    assert (found.share, found.bound, found.level, found.compute_ns) == (None,) * 4
    assert "etscope calibrate" in " ".join(calibration_notes(limits))


# -- notes


def test_notes_say_whose_peaks_they_are_and_what_speaks_against_them() -> None:
    one = row(20_000)
    limits = limits_of([(one, work(1e6, 64))])
    assert "The machine of the run is unknown" in " ".join(calibration_notes(limits))
    other = SavedRun({"threads": 4, "conditions": {"cpu": "Other CPU", "cores": 2, "load": 0.1}})
    told = " ".join(calibration_notes(replace(limits, threads=4, run=other)))
    assert "bench (Test CPU, 2 cores), threads: 1, measured 2026-05-01" in told
    assert "the CPU is Test CPU in the calibration and Other CPU in the run" in told
    assert "the number of threads is 1 in the calibration and 4 in the run" in told
    assert "Nothing tells" not in told
    marked = replace(limits, calibration=replace(calibration(), marks=("the load was 3.1",)))
    assert "marked: the load was 3.1." in " ".join(calibration_notes(marked))


# -- real runs


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("cnn_portable", {"float32"}),
        ("cnn_xnnpack_int8", {"float32", "int8"}),
        ("transformer", {"float32"}),
        ("llama_xnnpack", {"float32", "int64"}),
    ],
)
def test_each_row_of_a_run_has_the_share_of_its_work(name: str, types: set[str]) -> None:
    trace = open_trace(name)
    (profile,) = (one.every for one in trace.profiles())
    limits = profile_limits(trace, profile, calibration=calibration())
    checked, seen = 0, set()
    for one in profile.rows:
        done, found = limits.work.of([one]), limits.of([one])
        if done is None or found is None:
            continue
        assert sum(part for _, part in done.dtypes) == pytest.approx(done.flops)
        seen |= {dtype for dtype, _ in done.dtypes}
        if found.share is None or one.calls.mean() != 1:
            continue
        flops = sum(part / (4e11 if dtype == "int8" else 1e11) * 1e9 for dtype, part in done.dtypes)
        moved = done.traffic.total / 5e10 * 1e9 if done.traffic.total <= 64 * KIB else None
        if moved is not None:
            assert found.share == pytest.approx(max(flops, moved) / one.ticks.mean())
            assert found.bound in BOUNDS
            checked += 1
    assert checked > 12
    assert types <= seen


def test_a_quantized_program_computes_in_int8_with_and_without_the_program() -> None:
    parts = {}
    for given in ("record", "program"):
        trace = open_trace("cnn_xnnpack_int8", record=given == "record", program=given == "program")
        (profile,) = trace.profiles()
        limits = profile_limits(trace, profile)
        parts[given] = dict(limits.work.total.dtypes)
    for types in parts.values():
        assert types["int8"] > 10 * types["float32"]
    products = 2 * 8 * 16 * 16 * 27  # of the first convolution, at least
    assert abs(parts["record"]["int8"] - parts["program"]["int8"]) < products


def test_tables_have_the_share_and_the_bound() -> None:
    trace = open_trace("transformer")
    (profile,) = trace.profiles()
    limits = profile_limits(trace, profile, calibration=calibration())
    table = profile_table(profile, NS, limits=limits, sort="peak")
    rows = list(zip(table.depth or (), table.values["peak"], strict=True))[: min(table.breaks)]
    calls = [share for depth, share in rows if depth == 0 and share is not None]
    assert len(calls) > 20 and calls == sorted(calls, reverse=True)
    assert set(BOUNDS) <= set(table.values["bound"])
    groups = grouped_table(profile, NS, "bound", limits=limits)
    names = groups.values["bound"][: min(groups.breaks)]
    assert set(names) <= {*BOUNDS, "(not known)"} and len(names) > 2
    assert sum(groups.values["avg"][:-1]) == pytest.approx(groups.values["avg"][-1])
    assert groups.values["bound"][-1] == "Method::execute"
    per_row = dict(zip(table.values["event"], table.values["bound"], strict=True))
    assert per_row["embedding.out"] == MEMORY
