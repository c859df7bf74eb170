"""`etscope lab calibrate`: the peaks of devices through their drivers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etscope.cli import main
from etscope.formats.calibration import find_calibration
from etscope.formats.conditions import conditions_here
from etscope.formats.run_json import SavedRun
from tests.support.run.calibration import small_program

pytest.importorskip("executorch")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETSCOPE_LAB", str(tmp_path))
    monkeypatch.delenv("ETSCOPE_LAB_SERVER", raising=False)
    monkeypatch.delenv("ETSCOPE_CALIBRATION", raising=False)
    folder = tmp_path / "calibrations"
    monkeypatch.setattr("etscope.formats.calibration.calibrations_folder", lambda: folder)
    devices = [
        {"name": "bench", "driver": "host"},
        {"name": "gone", "driver": "host", "options": {"runner": "/no/such/runner"}},
    ]
    (tmp_path / "lab.yaml").write_text(json.dumps({"devices": devices}))
    return tmp_path


@pytest.mark.filterwarnings("ignore::etscope.errors.EtscopeWarning")  # of a busy machine
def test_a_device_is_measured_and_its_jobs_find_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("etscope.analysis.calibration.WORKING_SETS", (16 << 10, 64 << 10))
    words = ["lab", "calibrate", "--program", str(small_program()), "--runner", "native"]
    words += ["--threads", "1", "--rounds", "1"]
    assert main([*words, "bench"]) == 0
    shown = capsys.readouterr()
    assert "Matrix products" in shown.out
    assert f"bench: kept in {home / 'calibrations'}" in shown.err
    cpu = conditions_here().cpu
    if cpu:
        job = SavedRun({"device": "bench", "conditions": {"cpu": cpu}, "threads": 1})
        found = find_calibration(job)
        assert found is not None and found.device.name == "bench"
        assert found.device.architecture and found.device.system
        assert found.peaks(1).peak_flops("float32")

    assert main([*words, "gone"]) == 5
    assert "gone could not be measured: the device gone is not set up" in capsys.readouterr().err
    assert main([*words, "absent"]) == 2
    assert "it has: bench, gone" in capsys.readouterr().err
