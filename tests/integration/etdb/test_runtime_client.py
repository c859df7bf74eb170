"""The client against the real server: what it reads is what the runtime has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from etscope.analysis.program.program import InstructionRecord, instructions, unfolded
from etscope.errors import MismatchError, MissingDataError, RuntimeFailure, UsageError
from etscope.etdb.protocol import runner as runner_module
from etscope.etdb.protocol.launch import Launcher, Local
from etscope.etdb.protocol.messages import Code, Condition, Kind, NumberTest, StopReason
from etscope.etdb.protocol.runner import Runner, server_error
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.pte import read_pte
from etscope.formats.program.pte_schema import Method
from etscope.formats.program.scalar_type import ScalarType
from etscope.inspector import Inspector
from etscope.run.inputs import method_inputs
from tests.support.artifacts import Artifact, artifacts
from tests.support.etdb.runtimes import inputs_of
from tests.support.etdb.server import server
from tests.support.etdb.tensors import read_tensor
from tests.support.formats import handmade
from tests.support.run.echo import CONSTANTS, typed


@dataclass
class Case:
    """A runner that stands at the beginning of an artefact's first run."""

    runner: Runner
    artifact: Artifact
    method: Method
    records: list[InstructionRecord]

    @property
    def count(self) -> int:
        return len(self.records)

    def flags(self, *at: int) -> npt.NDArray[np.bool_]:
        found = np.zeros(self.count, bool)
        found[list(at)] = True
        return found

    @property
    def kernels(self) -> npt.NDArray[np.bool_]:
        return np.array([record.kind in ("kernel", "delegate") for record in self.records])

    def tensors_of(self, instruction: int) -> tuple[int, ...]:
        return unfolded(self.method.values, self.records[instruction].outputs)

    def outputs(self) -> list[Any]:
        return [read_tensor(self.runner, index) for index in self.method.outputs]


@contextmanager
def case(name: str, launcher: Launcher | None = None) -> Iterator[Case]:
    artifact = artifacts(name)
    program = read_pte(artifact.pte)
    method = program.method("forward")
    records = list(instructions(program, "forward", delegate_outputs={}).records)
    rows = [unfolded(method.values, record.outputs) for record in records]
    launcher = launcher or Local(server())
    with Runner(launcher.connect(), launcher.token) as runner:
        loaded = runner.load(program.source.buffer, "forward", rows)
        assert (loaded.values, loaded.inputs) == (len(method.values), len(method.inputs))
        runner.set_inputs(method_inputs(program, "forward", tuple(inputs_of(name)), seed=0))
        runner.begin()
        yield Case(runner, artifact, method, records)


def _expected(artifact: Artifact) -> dict[int, Any]:
    """By index of the output; npz has no bfloat16."""
    assert artifact.outputs is not None
    with np.load(artifact.outputs) as held:
        return {
            int(key.rpartition("/")[2]): held[key]
            for key in held.files
            if key.startswith("forward/0/")
        }


@pytest.mark.parametrize(
    "name", ["cnn_portable", "cnn_xnnpack", "while_loop", "bf16_fp16", "dynamic_shape"]
)
def test_a_run_gives_what_the_runtime_gives(name: str) -> None:
    with case(name) as one:
        stopped = one.runner.go(one.flags())
        assert stopped.why == StopReason.END
        assert len(stopped.ran) == stopped.step
        outputs, expected = one.outputs(), _expected(one.artifact)
        assert expected
        for index, value in expected.items():
            assert (outputs[index].dtype, outputs[index].shape) == (value.dtype, value.shape)
            np.testing.assert_allclose(outputs[index], value, rtol=1e-5)


