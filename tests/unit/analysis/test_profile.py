"""Profiles of real runs: they add up, to the tick, in every run."""

from __future__ import annotations

import numpy as np
import pytest

from etscope import Inspector
from etscope.analysis.profile.profile import method_profile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import Attribution
from etscope.analysis.tables.profile_table import GROUPINGS, grouped_table, profile_table
from etscope.cli.output.tables import row_filter
from etscope.errors import MissingDataError, UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.model.graph import Node, stem
from etscope.units import TimeScale
from tests.support.analysis.traces import open_trace
from tests.support.artifacts import artifacts

MS = Scale(TimeScale.NS, TimeScale.MS)
NAMES = (
    *("cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8", "transformer", "two_methods", "cond"),
    *("while_loop", "dynamic_shape", "bf16_fp16", "large_20k", "attention_xnnpack"),
    *("recurrent_xnnpack", "many_delegates", "batched_linear", "llama_xnnpack"),
)
BERT = pytest.param("bert_base_xnnpack", marks=pytest.mark.nightly)


@pytest.mark.parametrize("name", NAMES)
def test_rows_and_what_is_unaccounted_add_up_to_the_tick(name: str) -> None:
    trace = open_trace(name, program=False)
    dump = trace.dump
    executed = np.flatnonzero(dump.name == dump.strings.index("Method::execute"))
    profiles = trace.profiles()
    whole = sum(int(profile.every.total.sum()) for profile in profiles)
    assert whole == int((dump.end[executed] - dump.start[executed]).sum())
    for profile in [*profiles, *(one.every for one in profiles if one.excluded is not None)]:
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


def test_the_calls_of_a_delegate_are_divided_among_its_operators() -> None:
    """Each grouping names what ran inside the delegate: no group holds all of the call."""
    (profile,) = open_trace("cnn_xnnpack").profiles()
    (call,) = [group for group in profile.instructions if group.head.kind == "delegate"]
    assert call.is_split
    share = {
        by: dict(zip(table.values[by], table.values["share"], strict=True))
        for by in ("op", "module", "source", "type")
        for table in [grouped_table(profile, MS, by)]
    }
    inner = {row.name.rpartition(" #")[0] for row in call.below if row.kind == "delegated"}
    assert inner <= set(share["op"])
    assert not any("#" in name for name in share["op"])
    assert {"stem", "stages.0", "head"} <= set(share["module"])
    assert share["module"]["stem"] < share["module"]["(root)"]
    assert sum(line.endswith("cnn.py:35") for line in share["source"]) == 1
    assert 0 < share["type"]["delegated"] < 1


def test_a_kernel_is_its_own_part_of_a_decomposed_operator() -> None:
    """All parts have the debug handle of the operator; each row has the node that it ran."""
    (profile,) = open_trace("attention_xnnpack").profiles()
    kernels = [row for row in profile.rows if row.kind == "kernel"]
    handles = [row.attribution.debug_handles for row in kernels]
    assert max(map(handles.count, handles)) > 5
    ran = [row.attribution.nodes for row in kernels]
    assert [len(nodes) for nodes in ran] == [1] * len(kernels)
    assert [stem(nodes[0].op) for nodes in ran] == [stem(row.name) for row in kernels]
    assert len({id(nodes[0]) for nodes in ran}) == len(kernels)


def test_an_event_inside_a_delegate_is_of_a_node_inside_it() -> None:
    (profile,) = open_trace("attention_xnnpack").profiles()
    inside = {
        group.head.instruction_id: [set(map(id, row.attribution.nodes)) for row in group.below]
        for group in profile.instructions
        if group.head.kind == "delegate"
    }
    calls = {number: set().union(*events) for number, events in inside.items()}
    assert sum(map(len, calls.values())) == len(set().union(*calls.values()))


def test_a_filter_keeps_the_events_inside_a_delegate_that_match() -> None:
    (profile,) = open_trace("cnn_xnnpack").profiles()
    table = profile_table(profile, MS, keep=row_filter("module:stem"))
    shown = [row for row, kind in enumerate(table.values["kind"]) if kind == "delegated"]
    assert shown
    assert all(table.values["module"][row].startswith("stem") for row in shown)
    whole = profile_table(profile, MS, keep=row_filter("kind:delegate"))
    assert whole.values["kind"].count("delegated") > len(shown)
    assert "hidden" not in whole.values["kind"]
    by_module = grouped_table(profile, MS, "module", keep=row_filter("module:stem"))
    kept = dict(zip(by_module.values["module"], by_module.values["avg"], strict=True))
    assert kept["stem"] == pytest.approx(sum(table.values["avg"][row] for row in shown))


