"""A program on the runtime under the debugger's hands: going, values, setting, failing."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etscope.errors import DeviceLost, MismatchError, MissingDataError, UsageError
from etscope.etdb.protocol.launch import Local
from etscope.etdb.protocol.messages import RunnerDied
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.etdb.targets.runtime_method import prepare_method
from etscope.etdb.targets.target import Stop
from etscope.formats.etdump.reader import read_etdump
from tests.support.etdb.runtimes import files_of, inputs_of, on_runtime, recorded


def no_stop(stop: Stop) -> bool:
    return False


def numbers(target: RuntimeTarget, node: str) -> Any:
    return np.asarray(target.value_of(node, target.position or 0)).copy()


# -- going


def test_a_loop_is_foreseen_once_and_then_known() -> None:
    with on_runtime("while_loop") as target:
        foreseen = len(target.stops)
        target.reach(0)
        target.reach(10)
        assert target.position == 10 and target.stops[10].loop_pass == 1
        assert target.go(10, no_stop) is None
        passes = [s.loop_pass for s in target.stops if s.path == "submodule_0/aten_mul_tensor"]
        assert passes == [0, 1, 2, 3, 4] and len(target.stops) > foreseen
        with pytest.raises(UsageError, match="ends before"):
            target.reach(len(target.stops))
        target.reach(3)
        assert numbers(target, "submodule_0/aten_mul_tensor").size


# -- values


def test_what_was_overwritten_is_gone_and_comes_back() -> None:
    with on_runtime("cnn_portable") as target:
        target.go(-1, no_stop)
        with pytest.raises(MissingDataError) as caught:
            target.value_of("aten_convolution_default", 23)
        assert "aten_convolution_default is gone: instruction " in caught.value.message
        assert "has overwritten it" in caught.value.message
        assert "tbreak id:0, reverse-continue" in str(caught.value.hint)
        target.reach(0)
        (wanted,) = recorded("cnn_portable").runs.device_values(0)
        assert np.array_equal(target.value_of("aten_convolution_default", 0), wanted)
        for ask in (
            lambda: target.value_of("aten_relu_default", 0),
            lambda: target.device_values(2),
        ):
            with pytest.raises(MissingDataError) as caught:
                ask()
            assert "until id:2" in str(caught.value.hint)


def test_lists_and_numbers_of_the_program() -> None:
    with on_runtime("cond") as target:
        target.reach(0)
        # permute_copy's argument is a list of two numbers; addmm's is 1.
        assert target.value_at(8) == [1, 0] and target.value_at(10) == 1
        assert target.value_at(15) is None and target.value_at(14) is False
        with pytest.raises(MissingDataError, match="value 9 has not been computed"):
            target.value_at(9)
        target.go(-1, no_stop)
        assert np.array_equal(target.value_at(18), recorded_value("cond", 6))
        with pytest.raises(MissingDataError, match="no value of the program matches nobody"):
            target.value_of("nobody", 0)


def recorded_value(name: str, position: int) -> Any:
    return recorded(name).runs.device_values(position)[0]


# -- what is set


def test_what_is_set_is_what_the_rest_computes_with() -> None:
    with on_runtime("cnn_portable") as target:
        target.go(-1, no_stop)
        honest = numbers(target, "aten__softmax_default")
        target.reach(22)
        target.patch("aten_addmm_default", 22, np.arange(10))
        assert target.position == 22
        assert np.array_equal(numbers(target, "aten_addmm_default")[0], np.arange(10))
        target.reach(23)
        wanted = np.exp(np.arange(10.0)) / np.exp(np.arange(10.0)).sum()
        assert np.allclose(numbers(target, "aten__softmax_default")[0], wanted)
        target.reach(22)
        assert np.array_equal(numbers(target, "aten_addmm_default")[0], np.arange(10))
        target.restart()
        target.reach(23)
        assert np.array_equal(numbers(target, "aten__softmax_default"), honest)
        assert not target.differences


def test_a_value_that_is_gone_is_set_where_it_was_computed() -> None:
    with on_runtime("cnn_portable") as target:
        target.reach(9)
        kept = [numbers(target, "aten_add_tensor")]
        target.patch("aten_convolution_default", 9, 0)
        assert target.position == 9
        kept.append(numbers(target, "aten_add_tensor"))
        assert not np.array_equal(*kept)
        target.reach(2)
        assert len(np.unique(numbers(target, "aten_relu_default")[0, 0])) == 1
        assert not target.differences


# -- what goes wrong


def kill_runner(target: RuntimeTarget) -> None:
    """As a device that goes away in mid-stop."""
    process = target._execution.runner()._connection.channel._process  # type: ignore[attr-defined]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_a_runner_that_goes_away_is_found_again() -> None:
    with on_runtime("cnn_portable") as target:
        target.reach(4)
        target.patch("aten_relu_default", 4, 2.0)
        target.reach(9)
        before = numbers(target, "aten_add_tensor")
        kill_runner(target)
        with pytest.raises(DeviceLost):
            target.reach(10)
        assert target.position == 9
        assert np.array_equal(numbers(target, "aten_add_tensor"), before)
        (news,) = target.take_news()
        assert news.startswith("connected again (here)") and "up to instruction 9" in news
        assert not target.take_news()
        kill_runner(target)
        target.restart()
        assert target.take_news() == ["connected again (here)"]
        assert target.position is None and target.go(-1, no_stop) is None
        target.close()
        target.restart()
        assert not target.take_news() and target.go(-1, no_stop) is None


def test_a_crash_that_does_not_come_again_is_told() -> None:
    with on_runtime("cnn_portable") as target:
        target.reach(3)
        target._execution.death = RunnerDied("SIGSEGV", reason="SIGSEGV", step=7, instruction=7)
        core = target.core()
        assert read_etdump(core.etdump).num_runs
        (news,) = target.take_news()
        assert news.endswith("did not die again: the core ends after 8 instructions")
        assert target.position == 3 and target.core() is core
        target.reach(4)
        assert target.core() is not core


def test_a_record_of_another_program_can_be_insisted_on() -> None:
    wrong = replace(files_of("cnn_portable", record=False), record=files_of("cond").record)
    given = inputs_of("cnn_portable")
    with pytest.raises(MismatchError):
        prepare_method(wrong.capture(force=True), None, "forward", given)
    prepared = prepare_method(wrong.capture(force=True), None, "forward", given, forced=True)
    target = RuntimeTarget(prepared, Local())
    try:
        assert target.go(-1, no_stop) is None
    finally:
        target.close()
