"""What Prometheus and a load balancer see of a lab, and its log."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from etscope.errors import LabError
from etscope_lab.cli.options import start_log
from etscope_lab.counters import count_end
from etscope_lab.engine import Engine, EngineOptions
from etscope_lab.jobs.records import State
from etscope_lab.lab import Lab
from etscope_lab.server.app import create_app
from etscope_lab.server.settings import Settings
from etscope_lab.worker import worker
from lab_support.checks import ended, submit
from lab_support.simulated_device import fault, write_lab
from tests.support.artifacts import artifacts
from tests.support.waiting import until

HEALTH = "/api/v1/health"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(worker, "_lost", set())
    write_lab(tmp_path, artifacts("cnn_xnnpack").folder, 2)
    file = tmp_path / "lab.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), "calibrate": False}))
    with Lab.open(tmp_path) as opened:
        yield opened


@pytest.fixture
def http(lab: Lab) -> Iterator[TestClient]:
    app = create_app(lab, Settings())
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
        yield client


def metrics(http: TestClient, **headers: str) -> dict[str, float]:
    """Each sample by its name and labels: 'jobs{state=queued}'."""
    answer = http.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return {
        re.sub("^etscope_lab_", "", sample.name)
        + "".join(f"{{{name}={value}}}" for name, value in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name.startswith("etscope_lab")
    }


def test_metrics_follow_jobs_through_an_engine(http: TestClient, lab: Lab) -> None:
    before = metrics(http)
    assert before["up{part=database}"] == before["up{part=store}"] == 1
    assert before["devices{state=offline}"] == 2
    lost = fault(lab.home.folder / "sim-1", "unplugged")
    hang = fault(lab.home.folder / "sim-0", "wait")
    jobs = submit(lab, 2, device="sim-0")
    assert metrics(http)["jobs{project=}{state=queued}"] == 2
    lab.engine = Engine(lab.home, lab.database, EngineOptions(in_process=True), lab._notify)
    lab.engine.start()
    until(lambda: metrics(http)["jobs{project=}{state=running}"] == 1)
    hang.unlink()
    ended(lab, jobs)
    until(lambda: metrics(http).get("devices{state=available}") == 1)
    after = metrics(http)
    assert after["devices{state=offline}"] == 1
    assert {
        after[f"jobs{{project=}}{{state={state}}}"] for state in ("queued", "claimed", "running")
    } == {0}
    done = "jobs_ended_total{fault=none}{state=done}"
    assert after[done] - before.get(done, 0) == 2
    assert after["dispatch_seconds_count"] - before["dispatch_seconds_count"] == 2
    assert after["dispatch_seconds_sum"] > before["dispatch_seconds_sum"]
    assert after["store_free_bytes"] > 1 << 20
    health = http.get(HEALTH).json()
    assert health["status"] == "degraded"
    assert {name: part["status"] for name, part in health["parts"].items()} == {
        "database": "ok", "store": "ok", "engine": "ok", "scheduler": "ok", "devices": "degraded",
    }  # fmt: skip
    assert health["parts"]["devices"]["message"] == "1 of 2 are offline: sim-1"
    lost.unlink()


def test_ends_are_counted_by_whose_fault(http: TestClient, lab: Lab) -> None:
    before = metrics(http)
    lab.cancel(submit(lab)[0].id)
    for state, slug in (
        (State.FAILED, "runtime-failure"), (State.FAILED, LabError.slug), (State.INVALID, ""),
    ):  # fmt: skip
        count_end(state, slug)
    after = metrics(http)
    grown = {name for name, value in after.items() if value > before.get(name, 0)}
    assert {name for name in grown if name.startswith("jobs_ended_total")} == {
        "jobs_ended_total{fault=user}{state=cancelled}",
        "jobs_ended_total{fault=model}{state=failed}",
        "jobs_ended_total{fault=lab}{state=failed}",
        "jobs_ended_total{fault=device}{state=invalid}",
    }


def test_a_store_that_is_away_fails_and_tells_only_readers_why(lab: Lab) -> None:
    (lab.home.folder / "lab.yaml").write_text("store: missing/folder/store\n")
    secret = lab.database.add_token("prometheus", ["read"])
    reader = {"Authorization": f"Bearer {secret}"}
    with (
        Lab.open(lab.home.folder) as away,
        TestClient(create_app(away, Settings()), base_url="http://127.0.0.1") as http,
    ):
        refused = http.get("/metrics")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        found = metrics(http, **reader)
        assert (found["up{part=store}"], found["up{part=database}"]) == (0, 1)
        assert "store_free_bytes" not in found
        hidden = http.get(HEALTH)
        assert (hidden.status_code, hidden.json()["error"]) == (503, "the lab is failing: store")
        assert "No such file" in http.get(HEALTH, headers=reader).json()["error"]


def test_lines_of_the_log_have_time_level_logger_and_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("etscope_lab")
    monkeypatch.setattr(logger, "level", logger.level)
    for kind in ("text", "json"):
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        start_log(kind)  # type: ignore[arg-type]
        logger.info("goes back to the queue", extra={"job": "1f2e"})
        logger.warning("no job")
        logging.getLogger("uvicorn").info("not shown")
    first, second, *objects = capsys.readouterr().err.splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(f"{time} INFO etscope_lab 1f2e goes back to the queue", first)
    assert re.fullmatch(f"{time} WARNING etscope_lab - no job", second)
    told = [json.loads(line) for line in objects]
    assert re.fullmatch(time, told[0].pop("time"))
    assert told[0] == {
        "level": "INFO", "logger": "etscope_lab", "job": "1f2e",
        "message": "goes back to the queue",
    }  # fmt: skip
    assert told[1]["job"] is None and len(told) == 2
