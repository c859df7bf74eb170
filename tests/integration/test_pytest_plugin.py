"""The plugin of pytest, in tests of its own: what passes, fails, cannot tell, and what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.warm import warm_python

pytest.importorskip("executorch")  # cheap: the processes of the tests import the rest


MODELS = """
import pytest
import torch
from torch import nn

torch.manual_seed(0)

class Mixer(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.up, self.down = nn.Linear(32, width), nn.Linear(width, 32)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)).cumsum(1))

class Resized(nn.Module):
    def forward(self, x):
        x = nn.functional.interpolate(x, scale_factor=1.7, mode="bilinear")
        return torch.relu(x)

X = (torch.randn(1, 16, 32),)
"""
SOUND = """
def test_sound(etscope_run):
    ran = etscope_run(Mixer(), X, backend="xnnpack")
    ran.assert_close(sqnr=80)
    ran.assert_delegated(0.5)
    ran.assert_delegated(1.0, except_=["cumsum"])
    ran.assert_size(max="1MiB")
    ran.assert_memory(max="1MiB")
    assert ran.capture.trace.profiles()

@pytest.mark.etscope(sqnr=80, size="2%", memory="2%")
def test_marked(etscope_run):
    etscope_run(Mixer(), X, iterations=2)
"""
FAULTY = """
@pytest.mark.etscope(sqnr=60)
def test_wrong_numbers(etscope_run):
    image = (torch.randn(1, 2, 13, 11),)
    etscope_run(Resized(), image, backend="xnnpack", iterations=2)

RAN = {}  # a run is a run in the tests after its own, too

def test_not_delegated(etscope_run):
    RAN["small"] = etscope_run(Mixer(), X, backend="xnnpack", iterations=2)
    RAN["small"].assert_delegated(0.99)

def test_too_large():
    RAN["small"].assert_size(max="1KiB")

def test_no_baseline():
    RAN["small"].assert_memory(max="2%")

def test_grown(etscope_run):
    RAN["large"] = etscope_run(Mixer(96), X, iterations=2)
    RAN["large"].assert_size(max="2%", baseline="small.json")

def test_too_few_runs():
    RAN["large"].assert_latency(max="5%", baseline="small.json")
"""


def run_of(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest on a file of tests, in a process of its own."""
    (folder / "test_models.py").write_text(MODELS + tests)
    command = [warm_python(), "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly"]
    return subprocess.run(
        [
            *command,
            "--show-capture=no",
            "--tb=short",
            f"--basetemp={folder / 'runs'}",
            *options,
            "test_models.py",
        ],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_limits_that_hold_and_baselines(tmp_path: Path) -> None:
    updated = run_of(tmp_path, SOUND, "--etscope-update")
    assert " 2 passed" in updated.stdout, updated.stdout
    baseline = tmp_path / "etscope-baselines/test_models/test_marked.json"
    assert json.loads(baseline.read_text())["schema"] == "etscope.check/1"
    before = baseline.read_bytes()
    assert str(tmp_path) not in before.decode() and "test_models.py:" in before.decode()
    (tmp_path / "small.json").write_bytes(before)

    found = run_of(tmp_path, SOUND.partition("@")[1] + SOUND.partition("@")[2] + FAULTY)
    assert found.returncode == 1
    for pattern in (
        r"SQNR of the outputs is [\d.]+ dB, at least 60 is asked for\nE +first wrong operator: "
        r"XnnpackBackend, .*test_models.py:18\nE +see: etscope numerics \S*test_wrong_numbers",
        r"delegates compute [\d.]+% of the nodes, at least 99.0% is asked for; outside are:\n"
        r"E +cumsum 1 \S*test_models.py:14",
        r"size is [\d.]+ KiB, at most 1KiB is asked for; its parts are:\nE +weights",
        r"program bytes: .* KiB \(\+[\d.]+%, at most 2%\)\nE +weights: \+",
        r"the baseline \S*test_not_delegated.json does not exist: write it with pytest",
        r"test_too_few_runs\n.*time: .*\b2 runs",
        r"4 failed, 1 passed, .*2 cannot tell in ",
    ):
        assert re.search(pattern, found.stdout), (pattern, found.stdout)
    assert baseline.read_bytes() == before


def test_it_costs_little_where_it_is_not_used() -> None:
    loaded = "import sys, etscope.pytest; print(*{name.split('.')[0] for name in sys.modules})"
    found = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "torch", "executorch", "click", "rich"} & set(found.stdout.split())
