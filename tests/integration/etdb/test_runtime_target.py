"""A program on the runtime under the debugger's hands: going, values, setting, failing."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import (
    DeviceLost,
    MismatchError,
    MissingDataError,
    RuntimeFailure,
    UsageError,
)
from etscope.etdb.files import Files
from etscope.etdb.protocol.launch import Local
from etscope.etdb.protocol.messages import Condition, RunnerDied
from etscope.etdb.targets import runtime_values as values_module
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.remote_tensor import RemoteTensor
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.etdb.targets.target import Stop, Watch
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import read_etdump
from tests.support.artifacts import artifacts
from tests.support.etdb.ctrl_c import pressing
from tests.support.etdb.runtimes import files_of, inputs_of, on_runtime, recorded
from tests.support.rogue_programs import aborting, endless, random


def any_stop(stop: Stop) -> bool:
    return True


def no_stop(stop: Stop) -> bool:
    return False


def numbers(target: RuntimeTarget, node: str) -> Any:
    return np.asarray(target.value_of(node, target.position or 0)).copy()


# -- going


def test_the_run_stops_at_what_is_wanted_and_passes_over_all_else() -> None:
    with on_runtime("cnn_portable") as target:
        found = []
        position = target.go(-1, lambda stop: stop.op == "relu")
        while position is not None:
            found.append(target.stops[position].path)
            position = target.go(position, lambda stop: stop.op == "relu")
        assert (
            found == [stop.path for stop in target.stops if stop.op == "relu"] and len(found) == 6
        )
        assert target.ended and target.position == len(target.stops) - 1
        assert target.runs[0].total == target.total_ns > 0


def test_a_watch_is_looked_at_where_the_program_runs() -> None:
    with on_runtime("nan_output") as target:
        watches = [
            Watch(Condition.ABOVE, 1e30, any_stop),
            Watch(Condition.NAN, 0.0, any_stop),
        ]
        position = target.go(-1, no_stop, watches)
        assert position is not None
        (value,) = target.device_values(position)
        assert np.isnan(value).any()
        for earlier in range(position):
            target.reach(earlier)
            assert not np.isnan(target.device_values(earlier)[0]).any()
        only_there = [Watch(Condition.NAN, 0.0, lambda stop: stop.position < 0)]
        assert target.go(-1, no_stop, only_there) is None


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


def test_the_branch_that_is_not_taken_is_no_stop_afterwards() -> None:
    with on_runtime("cond") as target:
        before = [stop.path for stop in target.stops]
        assert target.go(-1, no_stop) is None
        after = [stop.path for stop in target.stops]
        assert "submodule_1/aten_tanh_default" in before
        assert "submodule_0/aten_mul_tensor" in after
        assert not any(path and path.startswith("submodule_1/") for path in after)


def test_without_a_record_there_are_operators_names() -> None:
    with on_runtime("cnn_portable", record=False) as target:
        assert target.go(-1, lambda stop: stop.op == "softmax") == 23
        stop = target.stops[23]
        assert stop.name == "native_call__softmax.out" and not stop.nodes
        (value,) = target.device_values(23)
        (wanted,) = recorded("cnn_portable").runs.device_values(23)
        assert np.array_equal(value, wanted)
        assert target.pairs_at(23) == {} and target.nodes_at(23) == []
        with pytest.raises(MissingDataError, match="there is no ETRecord"):
            target.value_of("aten__softmax_default", 23)


def test_one_stop_at_a_time_forth_and_back() -> None:
    with on_runtime("cnn_xnnpack") as target:
        last = target.go(-1, no_stop)
        assert last is None
        for position in (*reversed(range(len(target.stops))), *range(len(target.stops))):
            target.reach(position)
            assert target.position == position
        with pytest.raises(UsageError, match="no run 1"):
            target.choose(1)


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


def test_inputs_weights_and_the_values_of_an_index() -> None:
    with on_runtime("cnn_portable") as target:
        target.reach(0)
        assert np.array_equal(target.value_of("x", 0), inputs_of("cnn_portable")[0])
        record = files_of("cnn_portable").record
        assert record is not None
        state = record.state_dict("exported_program")
        for name in ("stem.conv.weight", "head.fc.bias"):
            weight = target.value_of(f"p_{name.replace('.', '_')}", 0)
            assert np.array_equal(weight, np.asarray(state[name]))
        (index,) = target.indices_at(0)
        assert np.array_equal(target.value_at(index), target.device_values(0)[0])
        with pytest.raises(UsageError, match="no value 100000"):
            target.value_at(100000)
        with pytest.raises(MissingDataError, match="no value of the program is nobody"):
            target.value_of("nobody", 0)


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


def recorded_value(name: str, position: int) -> Any:
    return recorded(name).runs.device_values(position)[0]


def test_large_values_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_module, "SENT_AT_ONCE", 64)
    with on_runtime("cnn_portable") as target:
        target.reach(2)
        (value,) = target.device_values(2)
        wanted = recorded_value("cnn_portable", 2)
        assert isinstance(value, RemoteTensor) and value.shape == wanted.shape
        assert np.array_equal(value[0, 3], wanted[0, 3])
        told = value.statistics()
        assert (told.elements, told.nan) == (wanted.size, 0)
        assert told.greatest == pytest.approx(wanted.max()) and told.least == wanted.min()
        assert told.mean == pytest.approx(wanted.mean(dtype=np.float64))
        kept = target.value_of("aten_relu_default", 2)
        assert np.array_equal(np.asarray(kept), wanted)
        target.reach(3)
        assert np.array_equal(value[1:], wanted[1:])
        with pytest.raises(UsageError, match="another step"):
            kept.statistics()
        assert np.array_equal(np.asarray(kept), wanted)


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


def test_another_branch_is_taken_for_another_value() -> None:
    with on_runtime("cond") as target:
        target.reach(3)
        taken = bool(target.value_of("aten_gt_scalar", 3))
        target.patch("aten_gt_scalar", 3, not taken)
        target.go(3, no_stop)
        paths = [stop.path for stop in target.stops]
        assert ("submodule_1/aten_tanh_default" in paths) == taken
        assert ("submodule_0/aten_mul_tensor" in paths) != taken


@pytest.mark.parametrize(
    ("node", "value", "words"),
    [
        ("aten_addmm_default", np.zeros((2, 10)), "has the shape [1, 10], and the value [2, 10]"),
        ("aten_addmm_default", "text", "takes numbers"),
        ("p_stem_conv_weight", 0, "is a weight"),
        ("aten__native_batch_norm_legit_no_training_default", [1, 2], "and the value [2]"),
        ("nobody", 0, "no value of the program"),
        ("aten__softmax_default", 0, "no value yet"),
    ],
)
def test_what_cannot_be_set_changes_nothing(node: str, value: Any, words: str) -> None:
    with on_runtime("cnn_portable") as target:
        target.reach(22)
        before = numbers(target, "aten_addmm_default")
        with pytest.raises((UsageError, MissingDataError)) as caught:
            target.patch(node, 22, value)
        assert words in caught.value.message
        assert target.position == 22
        assert np.array_equal(numbers(target, "aten_addmm_default"), before)
        target.reach(23)
        assert np.array_equal(target.device_values(23)[0], recorded_value("cnn_portable", 23))


def test_inputs_and_state_can_be_set() -> None:
    with on_runtime("cnn_portable") as target:
        target.reach(0)
        target.patch("x", 0, 0)
        assert target.position == 0 and not np.any(target.device_values(0)[0])
    with on_runtime("rewritten_state") as target:
        target.go(-1, no_stop)
        last = len(target.stops) - 1
        assert np.any(target.value_of("b_cache", last))  # as it was written back
        target.reach(0)
        assert not np.any(target.value_of("b_cache", 0))
        shape = np.shape(target.value_of("b_cache", 0))
        target.patch("b_cache", 0, 7.0)
        assert np.array_equal(target.value_of("b_cache", 0), np.full(shape, 7.0, np.float32))


# -- cores


@pytest.mark.parametrize("traced", [False, True])
def test_a_core_is_the_run_so_far(tmp_path: Path, traced: bool) -> None:
    with on_runtime("cnn_portable", traced=traced) as target:
        target.reach(5)
        target.patch("aten_relu_default", 5, 1.5)
        target.reach(9)
        now = numbers(target, "aten_add_tensor")
        core = target.core()
        assert np.array_equal(numbers(target, "aten_add_tensor"), now) and target.position == 9
    (tmp_path / "core.etdp").write_bytes(core.etdump)
    (tmp_path / "core.bin").write_bytes(core.debug_buffer)
    artifact = artifacts("cnn_portable")
    files = replace(
        files_of("cnn_portable"),
        dump=read_etdump(tmp_path / "core.etdp"),
        debug_buffer=DebugBuffer.open(tmp_path / "core.bin"),
        forced=True,
    )
    assert artifact.etrecord is not None and files.trace is not None
    runs = RecordedRuns(files.trace, files.edge)
    assert len(runs.stops) == 10
    assert np.array_equal(runs.device_values(9)[0], now)


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


def test_what_differs_when_it_runs_again_is_told(tmp_path: Path) -> None:
    target = RuntimeTarget(Files().opened(str(random(tmp_path))), Local())
    try:
        target.go(-1, no_stop)
        assert not target.differences and not target.take_news()
        before = target.device_values(1)[0].copy()
        target.reach(0)
        target.reach(1)
        again = target.device_values(1)[0]
        assert not np.array_equal(before, again)
        noise, doubled = target.differences
        assert (noise.name, noise.instruction, noise.output) == ("native_call_rand.out", 0, 0)
        assert doubled.instruction == 1
        assert target.take_news() == [
            "when the run was repeated, native_call_rand.out (instruction 0) gave other numbers"
        ]
        assert not target.take_news()
        target.restart()
        assert not target.differences
    finally:
        target.close()


def rogue(path: Path, size: int, **options: Any) -> RuntimeTarget:
    return RuntimeTarget(
        Files().opened(str(path)), Local(), inputs=[np.ones(size, np.float32)], **options
    )


@pytest.mark.parametrize("traced", [False, True])
def test_a_program_that_kills_its_process_leaves_a_core(tmp_path: Path, traced: bool) -> None:
    target = rogue(aborting(tmp_path), 2, traced=traced)
    try:
        with pytest.raises(RunnerDied) as caught:
            target.go(-1, no_stop)
        assert "killed its process at native_call_add.out (instruction 0)" in caught.value.message
        assert caught.value.instruction == 0 and caught.value.reason
        assert (caught.value.core is not None) == traced
        core = target.core()
        (tmp_path / "core.etdp").write_bytes(core.etdump)
        read_etdump(tmp_path / "core.etdp")
        assert not target.take_news() and target.position is None
        with pytest.raises(RunnerDied):
            target.reach(0)
        target.restart()
        assert target.position is None
    finally:
        target.close()


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


def test_an_interrupted_run_stands_at_a_stop(tmp_path: Path) -> None:
    target = rogue(endless(tmp_path), 1 << 16)
    try:
        with pressing(0.3):
            position = target.go(-1, no_stop)
        assert target.interrupted and position is not None and position == target.position
        stop = target.stops[position]
        assert stop.instruction == 0 and stop.loop_pass == position
        (value,) = target.device_values(position)
        doubled = 2.0 ** (position + 1) if position < 127 else np.inf
        assert np.asarray(value)[0] == doubled
    finally:
        target.close()


def test_files_and_inputs_that_do_not_fit() -> None:
    program, other = files_of("cnn_portable", record=False), files_of("cond")
    wrong = replace(program, record=other.record)
    given = inputs_of("cnn_portable")
    with pytest.raises(MismatchError, match="do not belong together"):
        RuntimeTarget(wrong, Local(), inputs=given)
    with pytest.raises(MismatchError, match="float32"):
        RuntimeTarget(program, Local(), inputs=[np.zeros((2, 3, 16, 16), np.float32)])
    with pytest.raises(MissingDataError, match="no program"):
        RuntimeTarget(Files(), Local())
    with pytest.raises(MissingDataError, match="no method 'other'"):
        RuntimeTarget(program, Local(), method="other", inputs=given)
    with pytest.raises(MismatchError, match="has another program"):
        RuntimeTarget(program, Local(program=artifacts("cond").pte), inputs=given)


def test_a_record_of_another_program_can_be_insisted_on() -> None:
    wrong = replace(
        files_of("cnn_portable", record=False), record=files_of("cond").record, forced=True
    )
    target = RuntimeTarget(wrong, Local(), inputs=inputs_of("cnn_portable"))
    try:
        assert target.go(-1, no_stop) is None
    finally:
        target.close()


def test_a_backend_that_the_runner_lacks_is_named(tmp_path: Path) -> None:
    content = artifacts("cnn_xnnpack").pte.read_bytes()
    strange = tmp_path / "strange.pte"
    strange.write_bytes(content.replace(b"XnnpackBackend", b"StrangeBackend"))
    with pytest.raises(RuntimeFailure, match="StrangeBackend"):
        RuntimeTarget(Files().opened(str(strange)), Local(), inputs=inputs_of("cnn_xnnpack"))


def test_a_failing_operator_is_named(tmp_path: Path) -> None:
    with on_runtime("transformer_portable") as target:
        target.reach(0)
        with pytest.raises(RuntimeFailure) as caught:
            target.patch("tokens", 0, 1_000_000)
        assert "failed" in caught.value.message and "embedding" in caught.value.message
        target.restart()
        assert target.go(-1, no_stop) is None
