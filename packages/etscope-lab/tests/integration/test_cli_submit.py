"""`etscope lab submit`, `devices`: from a model to its numbers, with nothing running."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from etscope.cli import main
from etscope_lab.jobs.records import State
from etscope_lab.lab import Lab
from lab_support.jobs import claimed, measured
from lab_support.simulated_device import fault, said, write_lab
from tests.support.artifacts import artifacts
from tests.support.waiting import PATIENCE, until

QUICK = ["--iterations", "3", "-X", "warmup=1", "-X", "traced_iterations=3"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab of one simulated device, and of this machine."""
    monkeypatch.setenv("ETSCOPE_LAB", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("ETSCOPE_LAB_SERVER", raising=False)
    write_lab(tmp_path, artifacts("cnn_xnnpack").folder, 1)
    config = json.loads((tmp_path / "lab.yaml").read_text())
    config["devices"].append({"name": "host", "driver": "host"})
    (tmp_path / "lab.yaml").write_text(json.dumps(config))
    return tmp_path


def submit(*arguments: str) -> int:
    return main(["lab", "submit", *arguments])


def a_job(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_real_model_on_this_machine(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = artifacts("cnn_xnnpack")
    record = ["--etrecord", str(model.etrecord)]
    assert submit(str(model.pte), *record, "--label", "commit=1f2e", *QUICK) == 0
    shown = capsys.readouterr()
    for words in ("state        done", "p50 (ms)", "XnnpackBackend", "cnn.py:", "measured on host"):
        assert words in shown.out
    assert "program.pte: running on host" in shown.err
    # The same again is not run again.
    arguments = [str(model.pte), *record, "--label", "commit=1f2e", *QUICK]
    assert submit(*arguments, "--format", "json") == 0
    job = a_job(capsys)
    assert (job["state"], job["attempt"], job["device"]) == ("done", 1, "host")
    assert job["summary"]["latency"]["iterations"] == 3
    assert set(job["artifacts"]) >= {"run.etdp", "run.json", "outputs.npz", "log.txt"}


def test_a_specification_in_a_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "jobs"
    folder.mkdir()
    (folder / "net.pte").write_bytes(artifacts("cnn_xnnpack").pte.read_bytes())
    text = "model: net.pte\ndevice: driver=simulated\niterations: 4\ntraced_iterations: 0\n"
    (folder / "job.yaml").write_text(text + "labels: {branch: main}\n")
    spec = str(folder / "job.yaml")
    assert submit(spec, "--label", "n=1", "--iterations", "2", "-f", "json") == 0
    job = a_job(capsys)
    assert job["spec"]["labels"] == {"branch": "main", "n": "1"}
    assert (job["summary"]["latency"]["iterations"], job["device"]) == (2, "sim-0")


@pytest.mark.parametrize(
    ("fields", "fault_name", "code", "state"),
    [
        ({"method": "backward"}, "", 3, "user_error"),
        ({"limits": {"max_cv": 1e-9}}, "", 4, "invalid"),
        ({}, "abort", 5, "failed"),
        ({"timeout_seconds": 3}, "hang", 5, "timeout"),
    ],
)
def test_exit_codes(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    fields: dict[str, object],
    fault_name: str,
    code: int,
    state: str,
) -> None:
    if fault_name:
        fault(home / "sim-0", fault_name)
    file = home / "job.yaml"
    file.write_text(yaml.safe_dump({"model": str(artifacts("cnn_xnnpack").pte), **fields}))
    assert submit(str(file), "-d", "sim-0", *QUICK, "--format", "json") == code
    job = a_job(capsys)
    assert job["state"] == state
    assert job["error"]


def test_the_same_job_again_names_its_caveat(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(artifacts("cnn_xnnpack").pte)
    assert submit(model, "-d", "host", "--async", "-f", "json") == 0
    job = a_job(capsys)
    assert job["state"] == "queued"
    queued = job["id"]
    busy = "the device was busy before the run: a load of 1.55 a core"
    with Lab.open(home) as lab:
        token = claimed(lab.database, lab.job(queued))
        assert lab.database.started(queued, token, "worker")
        marks = ("the temperature cannot be read", busy)
        assert lab.database.finish(measured(token, queued, marks=marks, artifacts=()))
    assert submit(model, "-d", "host", "-f", "json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["marks"] == list(marks)
    assert shown.err == (
        f"the same job is done already, with a caveat: {busy}. Histories do not judge its times; "
        "--again measures it anew\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "Missing argument"),
        (["nowhere.pte"], 2, "file not found: nowhere.pte"),
        (["MODEL", "-d", "sim-7"], 2, "no device of this lab is named sim-7"),
        (["MODEL", "--iterations", "0"], 2, "iterations"),
        (["MODEL", "--label", "x"], 2, "'x' is not KEY=VALUE"),
        (["nowhere.yaml"], 2, "nowhere.yaml"),
    ],
)
def test_what_makes_no_sense(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    model = str(artifacts("cnn_xnnpack").pte)
    assert submit(*[model if one == "MODEL" else one for one in arguments]) == code
    assert words in capsys.readouterr().err


def test_a_broken_specification(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "job.yaml").write_text("model: [\n")
    assert submit(str(home / "job.yaml")) == 3
    assert "neither YAML nor JSON in line" in capsys.readouterr().err


# Whoever runs the tests in the background has SIGINT ignored.
_INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from etscope.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_interrupted(home: Path) -> None:
    fault(home / "sim-0", "hang")
    model = str(artifacts("cnn_xnnpack").pte)
    command = [sys.executable, "-c", _INTERRUPTIBLE, "lab", "submit", "-d", "sim-0", model]
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until(lambda: said(home / "sim-0", "begin"))
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) == 130
    finally:
        child.kill()
        child.wait()
    with Lab.open(home) as lab:
        assert [job.state for job in lab.jobs().jobs] == [State.CANCELLED]


def test_devices(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "devices", "--check", "--format", "jsonl"]) == 0
    lines = capsys.readouterr().out
    assert "simulated" in lines
    assert "available" in lines
    fault(home / "sim-0", "unplugged")
    assert main(["lab", "devices", "--check", "--format", "json"]) == 5
    [report] = json.loads(capsys.readouterr().out)["reports"]
    [offline] = [row for row in report["sections"]["devices"] if row["state"] == "offline"]
    assert (offline["name"], offline["message"]) == ("sim-0", "sim-0 is unplugged")
