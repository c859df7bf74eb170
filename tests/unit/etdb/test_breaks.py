"""Breakpoints, watchpoints and their conditions."""

from __future__ import annotations

from pathlib import Path

import pytest

from etscope.etdb import Session
from tests.support.artifacts import artifacts
from tests.support.etdb.sessions import refused, said, session, where


def test_selectors_pick_where_a_run_stops() -> None:
    one = session("cnn_portable")
    for text, node in (
        ("op:softmax", "aten__softmax_default"),
        ("module:head", "aten_avg_pool2d_default"),
        ("file:cnn.py:47", "aten_add_tensor"),
        ("id:2", "aten_relu_default"),
        ("%3", "aten_relu_default"),
        ("aten_add_tensor_1", "aten_add_tensor_1"),
        ("type:ReLU and not id:2", "aten_relu_default_1"),
    ):
        said(one, "delete", f"tbreak {text}", "run")
        assert where(one) == node, text
    other = session("cnn_portable")
    assert "6 places" in said(other, "tbreak op:relu")
    assert "temporary breakpoint 1" in said(other, "run")
    assert "is over" in said(other, "continue")


def test_conditions_are_over_values() -> None:
    one = session("cnn_portable")
    said(one, "break op:relu if $.max() < 3")
    said(one, "run")
    assert where(one) != "aten_relu_default"
    said(one, "condition 1 $.max() > 1e9")
    assert "is over" in said(one, "run")
    said(one, "condition 1")
    said(one, "run")
    assert where(one) == "aten_relu_default"
    said(one, "disable 1")
    assert "is over" in said(one, "run")
    said(one, "enable 1", "run")
    assert where(one) == "aten_relu_default"
    said(one, "condition 1 $.max() > 4")
    assert "op:relu if $.max() > 4" in said(one, "info breakpoints")
    said(one, "watch $.max() > 3")
    assert "a watchpoint is a condition" in refused(one, "condition 2")


def test_nan_and_infinities_are_watched_for() -> None:
    one = session("nan_output")
    said(one, "watch nan")
    result = one.execute("run")
    assert "of 4 numbers are NaN" in result.text
    assert result.exit_code == 1
    assert where(one) == "aten_sqrt_default"
    other = session("inf_output")
    said(other, "watch nan")
    assert "is over" in said(other, "run")
    said(other, "delete", "watch inf")
    assert "Inf" in said(other, "run")
    sound = session("cnn_portable")
    said(sound, "watch ($.sum() - 1).abs() < 1e-3", "run")
    assert where(sound) == "aten__softmax_default"


def test_the_first_divergence_is_a_condition() -> None:
    one = session("cnn_portable")
    said(one, "break if gap(sqnr) < 20")
    result = one.execute("run")
    assert "is over" in result.text
    assert result.exit_code == 0
    said(one, "delete", "break if gap(sqnr) < 1000")
    result = one.execute("run")
    assert "breakpoint" in result.text
    assert result.exit_code == 1


def test_what_can_never_be_decided_is_no_pass() -> None:
    without_inputs = session("cnn_portable", inputs=False)
    without_values = Session(artifacts("cnn_portable").etdump)
    for one, line in ((without_inputs, "break if gap(sqnr) < 20"), (without_values, "watch nan")):
        said(one, line)
        result = one.execute("run")
        assert result.exit_code == 4
        assert "it is unknown" in str(result.error)
    behind = session("cnn_portable")
    said(behind, "start", "step 3", "break id:1 if $.max() > -1e9")
    assert "was never evaluated" in refused(behind, "continue")
    assert behind.execute("continue").exit_code != 0
    assert behind.execute("run").exit_code == 1
    delegated = session("cnn_xnnpack")
    said(delegated, "watch $.max() > 1e9")
    assert "had no value at" in said(delegated, "run")


def test_mistakes_are_told() -> None:
    one = session("cnn_portable")
    for line, told in (
        ("break op:nothing", "nothing is picked"),
        ("break opp:relu", "unknown key"),
        ("break op:relu if aten_relu_defaul > 1", "did you mean"),
        ("break op:relu if 1 +", "not an expression"),
        ("delete 7", "breakpoint 7 does not exist"),
        ("delete x", "the number of a breakpoint"),
        ("watch", "watch what"),
        ("disable", "which breakpoints"),
        ("ignore", "hint: ignore N COUNT"),
        ("ignore 1", "hint: ignore N COUNT"),
    ):
        assert told in refused(one, line)
    assert len(one.debugger.breakpoints) == 0


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("softmax", "op:softmax"),
        ("stages.0", "module:stages.0"),
        ("ReLU", "op:ReLU or type:ReLU"),
        ("cnn.py", "file:cnn.py"),
        ("conv", "module:*.conv"),
        ("op:sofmax", "op:softmax"),
        ("op:aten.convolutin", "op:convolution"),
        ("module:stage.0", "module:stages.0"),
        ("file:cn.py", "file:cnn.py"),
        ("aten_softmax_default", "aten__softmax_default"),
        ("sofmax", "op:softmax"),
    ],
)
def test_a_place_that_picks_nothing_has_what_it_may_mean(text: str, meant: str) -> None:
    one = session("cnn_portable", inputs=False)
    for command in ("break", "until"):
        said(one, "start")
        assert refused(one, f"{command} {text}").endswith(f"did you mean {meant}?")
        assert said(one, f"break {meant}")
    for nothing in ("op:nothing", "zzz", "op:sofmax and module:head", "shape:1x2x3x4x5"):
        assert "info ops lists" in refused(one, f"break {nothing}"), nothing


