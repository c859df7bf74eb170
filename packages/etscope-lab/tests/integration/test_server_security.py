"""Who gets in: tokens, sessions, forms, hosts and origins."""

from __future__ import annotations

import logging
import re
import socket
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from etscope.errors import LabError
from etscope_lab.lab import Lab
from etscope_lab.server import app as server_app
from etscope_lab.server import middleware
from etscope_lab.server.app import create_app, is_reached_by_others, serve
from etscope_lab.server.security import own_path
from etscope_lab.server.settings import Settings, key_of, local_secret
from lab_support.server import a_job, running

API = "/api/v1"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def http(lab: Lab) -> Iterator[TestClient]:
    with client_of(lab) as client:
        yield client


def client_of(lab: Lab, **settings: object) -> TestClient:
    app = create_app(lab, Settings(**settings))  # type: ignore[arg-type]
    return TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def sign_in(http: TestClient, secret: str, place: str = "/devices") -> str:
    """The Set-Cookie of a session."""
    csrf = csrf_of(http.get("/sign-in").text)
    answer = http.post("/sign-in", data={"csrf": csrf, "token": secret, "next": place})
    assert (answer.status_code, answer.headers["location"]) == (303, place)
    return answer.headers["set-cookie"]


def test_without_tokens_the_loopback_is_open_and_with_one_it_is_not(
    http: TestClient, lab: Lab
) -> None:
    assert http.get(f"{API}/jobs").status_code == 200
    lab.database.add_token("ann", ["read"])
    refused = http.get(f"{API}/jobs")
    assert (refused.status_code, refused.json()["slug"]) == (401, "lab")
    assert refused.headers["www-authenticate"] == "Bearer"
    for said in ("Basic YTpi", "Bearer", "Token x"):
        answer = http.get(f"{API}/jobs", headers={"Authorization": said})
        assert answer.status_code == 401, said
    assert http.get(f"{API}/health").status_code == 200
    page = http.get("/jobs/abc?x=1")
    assert (page.status_code, page.headers["location"]) == (303, "/sign-in?next=/jobs/abc%3Fx%3D1")


def test_scopes_do_not_escalate(http: TestClient, lab: Lab) -> None:
    read = bearer(lab.database.add_token("r", ["read"]))
    submit = bearer(lab.database.add_token("s", ["submit"]))
    admin = bearer(lab.database.add_token("a", ["admin"]))
    job = a_job(lab)
    for headers, looks, stops, rules in (
        (read, 200, 403, 403), (submit, 200, 200, 403), (admin, 200, 200, 200),
    ):  # fmt: skip
        assert http.get(f"{API}/jobs", headers=headers).status_code == looks
        path = f"{API}/jobs/{a_job(lab).id}/cancel"
        assert http.post(path, headers=headers).status_code == stops
        assert http.get(f"{API}/tokens", headers=headers).status_code == rules
    wish = {"name": "mine", "scopes": ["admin"]}
    assert http.post(f"{API}/tokens", json=wish, headers=submit).status_code == 403
    spec = {"model": f"sha256:{job.spec.model.sha256}"}
    assert http.post(f"{API}/jobs", json=spec, headers=read).status_code == 403
    named = http.post(f"{API}/jobs?again=true&submitter=boss", json=spec, headers=submit)
    assert named.json()["submitter"] == "s"  # whoever has a token is who the token says


def test_devices_options_are_for_admins(http: TestClient, lab: Lab) -> None:
    from dataclasses import replace

    device = lab.devices()[0]
    options = {"host": "10.0.0.1", "user": "root"}
    lab.database.set_devices(replace(device, config=replace(device.config, options=options)))
    shown = {}
    for scope in ("submit", "admin"):
        headers = bearer(lab.database.add_token(scope, [scope]))
        shown[scope] = http.get(f"{API}/devices", headers=headers).json()[0]["config"]["options"]
    assert shown == {"submit": {}, "admin": options}


def test_expired_and_revoked_tokens_are_worth_nothing(http: TestClient, lab: Lab) -> None:
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    old = lab.database.add_token("old", ["read"], soon)
    assert sign_in(http, old)
    assert http.get(f"{API}/jobs", headers=bearer(old)).status_code == 200
    assert http.get(f"{API}/jobs").status_code == 200
    with closing(sqlite3.connect(lab.home.folder / "lab.db")) as connection, connection:
        connection.execute("update lab_tokens set expires_at = '2001-01-01 00:00:00.000000'")
    assert http.get(f"{API}/jobs", headers=bearer(old)).status_code == 401
    assert http.get(f"{API}/jobs").status_code == 401
    new = lab.database.add_token("new", ["read"])
    assert http.get(f"{API}/jobs", headers=bearer(new)).status_code == 200
    lab.database.revoke("new")
    assert http.get(f"{API}/jobs", headers=bearer(new)).status_code == 401


