"""Changes by module, operator, kind and line: all of them add up, whatever runs on either side."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from etscope.analysis.comparison.changes import MethodDiff, percent
from etscope.analysis.comparison.diff import diff_profiles
from etscope.analysis.comparison.diff_table import diff_table
from etscope.analysis.comparison.waterfall import (
    GROUPINGS,
    Change,
    headline,
    waterfall,
    waterfall_table,
)
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.rollup import rollup
from etscope.analysis.profile.scale import Scale
from etscope.analysis.statistics.compare_samples import Verdict
from etscope.analysis.tables.profile_table import LACKS_PROGRAM
from etscope.errors import UsageError
from etscope.units import TimeScale
from tests.support.analysis.traces import open_trace

MS = Scale(TimeScale.NS, TimeScale.MS)
NAMES = (
    *("cnn_portable", "cnn_xnnpack_int8", "transformer", "transformer_portable"),
    *("attention_xnnpack", "while_loop"),
)


@cache
def profile_of(name: str) -> MethodProfile:
    return open_trace(name, timing=True).profiles()[0]


def many(profile: MethodProfile, seed: int, factor: float = 1.0) -> MethodProfile:
    """The profile with 40 runs like its last one, of some noise."""
    random = np.random.default_rng(seed)
    noise = factor * random.lognormal(0, 0.01, 41)
    spread = [(noise * int(row.ticks[-1])).astype(np.int64) for row in profile.rows]
    rows: list[Row] = []
    for row, ticks in zip(profile.rows, spread, strict=True):
        rows.append(replace(row, ticks=ticks, calls=np.full(41, row.calls[-1])))
    heads = sum(row.ticks for row in rows if row.depth == 0)
    made = replace(profile, rows=tuple(rows), total=heads + 1000, runs=np.arange(41))
    # The rest of a call is what its events leave of it.
    fixed = []
    for call in made.instructions:
        events = sum((row.ticks for row in call.below[:-1]), np.zeros(41, np.int64))
        fixed.append(call.head)
        fixed += call.below[:-1]
        fixed += [replace(row, ticks=call.head.ticks - events) for row in call.below[-1:]]
    return replace(made, rows=tuple(fixed))


def sums(parts: Sequence[Change], diff: MethodDiff) -> tuple[float, float]:
    before = sum(part.before or 0.0 for part in parts) + (diff.unaccounted.before or 0.0)
    after = sum(part.after or 0.0 for part in parts) + (diff.unaccounted.after or 0.0)
    return before, after


def test_all_pairs_of_models_add_up() -> None:
    """Also models that have nothing in common: added and removed rows count from and to zero."""
    for one, other in itertools.product(NAMES, repeat=2):
        diff = diff_profiles(profile_of(one), profile_of(other))
        ends = (diff.total.before, diff.total.after)
        for by in GROUPINGS:
            found = waterfall(diff, by)
            assert sums(found.own, diff) == pytest.approx(ends, rel=1e-9), (one, other, by)
            tops = [part for part in found.parts if part.depth == 0]
            assert sums(tops, diff) == pytest.approx(ends, rel=1e-9), (one, other, by)
            changes = sum(part.change for part in found.own) + diff.unaccounted.change
            assert changes == pytest.approx(diff.total.change, rel=1e-9, abs=1e-3)


@pytest.mark.parametrize("by", GROUPINGS)
@pytest.mark.parametrize("limit", [None, 0, 1, 3])
def test_the_table_adds_up_however_little_is_shown(by: str, limit: int | None) -> None:
    diff = diff_profiles(profile_of("cnn_portable"), profile_of("cnn_xnnpack"))

    def is_convolution(row: Row) -> bool:
        return any("convolution" in op for op in row.attribution.op_types)

    for keep in (None, is_convolution):
        table = waterfall_table(diff, MS, by, limit=limit, keep=keep)
        rows = list(zip(table.values["change"], table.depth or (), strict=True))
        tops = [change for change, depth in rows[:-1] if depth == 0]
        assert sum(tops) == pytest.approx(rows[-1][0])


@pytest.mark.parametrize("by", GROUPINGS)
def test_a_line_says_how_many_groups_are_not_shown(by: str) -> None:
    diff = diff_profiles(profile_of("transformer_portable"), profile_of("transformer"))
    parts = len(waterfall(diff, by).parts)
    table = waterfall_table(diff, MS, by, limit=1)
    shown = min(table.breaks)
    noun = "module" if by == "module" else "group"
    cut = parts - shown
    assert table.values[by][shown] == f"({cut} {noun}{'' if cut == 1 else 's'} not shown)"


def test_what_only_one_side_has_ranks_by_its_time() -> None:
    diff = diff_profiles(many(profile_of("cnn_portable"), 1), many(profile_of("cnn_xnnpack"), 2))
    parts = waterfall(diff, "op").own
    gone = [part for part in parts if part.status == "removed"]
    assert gone and all(part.change < 0 and part.comparison is None for part in gone)
    (convolution,) = [part for part in parts if part.name == "convolution"]
    assert convolution.status == "same"  # a kernel before, the delegate's event after
    assert convolution.comparison.verdict is Verdict.IMPROVED
    changes = [abs(part.change) for part in parts]
    assert changes == sorted(changes, reverse=True)
    with pytest.raises(UsageError, match="cannot group by 'colour'"):
        waterfall(diff, "colour")


def test_sums_by_delegate_are_of_all_calls_of_a_backend() -> None:
    """The number of a call is another in another export: a backend is one group."""
    lowered = many(profile_of("transformer"), 2)
    diff = diff_profiles(many(profile_of("transformer_portable"), 1), lowered)
    found = {part.name: part for part in waterfall(diff, "delegate").own}
    assert found.keys() == {"(not delegated)", "XnnpackBackend"}
    assert found["XnnpackBackend"].status == "added"
    calls = sum(group.head.kind == "delegate" for group in lowered.instructions)
    assert calls > 1 and found["XnnpackBackend"].leaves[1] > calls


def test_another_dtype_is_the_same_operator() -> None:
    diff = diff_profiles(
        many(profile_of("cnn_xnnpack"), 1), many(profile_of("cnn_xnnpack_int8"), 2)
    )
    pairs = [inner for pair in diff.alignment.pairs for inner in pair.inner]
    changed = [pair for pair in pairs if pair.status == "changed"]
    assert changed
    for pair in changed:
        assert pair.before.attribution.op_types == pair.after.attribution.op_types
        assert pair.before.name != pair.after.name
    convolutions = [pair for pair in pairs if pair.shown.attribution.op_types]
    gemms = [
        pair for pair in convolutions if "aten.convolution" in str(pair.shown.attribution.op_types)
    ]
    assert gemms and {pair.status for pair in gemms} <= {"changed", "same", "moved"}
    assert "quantize_per_tensor" in {
        group.name for group in rollup(profile_of("cnn_xnnpack_int8"), "operator").groups
    }


def test_the_headline_says_what_changed_by_how_much_and_whether_it_can_be_told() -> None:
    portable = many(profile_of("cnn_portable"), 1)
    faster = headline(diff_profiles(portable, many(profile_of("cnn_xnnpack"), 2)), MS)
    assert faster[0].startswith("forward takes ") and " ms less: " in faster[0]
    assert faster[1] == "It ran on kernels before, on XnnpackBackend after."
    assert faster[2].startswith("By operator: convolution -")
    assert faster[3].startswith("By module: ")
    parts = many(profile_of("transformer_portable"), 1), alike(many(profile_of("transformer"), 2))
    heads = {
        kind: sum(row.ticks[-31:].sum() for row in parts[1].rows if row.kind == kind)
        for kind in ("delegate", "kernel")
    }
    share = re.match(
        r"It ran on kernels before, partly on XnnpackBackend \((.*)% of its operators' time\)",
        headline(diff_profiles(*parts), MS)[1],
    )
    expected = 100 * heads["delegate"] / sum(heads.values())
    assert float(share[1]) == pytest.approx(expected, abs=1)
    bare = open_trace("cnn_xnnpack", program=False, timing=True).profiles()[0]
    assert headline(diff_profiles(portable, bare), MS)[-1].endswith("give it too (--program).")
    assert LACKS_PROGRAM not in faster
    same = headline(diff_profiles(portable, many(profile_of("cnn_portable"), 3)), MS)
    assert same[0].startswith("forward takes as long as before: ") and len(same) == 1
    few = replace(profile_of("cnn_portable"))
    told = headline(diff_profiles(few, few), MS)
    assert told[0].startswith("It is unclear whether forward changed: ")
    assert told[0].endswith("both sides are the same dump.")
    told = headline(diff_profiles(few, replace(few, total=few.total + 1)), MS)
    assert "at least 10 are needed" in told[0]


def alike(profile: MethodProfile) -> MethodProfile:
    """The profile with all rows taking the same time: kernels and delegates both count."""
    rows = (replace(row, ticks=np.full_like(row.ticks, 1000)) for row in profile.rows)
    return replace(profile, rows=tuple(rows))


def unsteady(profile: MethodProfile, seed: int) -> MethodProfile:
    """The profile with 20 runs of which some take a thousand times as long as others."""
    factors = np.random.default_rng(seed).lognormal(0, 3.0, 20)
    rows = tuple(
        replace(
            row,
            ticks=(factors * max(int(row.ticks[-1]), 1000)).astype(np.int64),
            calls=np.full(20, row.calls[-1]),
        )
        for row in profile.rows
    )
    total = sum(row.ticks for row in rows if row.depth == 0)
    return replace(profile, rows=rows, total=total, runs=np.arange(20))


def test_intervals_that_say_nothing_are_shown_as_unknown() -> None:
    base = profile_of("cnn_portable")
    diff = diff_profiles(unsteady(base, 1), unsteady(base, 2))
    for table in (diff_table(diff, MS), waterfall_table(diff, MS, "op")):
        assert table.values["interval"][-1] == "unknown"
        assert table.values["reason"][-1] == "the runs are too unsteady to bound the change"
        assert table.values["high"][-1] > 10 * table.values["low"][-1] > 0
        assert table.title.startswith("forward: cannot tell · ")
        assert any(note.startswith('Interval "unknown": ') for note in table.notes)
    first = headline(diff, MS)[0]
    assert first.startswith("It is unclear whether forward changed: ")
    assert "; the runs are too unsteady to bound the change. Record more runs" in first
    assert first.endswith("etscope run … --iterations 100.")
    steady = diff_table(diff_profiles(many(base, 1), many(base, 2)), MS)
    assert "unknown" not in steady.values["interval"]
    assert not any("unknown" in note for note in steady.notes)


def test_large_changes_are_factors() -> None:
    changes = (0.05, -0.5, 8.9, 379.0, 25_099.0, 3.47e5)
    texts = ["+5.0%", "-50.0%", "+890.0%", "x380", "x25,100", "x347,000"]
    assert [percent(change) for change in changes] == texts


def one_kernel(times: Sequence[int], others: int = 0) -> MethodProfile:
    """A method of a kernel "op" that takes these times, a longer one that orders the runs, and
    `others`, which do not change."""
    ones = np.ones(len(times), dtype=np.int64)
    long = 10**8 + 10**6 * np.arange(len(times))
    rows = [Row("kernel", "op.out", np.array(times), ones, 0), Row("kernel", "long", long, ones, 1)]
    random = np.random.default_rng(len(times))
    for number in range(others):
        ticks = random.normal(1e6, 2e5, len(times)).astype(np.int64)
        rows.append(Row("kernel", f"other{number}.out", ticks, ones, 2 + number))
    total = np.sum([row.ticks for row in rows], axis=0)
    return MethodProfile("forward", np.arange(len(times)), total, tuple(rows), {}, False)


def test_relative_is_the_change_that_its_interval_is_of() -> None:
    """An operator of a thousand times in one run makes its average; the trimmed means fell."""
    before, after = [1000 + n % 7 for n in range(41)], [900 + n % 7 for n in range(41)]
    after[20] = 10**6
    diff = diff_profiles(one_kernel(before), one_kernel(after))
    for table in (diff_table(diff, MS), waterfall_table(diff, MS, "op")):
        column = "event" if "event" in table.values else "op"
        row = list(table.values[column]).index("op.out")
        assert table.values["change"][row] > 0 > table.values["ratio"][row] - 1
        assert table.values["relative"][row] == percent(table.values["ratio"][row] - 1)
    unknown = diff_profiles(
        unsteady(profile_of("cnn_portable"), 1), unsteady(profile_of("cnn_portable"), 2)
    )
    for table in (diff_table(unknown, MS), waterfall_table(unknown, MS, "op")):
        of_interval = dict(zip(table.values["interval"], table.values["relative"], strict=True))
        assert of_interval["unknown"] is None


def test_the_correction_is_told_where_it_alone_keeps_from_a_verdict() -> None:
    random = np.random.default_rng(2)
    sides = [random.normal(1e6 * factor, 1e5, 21).astype(int).tolist() for factor in (1, 0.83)]
    alone = diff_profiles(one_kernel(sides[0]), one_kernel(sides[1]))
    among = diff_profiles(one_kernel(sides[0], 60), one_kernel(sides[1], 60))
    one, other = (
        next(part for part in waterfall(diff, "op").own if part.name == "op.out").comparison
        for diff in (alone, among)
    )
    assert one and other and (one.low, one.high) == (other.low, other.high)
    assert (one.verdict, other.verdict) == (Verdict.IMPROVED, Verdict.CANNOT_TELL)
    assert (
        "shows a change of this row alone, but not after the correction for 62 comparisons"
        in other.reason
    )
    for table in (diff_table(among, MS), waterfall_table(among, MS, "op")):
        assert any("by Holm's method" in note for note in table.notes)


def test_dumps_of_one_program_are_noise_for_sums_too() -> None:
    base = profile_of("cnn_portable")
    diff = diff_profiles(many(base, 1), many(base, 2, 1.08))
    noisy = replace(
        diff, sides=replace(diff.sides, noise=[many(base, 3, 1.1), many(base, 4, 0.93)])
    )
    verdicts = {part.comparison.verdict for part in waterfall(noisy, "op").own if part.comparison}
    sure = {part.comparison.verdict for part in waterfall(diff, "op").own if part.comparison}
    assert Verdict.REGRESSED in sure and verdicts == {Verdict.CANNOT_TELL}