def test_a_limit_counts_what_ran_inside_a_delegate() -> None:
    (profile,) = open_trace("cnn_xnnpack", program=False).profiles()
    table = profile_table(profile, MS, limit=3)
    # The call, the three longest leaves of all, the sum of the others, and the closing rows.
    assert len(table) == 1 + 3 + 1 + 2
    leaves = sorted(float(leaf.ticks.mean()) for leaf in profile.instructions[0].leaves)
    assert sum(table.values["avg"][1:4]) * 1e6 == pytest.approx(sum(leaves[-3:]))


def test_a_line_says_how_many_groups_are_not_shown() -> None:
    (profile,) = open_trace("transformer").profiles()
    leaves = [leaf for group in profile.instructions for leaf in group.leaves]

    def cut(by: str, limit: int, selector: str | None = None) -> str:
        table = grouped_table(profile, MS, by, limit=limit, keep=row_filter(selector))
        assert len(table) == limit + 3
        return str(table.values[by][limit])

    for by, noun in (*((by, "group") for by in GROUPINGS), ("module", "module")):
        whole = len(grouped_table(profile, MS, by)) - 2
        assert cut(by, 1) == f"({whole - 1} {noun}s not shown)"
        assert cut(by, whole - 1) == f"(1 {noun} not shown)"
    kernels = sum(leaf.kind == "kernel" for leaf in leaves)
    assert cut("type", 1, "kind:kernel") == f"({len(leaves) - kernels} rows not shown)"
    assert cut("type", 0, "kind:kernel") == f"(1 group and {len(leaves) - kernels} rows not shown)"
    tree = grouped_table(profile, MS, "module", limit=2)
    assert tree.values["avg"][2] is None  # the root, which is shown, has the time of all


def test_modules_inside_a_delegate_need_the_program() -> None:
    without = profile_table(open_trace("cnn_xnnpack", program=False).profiles()[0], MS)
    given = profile_table(open_trace("cnn_xnnpack").profiles()[0], MS)
    assert any("--program" in note for note in without.notes)
    assert not any("--program" in note for note in given.notes)


def test_sorting() -> None:
    (profile,) = open_trace("cnn_portable", program=False).profiles()
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


def test_statistics_are_those_of_the_inspector() -> None:
    files = artifacts("cnn_portable")
    dump = files.folder / "timing.etdp"
    (block,) = [b for b in Inspector(etdump_path=dump).event_blocks if b.name == "Execute"]
    (profile,) = Trace(read_etdump(dump), all_runs=True).profiles()
    table = profile_table(profile, MS, sort="run")
    calls = [event.perf_data for event in block if event.name == "OPERATOR_CALL"]
    for name in ("avg", "p10", "p50", "p90", "min", "max", "std"):
        assert table.values[name][:-2] == pytest.approx([getattr(c, name) for c in calls])


def test_a_dump_alone_does_not_name_its_method_and_may_have_no_runs() -> None:
    for record, title in ((False, "unnamed method · "), (True, "forward · ")):
        (profile,) = open_trace("cnn_portable", record=record, program=False).profiles()
        assert profile_table(profile, MS).title.startswith(title)
    trace = Trace(read_etdump(artifacts("empty_blocks").folder / "only.etdp"))
    assert trace.profiles() == []
    with pytest.raises(MissingDataError, match="Method::execute"):
        method_profile(trace.blocks, lambda key: None, lambda block: {})  # type: ignore[arg-type, return-value]


def test_an_event_without_a_name_is_called_by_its_operator() -> None:
    node = Node("aten_hardswish_default", "call_function", "", "aten.hardswish.default")
    name = "Invalid Unary Op #2"
    assert Attribution(nodes=(node,)).told_name(name) == "hardswish (Invalid Unary Op) #2"
    assert Attribution().told_name(name) == name
    assert Attribution(nodes=(node,)).told_name("HardSwish (NC) #1") == "HardSwish (NC) #1"


@pytest.mark.parametrize("name", ["cnn_xnnpack", "recurrent_xnnpack", BERT])
def test_a_module_or_a_backend_selects_what_its_group_has(name: str) -> None:
    """The rest of a delegate's call counts for the module that holds all of the call."""
    (profile,) = open_trace(name).profiles()[:1]
    table = grouped_table(profile, MS, "module")
    times = dict(zip(table.values["module"], table.values["avg"], strict=True))
    modules = [path for path in times if path[0] not in "(uM"]
    assert modules
    for path in modules:
        selected = grouped_table(profile, MS, "module", keep=row_filter(f"module:{path}"))
        assert selected.values["avg"][0] == pytest.approx(times[path]), path
    calls = grouped_table(profile, MS, "delegate")
    for group, expected in zip(calls.values["delegate"], calls.values["avg"], strict=True):
        backend, _, number = group.partition(" #")
        if number:
            keep = row_filter(f"delegate:{backend} and id:{number}")
            found = grouped_table(profile, MS, "delegate", keep=keep)
            assert found.values["avg"][0] == pytest.approx(expected), group
