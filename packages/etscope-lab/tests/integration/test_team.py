"""Projects, roles, devices out of service and the audit log, by the API, the CLI and an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from etscope.cli import main
from etscope.errors import LabError, MissingDataError
from etscope_lab import engine as engines
from etscope_lab.client import Client
from etscope_lab.engine import Engine, EngineOptions
from etscope_lab.jobs.records import State
from etscope_lab.lab import Lab
from etscope_lab.server.app import create_app
from etscope_lab.server.settings import Settings
from etscope_lab.shares import HALF_LIFE
from etscope_lab.worker import worker
from lab_support.checks import ended, submit
from lab_support.server import a_job, running
from lab_support.simulated_device import fault, said, write_lab
from tests.support.artifacts import artifacts
from tests.support.waiting import until

API = "/api/v1"
PROJECTS = {"vision": {"max_queued": 3}, "speech": {"max_running": 1}}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(engines, "_POLL", 0.1)
    monkeypatch.setattr(worker, "_lost", set())
    write_lab(tmp_path, artifacts("cnn_xnnpack").folder, 2)
    file = tmp_path / "lab.yaml"
    content = {**yaml.safe_load(file.read_text()), "projects": PROJECTS, "calibrate": False}
    file.write_text(yaml.safe_dump(content))
    with Lab.open(tmp_path) as opened:
        yield opened


@pytest.fixture
def http(lab: Lab) -> Iterator[TestClient]:
    with TestClient(create_app(lab, Settings()), base_url="http://127.0.0.1") as client:
        yield client


def token(lab: Lab, name: str, scope: str, project: str = "") -> dict[str, str]:
    return {"Authorization": f"Bearer {lab.database.add_token(name, [scope], project=project)}"}


def start(lab: Lab, **options: Any) -> None:
    given = EngineOptions(in_process=True, **options)
    lab.engine = Engine(lab.home, lab.database, given, changed=lab._notify)
    lab.engine.start()


def test_a_job_has_the_project_of_its_token_and_a_full_project_waits(
    http: TestClient, lab: Lab
) -> None:
    mine = token(lab, "ann", "submit", "vision")
    spec = {"model": f"sha256:{a_job(lab).spec.model.sha256}"}
    answers = [http.post(f"{API}/jobs?again=true", json=spec, headers=mine) for _ in range(4)]
    assert [one.status_code for one in answers] == [201, 201, 201, 503]
    assert "3 jobs of the project vision wait" in answers[3].json()["error"]
    assert {one.json()["project"] for one in answers[:3]} == {"vision"}
    assert lab.jobs().total == 4
    lab.cancel(answers[0].json()["id"])
    assert http.post(f"{API}/jobs?again=true", json=spec, headers=mine).status_code == 201


def test_roles(http: TestClient, lab: Lab) -> None:
    who = {
        "viewer": token(lab, "viewer", "read"),
        "submitter": token(lab, "submitter", "submit"),
        "of vision": token(lab, "of-vision", "operate", "vision"),
        "operator": token(lab, "operator", "operate"),
        "admin": token(lab, "admin", "admin"),
    }
    lab.database.set_devices(lab.devices()[0])

    def allowed(method: str, path: Any, **more: Any) -> list[str]:
        answers = {
            name: http.request(method, path() if callable(path) else path, headers=headers, **more)
            for name, headers in who.items()
        }
        assert {one.status_code for one in answers.values()} <= {200, 201, 204, 403}, answers
        return [name for name, one in answers.items() if one.status_code < 300]

    def job(project: str, submitter: str = "boss") -> str:
        spec = a_job(lab).spec
        made = lab.submit(spec, again=True, submitter=submitter, project=project)
        return f"{API}/jobs/{made.id}/cancel"

    operators = ["of vision", "operator", "admin"]
    assert allowed("GET", f"{API}/jobs") == list(who)
    assert allowed("POST", lambda: job("vision")) == operators
    assert allowed("POST", lambda: job("speech")) == ["operator", "admin"]
    assert allowed("POST", lambda: job("speech", "submitter")) == [
        "submitter", "operator", "admin",
    ]  # fmt: skip
    path = f"{API}/devices/sim-0"
    assert allowed("POST", path, json={"disabled": ""}) == operators
    assert allowed("GET", f"{API}/audit") == ["admin"]
    assert allowed("GET", f"{API}/tokens") == ["admin"]


def test_projects_take_turns_on_a_device(lab: Lab) -> None:
    wait = fault(lab.home.folder / "sim-0", "wait")
    jobs = submit(lab, 6, "night", device="sim-0") + submit(lab, 3, "vision", device="sim-0")
    start(lab, devices=["sim-0"])
    until(lambda: bool(said(lab.home.folder / "sim-0", "begin")))
    wait.unlink()
    done = sorted(ended(lab, jobs), key=lambda job: job.started_at or job.created_at)
    # All of vision's, which came last, are not behind all of night's.
    assert {job.project for job in done[:2]} == {"night", "vision"}
    assert [job.project for job in done[-2:]] == ["night", "night"]


def test_a_new_engine_knows_what_projects_have_used(lab: Lab) -> None:
    lab.database.note_use({"night": 900.0, "": 5.0}, HALF_LIFE)
    lab.database.note_use({"night": 100.0}, HALF_LIFE)
    used = lab.database.used(HALF_LIFE)
    assert used == {"night": pytest.approx(1000, rel=0.1), "": pytest.approx(5, rel=0.1)}
    assert lab.database.used(1e-6)["night"] < 1
    jobs = [*submit(lab, 2, "night", device="sim-0"), *submit(lab, 2, "vision", device="sim-0")]
    start(lab, devices=["sim-0"])
    done = sorted(ended(lab, jobs), key=lambda job: job.started_at or job.created_at)
    assert [job.project for job in done] == ["vision", "vision", "night", "night"]


def test_a_project_has_no_more_jobs_at_work_than_it_may(lab: Lab) -> None:
    controls = [lab.home.folder / name for name in ("sim-0", "sim-1")]
    waits = [fault(control, "wait") for control in controls]
    jobs = submit(lab, 3, "speech")
    others = submit(lab)
    start(lab)
    until(lambda: all(said(control, "begin") for control in controls))
    counts = lab.database.counts(State.CLAIMED, State.RUNNING)
    assert sum(n for (_, project), n in counts.items() if project == "speech") == 1
    for path in waits:
        path.unlink()
    assert {job.state for job in ended(lab, [*jobs, *others])} == {State.DONE}


def test_a_device_out_of_service_gets_no_jobs_and_ends_the_one_it_has(lab: Lab) -> None:
    control = lab.home.folder / "sim-0"
    wait = fault(control, "wait")
    jobs = submit(lab, 2, device="sim-0")
    start(lab)
    until(lambda: bool(said(control, "begin")))
    lab.disable_device("sim-0", "its battery swells", "ann")
    until(lambda: lab.job(jobs[1].id).state is State.QUEUED)
    wait.unlink()
    until(lambda: lab.job(jobs[0].id).state is State.DONE)
    until(lambda: lab.devices()[0].state == "disabled")
    assert lab.devices()[0].message == "its battery swells"
    assert lab.job(jobs[1].id).state is State.QUEUED
    lab.disable_device("sim-0", "", "ann")
    assert ended(lab, [jobs[1]])[0].state is State.DONE
    with pytest.raises(MissingDataError, match="no device 'sim-9'"):
        lab.disable_device("sim-9", "x")


def test_the_audit_log_has_who_did_what(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = lab.database.add_token("boss", ["admin"])
    lab.database.set_devices(lab.devices()[0])
    lab.database.note_settings("", lab.home.hashes())
    lab.database.note_settings("", lab.home.hashes())  # the same: no entry
    job = a_job(lab)
    with running(lab) as url, Client(url, secret) as boss:
        boss.add_token("ann", ["submit"], project="vision")
        boss.revoke("ann")
        boss.cancel(job.id)
        boss.disable_device("sim-0", "hot")
        with (
            pytest.raises(LabError, match="needs the scope"),
            Client(url, lab.database.add_token("v", ["operate"])) as operator,
        ):
            operator.audit()
        found = boss.audit()
        assert [(one.by, one.action, one.target) for one in found] == [
            ("", "add token", "v"),
            ("boss", "disable device", "sim-0"),
            ("boss", "cancel", job.id),
            ("boss", "revoke token", "ann"),
            ("boss", "add token", "ann"),
            ("", "settings", "lab.yaml"),
            ("", "add token", "boss"),
        ]
        assert found[4].detail == {"scopes": ["submit"], "project": "vision"}
        assert [one.number for one in boss.audit(2, before=found[2].number)] == [
            found[3].number, found[4].number,
        ]  # fmt: skip
        (lab.home.folder / "lab.yaml").write_text("watch: {slack: [https://hooks/secret]}\n")
        assert main(["lab", "--server", url, "--token", secret, "audit", "--format", "json"]) == 0
        shown = json.loads(capsys.readouterr().out)["rows"]
    assert [row["action"] for row in shown] == [one.action for one in found]
    with Lab.open(tmp_path) as again:
        again.database.note_settings("", again.home.hashes())
        newest = again.audit(1)[0]
    assert newest.detail["keys"] == ["calibrate", "devices", "projects", "watch"]
    assert "secret" not in json.dumps(newest.detail)


def test_devices_are_taken_out_of_service_by_command(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.database.set_devices(lab.devices()[0])
    command = ["lab", "--home", str(lab.home.folder), "devices"]
    assert main([*command, "disable", "sim-0", "hot"]) == 0
    assert "disabled" in capsys.readouterr().out
    assert lab.devices()[0].message == "hot"
    assert main([*command, "enable", "sim-0"]) == 0
    assert lab.devices()[0].state == "offline"
    assert main([*command, "disable"]) == 2
    assert main([*command, "disable", "sim-9"]) == 4
