"""The live target: the reference in PyTorch, stopped, looked at and changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etscope.etdb import Session
from tests.support.artifacts import artifacts
from tests.support.etdb.sessions import refused, said, session, where


def live(name: str) -> Session:
    one = session(name)
    assert "operators" in said(one, "target live")
    return one


def test_a_live_run_gives_what_pytorch_gives() -> None:
    one = live("cnn_portable")
    said(one, "start", "until op:softmax")
    path = artifacts("cnn_portable").reference
    with np.load(path) as arrays:
        expected = arrays[arrays.files[0]]
    for index in range(10):
        got = float(said(one, f"print $[0, {index}]"))
        assert got == pytest.approx(float(expected[0, index]), rel=1e-4)
    assert "is over" in said(one, "continue")
    said(one, "start", "set $ = $ * 0", "start")  # begins anew, without what was set
    assert float(said(one, "print $.abs().max()")) > 0
    line = one.debugger.some_target().stops
    said(one, "step 5")
    assert one.debugger.some_target().stops is line  # a step does not build it anew
    other = live("nan_output")
    said(other, "watch nan")
    assert other.execute("run").exit_code == 1
    assert where(other) == "aten_sqrt_default"


def test_a_patched_value_changes_what_follows_and_nothing_before() -> None:
    one = live("cnn_portable")
    said(one, "break op:relu", "run", "delete")
    before = said(one, "print aten_convolution_default.mean()")
    said(one, "set $ = $ * 0")
    assert float(said(one, "print $.abs().max()")) == 0
    said(one, "step")
    assert float(said(one, "print $.abs().max()")) == 0
    assert said(one, "print aten_convolution_default.mean()") == before
    assert "0" in said(one, "gap")
    assert float(said(one, "print gap(sqnr, aten_convolution_default)").replace("inf", "1e9")) > 1e8
    said(one, "reverse-step", "set $ = ref()", "step")
    assert float(said(one, "print $.abs().max()")) > 0


def test_an_earlier_value_can_be_patched_from_later_on() -> None:
    one = live("cnn_portable")
    said(one, "start", "until op:softmax")
    plain = said(one, "print $[0, 0]")
    said(one, "set aten_convolution_default = 0")
    assert where(one) == "aten__softmax_default"
    assert said(one, "print $[0, 0]") != plain
    assert float(said(one, "print aten_convolution_default.abs().max()")) == 0
    said(one, "set aten_convolution_default = ref(aten_convolution_default)")
    assert said(one, "print $[0, 0]") == plain


def test_what_does_not_fit_is_refused() -> None:
    one = live("cnn_portable")
    assert "has not begun" in refused(one, "set $ = 0")
    said(one, "start")
    assert "shape" in refused(one, "set $ = weight('stem.bn.weight')[:3]")
    assert "has not run yet" in refused(one, "set aten__softmax_default = 0")
    assert "unknown target 'gpu'" in refused(one, "target gpu")
    assert "recorded runs" in said(one, "target recorded")
    said(one, "start")
    assert "cannot be changed" in refused(one, "set $ = 0")


def test_without_inputs_or_record_there_is_no_live_run(tmp_path: Path) -> None:
    one = session("cnn_portable", inputs=False)
    assert "no inputs" in refused(one, "target live")
    assert one.debugger.some_target().kind == "recorded"
    bare = Session(artifacts("cnn_portable").etdump)
    assert "no ETRecord" in refused(bare, "target live")
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, x=np.zeros((1, 2), np.float32))
    assert "takes float32" in refused(one, f"target live {wrong}")
    assert one.debugger.some_target().kind == "recorded"
    assert "no inputs" in refused(one, "target live")
    zeros = tmp_path / "zeros.npz"
    np.savez(zeros, x=np.zeros((1, 3, 16, 16), np.float32))
    said(one, f"target live {zeros}", "start")
    assert float(said(one, "print $.abs().max()")) == 0


@pytest.mark.parametrize("name", ["cond", "while_loop"])
def test_branches_and_loops_are_walked_as_they_run(name: str) -> None:
    one = live(name)
    said(one, "start")
    seen = []
    while (stop := one.debugger.stop) is not None:
        seen.append((stop.name, stop.loop_pass))
        said(one, "print $", "step")
    assert any("/" in node for node, _ in seen)
    assert len(set(seen)) == len(seen)
    said(one, "reverse-step 2")
    assert one.debugger.here().name == seen[-2][0]


def test_an_interrupted_run_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    one = live("cnn_portable")
    said(one, "start", "until op:add", "set $ = $ * 2")
    patched = said(one, "print $.sum()")
    target = one.debugger.some_target()
    generator = target._live._run  # type: ignore[attr-defined]

    class Interrupted:
        def send(self, value: object) -> None:
            generator.close()
            raise KeyboardInterrupt

    target._live._run = Interrupted()  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        one.execute("step")
    assert said(one, "print $.sum()") == patched
    said(one, "step")
    after = said(one, "print $.sum()")
    again = live("cnn_portable")
    said(again, "start", "until op:add", "set $ = $ * 2", "step")
    assert said(again, "print $.sum()") == after


def test_what_a_delegate_gave_is_the_value_of_its_last_node() -> None:
    recorded = session("cnn_xnnpack_int8")
    said(recorded, "start", "step 99999")
    node = recorded.debugger.some_target().stops[-1].node
    assert recorded.debugger.some_target().stops[-1].kind == "delegate"
    one = live("cnn_xnnpack_int8")
    said(one, "start", f"until {node}")
    assert "float32" in said(one, "print device()")
    assert "gap: SQNR" in said(one, "print $")