def test_statistics_are_numpys() -> None:
    with case("cnn_portable") as one:
        seen = 0
        while (stopped := one.runner.go(one.kernels)).why == StopReason.STOP:
            assert stopped.instruction is not None
            for index in one.tensors_of(stopped.instruction):
                found, tensor = one.runner.statistics(index), read_tensor(one.runner, index)
                exact = tensor.astype(np.float64)
                assert (found.elements, found.nan) == (tensor.size, 0)
                if not tensor.size:  # room that a kernel did not need
                    assert np.isnan([found.least, found.mean, found.deviation]).all()
                    continue
                assert (found.least, found.greatest) == (exact.min(), exact.max())
                np.testing.assert_allclose(found.mean, exact.mean(), rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(found.deviation, exact.std(), rtol=1e-9, atol=1e-12)
                seen += 1
        assert seen >= int(one.kernels.sum())


def test_statistics_of_what_is_not_finite() -> None:
    with case("cnn_portable") as one:
        index = one.method.inputs[0]
        tensor = read_tensor(one.runner, index)
        tensor.flat[:5] = np.nan, np.inf, -np.inf, np.nan, np.inf
        one.runner.write(index, tensor)
        found = one.runner.statistics(index)
        assert (found.nan, found.plus_inf, found.minus_inf) == (2, 2, 1)
        finite = tensor[np.isfinite(tensor)].astype(np.float64)
        np.testing.assert_allclose(
            [found.least, found.greatest, found.mean, found.deviation],
            [finite.min(), finite.max(), finite.mean(), finite.std()],
        )
        stopped = one.runner.go(
            one.flags(), [NumberTest(Condition.ABOVE, one.flags(), 9), _nan(one)]
        )
        assert (stopped.why, stopped.test) == (StopReason.TEST, 1)
        assert stopped.value is not None
        assert stopped.count == np.isnan(read_tensor(one.runner, stopped.value)).sum() > 0


def _nan(one: Case) -> NumberTest:
    return NumberTest(Condition.NAN, np.ones(one.count, bool))


def test_going_back_gives_the_same_again() -> None:
    with case("while_loop") as one:
        ran: list[int] = []
        values = {}
        while (stopped := one.runner.go(one.kernels)).why == StopReason.STOP:
            assert stopped.instruction is not None
            ran += stopped.ran.tolist()
            indices = one.tensors_of(stopped.instruction)
            values[stopped.step] = [(index, read_tensor(one.runner, index)) for index in indices]
        ran += stopped.ran.tolist()
        assert len(ran) == stopped.step > one.count  # the loop ran more than once
        for step in sorted(values, reverse=True):
            back = one.runner.go_to(step)
            assert (back.why, back.step, back.differences) == (StopReason.REACHED, step, ())
            for index, value in values[step]:
                np.testing.assert_array_equal(read_tensor(one.runner, index), value)
        assert one.runner.go_to(len(ran)).ran.tolist() == ran[min(values) :]


def test_bf16_and_half_come_as_they_are() -> None:
    with case("bf16_fp16") as one:
        kinds = set()
        while (stopped := one.runner.go(one.kernels)).why == StopReason.STOP:
            assert stopped.instruction is not None
            for index in one.tensors_of(stopped.instruction):
                tensor = read_tensor(one.runner, index)
                kinds.add(tensor.dtype)
                found = one.runner.statistics(index)
                assert found.greatest == float(tensor.astype(np.float64).max())
        assert {np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)} <= kinds


def test_channels_last_comes_in_its_logical_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_PIECE", 100)
    with case("channels_last") as one:
        one.runner.go(one.flags())
        orders = set()
        for output, expected in _expected(one.artifact).items():
            index = one.method.outputs[output]
            facts = one.runner.describe(index).tensor
            assert facts is not None
            orders.add(facts.dim_order)
            np.testing.assert_allclose(read_tensor(one.runner, index), expected, rtol=1e-5)
            flat = expected.transpose(facts.dim_order).ravel()
            np.testing.assert_allclose(one.runner.read(index, facts, 7, 40), flat[7:47], rtol=1e-5)
        assert (0, 2, 3, 1) in orders


def test_shapes_are_those_of_the_run() -> None:
    with case("dynamic_shape") as one:
        one.runner.go(one.flags())
        facts = one.runner.describe(one.method.outputs[0]).tensor
        assert facts is not None
        assert facts.shape == _expected(one.artifact)[0].shape
        assert facts.nbytes == 4 * int(np.prod(facts.shape))


def test_what_is_written_is_what_the_rest_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    with case("cnn_portable") as one:
        first = int(np.flatnonzero(one.kernels)[0])
        assert one.runner.go(one.flags(first)).why == StopReason.STOP
        (index,) = one.tensors_of(first)
        tensor = read_tensor(one.runner, index)
        for wrong in (tensor[:, :1], tensor.astype(np.float64), 3.5, None, [tensor]):
            with pytest.raises(UsageError, match="nothing was written"):
                one.runner.write(index, wrong)
        np.testing.assert_array_equal(read_tensor(one.runner, index), tensor)
        new = np.random.default_rng(0).normal(size=tensor.shape).astype(np.float32)
        one.runner.write(index, np.asfortranarray(new))
        np.testing.assert_array_equal(read_tensor(one.runner, index), new)
        one.runner.go(one.flags())
        (changed,) = one.outputs()
        assert not np.allclose(changed, _expected(one.artifact)[0])
        monkeypatch.setattr(runner_module, "_INLINE", 0)  # by way of the staging area
        one.runner.go_to(0)
        one.runner.go_to(first + 1)
        np.testing.assert_array_equal(read_tensor(one.runner, index), new)
        one.runner.write(index, tensor)
        one.runner.go(one.flags())
        np.testing.assert_allclose(one.outputs()[0], _expected(one.artifact)[0], rtol=1e-5)