def test_a_session_is_signed_strict_and_ends_with_its_token(http: TestClient, lab: Lab) -> None:
    secret = lab.database.add_token("ann", ["read"])
    cookie = sign_in(http, secret)
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert secret not in cookie
    assert http.get(f"{API}/jobs").status_code == 200
    name, value = next(iter(http.cookies.items()))
    said, _, signature = value.rpartition(".")
    other = "B" if signature[0] == "A" else "A"
    for forged in (f"{said}.{other}{signature[1:]}", "x", value.partition(".")[0]):
        http.cookies.clear()
        http.cookies.set(name, forged)
        assert http.get(f"{API}/jobs").status_code == 401
    http.cookies.clear()
    http.cookies.set(name, value)
    assert http.get(f"{API}/jobs").status_code == 200
    lab.database.revoke("ann")
    secret = lab.database.add_token("ann", ["admin"])  # the same name is another token
    assert http.get(f"{API}/jobs").status_code == 401
    sign_in(http, secret)
    assert http.post("/sign-out").status_code == 303
    assert http.get(f"{API}/jobs").status_code == 401
    http.base_url = "https://127.0.0.1"
    assert "Secure" in sign_in(http, secret)


def test_a_session_changes_nothing_without_its_csrf_token(http: TestClient, lab: Lab) -> None:
    job = a_job(lab)
    before = csrf_of(http.get("/sign-in").text)  # of nobody's session
    sign_in(http, lab.database.add_token("ann", ["submit"]))
    path = f"{API}/jobs/{job.id}/cancel"
    assert http.post(path).status_code == 403
    for wrong in ("", "x", before):
        assert http.post(path, headers={"X-CSRF-Token": wrong}).status_code == 403
    page = http.get(f"/jobs/{job.id}").text
    assert http.post(path, headers={"X-CSRF-Token": csrf_of(page)}).status_code == 200


def test_other_sites_change_nothing(http: TestClient, lab: Lab) -> None:
    job = a_job(lab)
    csrf = csrf_of(http.get(f"/jobs/{job.id}").text)
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8000"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert http.post(f"{API}/jobs/{job.id}/cancel", headers=headers).status_code == 403
        form = http.post(f"/jobs/{job.id}/cancel", data={"csrf": csrf}, headers=headers)
        assert form.status_code == 403
        assert http.post("/sign-in", data={"csrf": csrf, "token": "x"}, headers=headers).is_error
        assert lab.job(job.id).state.value == "queued"
    own = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    assert http.post(f"{API}/jobs/{job.id}/cancel", headers=own).status_code == 200


def test_other_names_than_its_own_are_refused(http: TestClient, lab: Lab) -> None:
    for host, own in (
        ("127.0.0.1", True), ("localhost:80", True), ("[::1]:99", True), ("evil.example", False),
        ("127.0.0.1.evil.example", False), ("", False), ("10.0.0.1", False),
        ("127.0.0.1:80, evil.example", False), ("127.0.0.1, evil.example", False),
        ("evil.example@127.0.0.1", False), ("127.0.0.1:x", False),
        ("lab.example.org", False),
    ):  # fmt: skip
        answer = http.get(f"{API}/health", headers={"Host": host})
        assert answer.status_code == (200 if own else 403), host
    with client_of(lab, hosts=("Lab.example.org",)) as proxied:
        for host in ("lab.example.org", "lab.example.org:8443", "127.0.0.1"):
            assert proxied.get(f"{API}/health", headers={"Host": host}).status_code == 200
        assert proxied.get(f"{API}/health", headers={"Host": "example.org"}).status_code == 403


def test_guessing_tokens_has_to_wait(lab: Lab) -> None:
    secret = lab.database.add_token("ann", ["read"])
    with client_of(lab, failures_per_minute=5) as http:
        for guess in range(5):
            assert http.get(f"{API}/jobs", headers=bearer(f"etl_{guess}")).status_code == 401
        answer = http.get(f"{API}/jobs", headers=bearer("etl_5"))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
        csrf = csrf_of(http.get("/sign-in").text)
        page = http.post("/sign-in", data={"csrf": csrf, "token": "etl_6"})
        assert (page.status_code, page.headers["retry-after"]) == (429, "60")
        # Others of the same address, which may be a proxy's, have right tokens.
        assert http.get(f"{API}/jobs", headers=bearer(secret)).status_code == 200
        sign_in(http, secret)


