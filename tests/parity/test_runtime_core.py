"""Dumps of runs in the debugger, opened by ExecuTorch's Inspector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import etscope
from tests.support.artifacts import artifacts
from tests.support.etdb.native_runs import artifact_run

upstream = pytest.importorskip("executorch.devtools")


def _opened(module: Any, name: str, folder: Path) -> Any:
    record = artifacts(name).etrecord
    return module.Inspector(
        etdump_path=str(folder / "core.etdp"),
        debug_buffer_path=str(folder / "core.bin"),
        etrecord=None if record is None else str(record),
    )


@pytest.mark.filterwarnings("ignore")  # upstream's own
@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack", "cond"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_core_is_opened_with_its_record(name: str, whole: bool, tmp_path: Path) -> None:
    with artifact_run(name) as run:
        run.go(most=0 if whole else 9)
        core = run.runner.core()
    (tmp_path / "core.etdp").write_bytes(core.etdump)
    (tmp_path / "core.bin").write_bytes(core.debug_buffer)
    ours = _opened(etscope, name, tmp_path).event_blocks
    theirs = _opened(upstream, name, tmp_path).event_blocks
    assert [block.name for block in theirs] == ["Execute"]
    assert [event.name for event in theirs[0].events] == [event.name for event in ours[0].events]
    for own, other in zip(ours[0].events, theirs[0].events, strict=True):
        assert [value.shape for value in own.debug_data] == [
            value.shape for value in other.debug_data
        ]
        for one, two in zip(own.debug_data, other.debug_data, strict=True):
            assert (one == two).all()
