"""Going on and back through recorded runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etscope.formats.etdump.reader import EventKind, read_etdump
from tests.support.artifacts import artifacts
from tests.support.etdb.sessions import refused, said, session, where


def walked(name: str, command: str) -> list[str]:
    """All stops in the order of a command."""
    one = session(name)
    said(one, "start")
    found = []
    while one.debugger.stop is not None:
        stop = one.debugger.stop
        found.append(f"{stop.position} {stop.name} {stop.loop_pass}")
        said(one, command)
    return found


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack", "cond", "while_loop"])
def test_steps_lead_through_all_stops_and_back(name: str) -> None:
    one = session(name)
    target = one.debugger.some_target()
    forward = walked(name, "step")
    assert forward == [f"{s.position} {s.name} {s.loop_pass}" for s in target.stops]
    said(one, "run")
    backward = []
    for _ in target.stops:
        said(one, "reverse-step")
        stop = one.debugger.here()
        backward.append(f"{stop.position} {stop.name} {stop.loop_pass}")
    assert backward == forward[::-1]


def test_the_times_of_calls_add_up_to_the_run() -> None:
    target = session("cnn_portable").debugger.some_target()
    dump = read_etdump(artifacts("cnn_portable").etdump)
    first = (dump.kind == EventKind.PROFILE) & (dump.run == target.runs[0].number)
    ticks = (dump.end - dump.start)[first]
    names = np.array(dump.strings)[dump.name[first]]
    assert target.runs[0].total == int(ticks[names == "Method::execute"].sum()) > 0
    calls = ticks[names == "OPERATOR_CALL"]
    assert [stop.ticks for stop in target.stops] == calls.tolist()
    assert 0 < calls.sum() <= target.runs[0].total


def test_operators_of_a_delegate_come_before_its_call() -> None:
    one = session("cnn_xnnpack")
    stops = one.debugger.some_target().stops
    assert [stop.depth for stop in stops] == [1] * (len(stops) - 1) + [0]
    assert stops[-1].kind == "delegate"
    inside = [stop.ticks or 0 for stop in stops[:-1]]
    assert sum(inside) <= (stops[-1].ticks or 0)
    assert where(one) is None
    said(one, "start", "next")
    assert one.debugger.here().depth == 1
    said(one, "finish")
    assert one.debugger.here().kind == "delegate"


def test_passes_of_a_loop_are_told_apart() -> None:
    one = session("while_loop")
    stops = one.debugger.some_target().stops
    sigmoid = [stop for stop in stops if stop.node == "aten_sigmoid_default"]
    assert [stop.loop_pass for stop in sigmoid] == [0, 1, 2, 3, 4]
    said(one, "run", "reverse-continue")
    said(one, "break op:sigmoid", "run", "continue 2")
    assert one.debugger.here().loop_pass == 2
    first = said(one, "print aten_sigmoid_default[0]")
    assert first != said(one, "continue", "print aten_sigmoid_default[0]")


def test_next_goes_over_modules_and_finish_out_of_them() -> None:
    one = session("cnn_portable")
    said(one, "start")
    assert one.debugger.here().module == "stem.conv"
    said(one, "up", "finish")
    module = one.debugger.here().module
    assert not module.startswith("stem")
    said(one, "reverse-finish")
    said(one, "until op:add")
    said(one, "next")
    here = one.debugger.here().module or ""
    assert not here.startswith("stages.0.")
    said(one, "start", "break op:relu")  # `until` stops at a breakpoint on the way
    assert "breakpoint 1" in said(one, "until op:softmax")
    assert where(one) == "aten_relu_default"
    said(one, "delete", "until op:softmax")
    assert where(one) == "aten__softmax_default"


def test_runs_are_chosen_by_their_number() -> None:
    one = session("two_methods")
    assert one.debugger.method == "encode"
    said(one, "start 5")
    assert one.debugger.method == "decode"
    assert "run 99 does not exist" in refused(one, "run 99")
    assert one.debugger.method == "decode"
    assert "run 5 is over, after 6 operators" in said(one, "run")


def test_the_ends_of_a_run_are_said() -> None:
    one = session("cnn_portable")
    assert "has not begun" in refused(one, "step")
    assert "the start of the run" in said(one, "start", "reverse-step")
    assert "is over" in said(one, "continue")
    assert "the run is over" in refused(one, "step")
    assert "the run is over" in refused(one, "print $")
    said(one, "reverse-step")
    assert where(one) == "aten__softmax_default"
    said(one, "start", "step", "")  # an empty line goes on
    assert one.debugger.position == 2
    said(one, "info runs", "")
    assert one.debugger.position == 2


def test_a_dump_alone_can_be_walked() -> None:
    from etscope.etdb import Session

    one = Session(artifacts("cnn_portable").etdump)
    assert "native_call_convolution.out" in said(one, "start")
    assert "no ETRecord is loaded" in refused(one, "crosswalk")
    assert "native_call_relu" in said(one, "info ops op:relu")


def test_operators_of_no_known_module_are_not_outside() -> None:
    from etscope.etdb.commands.running import outside_of
    from etscope.etdb.targets.target import Stop

    leaves = outside_of("cell", 0)
    stop = Stop(position=0, instruction=0, name="x", op="x", kind="kernel", module="cell.new")
    assert leaves(stop) is None
    assert leaves(replace(stop, module=None)) is None
    assert leaves(replace(stop, module="")) is not None
