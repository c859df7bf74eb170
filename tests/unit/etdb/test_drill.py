"""Looking into graphs, times and files: what the first debugger had, and what was its trouble."""

from __future__ import annotations

from pathlib import Path

import pytest

from etscope.analysis.tables.profile_table import grouped_table
from etscope.etdb import Session
from etscope.etdb.commands.info import TOPICS
from etscope.etdb.commands.source import _line_times, read_lines
from tests.support.artifacts import artifacts
from tests.support.etdb.sessions import refused, said, session


def test_the_overview_has_all_tables() -> None:
    text = said(session("cnn_portable"), "overview")
    for title in ("Run summary", "Counts", "Inputs", "modules", "By op", "By module type", "first"):
        assert title in text
    assert "aten.convolution.default" in text


def test_selections_of_every_kind() -> None:
    one = session("cnn_portable")
    for name, words in (
        ("aten_relu_default", ("Times", "Used by", "Inputs")),
        ("stages.0", ("parent module: stages", "Elements", "Outputs")),
        ("aten.relu.default", ("aten_relu_default_5",)),
        ("ReLU", ("6 modules",)),
        ("[Sub Module] ReLU", ("6 modules",)),
        ("stem.conv.weight", ("stem.conv.weight",)),
        ("x", ("placeholder",)),
        ("op:relu and module:stem", ("aten_relu_default",)),
        ("%3", ("aten_relu_default",)),
    ):
        text = said(one, f"select {name}")
        assert all(word in text for word in words), text


def test_back_and_forward_go_through_what_was_selected() -> None:
    one = session("cnn_portable")
    assert "did you mean" in refused(one, "select aten_relu_defalt")
    assert one.debugger.selected == []
    assert "nothing further back" in refused(one, "back")
    said(one, "select stem", "select ReLU", "select aten.relu.default")
    assert "selected: ReLU" in said(one, "back")
    assert "selected: stem" in said(one, "back")
    assert "nothing further back" in refused(one, "back")
    assert "selected: aten.relu.default" in said(one, "forward 2")
    said(one, "back", "select head")
    assert "nothing further forward" in refused(one, "forward")


def test_graphs_are_switched_at_any_time() -> None:
    one = session("cnn_portable")
    assert "exported" in said(one, "info graphs")
    assert said(one, "graph").startswith("edge/forward")
    said(one, "start", "graph exported")
    assert "relu.default" in said(one, "select relu.default")
    assert "no graph" in refused(one, "graph nothing")
    said(one, "graph edge", "select aten.relu.default")


@pytest.mark.parametrize(("group", "by"), [("ops", "op"), ("modules", "module")])
def test_sums_by_group_are_those_of_inspect(group: str, by: str) -> None:
    one = session("cnn_xnnpack")
    rows = one.execute(f"top 999 {group}").data[0]["rows"]
    shown = [(row[by], row["count"], row["share"]) for row in rows]
    expected = grouped_table(one.debugger.profiles["forward"], one.debugger.scale, by)
    columns = (expected.values[name] for name in (by, "events", "share"))
    groups = list(zip(*columns, strict=True))[: min(expected.breaks)]
    assert len(groups) > 5, groups  # the delegate's operators, not the delegate
    assert shown == [(name, count, pytest.approx(share)) for name, count, share in groups]
    rows = one.execute("top 999 types by max").data[0]["rows"]
    profile = one.debugger.profiles["forward"]
    accounted = 1 - float(profile.unaccounted.mean()) / float(profile.total.mean())
    assert sum(row["share"] for row in rows) == pytest.approx(accounted)
    assert {"Conv2d", "Linear"} <= {row["type"] for row in rows}, rows
    assert [row["max_ms"] for row in rows] == sorted((r["max_ms"] for r in rows), reverse=True)


def test_top_takes_a_number_and_a_column() -> None:
    one = session("cnn_portable")
    rows = one.execute("top 3 by max").data[0]["rows"]
    shown = [row for row in rows if row["instruction"] is not None]
    assert len(shown) == 3
    assert [row["max_ms"] for row in shown] == sorted((r["max_ms"] for r in shown), reverse=True)
    assert "cannot sort by" in refused(one, "top by nothing")
    assert "how many" in refused(one, "top x")


def test_a_dump_is_compared_with_another() -> None:
    artifact = artifacts("cnn_portable")
    one = session("cnn_portable")
    text = said(one, f"diff {artifact.etdump_timing}")
    assert "Method::execute" in text
    rows = one.execute(f"diff {artifact.etdump}").data[0]["rows"]
    # Five runs, of which the first is left out, are too few: never a pass.
    assert {row["verdict"] for row in rows} == {"cannot tell", None}
    other = one.execute(f"diff {artifacts('transformer_portable').etdump}").data[0]
    assert any("different instructions" in note for note in other["notes"])
    assert "is not an ETDump" in refused(one, f"diff {artifact.pte}")
    assert "not found" in refused(one, "diff nothing.etdp")


