"""The client against the real server: what it reads is what the runtime has."""

from __future__ import annotations

import numpy as np
import pytest

from etscope.errors import RuntimeFailure, UsageError
from etscope.etdb.protocol import runner as runner_module
from etscope.etdb.protocol.launch import Local
from etscope.etdb.protocol.messages import Code, Kind, StopReason
from etscope.etdb.protocol.runner import Runner, server_error
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.scalar_type import ScalarType
from tests.support.artifacts import artifacts
from tests.support.etdb.native_runs import artifact_run
from tests.support.etdb.server import server
from tests.support.formats import handmade
from tests.support.run.echo import CONSTANTS, typed
from tests.support.run.ran import expected as expected_outputs


def test_what_is_written_is_what_the_rest_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    (expected,) = expected_outputs(artifacts("cnn_portable"), "forward/0")
    with artifact_run("cnn_portable") as run:
        assert run.runner.go(run.at(0)).why == StopReason.STOP
        (index,) = run.outputs[0]
        tensor = run.read(index)
        for wrong in (tensor[:, :1], tensor.astype(np.float64), 3.5, None, [tensor]):
            with pytest.raises(UsageError, match="nothing was written"):
                run.runner.write(index, wrong)
        np.testing.assert_array_equal(run.read(index), tensor)
        new = np.random.default_rng(0).normal(size=tensor.shape).astype(np.float32)
        run.runner.write(index, np.asfortranarray(new))
        np.testing.assert_array_equal(run.read(index), new)
        run.go()
        assert not np.allclose(run.results()[0], expected)
        monkeypatch.setattr(runner_module, "_INLINE", 0)  # by way of the staging area
        run.runner.go_to(0)
        run.runner.go_to(1)
        np.testing.assert_array_equal(run.read(index), new)
        run.runner.write(index, tensor)
        run.go()
        np.testing.assert_allclose(run.results()[0], expected, rtol=1e-5)


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
