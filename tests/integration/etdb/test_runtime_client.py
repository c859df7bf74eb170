"""The client against the real server: what it reads is what the runtime has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from etscope.analysis.program.program import InstructionRecord, instructions, unfolded
from etscope.errors import RuntimeFailure, UsageError
from etscope.etdb.protocol import runner as runner_module
from etscope.etdb.protocol.launch import Launcher, Local
from etscope.etdb.protocol.messages import Code, Kind, StopReason
from etscope.etdb.protocol.runner import Runner, server_error
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.pte import read_pte
from etscope.formats.program.pte_schema import Method
from etscope.formats.program.scalar_type import ScalarType
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
