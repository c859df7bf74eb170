"""Sweeps: many jobs from one file, their board, and their schedule."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from etscope.cli import main
from etscope.errors import FormatError, MissingFileError
from etscope_lab.config import Home
from etscope_lab.jobs.records import State
from etscope_lab.lab import Lab
from etscope_lab.server.app import create_app
from etscope_lab.sweep import Schedules, board, cells_of, jobs_of, read_sweep
from lab_support.jobs import run_through
from lab_support.simulated_device import write_lab
from tests.support.artifacts import artifacts

FILE = """
name = "nightly"
models = ["net.pte", "net.py:make"]
backends = ["xnnpack", "portable"]
devices = ["sim-0", "sim-1"]
threads = [1, 2]
schedule = "0 2 * * *"

[options.plain]
[options.strict]
strict = true

[job]
iterations = 3
traced_iterations = 0
labels = {branch = "main"}
"""


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "nightly.toml"
    path.write_text(text)
    return path


def test_a_cell_for_each_combination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.pte").write_bytes(b"a program")
    cells = [
        *cells_of(read_sweep(written(tmp_path, FILE.replace("net.py:make", "no.py:make"))), {})
    ]
    made = [cell.spec for cell in cells if not cell.failure]
    assert [(one.device.name, one.threads) for one in made] == [
        ("sim-0", 1), ("sim-0", 2), ("sim-1", 1), ("sim-1", 2),
    ]  # fmt: skip
    assert dict(made[1].labels) == {
        "branch": "main", "model": "net", "threads": "2", "sweep": "nightly",
        "program": "d69ea8cda2433733",
    }  # fmt: skip
    assert (made[0].model.name, made[0].iterations) == ("net.pte", 3)
    failed = [cell for cell in cells if cell.failure][::4]  # of four places each
    assert [cell.spec.labels["options"] for cell in failed] == ["plain", "strict"] * 2
    assert failed[0].spec.title == "no-xnnpack-float-plain.etrecord"
    for cell in failed:  # a file for each, as each has its error
        assert "no.py" in cell.failure
        assert Path(str(cell.spec.model.path)).read_text() == cell.failure


def test_the_cells_of_commits_name_them_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`revision` as the file does, and so one cell each night; `commit` for histories."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.txt").write_text("a program")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-qb", "main"], ["add", "net.txt"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    change = 'commits = ["main", "v0"]\nbuild = ["cp", "net.txt", "net.pte"]\nthreads = [2]'
    text = FILE.replace('"net.pte", "net.py:make"', '"net.pte"').replace("threads = [1, 2]", change)
    made, _, failed, _ = cells_of(read_sweep(written(tmp_path, text)), {})
    head = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
    assert dict(made.spec.labels) == {
        "branch": "main", "model": "net", "revision": "main", "commit": commit, "threads": "2",
        "sweep": "nightly", "program": "d69ea8cda2433733",
    }  # fmt: skip
    assert failed.spec.labels["revision"] == "v0" and "commit" not in failed.spec.labels
    assert "git rev-parse" in failed.failure


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("name = ", "nam = "), "nam: unknown field"),
        (('"0 2 * * *"', '"0 25 * * *"'), "schedule: '0 25 * * *' is not a cron line"),
        (('devices = ["sim-0", "sim-1"]', 'commits = ["HEAD"]'), "commits and build go together"),
        (('"net.py:make"', '"other/net.etrecord"'), "two models have the same name"),
        (("[job]", "[job"), "not TOML"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(FormatError, match=r"nightly\.toml") as caught:
        read_sweep(written(tmp_path, FILE.replace(*change)))
    assert message in str(caught.value)
    with pytest.raises(MissingFileError):
        read_sweep(tmp_path / "no.toml")


def test_submitted_jobs_fill_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETSCOPE_LAB", str(tmp_path / "lab"))
    monkeypatch.delenv("ETSCOPE_LAB_SERVER", raising=False)
    write_lab(tmp_path / "lab", artifacts("cnn_xnnpack").folder, 2)
    shutil.copy(artifacts("cnn_xnnpack").pte, tmp_path / "net.pte")
    text = FILE.replace(', "net.py:make"', ', "gone.py:make"').replace("threads = [1, 2]", "")
    sweep = str(written(tmp_path, text))
    # One model cannot be exported: its cells are jobs that have ended, with the error.
    assert main(["lab", "submit", sweep, "--async", "--format", "json"]) == 3
    shown = capsys.readouterr()
    states = Counter(row["state"] for row in json.loads(shown.out)["rows"])
    assert states == {"queued": 2, "user_error": 8}
    assert "warning: gone-xnnpack-float-plain.etrecord: file not found: gone.py" in shown.err
    assert shown.err.count("warning: ") == 4  # a program each, not a device
    assert main(["lab", "submit", sweep, "--format", "json"]) == 3
    shown = capsys.readouterr()
    rows = json.loads(shown.out)["rows"]
    assert [(row["model"], row["device"], row["state"]) for row in rows if not row["error"]] == [
        ("net", "sim-0", "done"), ("net", "sim-1", "done"),
    ]  # fmt: skip
    failed = [row for row in rows if row["error"]]
    assert {(row["model"], row["options"], row["state"]) for row in failed} == {
        ("gone", "plain", "user_error"), ("gone", "strict", "user_error"),
    }  # fmt: skip
    assert "2 of 10: net.pte, sim-1: done" in shown.err
    assert main(["lab", "list", "--label", "sweep=nightly", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == rows
    assert main(["lab", "list", "--label", "sweep=nightly", "--format", "v3"]) == 0
    assert "gone.py" in capsys.readouterr().out
    assert main(["lab", "submit", sweep, "--iterations", "5"]) == 2
    assert "write it into" in capsys.readouterr().err


def test_the_page_has_a_column_for_each_device(lab: Lab) -> None:
    path = written(lab.home.folder, FILE.replace(', "net.py:make"', ""))
    program = lab.home.folder / "net.pte"
    program.write_bytes(b"a program")
    sweep = read_sweep(path).model_copy(update={"models": (str(program),)})
    specs = [cell.spec for cell in cells_of(sweep, {})]
    for spec, time in zip(specs[:3], (1.5, 2.5, 3.5), strict=True):
        ref = lab.submit(spec).spec
        run_through(lab.database, ref, time, device=str(spec.device.name))
    lab.submit(specs[3])
    states = [job.state for job in jobs_of(lab, "nightly")]
    assert states == [State.DONE] * 3 + [State.QUEUED]
    assert board("nightly", jobs_of(lab, "nightly")).notes == ("3 of 4 jobs have ended.",)
    with TestClient(create_app(lab), base_url="http://127.0.0.1") as client:
        text = client.get("/sweeps/nightly").text
        assert client.get("/sweeps/other").status_code == 404
    assert "3 of 4 jobs have ended" in text
    for words in ("sim-0</th>", "sim-1</th>", "1.5000 ms", "3.5000 ms", "queued"):
        assert words in text


def test_schedules_submit_what_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab.yaml").write_text("sweeps: [nightly.toml, gone.toml]")
    path = written(tmp_path)
    schedules = Schedules(Home.open(tmp_path))

    def at(day: int, hour: int) -> datetime:
        return datetime(2096, 5, day, hour, 30, tzinfo=timezone.utc)

    assert schedules.due(at(1, 5)) == []  # new: what passed before it was known is not due
    assert schedules.due(at(2, 1)) == []
    (due,) = schedules.due(at(2, 2))
    assert due == ("nightly.toml", datetime(2096, 5, 2, 2, tzinfo=timezone.utc))
    assert schedules.due(at(2, 2)) == [due]  # until it is submitted
    schedules.keep(*due)
    assert schedules.due(at(2, 5)) == []
    # A server that was away for days makes up for the last time.
    again = Schedules(Home.open(tmp_path))
    (due,) = again.due(at(6, 5))
    assert due == ("nightly.toml", datetime(2096, 5, 6, 2, tzinfo=timezone.utc))
    again.keep(*due)
    assert Schedules(Home.open(tmp_path)).due(at(6, 6)) == []
    (tmp_path / "sweeps-done.json").write_text("[1]")
    assert Schedules(Home.open(tmp_path)).due(at(6, 6)) == []  # damaged: from now on
    monkeypatch.delenv("ETSCOPE_LAB_SERVER", raising=False)
    (tmp_path / "net.pte").write_bytes(b"a program")
    path.write_text(FILE.replace(', "net.py:make"', ""))
    for _ in range(2):  # another server of the lab
        schedules.submit("nightly.toml", at(4, 2))
    with Lab.open(tmp_path) as lab:
        jobs = lab.jobs().jobs
    assert {job.spec.labels["run"] for job in jobs} == {"2096-05-04T02:30Z"}
    assert len(jobs) == 4
