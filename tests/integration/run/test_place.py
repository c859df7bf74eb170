"""Runners that are elsewhere: what goes there and what is believed of what comes back. Real devices
are in packages/etscope-lab/tests/integration/test_devices.py."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import FormatError, RuntimeFailure, UsageError
from etscope.run import Elsewhere, run
from etscope.run import _runner_host as _place
from etscope.run.job import value_of
from etscope.run.native import find_runner
from tests.support.artifacts import artifacts


@dataclass
class Ended:
    code: int
    log: str


@dataclass
class Folder:
    """A folder of this machine as a device. changed: files that it answers with instead."""

    path: Path
    pushed: list[str] = field(default_factory=list)
    changed: Mapping[str, bytes] = field(default_factory=dict)

    def push(self, files: Mapping[Path, str]) -> None:
        for source, name in files.items():
            self.pushed.append(name)
            shutil.copyfile(source, self.path / name)

    def call(self, command: Sequence[str], timeout: float | None) -> Ended:
        done = subprocess.run(command, cwd=self.path, capture_output=True, text=True, check=False)
        for name, data in self.changed.items():
            (self.path / name).write_bytes(data)
        return Ended(done.returncode, done.stdout + done.stderr)

    def pull(self, names: Sequence[str], folder: Path) -> None:
        for name in names:
            if (self.path / name).is_file():
                shutil.copyfile(self.path / name, folder / name)


def place(carrier: Folder) -> Elsewhere:
    return Elsewhere(carrier, {"native": lambda: [str(find_runner())]})


def test_a_program_goes_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, carrier, read = artifacts("cnn_portable"), Folder(tmp_path), list[Path]()
    sha256 = _place.sha256_of

    def noted(path: Path) -> str:
        read.append(path)
        return sha256(path)

    monkeypatch.setattr(_place, "sha256_of", noted)
    there = place(carrier)
    with run(made.pte, made.inputs_pt, place=there, iterations=2, profiled_iterations=3) as done:
        assert done.passes["latency"].result.runner == "native"
        assert [len(one.samples_ns) for one in done.latencies] == [2, 3]
    read.clear()
    with run(made.pte, made.inputs_pt, place=there, trace=False, iterations=1) as again:
        expected = np.load(made.outputs)
        np.testing.assert_array_equal(again.arrays[0][0], expected[expected.files[0]])
    assert read.count(made.pte) == 1 and len(set(read)) == len(read)  # nor is it read twice
    programs = [name for name in carrier.pushed if name.endswith(".pte")]
    assert len(programs) == 1
    assert carrier.pushed.count("input-0-0.raw") == 1
    assert carrier.pushed.count("flags.txt") == 3  # each run has its own


def test_an_answer_of_an_earlier_run_is_not_taken(tmp_path: Path) -> None:
    made, carrier = artifacts("cnn_portable"), Folder(tmp_path)
    run(made.pte, place=place(carrier), trace=False, iterations=1).close()
    assert (tmp_path / "result.json").exists()
    broken = Elsewhere(carrier, {"native": lambda: ["true"]})
    with pytest.raises(RuntimeFailure, match="ended well and left no result"):
        run(made.pte, place=broken, trace=False)


@pytest.mark.parametrize("result", [b"", b"{}", b"[1]", b'{"runner": "native", "calls": 3}'])
def test_a_damaged_answer(tmp_path: Path, result: bytes) -> None:
    carrier = Folder(tmp_path, changed={"result.json": result})
    with pytest.raises(FormatError, match="runner's result"):
        run(artifacts("cnn_portable").pte, place=place(carrier), trace=False)


@pytest.mark.parametrize("kind", ["NoError", "EtscopeWarning", "os", "reading"])
def test_an_error_that_is_none_of_ours(tmp_path: Path, kind: str) -> None:
    told: dict[str, Any] = {"class": kind, "message": "boo", "hint": None}
    carrier = Folder(tmp_path, changed={"failure.json": json.dumps(told).encode()})
    failing = Elsewhere(carrier, {"python": lambda: ["false"]})
    with pytest.raises(FormatError, match="runner's failure"):
        run(artifacts("cnn_portable").pte, place=failing, trace=False)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "", "."])
def test_outputs_are_files_beside_the_answer(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret").write_bytes(b"1234")
    described = {"kind": "tensor", "dtype": "uint8", "sizes": [4], "dim_order": [0], "file": name}
    with pytest.raises((ValueError, OSError)):
        value_of(described, inner)


@pytest.mark.parametrize(
    "options",
    [
        {"isolate": False},
        {"profiled_iterations": 0},
        {"profiled_iterations": 2, "trace": False},
        {"profiled_iterations": 2, "separate": False},
    ],
)
def test_arguments_that_do_not_go_together(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        run(artifacts("cnn_portable").pte, place=place(Folder(tmp_path)), **options)
