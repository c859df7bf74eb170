"""Profiles of real runs: they add up, to the tick, in every run."""

from __future__ import annotations

import numpy as np
import pytest

from etscope import Inspector
from etscope.analysis.profile.profile_table import GROUPINGS, grouped_table, profile_table
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.errors import MissingDataError, UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.units import TimeScale
from tests.support.artifacts import artifacts

MS = Scale(TimeScale.NS, TimeScale.MS)
NAMES = (
    "cnn_portable",
    "cnn_xnnpack",
    "cnn_xnnpack_int8",
    "transformer",
    "two_methods",
    "cond",
    "while_loop",
    "dynamic_shape",
    "bf16_fp16",
    "large_20k",
)


def open_trace(name: str) -> Trace:
    files = artifacts(name)
    return Trace(read_etdump(files.etdump), record=read_etrecord(files.etrecord))


@pytest.mark.parametrize("name", NAMES)
def test_rows_and_what_is_unaccounted_add_up_to_the_tick(name: str) -> None:
    trace = open_trace(name)
    for profile in trace.profiles():
        rows = [row for row in profile.rows if row.depth == 0]
        total = sum((row.ticks for row in rows), np.zeros_like(profile.total))
        np.testing.assert_array_equal(total + profile.unaccounted, profile.total)
        assert (profile.unaccounted >= 0).all()
        for row in rows:
            below = [
                r for r in profile.rows if r.depth == 1 and r.instruction_id == row.instruction_id
            ]
            if below and not row.own_clock:
                np.testing.assert_array_equal(sum(r.ticks for r in below), row.ticks)


@pytest.mark.parametrize("name", NAMES)
def test_the_total_is_that_of_the_dump(name: str) -> None:
    trace = open_trace(name)
    dump = trace.dump
    execute = dump.strings.index("Method::execute")
    rows = np.flatnonzero(dump.name == execute)

    total = sum(int(profile.total.sum()) for profile in trace.profiles())

    assert total == int((dump.end[rows] - dump.start[rows]).sum())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limit", [None, 1])
def test_the_shown_average_adds_up_whatever_is_shown(name: str, limit: int | None) -> None:
    for profile in open_trace(name).profiles():
        for table in (
            profile_table(profile, MS, limit=limit),
            *(grouped_table(profile, MS, by, limit=limit) for by in GROUPINGS),
        ):
            depth = table.depth or [0] * len(table)
            shown = [a for a, d in zip(table.values["avg"], depth, strict=True) if d == 0]
            assert sum(shown[:-1]) == pytest.approx(shown[-1])


def test_the_module_tree_rolls_up() -> None:
    (profile,) = open_trace("cnn_portable").profiles()

    table = grouped_table(profile, MS, "module")

    average = dict(zip(table.values["module"], table.values["avg"], strict=True))
    parts = ("stem.conv", "stem.bn", "stem.act")
    assert average["stem"] == pytest.approx(sum(average[part] for part in parts))
    top = sum(average[name] for name in ("stem", "stages", "head"))
    rounding = 1e-9
    assert top <= average["(root)"] + rounding
    assert average["(root)"] <= average["Method::execute"] + rounding


def test_sorting() -> None:
    (profile,) = open_trace("cnn_portable").profiles()

    by_time = profile_table(profile, MS, sort="time").values["avg"][:-2]
    by_run = profile_table(profile, MS, sort="run").values["instruction"][:-2]
    by_p90 = profile_table(profile, MS, sort="p90").values["p90"][:-2]

    assert by_time == sorted(by_time, reverse=True)
    assert by_run == sorted(by_run)
    assert by_p90 == sorted(by_p90, reverse=True)
    with pytest.raises(UsageError, match="cannot sort by 'name'"):
        profile_table(profile, MS, sort="name")
    with pytest.raises(UsageError, match="cannot group by 'name'"):
        grouped_table(profile, MS, "name")


def test_every_kernel_of_a_portable_program_has_a_line_and_a_module() -> None:
    (profile,) = open_trace("cnn_portable").profiles()

    table = profile_table(profile, MS)

    kernels = [i for i, kind in enumerate(table.values["kind"]) if kind == "kernel"]
    assert len(kernels) == 24
    for row in kernels:
        assert table.values["source"][row].startswith("cnn.py:")
        assert table.values["module"][row]


def test_statistics_are_those_of_the_inspector() -> None:
    files = artifacts("cnn_portable")
    dump = files.folder / "timing.etdp"
    (block,) = [b for b in Inspector(etdump_path=dump).event_blocks if b.name == "Execute"]
    (profile,) = Trace(read_etdump(dump)).profiles()

    table = profile_table(profile, MS, sort="run")

    calls = [event.perf_data for event in block if event.name == "OPERATOR_CALL"]
    for name in ("avg", "p10", "p50", "p90", "min", "max", "std"):
        assert table.values[name][:-2] == pytest.approx([getattr(c, name) for c in calls])


def test_a_dump_without_runs_has_no_profile() -> None:
    trace = Trace(read_etdump(artifacts("empty_blocks").folder / "only.etdp"))

    assert trace.profiles() == []
    with pytest.raises(MissingDataError, match="Method::execute"):
        from etscope.analysis.profile.profile import method_profile

        method_profile(trace.blocks, lambda key: None)  # type: ignore[arg-type, return-value]
