"""What got slower between two dumps: it is named, it adds up, and equal dumps differ in nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from etscope.analysis.comparison.align import align
from etscope.analysis.comparison.changes import MethodDiff, RunTotals, total_changes
from etscope.analysis.comparison.diff import check_comparable, diff_profiles, diff_traces
from etscope.analysis.comparison.diff_table import diff_table
from etscope.analysis.memory.plan import memory_plan
from etscope.analysis.profile.counted import counted
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.selector_fields import fields_of_row
from etscope.analysis.statistics.compare_samples import Verdict
from etscope.errors import EtscopeWarning, MismatchError, MissingDataError, UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.formats.run_json import SavedMemory
from etscope.model.selector import Selector
from etscope.units import TimeScale, format_bytes
from tests.support.artifacts import artifacts
from tests.support.timed_dumps import timed_dump

MS = Scale(TimeScale.NS, TimeScale.MS)
SLOW = 3  # an instruction
CNNS = ("cnn_portable", "cnn_xnnpack")


def dump(name: str, folder: Path, seed: int, *, record: bool = True, **options: object) -> Trace:
    files = artifacts(name)
    path = timed_dump(files.etdump_timing, folder / f"{seed}.etdp", seed=seed, **options)  # type: ignore[arg-type]
    return Trace(read_etdump(path), record=read_etrecord(files.etrecord) if record else None)


def adds_up(diff: MethodDiff) -> None:
    parts = [change.change for change in diff.changes if change.adds]
    assert sum(parts) + diff.unaccounted.change == pytest.approx(diff.total.change, abs=1e-3)
    for side in ("before", "after"):
        times = [getattr(change, side) or 0.0 for change in diff.changes if change.adds]
        total = sum(times) + getattr(diff.unaccounted, side)
        assert total == pytest.approx(getattr(diff.total, side), rel=1e-12)


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack"])
def test_a_dump_differs_in_nothing_from_itself(name: str, tmp_path: Path) -> None:
    trace = dump(name, tmp_path, 1, runs=200)
    diff = diff_traces(trace, trace).methods[0]
    assert diff.verdict is Verdict.NO_DIFFERENCE
    assert diff.total.change == 0
    assert {change.verdict for change in diff.operators} <= {
        Verdict.NO_DIFFERENCE,
        Verdict.CANNOT_TELL,  # less than the clock's step, inside the delegate
    }
    assert {change.change for change in diff.changes} == {0.0}
    adds_up(diff)
    said = "Both sides are the same dump: it shows nothing about a change."
    assert diff.notes[0] == said
    assert said not in diff_traces(trace, dump(name, tmp_path, 2, runs=200)).methods[0].notes
    few = dump(name, tmp_path, 1, runs=4)
    total = diff_traces(few, few).methods[0].total.comparison
    assert total is not None and total.verdict is Verdict.CANNOT_TELL
    assert total.reason == "both sides are the same dump" and total.relative is None


def test_what_delegates_added_is_told_beside_what_is_compared_with_itself(tmp_path: Path) -> None:
    (before,) = dump("cnn_xnnpack", tmp_path, 1, record=False).profiles()
    gone = [row for row in before.rows if row.kind == "delegated"][:2]
    assert len(gone) == 2
    fewer = replace(
        before, rows=tuple(row for row in before.rows if not any(row is one for one in gone))
    )
    same = "Both dumps ran the same list of instructions: each instruction is compared with itself"
    for sides, more in (((fewer, before), "2 added"), ((before, fewer), "2 removed")):
        assert f"{same}; inside delegates: {more}." in diff_profiles(*sides).notes
    assert f"{same}." in diff_profiles(before, before).notes


@pytest.mark.parametrize("record", [True, False])
def test_the_one_kernel_that_is_slower_is_named(record: bool, tmp_path: Path) -> None:
    before = dump("cnn_portable", tmp_path, 1, record=record)
    after = dump("cnn_portable", tmp_path, 2, record=record, slower={SLOW: 1.25})
    diff = diff_traces(before, after).methods[0]
    regressed = [change for change in diff.operators if change.verdict is Verdict.REGRESSED]
    assert [change.pair.shown.instruction_id for change in regressed if change.pair] == [SLOW]
    assert Verdict.IMPROVED not in {change.verdict for change in diff.operators}
    assert regressed[0].comparison.relative == pytest.approx(0.25, abs=0.03)
    adds_up(diff)


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack", "transformer", "while_loop"])
def test_changes_of_real_runs_add_up(name: str) -> None:
    files = artifacts(name)
    record = read_etrecord(files.etrecord)
    one, other = (Trace(read_etdump(p), record=record) for p in (files.etdump, files.etdump_timing))
    with pytest.warns(EtscopeWarning, match=r"only the first dump logged intermediate values"):
        found = diff_traces(one, other)
    for diff in found.methods:
        adds_up(diff)
        assert diff.verdict is Verdict.CANNOT_TELL  # five runs
        assert any("include that cost" in note for note in diff.notes)


def test_operators_that_do_not_always_run(tmp_path: Path) -> None:
    before = dump("cnn_portable", tmp_path, 1).profiles()[0]
    after = dump("cnn_portable", tmp_path, 2).profiles()[0]
    fewer = replace(after, rows=after.rows[:2] + after.rows[3:])
    diff = diff_profiles(before, fewer)
    assert [change.status for change in diff.changes].count("removed") == 1
    gone = next(change for change in diff.changes if change.status == "removed")
    assert gone.after is None and gone.comparison is None
    adds_up(diff)
    adds_up(diff_profiles(fewer, before))
    # An operator that does not always run is told to be such.
    row = after.rows[0]
    half = np.arange(len(row.ticks)) % 2
    sometimes = replace(row, ticks=row.ticks * half, calls=row.calls * half)
    rare = diff_profiles(after, replace(after, rows=(sometimes, *after.rows[1:]))).changes[0]
    assert rare.comparison.verdict is Verdict.CANNOT_TELL
    assert "times per run before" in rare.comparison.reason


def test_the_table_adds_up_however_little_of_it_is_shown(tmp_path: Path) -> None:
    before = dump("cnn_xnnpack", tmp_path, 1)
    diff = diff_traces(before, dump("cnn_xnnpack", tmp_path, 2, slower={0: 1.2})).methods[0]
    assert diff.verdict is Verdict.REGRESSED
    for one in (change.comparison for change in (*diff.changes, diff.total)):
        if one is not None and one.low is not None:  # the change that the interval is of
            assert one.low <= one.relative <= one.high
    for options in ({}, {"limit": 0}, {"sort": "run"}, {"sort": "time", "limit": 1}):
        table = diff_table(diff, MS, **options)  # type: ignore[arg-type]
        rows = list(zip(table.values["change"], table.depth or (), strict=True))
        changes = [change for change, depth in rows if depth == 0]
        assert sum(changes[:-1]) == pytest.approx(changes[-1])
        following = [*(depth for _, depth in rows[1:]), 0]
        leaves = [
            change for (change, depth), next_ in zip(rows, following, strict=True) if next_ <= depth
        ]
        assert sum(leaves[:-1]) == pytest.approx(changes[-1])
        assert table.title.startswith("forward: regressed, +")
    with pytest.raises(UsageError, match="cannot sort"):
        diff_table(diff, MS, sort="name")


def test_a_limit_and_a_selection_count_what_ran_inside_a_delegate(tmp_path: Path) -> None:
    before = dump("cnn_xnnpack", tmp_path, 1)
    after = dump("cnn_xnnpack", tmp_path, 2, slower={0: 1.2})
    table = diff_table(diff_traces(before, after).methods[0], MS, limit=3)
    # The call, three of its parts, the sum of the others, and the closing rows.
    kinds = table.values["kind"]
    assert kinds == ["delegate", *kinds[1:4], "hidden", "unaccounted", "total"]
    selector = Selector("name:Convolution*")
    diff = diff_traces(before, after, keep=lambda row: selector.matches(fields_of_row(row)))
    assert all(change.name.startswith("Convolution") for change in diff.methods[0].operators)
    adds_up(diff.methods[0])
    shown = diff_table(diff.methods[0], MS).values["event"][1:-3]
    assert shown and all(name.startswith("Convolution") for name in shown)
    with pytest.raises(MissingDataError, match="nothing was selected"):
        diff_traces(before, after, keep=lambda row: False)


def test_a_cold_first_run_is_in_neither_side(tmp_path: Path) -> None:
    before = dump("cnn_portable", tmp_path, 1)
    profile = before.profiles()[0].every
    sides = [replace(profile, total=profile.total.copy()) for _ in range(2)]
    for times, side in zip((50, 100), sides, strict=True):
        side.total[0] *= times
    diff = diff_profiles(*map(counted, sides))
    assert diff.total.change == 0
    assert diff.total.comparison.samples == (60, 60)
    table = diff_table(diff, MS)
    assert table.title.count("60 of 61 runs (1 excluded: 1 warm-up)") == 2
    assert [one["counted"] for one in table.runs] == [60, 60]


def test_dumps_of_one_program_tell_what_is_noise(tmp_path: Path) -> None:
    def at_speed(seed: int, speed: float) -> Trace:
        return dump("cnn_portable", tmp_path, seed, slower=dict.fromkeys(range(24), speed))

    traces = [at_speed(seed, speed) for seed, speed in enumerate((1.0, 1.08, 0.94, 1.05))]
    after = at_speed(9, 1.07)
    assert diff_traces(traces[0], after).verdict() is Verdict.REGRESSED
    found = diff_traces(traces[0], after, noise=traces[1:])
    assert found.verdict() is Verdict.CANNOT_TELL
    assert any("4 dumps of one program" in note for note in found.methods[0].notes)
    total = found.methods[0].total.comparison
    assert total is not None and total.noise_floor > 0.07
    other = dump("two_methods", tmp_path, 20)
    with pytest.raises(MissingDataError, match="none of the compared methods"):
        diff_traces(traces[0], after, noise=[other])


def test_another_backend_is_compared_another_model_is_refused(tmp_path: Path) -> None:
    portable = dump("cnn_portable", tmp_path, 1)
    xnnpack = dump("cnn_xnnpack", tmp_path, 2)
    found = diff_traces(portable, xnnpack).methods[0]
    assert found.verdict is Verdict.IMPROVED
    assert "added" in {change.status for change in found.changes}
    adds_up(found)
    # Without records a delegate hides what it ran.
    bare = [dump(name, tmp_path, seed, record=False) for seed, name in enumerate(CNNS)]
    adds_up(diff_traces(*bare).methods[0])
    other = dump("transformer_portable", tmp_path, 3)
    with pytest.raises(MismatchError, match="different models: none of the modules"):
        diff_traces(portable, other)
    adds_up(diff_traces(portable, other, forced=True).methods[0])
    with pytest.raises(MismatchError, match="different methods"):
        diff_traces(portable, dump("two_methods", tmp_path, 3))
    with pytest.raises(MissingDataError, match="has no run of method 'backward'"):
        diff_traces(portable, portable, method="backward")


def test_dumps_of_other_models_have_nothing_in_common(tmp_path: Path) -> None:
    profile = dump("cnn_portable", tmp_path, 1, record=False).profiles()[0]
    renamed = replace(profile, rows=tuple(replace(r, name=f"x_{r.name}") for r in profile.rows))
    with pytest.raises(MismatchError, match="few operators agree"):
        check_comparable(profile, renamed, align(profile, renamed))


def test_memory_and_size_stand_beside_time(tmp_path: Path) -> None:
    before, after = dump("cnn_portable", tmp_path, 1), dump("cnn_xnnpack", tmp_path, 2)
    files = [artifacts(name) for name in CNNS]
    traces = [
        replace(trace, program=read_pte(one.pte))
        for trace, one in zip((before, after), files, strict=True)
    ]
    diff = diff_traces(traces[0], traces[1]).methods[0]
    sizes = [len(one.pte.read_bytes()) for one in files if one.pte is not None]
    plans = [memory_plan(read_pte(one.pte), "forward").planned_bytes for one in files]
    assert plans[0] != plans[1] and sizes[0] != sizes[1]
    for what, (one, other) in (("Planned memory", plans), ("Program", sizes)):
        text = f"{what}: {format_bytes(one)} → {format_bytes(other)} ({other / one - 1:+.1%})."
        assert text in diff.beside and text in diff_table(diff, MS).notes
    same = diff_traces(traces[0], traces[0]).methods[0]
    assert f"Program: {format_bytes(sizes[0])} as before." in same.beside
    bare = [dump(name, tmp_path, 5, record=False) for name in CNNS]
    assert diff_traces(*bare).methods[0].beside == ()


def test_numerics_stand_beside_time_where_both_sides_have_them() -> None:
    def found(method: str, is_fine: bool, *errors: float | None) -> RunTotals:
        rows = [SimpleNamespace(total=error) for error in errors]
        metric = SimpleNamespace(name="sqnr")
        one = SimpleNamespace(method=method, is_fine=is_fine, metric=metric, rows=rows)
        return RunTotals(numerics=one)  # type: ignore[arg-type]

    sides = found("forward", True, 90.0, 120.5, None), found("forward", False, 31.25)
    assert list(total_changes(*sides, "forward")) == [
        "Numerics: fine, sqnr 120.50 at the end before, not fine, sqnr 31.250 at the end after."
    ]
    assert list(total_changes(sides[0], RunTotals(), "forward")) == []
    assert list(total_changes(*sides, "encode")) == []  # of another method


def test_the_memory_of_like_processes_is_compared() -> None:
    mib = 1 << 20
    native = SavedMemory("native", None, 2 * mib, 4 * mib)
    larger = SavedMemory("native", None, 2 * mib, 5 * mib)
    others = (
        SavedMemory("python", None, 2 * mib, 5 * mib),
        SavedMemory("native", "values", 2 * mib, 5 * mib),
        None,
    )
    assert list(total_changes(RunTotals(memory=native), RunTotals(memory=larger), "forward")) == [
        "Peak memory of the native runner's process: 4.00 MiB → 5.00 MiB (+25.0%)."
    ]
    # A change that rounds to nothing is told in bytes.
    little = SavedMemory("native", None, 2 * mib, 4 * mib + 96)
    assert list(total_changes(RunTotals(memory=native), RunTotals(memory=little), "forward")) == [
        "Peak memory of the native runner's process: 4.00 MiB → 4.00 MiB (+96 bytes)."
    ]
    for other in others:
        assert (
            list(total_changes(RunTotals(memory=native), RunTotals(memory=other), "forward")) == []
        )