def test_every_dialect_of_an_operator_and_instructions_are_shown() -> None:
    one = session("cnn_portable")
    text = said(one, "start", "crosswalk")
    for dialect in ("exported", "edge", "instruction"):
        assert dialect in text
    assert "aten_relu_default" in said(one, "crosswalk 3")
    assert "no node has the debug handle" in refused(one, "crosswalk 999")
    assert "*" in said(one, "step 3", "disassemble")
    assert len(one.execute("disassemble all").data[0]["rows"]) == 24
    assert len(one.execute("disassemble 2 5").data[0]["rows"]) == 4
    assert "instructions are 0 to 23" in refused(one, "disassemble 99")


def test_lines_have_times_and_errors_beside_them(tmp_path: Path) -> None:
    one = session("cnn_portable")
    text = said(one, "start", "list/e")
    assert ">   35" in text and " ms" in text and "dB" in text
    assert "cnn.py" in said(one, "info source")
    assert "47" in said(one, "list cnn.py:47")
    assert "no line of 'nothing.py'" in refused(one, "list nothing.py:1")
    # Those of a file that changed come from the record.
    path = tmp_path / "model.py"
    path.write_text("a = 1\nb = 2\n")
    assert read_lines(str(path), {2: "b = 2"}) == {1: "a = 1", 2: "b = 2"}
    assert read_lines(str(path), {2: "b = 3"}) == {2: "b = 3"}
    assert read_lines("/etc/hostname", {1: "x"}) == {1: "x"}


def test_lines_have_the_times_of_what_ran_inside_a_delegate() -> None:
    one = session("cnn_xnnpack")
    profile = one.debugger.profiles["forward"]
    first = [(leaf, line) for _, leaf in profile.leaves for line in leaf.attribution.lines[:1]]
    file = first[0][1].file
    times = _line_times(one.debugger, file)
    assert len(times) > 3, times  # not the one of the call
    spent = sum(float(leaf.ticks.mean()) for leaf, line in first if line.file == file)
    assert sum(times.values()) == pytest.approx(float(one.debugger.scale(spent)))


def test_every_topic_of_info() -> None:
    one = session("cnn_xnnpack")
    said(one, "start")
    for topic in (
        "breakpoints", "delegates", "graphs", "memory", "methods", "modules", "ops", "runs",
        "source", "stop",
    ):  # fmt: skip
        assert said(one, f"info {topic}")
    assert "XnnpackBackend" in said(one, "info delegates")
    for words, told in (
        ("nothing", "topics are"),
        ("", "info on what"),
        ("ops op:nothing", "nothing is picked"),
        ("break 1+1", "info breakpoints takes no arguments"),
    ):
        assert told in refused(one, f"info {words}")
    said(one, "info ops op:conv*", "info modules module:stem")
    for topic in TOPICS:
        if topic not in ("ops", "modules"):
            told = refused(one, f"info {topic} 1+1")
            assert f"info {topic} takes no arguments, got '1+1'" in told


def test_each_file_alone_is_enough_for_something() -> None:
    artifact = artifacts("cnn_portable")
    assert artifact.etrecord is not None
    record = Session(artifact.etrecord)
    assert "Counts" in said(record, "overview")
    assert "no recorded run" in refused(record, "run")
    program = Session(artifact.pte)
    assert "convolution" in said(program, "disassemble")
    assert "planned" in said(program, "info memory").lower()
    assert "no ETRecord" in refused(program, "overview")
    for line in ("run", "step", "print $", "print #3", "info runs", "break", "bt"):
        assert (
            "load one: core RUN.etdp, or target runtime, or target live"
            in program.execute(line).text
        ), line
    dump = Session(artifact.etdump)
    assert "convolution" in said(dump, "top")
    nothing = Session()
    assert "no recorded run" in refused(nothing, "run")
    said(nothing, f"file {artifact.etrecord}", f"core {artifact.etdump} {artifact.debug_buffer}")
    assert "aten_convolution_default" in said(nothing, "start")
    assert len(said(nothing, "file").splitlines()) == 3


def test_files_that_do_not_belong_together_change_nothing() -> None:
    one = session("cnn_portable")
    said(one, "start")
    other = artifacts("transformer_portable").etrecord
    assert "do not belong together" in refused(one, f"file {other}")
    assert "aten_convolution_default" in said(one, "info stop")
    assert "is not an ETRecord" in refused(one, f"file {__file__}")
