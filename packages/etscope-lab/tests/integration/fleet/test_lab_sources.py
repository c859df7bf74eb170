"""The dumps of a lab: from its folder, and from its server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etscope.cli import main
from etscope_lab.fleet import query
from etscope_lab.fleet.sql import saved_query
from etscope_lab.jobs.records import Outcome, State
from etscope_lab.lab import Lab
from lab_support.benchmark_records import RECORDS
from lab_support.jobs import claimed
from lab_support.server import a_done_job, a_job, running
from tests.support.artifacts import artifacts

COLUMNS = "select device, model, job, labels, environment, recorded_at, warmup, etrecord, methods"

RUN = {
    "latencies": [
        {"traced": None, "method": "encode", "load_ns": 1, "first_ns": 2_000_000,
         "samples_ns": [900_000, 1_100_000, 1_300_000]},
        {"traced": "times", "method": "encode", "load_ns": 1, "first_ns": 3, "samples_ns": [4]},
    ],
    "memory": {"runner": "native", "peak_rss_bytes": 5000},
    "conditions": {"cpu": "x", "cpus": "0", "cores": 1, "governors": [], "load": 0.25},
}  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    """Two done jobs with a dump, one without, one that waits."""
    made = artifacts("two_methods")
    assert made.etdump_timing is not None
    readings = [{"temperature_c": 30.5, "sensor": ""}, {"temperature_c": 41.0}]
    with Lab.open(tmp_path / "home") as lab:
        with_record = {"run.etdp": made.etdump_timing.read_bytes()}
        with_record["conditions.json"] = json.dumps(readings).encode()
        with_record["run.json"] = json.dumps(RUN).encode()
        fields = {"labels": {"commit": "a"}, "warmup": 7, "name": "two"}
        fields["energy"] = {"per_inference_j": 0.125}
        a_done_job(lab, with_record, etrecord=str(made.etrecord), **fields)
        a_done_job(lab, {"run.etdp": made.etdump.read_bytes(), "conditions.json": b"{"}, warmup=0)
        a_done_job(lab, {"log.txt": b"nothing traced"})
        a_job(lab)
        yield lab


def rows(dataset: Path) -> list[dict[str, Any]]:
    table = query(str(dataset), f"{COLUMNS} from dumps order by model desc")
    return [dict(zip(table.names, row, strict=True)) for row in table.rows()]


def test_a_home(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = tmp_path / "ds"
    assert main(["lab", "collect", "--lab", str(lab.home.folder), "-o", str(dataset)]) == 0
    first, second = rows(dataset)
    jobs = {job.id: job for job in lab.jobs().jobs}
    job = jobs[first["job"]]
    assert (first["model"], first["device"], first["warmup"]) == ("two", "host", 7)
    assert first["labels"] == "commit=a" and first["methods"] == ["decode", "encode"]
    assert "conditions.before.temperature_c=30.5" in first["environment"]
    assert "conditions.after.temperature_c=41.0" in first["environment"]
    assert "sensor" not in first["environment"]
    columns = "samples_ns, untraced_p50_ns, first_ns, peak_rss_bytes, load, energy_j, standing"
    untraced = f"select {columns} from dumps order by model desc"
    told, silent = query(str(dataset), untraced).rows()
    assert told == (
        [900_000, 1_100_000, 1_300_000],
        1.1e6,
        2_000_000,
        5000,
        0.25,
        0.125,
        "unjudged",
    )
    assert silent == (None,) * 6 + ("unjudged",)
    results = query(str(dataset), saved_query("results").sql, {"model": "*", "device": "*"})
    (result,) = [dict(zip(results.names, row, strict=True)) for row in results.rows()]
    assert (result["p50_ms"], result["executions"], result["commit"]) == (1.1, 3, "a")
    assert result["energy_j"] == 0.125
    assert job.finished_at is not None
    assert first["recorded_at"] == job.finished_at.replace(tzinfo=None).isoformat()
    assert (second["model"], second["etrecord"]) == ("program", None)
    again = [
        "lab",
        "collect",
        "--lab",
        str(lab.home.folder),
        "-o",
        str(dataset),
        "--format",
        "json",
    ]
    capsys.readouterr()
    assert main(again) == 0
    found = json.loads(capsys.readouterr().out)["reports"][0]["sections"]["collected"]
    assert (found["found"], found["taken"], found["again"]) == (3, 0, 3)


def test_a_server(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = tmp_path / "ds"
    with running(lab) as url:
        assert main(["lab", "collect", "--lab", url, "-o", str(dataset)]) == 0
        first, _ = rows(dataset)
        assert (first["model"], first["warmup"], first["etrecord"]) == ("two", 7, None)
        # What the dataset has is not fetched again.
        for job in lab.jobs().jobs:
            if "run.etdp" in job.artifacts:
                sha256 = job.artifacts["run.etdp"].sha256
                (lab.home.folder / "store" / "sha256" / sha256[:2] / sha256).unlink()
        assert main(["lab", "collect", "--lab", url, "-o", str(dataset)]) == 0
        assert len(rows(dataset)) == 2


def test_the_folder_of_a_lab_is_not_a_folder_of_dumps(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, dataset = lab.home.folder, tmp_path / "ds"
    for named in (home, home.parent):
        assert main(["lab", "collect", str(named), "-o", str(dataset)]) == 3
        shown = capsys.readouterr()
        assert f"bad: {named}: {home} is a lab's folder" in shown.err
        assert f"etscope lab collect --lab {home}" in shown.err
        assert not list(dataset.glob("dumps/*"))


def test_the_dataset_of_a_lab_is_current(
    lab: Lab, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Results without a dump are in it, failed ones and upstream's too; verdicts are the newest."""
    (lab.home.folder / "records").mkdir()
    (lab.home.folder / "records" / "night.json").write_text(json.dumps(list(RECORDS)))
    (lab.home.folder / "records" / "cut.json").write_text(json.dumps(list(RECORDS))[:-9])

    def asked(sql: str) -> list[list[Any]]:
        capsys.readouterr()
        assert main(["lab", "--home", str(lab.home.folder), "sql", sql, "--format", "csv"]) == 0
        return [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]

    states = "select has_dump, state, count(*) from results group by all order by all"
    with caplog.at_level("WARNING", "etscope_lab"):
        first = asked(states)
    assert "records/cut.json is not in the lab's dataset" in caplog.text
    assert first == [
        ["false", "done", "2"], ["false", "failed", "1"], ["true", "done", "2"],
    ]  # fmt: skip
    jobs = [a_done_job(lab, {}, name="series") for _ in range(7)]
    failed = a_job(lab, name="series")
    token = claimed(lab.database, failed)
    lab.database.finish(Outcome(failed.id, token, State.FAILED, error="it aborted"))
    verdicts = "select standing, count(*) from results where model = 'series' group by 1 order by 1"
    assert asked(verdicts) == [["steady", "5"], ["unjudged", "2"], ["", "1"]]
    assert asked(f"select state, failure from results where job = '{failed.id}'") == [
        ["failed", "it aborted"]
    ]
    p50 = f"select metrics['latency.p50_ms'] from results where job = '{jobs[0].id}'"
    assert asked(p50) == [["1.1"]]
    (dataset,) = lab.home.folder.glob("dataset/dumps/standings.parquet")
    before = dataset.stat().st_mtime_ns
    assert len(asked(states)) == 3
    assert dataset.stat().st_mtime_ns == before  # nothing ended since then


def test_a_lab_without_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Lab.open(tmp_path / "home").close()
    assert (
        main(["lab", "collect", "--lab", str(tmp_path / "home"), "-o", str(tmp_path / "ds")]) == 4
    )
    assert "no job" in capsys.readouterr().err
    assert (
        main(["lab", "collect", "--lab", str(tmp_path / "none"), "-o", str(tmp_path / "ds")]) == 2
    )
    assert not (tmp_path / "none").exists()
