"""The API's operations: what they answer, and how they refuse."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
from fastapi.testclient import TestClient

from etscope.errors import UsageError
from etscope_lab.jobs.records import Alarm, AlarmState, State
from etscope_lab.jobs.spec import JobSpec
from etscope_lab.lab import Lab
from etscope_lab.server.app import create_app
from lab_support.server import a_done_job, a_job, program
from tests.support.artifacts import artifacts

API = "/api/v1"
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def http(lab: Lab) -> Iterator[TestClient]:
    app = create_app(lab)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def put(http: TestClient, data: bytes, sha256: str | None = None) -> object:
    sha256 = sha256 or hashlib.sha256(data).hexdigest()
    return http.put(f"{API}/files/{sha256}", content=data, headers=OCTETS)


def test_files_of_a_job_that_comes_over_http_are_those_of_the_lab(http: TestClient) -> None:
    fields = [
        name for name, field in JobSpec.model_fields.items() if "FileRef" in str(field.annotation)
    ]
    assert len(fields) == 6
    stored, path = f"sha256:{'0' * 64}", "/etc/passwd"
    for name in fields:
        answer = http.post(f"{API}/jobs", json={"model": stored, "kind": "benchmark", name: path})
        assert (answer.status_code, answer.json()["slug"]) == (422, "usage")
    quality = {"reference": path, "tokens": stored, "max_kl": 0.1}
    answer = http.post(
        f"{API}/jobs", json={"model": stored, "kind": "generate", "quality": quality}
    )
    assert answer.json()["error"] == "quality.reference: the lab cannot read your paths"
    for model in ("/etc/passwd", {"path": "/etc/passwd"}, {"path": "x", "sha256": "0" * 64}):
        answer = http.post(f"{API}/jobs", json={"model": model})
        assert (answer.status_code, answer.json()["slug"]) == (422, "usage")
    answer = http.post(f"{API}/jobs", json={"model": "sha256:" + "0" * 64})
    assert (answer.status_code, answer.json()["slug"]) == (404, "missing-data")


def test_submits_by_content_and_answers_the_same_job_twice(http: TestClient) -> None:
    data = program().read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    assert http.get(f"{API}/files/{sha256}").status_code == 404
    sent = put(http, data)
    assert (sent.status_code, sent.json()["size"]) == (201, len(data))
    assert put(http, data).status_code == 200
    spec = {"model": f"sha256:{sha256}", "labels": {"commit": "1f2e"}}
    first = http.post(f"{API}/jobs?submitter=ann", json=spec)
    assert first.status_code == 201
    job = first.json()
    assert first.headers["location"] == f"{API}/jobs/{job['id']}"
    assert (job["state"], job["submitter"], job["spec"]["labels"]) == (
        "queued", "ann", {"commit": "1f2e"},
    )  # fmt: skip
    same = http.post(f"{API}/jobs", json=spec)
    assert (same.status_code, same.json()["id"]) == (200, job["id"])
    other = http.post(f"{API}/jobs?again=true", json=spec)
    assert (other.status_code, other.json()["id"] != job["id"]) == (201, True)


def test_lists_pages_of_jobs_by_filter(http: TestClient, lab: Lab) -> None:
    made = [a_job(lab, name=f"job {n}", labels={"n": str(n)}).id for n in range(5)]
    first = http.get(f"{API}/jobs?limit=3").json()
    assert [job["id"] for job in first["jobs"]] == made[:1:-1]
    assert first["total"] == 5
    rest = http.get(f"{API}/jobs", params={"limit": 3, "cursor": first["next"]}).json()
    assert [job["id"] for job in rest["jobs"]] == made[1::-1]
    assert rest["next"] is None
    found = http.get(f"{API}/jobs?state=queued&label=n=3").json()
    assert [job["id"] for job in found["jobs"]] == [made[3]]
    assert http.get(f"{API}/jobs?state=done").json()["jobs"] == []
    assert http.get(f"{API}/jobs?since=2999-01-01T00:00:00Z").json()["total"] == 0
    for wrong in ("state=lost", "limit=0", "since=1700000000", "label=x", "kind=x", "text=%00"):
        assert http.get(f"{API}/jobs?{wrong}").status_code == 422, wrong
    assert http.get(f"{API}/jobs?cursor=nowhere").status_code == 404


def test_a_done_job_has_files_with_names_and_tags(http: TestClient, lab: Lab) -> None:
    dump = artifacts("two_methods").etdump.read_bytes()
    job = a_done_job(lab, {"run.etdp": dump, "log.txt": "ähm\n".encode()})
    answer = http.get(f"{API}/jobs/{job.id[:8]}/files/run.etdp")
    assert answer.content == dump
    assert answer.headers["etag"] == f'"{hashlib.sha256(dump).hexdigest()}"'
    assert answer.headers["content-disposition"].startswith('attachment; filename="run.etdp"')
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox")
    again = http.get(
        f"{API}/jobs/{job.id}/files/run.etdp", headers={"If-None-Match": answer.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    assert http.get(f"{API}/jobs/{job.id}/files/other").json()["hint"] == "it has log.txt, run.etdp"
    assert http.get(f"{API}/jobs/{job.id}/log").content == "ähm\n".encode()
    assert http.get(f"{API}/jobs/{job.id}/log?offset=4").text == "\n"


def test_cancels_once(http: TestClient, lab: Lab) -> None:
    queued = a_job(lab)
    assert http.post(f"{API}/jobs/{queued.id}/cancel").json()["state"] == "cancelled"
    done = a_done_job(lab, {})
    answer = http.post(f"{API}/jobs/{done.id}/cancel")
    assert (answer.status_code, answer.json()["slug"]) == (409, "usage")


def test_a_job_is_cancelled_by_its_submitter_or_an_admin(http: TestClient, lab: Lab) -> None:
    of = {
        name: {"Authorization": f"Bearer {lab.database.add_token(name, [scope])}"}
        for name, scope in (("ann", "submit"), ("bob", "submit"), ("eve", "admin"))
    }
    first, second = (lab.submit(a_job(lab).spec, again=True, submitter="ann").id for _ in range(2))
    refused = http.post(f"{API}/jobs/{first}/cancel", headers=of["bob"])
    assert refused.status_code == 403 and "'ann'" in refused.json()["error"]
    assert lab.job(first).state is State.QUEUED
    for job, name in ((first, "ann"), (second, "eve")):
        assert http.post(f"{API}/jobs/{job}/cancel", headers=of[name]).status_code == 200
        assert lab.events(job)[-1].message == f"stopped on request by {name}"


def test_labels_have_bounds(lab: Lab) -> None:
    spec = a_job(lab).spec
    many = {str(number): "x" for number in range(64)}
    lab.submit(spec.model_copy(update={"labels": {**many, "0": "x" * 200}}))
    for labels in ({**many, "64": "x"}, {"a": "x" * 201}):
        with pytest.raises(UsageError, match="at most 64 labels of at most 200"):
            lab.submit(spec.model_copy(update={"labels": labels}))


def test_alarms_are_listed_and_set(http: TestClient, lab: Lab) -> None:
    now = datetime.now(timezone.utc)
    series = {"model": "net.pte", "device": "host"}
    for number, state in enumerate((AlarmState.OPEN, AlarmState.CHECKING)):
        ids = (f"b{number}", f"j{number}", f"n{number}")
        lab.database.add_alarm(Alarm(f"a{number}", state, series, *ids, 0.06, 10.0, now, now))
    assert {one["id"] for one in http.get(f"{API}/alarms").json()} == {"a0", "a1"}
    assert [one["id"] for one in http.get(f"{API}/alarms?state=open").json()] == ["a0"]
    changed = http.post(f"{API}/alarms/a0", json={"state": "acknowledged"})
    assert (changed.status_code, changed.json()["state"]) == (200, "acknowledged")
    assert http.post(f"{API}/alarms/a1", json={"state": "closed"}).status_code == 409
    assert http.post(f"{API}/alarms/a0", json={"state": "dismissed"}).status_code == 422
    assert http.post(f"{API}/alarms/zz", json={"state": "closed"}).status_code == 404


def test_devices_history_schema_and_health(http: TestClient, lab: Lab) -> None:
    a_done_job(lab, {})
    [device] = http.get(f"{API}/devices").json()
    assert device["config"]["name"] == "host"
    [series] = http.get(f"{API}/history").json()
    assert (series["device"], len(series["points"])) == ("host", 1)
    assert series["points"][0]["p50_ms"] == 1.1
    assert series["points"][0]["marks"] == []
    assert series["unjudged"].startswith("The only result is not judged. A result is judged when")
    assert http.get(f"{API}/history?model=none").json() == []
    assert http.get(f"{API}/schema").json()["title"] == "JobSpec"
    health = http.get(f"{API}/health").json()
    assert (health["status"], health["tokens"]) == ("degraded", False)  # no engine runs here


def test_tokens_are_made_listed_and_revoked(http: TestClient) -> None:
    made = http.post(f"{API}/tokens", json={"name": "ci", "scopes": ["admin"]})
    assert made.status_code == 201
    assert http.get(f"{API}/tokens").status_code == 401  # from now on it takes one
    me = {"Authorization": f"Bearer {made.json()['secret']}"}
    assert made.json()["secret"] not in http.get(f"{API}/tokens", headers=me).text
    assert [one["name"] for one in http.get(f"{API}/tokens", headers=me).json()] == ["ci"]
    twice = http.post(f"{API}/tokens", json={"name": "ci"}, headers=me)
    assert twice.status_code == 409
    assert http.delete(f"{API}/tokens/other", headers=me).status_code == 404
    assert http.delete(f"{API}/tokens/ci", headers=me).status_code == 204
    assert http.get(f"{API}/jobs", headers=me).status_code == 401


def test_errors_have_one_body(http: TestClient) -> None:
    for method, path, body, status in (
        ("GET", "/nothing", None, 404),
        ("DELETE", "/jobs", None, 405),
        ("POST", "/jobs", b"{", 400),
        ("POST", "/jobs", b"[]", 422),
        ("POST", "/jobs", b'{"model": 3}', 422),
        ("GET", "/jobs/..%2f..%2fetc", None, 404),
        ("GET", "/jobs/a%00b", None, 422),
        ("GET", "/files/xyz", None, 422),
        ("GET", "/compare?first=a&second=b", None, 404),
        ("GET", "/compare?first=a", None, 422),
    ):
        headers = {"Content-Type": "application/json"} if body else {}
        answer = http.request(method, API + path, content=body, headers=headers)
        assert answer.status_code == status, path
        assert set(answer.json()) == {"error", "slug", "hint"}
        assert answer.headers.get("allow") == ("GET, POST" if status == 405 else None)


def test_documentation_comes_from_here_alone(http: TestClient) -> None:
    page = http.get("/api/docs")
    assert "//" not in page.text.replace("<!doctype html>", "")
    names = ("api/docs/swagger-ui-bundle.js", "api/docs/swagger-ui.css", "api/docs/start.js")
    for name in names:
        assert f'"/{name}"' in page.text
        assert http.get(f"/{name}").status_code == 200
    paths = http.get("/api/openapi.json").json()["paths"]
    assert all(path.startswith("/api/v1/") for path in paths)