def test_lines_are_written_as_in_gdb() -> None:
    one = session("cnn_portable")
    assert said(one, "break cnn.py:47") == "breakpoint 1: cnn.py:47 · 2 places\n"
    said(one, "run")
    assert where(one) == "aten_add_tensor"
    assert "cnn.py:35 · 18 places" in said(one, "break 35")  # of the file that was shown
    said(one, "delete", "tbreak cnn.py:47 if $.shape == [1, 16, 8, 8]", "run")
    assert where(one) == "aten_add_tensor_1"
    said(one, "tbreak cnn.py:35 and op:relu", "run")
    assert where(one) == "aten_relu_default"
    said(one, "until 47")
    assert where(one) == "aten_add_tensor"
    said(one, "until cnn.py:60")
    assert where(one) == "aten__softmax_default"
    assert ">   30 " in said(one, "list 30")


def test_a_line_that_only_calls_picks_what_it_calls() -> None:
    one = session("cnn_portable")
    count = len(one.debugger.some_target().stops)
    assert f"{count} places" in said(one, "break 73")
    said(one, "run")
    assert one.debugger.position == 0
    without = Session(artifacts("cnn_portable").etrecord, inputs=one.debugger.inputs)
    said(without, "break cnn.py:73", "target live", "run")
    assert without.debugger.position == 0


def test_a_line_without_an_operator_is_refused_with_the_nearest_one() -> None:
    one = session("cnn_portable")
    for line in ("break cnn.py:36", "until 36"):
        text = refused(one, line)
        assert "nothing is picked by 'cnn.py:36'" in text
        assert "the nearest line with an operator is cnn.py:35" in text
    assert "id:36 is an instruction" in refused(one, "until 36")
    assert "files are: cnn.py" in refused(one, "break net.py:12")
    assert "FILE.py:12 is a line" in refused(one, "break nothing")
    bare = Session(artifacts("cnn_portable").etdump)
    assert "a line number alone is not enough" in refused(bare, "break 12")
    assert "files are: none" in refused(bare, "break net.py:12")


def test_hits_are_ignored_going_forward() -> None:
    one = session("cnn_portable")
    said(one, "break op:relu", "run", "c 2")
    third = where(one)
    assert said(one, "ignore 1 2") == "breakpoint 1 is ignored at its next 2 hits\n"
    said(one, "run")
    assert where(one) == third
    said(one, "ignore 1 9", "reverse-continue")
    assert where(one) != third
    assert "is over" in said(one, "continue")
    assert one.execute("run").exit_code == 0
    assert "breakpoint 7 does not exist" in refused(one, "ignore 7 1")
    assert "the number of hits" in refused(one, "ignore 1 x")
    assert "0 or more" in refused(one, "ignore 1 -1")


def test_commands_are_executed_at_a_hit() -> None:
    one = session("cnn_portable")
    said(one, "break op:relu", "commands", "print $.ndim", "continue", "print 1 / 0", "end")
    said(one, "break op:softmax", "commands 2", "silent", "print $.shape", "end")
    result = one.execute("run")
    assert result.ok
    assert result.text.count("breakpoint 1, op:relu") == 6
    assert result.text.count("\n4\n") == 6
    assert result.text.endswith("\n[1, 10]\n")
    assert "breakpoint 2" not in result.text
    assert where(one) == "aten__softmax_default"
    assert "print $.ndim; continue" in said(one, "info breakpoints")
    said(one, "commands 1", "print nothing", "print 5", "end")
    result = one.execute("run")
    assert "no value is called 'nothing'" in str(result.error)
    assert "breakpoint 1, op:relu" in result.text
    assert "\n5\n" not in result.text
    said(one, "commands 1", "end")
    assert "4\n" not in said(one, "run")
    assert "breakpoint 9 does not exist" in refused(one, "commands 9")
    assert "no breakpoints" in refused(session("cnn_portable"), "commands")


def test_breakpoints_are_saved_and_read_again(tmp_path: Path) -> None:
    one = session("cnn_portable")
    path = tmp_path / "points.etdb"
    assert "no breakpoints" in refused(one, f"save breakpoints {path}")
    said(one, "break cnn.py:47 if $.max() > 0", "commands", "silent", "print $.shape", "end")
    said(one, "break 35", "ignore 2 3", "tbreak op:softmax", "watch nan", "disable 4")
    said(one, "watch $.max() > 1e9", "break if gap(sqnr) < 20")
    assert f"6 breakpoints saved: source {path}" in said(one, f"save breakpoints {path}")
    other = session("cnn_portable")
    said(other, f"source {path}")
    plain = [(b.what, b.once, b.enabled, b.ignored, b.commands) for b in one.debugger.breakpoints]
    again = [(b.what, b.once, b.enabled, b.ignored, b.commands) for b in other.debugger.breakpoints]
    assert again == plain
    assert said(one, "run") == said(other, "run")
    said(one, "delete 5", f"save breakpoints {path}")  # its own file is replaced
    foreign = tmp_path / "net.py"
    foreign.write_text("import torch\n")
    assert "is there already" in refused(one, f"save breakpoints {foreign}")
    assert foreign.read_text() == "import torch\n"
    assert "cannot write" in refused(one, f"save breakpoints {tmp_path}/nowhere/x")
    assert "save breakpoints FILE" in refused(one, "save")
