"""`etscope matrix --lab`: the rows are jobs of a lab, on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from etscope.analysis.statistics.compare_samples import Verdict
from etscope.cli import main
from etscope.search.devices import DeviceJob
from etscope.search.matrix import matrix
from etscope_lab.cli.matrix import LabDevices
from etscope_lab.lab import Lab

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(64, 64)

    @staticmethod
    def example_inputs():
        return (torch.randn(8, 64, generator=torch.Generator().manual_seed(1)),)

    def forward(self, x):
        return torch.nn.functional.gelu(self.body(x))
"""


def test_a_row_is_a_job_and_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETSCOPE_LAB", "lab")
    Path("net.py").write_text(MODEL)
    words = ["matrix", "net.py:Net", "--backend", "xnnpack", "-q", "float", "--lab", "host"]
    assert main(words) == 0
    assert "Device host. Chosen: xnnpack float, 1 thread, host" in capfd.readouterr().out
    found = matrix("net.py:Net", backends=("xnnpack",), quantize=("float",), lab=("host",))
    (cell,) = found.cells
    with Lab.open("lab") as lab:
        (job,) = lab.jobs().jobs  # the second matrix asks for none
        latency = job.summary["latency"]
    assert cell.run is not None and cell.time_ns is not None and (cell.sqnr or 0) > 60
    assert latency["p10_ms"] <= cell.time_ns / 1e6 <= latency["p90_ms"]
    capfd.readouterr()
    assert main(["inspect", cell.run]) == 0
    told = capfd.readouterr()
    assert "net.py:14" in told.out and "no program" not in told.err

    side = DeviceJob("net", "host", Path(cell.program or ""), Path(cell.run, "model.etrecord"),
                     "forward", Path(cell.program or "").with_name("inputs.npz"), 1)  # fmt: skip
    verdict = LabDevices().compare(side, side)
    assert verdict in (Verdict.NO_DIFFERENCE, Verdict.CANNOT_TELL)
