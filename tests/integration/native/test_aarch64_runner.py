"""The runner, built for another architecture by docs/how-to/record.md, answers as here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope import Inspector
from tests.support import aarch64
from tests.support.artifacts import Artifact, ArtifactUnavailable, artifacts
from tests.support.native.runner import runner

pytestmark = pytest.mark.nightly

# Other vector instructions sum in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def emulated() -> list[str]:
    try:
        return aarch64.command("etscope-runner")
    except ArtifactUnavailable as reason:
        pytest.skip(str(reason))


def ran(command: list[str], made: Artifact, folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """The answer of a traced run on generated inputs, and its first output."""
    folder.mkdir()
    flags = "--program {} --seed 3 --threads 1 --debug-level intermediate_outputs"
    files = "--etdump-out run.etdp --debug-buffer-out debug.bin --result-out r.json --outputs-dir ."
    subprocess.run(
        [*command, *flags.format(made.pte).split(), *files.split()],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    result = json.loads((folder / "r.json").read_text())
    return result, np.fromfile(folder / "output-0-0.raw", "float32")


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack"])
def test_outputs_and_dumps_are_those_of_this_machine(
    emulated: list[str], name: str, tmp_path: Path
) -> None:
    made = artifacts(name)
    here, expected = ran([str(runner())], made, tmp_path / "here")
    there, found = ran(emulated, made, tmp_path / "there")
    assert found.size > 1
    np.testing.assert_allclose(found, expected, **CLOSE)
    assert there["executorch"] == here["executorch"]
    one, other = (dumped(tmp_path / place, made) for place in ("here", "there"))
    assert other.keys() == one.keys()
    for instruction, values in one.items():
        for value, same in zip(values, other[instruction], strict=True):
            np.testing.assert_allclose(same, value, **CLOSE)


def dumped(folder: Path, made: Artifact) -> dict[tuple[int, str], list[np.ndarray]]:
    """The logged tensors of a dump, by instruction and operator."""
    inspector = Inspector(
        etdump_path=folder / "run.etdp",
        etrecord=made.etrecord,
        debug_buffer_path=folder / "debug.bin",
    )
    found = {
        (event.instruction_id, event.name): [np.asarray(value) for value in event.debug_data]
        for block in inspector.event_blocks
        for event in block.events
        if len(event.debug_data)
    }
    assert found
    return found
