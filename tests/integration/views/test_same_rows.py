"""Every view of the time by module or operator has the rows of the one roll-up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from etscope.analysis.comparison.diff import diff_profiles
from etscope.analysis.comparison.waterfall import waterfall
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.rollup import GROUPINGS, NO_MODULE, ROOT, Rollup, rollup
from etscope.analysis.profile.scale import Scale
from etscope.analysis.tables.profile_table import grouped_table
from etscope.analysis.work.roofline import OUTSIDE, roofline
from etscope.etdb import Session
from etscope.reporting.tensorboard import tables as tensorboard_tables
from etscope.units import TimeScale
from tests.support.analysis.traces import open_trace
from tests.support.artifacts import artifacts
from tests.support.views.page_reports import document

MS = Scale(TimeScale.NS, TimeScale.MS)
# Portable kernels, delegated, quantized, a language model, and loops.
NAMES = ("cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8", "llama_xnnpack", "while_loop")
BY = ("module", "op")

Sums = Mapping[str, float]  # ms, by the name of the row


@cache
def profile_of(name: str) -> MethodProfile:
    """The profile of the method's times."""
    return open_trace(name, timing=True).profiles()[0]


def rows_of(found: Rollup, by: str) -> Sums:
    groups = found.tree() if by == "module" else found.groups
    return {group.name: float(MS(group.average)) for group in groups}


@pytest.mark.parametrize("name", NAMES)
def test_the_groups_add_up_in_each_run_whatever_they_are_by(name: str) -> None:
    for profile in open_trace(name, timing=True).profiles():
        for by in GROUPINGS:
            for keep in (None, lambda row: row.kind == "kernel"):
                found = rollup(profile, by, keep=keep)
                parts = [[*found.groups, found.others]]
                if by == "module":
                    tops = [group for group in found.tree() if group.depth == 0]
                    parts.append([*tops, found.others])
                for groups in parts:
                    whole = sum((group.ticks for group in groups), profile.unaccounted)
                    np.testing.assert_array_equal(whole, profile.total)
                    assert sum(len(one.members) for one in groups) == len(profile.leaves)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", NAMES)
def test_inspect_the_debugger_and_tensorboard_have_them(name: str, by: str) -> None:
    profile = profile_of(name)
    expected = rows_of(rollup(profile, by), by)
    table = grouped_table(profile, MS, by)
    body = min(table.breaks)
    shown = dict(zip(table.values[by][:body], table.values["avg"][:body], strict=True))
    assert shown == pytest.approx(expected)
    rest, total = table.values["avg"][body:]
    tops = [ms for ms, depth in zip(shown.values(), table.depth or (), strict=False) if not depth]
    assert sum(tops) + rest == pytest.approx(total)

    files = artifacts(name)
    paths = [str(files.etdump_timing or files.etdump), str(files.etrecord), str(files.pte)]
    (printed,) = Session(*paths).execute(f"top 9999 {by}s").data
    of_etdb = {row[by]: row["avg_ms"] for row in printed["rows"]}
    assert of_etdb == pytest.approx(expected)

    texts = tensorboard_tables(open_trace(name, timing=True), MS)
    ending = "modules" if by == "module" else "operators, summed up"
    (text,) = (text for tag, text in texts.items() if tag.endswith(ending))
    assert all(group.replace("|", "\\|") in text for group in expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_them(name: str) -> None:
    profile = profile_of(name)
    method = document(name)["runs"][0]["methods"][0]
    of_page = {module["path"] or ROOT: module["total"] for module in method["modules"]}
    assert of_page == pytest.approx(rows_of(rollup(profile, "module"), "module"))
    values = method["rows"]["values"]
    leaves = [number for number, leaf in enumerate(values["leaf"]) if leaf]
    assert sum(values["avg"][row] for row in leaves) == pytest.approx(values["avg"][-1])
    grouped: dict[str, float] = defaultdict(float)  # as web/src/groups.ts gathers rows
    for row in leaves[:-1]:
        module = values["module"][row]
        grouped[NO_MODULE if module is None else module or ROOT] += values["avg"][row]
    own = {one.name: float(MS(one.average)) for one in rollup(profile, "module").groups}
    assert grouped == pytest.approx(own)


@pytest.mark.parametrize("name", NAMES)
def test_a_comparison_has_them(name: str) -> None:
    """By operators as the model has them, which are those of other backends too."""
    profile = profile_of(name)
    diff = diff_profiles(profile, profile)
    for by, named in (("module", "module"), ("op", "operator"), ("delegate", "backend")):
        expected = {one.name: one.ticks.mean() for one in rollup(profile, named).groups}
        for part in (found := waterfall(diff, by)).own:
            assert part.before == part.after == pytest.approx(expected.pop(part.name))
        assert not expected
        sums = sum(part.before or 0.0 for part in found.own) + (diff.unaccounted.before or 0.0)
        assert sums == pytest.approx(diff.total.before)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", NAMES)
def test_a_roofline_has_them(name: str, by: str) -> None:
    """All but the rests of calls, which are outside of the operators."""
    profile = profile_of(name)
    expected = {
        one.name: sum(float(leaf.ticks.mean()) for leaf in one.rows if leaf.kind != "unaccounted")
        for one in rollup(profile, by).groups
        if any(leaf.kind != "unaccounted" for leaf in one.rows)
    }
    points = roofline(profile, None, TimeScale.NS, by=by).points
    found = {point.name: point.ns for point in points if point.place != OUTSIDE}
    assert found == pytest.approx(expected)
    assert sum(point.share for point in points) == pytest.approx(1)


@pytest.mark.parametrize("name", [*NAMES, "two_methods"])
def test_a_dataset_has_them(name: str, tmp_path: Path) -> None:
    pytest.importorskip("etscope_lab")
    from etscope_lab.fleet import collect, query

    files = artifacts(name)
    collect([files.etdump_timing or files.etdump], tmp_path / "ds", etrecord=files.etrecord)
    trace = open_trace(name, timing=True, program=False)
    for profile in trace.profiles():
        table = query(
            str(tmp_path / "ds"),
            "SELECT CASE module WHEN '' THEN $root ELSE coalesce(module, $none) END AS module,"
            " sum(duration_ns) AS ns FROM leaves"
            " WHERE counted AND method IS NOT DISTINCT FROM $method GROUP BY 1",
            {"none": NO_MODULE, "root": ROOT, "method": profile.method},
        )
        found = dict(zip(table.values["module"], table.values["ns"], strict=True))
        groups = rollup(profile, "module").groups
        assert found == {one.name: int(one.ticks.sum()) for one in groups}