def test_every_answer_has_the_headers_of_a_careful_server(http: TestClient) -> None:
    for path in ("/", f"{API}/jobs", f"{API}/nothing", "/sign-in", "/nothing", "/api/docs"):
        headers = http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "same-origin", path
        policy = headers["content-security-policy"]
        assert "default-src" in policy
        assert "unsafe-eval" not in policy
        assert "script-src 'unsafe-inline'" not in policy
        assert "access-control-allow-origin" not in headers


def test_signing_in_leads_nowhere_else() -> None:
    assert own_path("/jobs/1?a=b") == "/jobs/1?a=b"
    for place in (
        "//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)",
        "/a\r\nSet-Cookie: x", "/\t/evil.example", "",
    ):  # fmt: skip
        assert own_path(place) == "/", place


def test_off_the_loopback_it_does_not_start_without_tokens(lab: Lab) -> None:
    assert not is_reached_by_others(Settings())
    assert not is_reached_by_others(Settings(host="localhost"))
    for settings in (
        Settings(host="0.0.0.0"), Settings(host="::"), Settings(hosts=("lab.example.org",)),
        Settings(trusted_proxies=("10.0.0.1",)),
    ):  # fmt: skip
        assert is_reached_by_others(settings)
        through = " through a proxy" if settings.host == "127.0.0.1" else ", "
        with pytest.raises(LabError, match=f"reach {settings.host}{through}.*no tokens"):
            serve(lab, settings)


def test_the_key_is_one_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    key = key_of(tmp_path)
    assert (len(key), key_of(tmp_path)) == (32, key)
    file = tmp_path / "server.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    assert key_of(tmp_path) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"short")
    with pytest.raises(LabError, match="is not a key"):
        key_of(tmp_path)


def test_who_reads_the_key_needs_no_token(lab: Lab) -> None:
    lab.database.add_token("ann", ["read"])
    settings = Settings()
    with TestClient(create_app(lab, settings), base_url="http://127.0.0.1") as http:
        headers = bearer(local_secret(settings.key))
        assert http.get(f"{API}/tokens", headers=headers).status_code == 200
        other = bearer(local_secret(b"x" * 32))
        assert http.get(f"{API}/tokens", headers=other).status_code == 401


def test_a_program_that_sends_like_a_form_is_told_what_to_send(http: TestClient) -> None:
    refused = http.put(f"{API}/files/{'0' * 64}", content=b"x=1", headers=FORM)
    assert refused.status_code == 403
    assert "no CSRF token" in refused.json()["error"]
    assert "Content-Type: application/octet-stream" in refused.json()["hint"]


def test_half_of_a_request_is_not_waited_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_app, "_HEAD_SECONDS", 0.5)
    monkeypatch.setattr(middleware, "_BODY_SECONDS", 0.5)
    halves = b"", b"GET / HTTP/1.1\r\nHost: ", b"GET /api/v1/health HTTP/1.1\r\n\r\nGET "
    with running(lab) as address, ExitStack() as stack:
        for half in halves:
            client = stack.enter_context(connection(address))
            client.sendall(half)
            while client.recv(65536):  # until it is closed; the test's own limit is an error
                pass
        client = stack.enter_context(connection(address))
        host = address.split("/")[2]
        head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        answer = b""
        while piece := client.recv(65536):  # until it is closed
            answer += piece
        assert answer.startswith(b"HTTP/1.1 408 ") and b"stopped coming" in answer


def test_a_client_that_leaves_during_an_upload_is_no_error(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    with running(lab) as address:
        with connection(address) as client:
            head = f"PUT {API}/files/{'0' * 64} HTTP/1.1\r\nHost: {address.split('/')[2]}\r\n"
            kind = "Content-Type: application/octet-stream\r\n"
            client.sendall(f"{head}{kind}Content-Length: 100\r\n\r\nhalf".encode())
        with connection(address) as client:  # is answered, so the first one was read
            client.sendall(f"GET / HTTP/1.1\r\nHost: {address.split('/')[2]}\r\n\r\n".encode())
            assert client.recv(65536)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_pages_answer_to_head(http: TestClient) -> None:
    page = http.head("/")
    assert (page.status_code, page.content) == (200, b"")


def test_who_sends_slowly_but_sends_is_served(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_app, "_HEAD_SECONDS", 60.0)
    with running(lab) as address, connection(address) as client:
        host = address.split("/")[2]
        for _ in range(2):  # one connection for both
            for piece in ("GET /api/v1/health HT", f"TP/1.1\r\nHost: {host}\r", "\n\r\n"):
                client.sendall(piece.encode())
            answer = b""
            while b'"status":"ok"' not in answer:
                piece = client.recv(65536)
                assert piece
                answer += piece
            assert answer.startswith(b"HTTP/1.1 200 ")


def connection(address: str) -> socket.socket:
    host, _, port = address.split("/")[2].partition(":")
    return socket.create_connection((host, int(port)), 60)
