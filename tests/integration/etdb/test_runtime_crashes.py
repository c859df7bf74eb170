"""Kernels that kill their process: last words, and a core of a run that was traced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etscope import Inspector
from etscope.etdb.protocol.launch import Local
from etscope.etdb.protocol.messages import RunnerDied
from etscope.etdb.protocol.runner import Runner
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.scalar_type import ScalarType
from tests.support.etdb.native_runs import ONE, write_program
from tests.support.native.compiling import compiled
from tests.support.run.echo import typed

SOURCE = Path(__file__).parents[2] / "support" / "native" / "crashing_kernels.cpp"


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("kernel", "reason"),
    [("nowhere", "SIGSEGV"), ("thread", "SIGSEGV"), ("stack", "SIGSEGV"), ("trap", "SIGILL")],
)
def test_a_crash_in_a_kernel(kernel: str, reason: str, traced: bool, tmp_path: Path) -> None:
    calls = [pte.KernelCall(0, (0, 0, 1, 0, 0)), pte.KernelCall(1, (0, 0))]
    operators = ["aten::add.out", f"crashing::{kernel}.out"]
    path = write_program(tmp_path / "p.pte", [typed(ScalarType.FLOAT, 4), ONE], calls, operators)
    launcher = Local(libraries=[compiled(SOURCE, shared=True)])
    with Runner(launcher.connect()) as runner:
        runner.load(path.read_bytes(), "forward", [[0], [0]])
        runner.set_inputs([np.ones(4, np.float32)])
        runner.begin(traced=traced)
        with pytest.raises(RunnerDied) as caught:
            runner.go(np.zeros(2, bool))
    died = caught.value
    assert (died.reason, died.step, died.instruction) == (reason, 1, 1)
    assert (died.core is not None) == traced
    if died.core is not None:
        (tmp_path / "core.etdp").write_bytes(died.core.etdump)
        (tmp_path / "core.bin").write_bytes(died.core.debug_buffer)
        inspector = Inspector(
            etdump_path=tmp_path / "core.etdp", debug_buffer_path=tmp_path / "core.bin"
        )
        events = inspector.event_blocks[0].events
        assert events[0].name == "native_call_add.out"
        np.testing.assert_array_equal(events[0].debug_data[-1].numpy(), np.full(4, 2, np.float32))