def test_what_is_not_there() -> None:
    with case("cnn_portable") as one:
        for ask in (one.runner.describe, one.runner.statistics):
            with pytest.raises(MissingDataError):
                ask(99_999)
        with pytest.raises(MismatchError, match="do not fit"):
            one.runner.set_inputs([np.zeros(3, np.float32)])
        with pytest.raises(MismatchError, match="do not fit"):
            one.runner.set_inputs([])
        one.runner.begin()
        assert one.runner.go(one.flags()).why == StopReason.END


def test_a_core_is_a_dump_with_values(tmp_path: Path) -> None:
    with case("cnn_portable") as one:
        last = int(np.flatnonzero(one.kernels)[3])
        one.runner.go(one.flags(last))
        (index,) = one.tensors_of(last)
        value = read_tensor(one.runner, index)
        core = one.runner.core()
        np.testing.assert_array_equal(read_tensor(one.runner, index), value)  # the state stays
        dump, buffer = tmp_path / "core.etdp", tmp_path / "core.bin"
        dump.write_bytes(core.etdump)
        buffer.write_bytes(core.debug_buffer)
        inspector = Inspector(
            etdump_path=str(dump),
            etrecord=str(one.artifact.etrecord),
            debug_buffer_path=str(buffer),
        )
        events = [event for block in inspector.event_blocks for event in block.events]
        calls = [event for event in events if event.name.startswith("native_call_")]
        assert len(calls) == int(one.kernels[: last + 1].sum())
        np.testing.assert_array_equal(np.asarray(calls[-1].debug_data[0]), value)


def test_a_program_that_is_none() -> None:
    with Runner(Local(server()).connect()) as runner:
        with pytest.raises(RuntimeFailure, match="cannot be loaded"):
            runner.load(b"this is no program", "", [])
        with pytest.raises(UsageError, match="not now"):
            runner.begin()


_LACKING = {
    "operator": (
        {"operators": ["my::op.out"], "instructions": [pte.KernelCall(0, (0, 0))]},
        r"no kernel for my::op.out[\s\S]*hint: give the library .*--library.* build etdb-server",
    ),
    "backend": (
        {"delegates": [("VulkanBackend", 0, 0)], "instructions": [pte.DelegateCall(0, (0, 0))]},
        r"needs the backend VulkanBackend[\s\S]*hint: build etdb-server with it.*--library",
    ),
}


@pytest.mark.parametrize("what", _LACKING)
def test_what_a_server_lacks(what: str) -> None:
    parts, reason = _LACKING[what]
    made = handmade.method([typed(ScalarType.FLOAT, 2)], inputs=[0], outputs=[0], **parts)
    program = handmade.pte_file(made, segments=[bytes(16)], more={**CONSTANTS, 3: [{0: b"data"}]})
    with (
        Runner(Local(server()).connect()) as runner,
        pytest.raises(RuntimeFailure, match=reason) as lacking,
    ):
        runner.load(program, "", [[0]])
    assert lacking.value.exit_code == 5


def test_weights_that_are_in_a_file_beside_the_program() -> None:
    log = "E 00:00:00 executorch:method.cpp] external_data_map is null"
    error = server_error(Code.PROGRAM, "loading method 'forward' failed", log, Kind.LOAD, "here")
    assert isinstance(error, RuntimeFailure)
    assert ".ptd" in error.message
    assert "--data" in str(error.hint)


def test_a_method_that_is_not_there() -> None:
    program = artifacts("cnn_portable").pte.read_bytes()
    with Runner(Local(server()).connect()) as runner, pytest.raises(RuntimeFailure, match="hello"):
        runner.load(program, "hello", [])


def test_the_program_of_the_server_must_be_this_one() -> None:
    portable, other = artifacts("cnn_portable").pte, artifacts("while_loop").pte
    with Runner(Local(server(), program=portable).connect()) as runner:
        with pytest.raises(MismatchError, match=f"has another program .*{portable.name}"):
            runner.load(other.read_bytes(), "forward", [])
        assert runner.load(portable.read_bytes(), "", []).method == "forward"
