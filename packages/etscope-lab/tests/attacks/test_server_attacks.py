"""The lab's server against people who mean harm: what they upload, what they call things, and how
they talk HTTP. Who gets in at all is tested in tests/integration/test_server_security.py."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import socket
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from etscope_lab.lab import Lab
from etscope_lab.server.app import create_app
from etscope_lab.server.settings import Settings
from lab_support.server import a_done_job, a_job, program, running
from tests.support.artifacts import artifacts
from tests.support.waiting import until

API = "/api/v1"
OCTETS = {"Content-Type": "application/octet-stream"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; DROP TABLE jobs; --",
    "%' OR '1'='1",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "${jndi:ldap://x}",
    "\u202egnp.exe",
    "javascript:alert(1)",
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab.open(tmp_path / "lab") as opened:
        yield opened


@pytest.fixture
def http(lab: Lab, tmp_path: Path) -> Iterator[TestClient]:
    app = create_app(lab, Settings(uploads=tmp_path / "uploads", max_upload_bytes=1 << 20))
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
        yield client


def put(http: TestClient, data: bytes, name: str = "file") -> Any:
    sha256 = hashlib.sha256(data).hexdigest()
    return http.put(f"{API}/files/{sha256}?name={quote(name)}", content=data, headers=OCTETS)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.folder,)


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


# -- uploads


def test_takes_what_jobs_have(http: TestClient) -> None:
    files = artifacts("two_methods")
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    head = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    safetensors = len(head).to_bytes(8, "little") + head + bytes(4)
    assert files.etrecord is not None
    assert files.inputs is not None
    assert files.inputs_pt is not None
    for data, kind in (
        (files.pte.read_bytes(), "pte"), (files.etrecord.read_bytes(), "etrecord"),
        (files.inputs.read_bytes(), "npz"), (files.inputs_pt.read_bytes(), "pt"),
        (array.getvalue(), "npy"), (safetensors, "safetensors"),
        (b"\x10\x00\x00\x00FT01" + bytes(16), "ptd"),
    ):  # fmt: skip
        answer = put(http, data)
        assert (answer.status_code, answer.json().get("media_type")) == (
            201, f"application/x-{kind}",
        )  # fmt: skip


def test_takes_nothing_else(http: TestClient, tmp_path: Path, lab: Lab) -> None:
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    for data in (
        b"", b"x", b"#!/bin/sh\nrm -rf /\n", b"\x7fELF" + bytes(60), b"<html></html>",
        artifacts("two_methods").etdump.read_bytes(), trap, pickle.dumps([1]), bytes(100),
        zipped({"a.txt": b"x"}), zipped({"a.npy": b"x", "b.sh": b"x"}), zipped({}),
        b"PK\x03\x04" + bytes(100), b'\xff\xff\xff\xff\xff\xff\xff\x7f{"a"', b'{"json": 1}',
    ):  # fmt: skip
        answer = put(http, data)
        assert answer.status_code == 415, data[:20]
        assert not lab.store.has(hashlib.sha256(data).hexdigest())
    assert not (tmp_path / "sprung").exists()
    assert list((tmp_path / "uploads").iterdir()) == []


def test_a_pickle_in_an_archive_is_kept_and_never_opened(
    http: TestClient, tmp_path: Path, lab: Lab
) -> None:
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    answer = put(http, zipped({"archive/data.pkl": trap, "archive/version": b"3\n"}), "a.pt")
    assert answer.status_code == 201
    job = http.post(f"{API}/jobs", json={
        "model": f"sha256:{hashlib.sha256(program().read_bytes()).hexdigest()}",
        "inputs": {"sha256": answer.json()["sha256"], "name": "a.pt"},
    })  # fmt: skip
    assert job.status_code == 404  # the model is not there yet
    a_job(lab)
    assert not (tmp_path / "sprung").exists()


def test_a_zip_bomb_is_not_unpacked(http: TestClient) -> None:
    bomb = zipped({"a.npy": bytes(200 << 20)})
    assert len(bomb) < 1 << 20
    # Its directory tells what it is; it is for the job's own process to refuse the member.
    assert put(http, bomb).status_code in (201, 415)
    many = zipped({f"{n}.npy": b"" for n in range(9000)})
    assert put(http, many).status_code in (201, 413, 415)


def test_content_is_what_the_name_says(http: TestClient, lab: Lab) -> None:
    data = program().read_bytes()
    other = hashlib.sha256(b"other").hexdigest()
    answer = http.put(f"{API}/files/{other}", content=data, headers=OCTETS)
    assert answer.status_code == 409
    assert not lab.store.has(other)
    assert not lab.store.has(hashlib.sha256(data).hexdigest())


def test_too_much_is_refused_whatever_the_header_says(http: TestClient, tmp_path: Path) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield bytes(1 << 16)

    big = bytes(2 << 20)
    path = f"{API}/files/{hashlib.sha256(big).hexdigest()}"
    assert http.put(path, content=big, headers=OCTETS).status_code == 413
    answer = http.put(path, content=endless(), headers=OCTETS)  # chunked: says no length
    assert (answer.status_code, answer.json()["slug"]) == (413, "usage")
    long = {"model": "sha256:" + "0" * 64, "labels": {"a": "x" * (2 << 20)}}
    assert http.post(f"{API}/jobs", json=long).status_code == 413
    for wrong in ("-1", "1e3", "9" * 30, "٣"):
        headers = {**OCTETS, "Content-Length": wrong.encode()}
        assert http.put(path, content=b"x", headers=headers).status_code in (400, 413)
    uploads = tmp_path / "uploads"
    assert not uploads.exists() or list(uploads.iterdir()) == []


def test_a_body_that_breaks_off_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    with running(lab, Settings(uploads=uploads)) as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port), 60) as connection:
            head = f"PUT {API}/files/{'0' * 64} HTTP/1.1\r\nHost: {place.netloc}\r\n"
            head += "Content-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n"
            connection.sendall(head.encode() + b"ET12" * 1000)
        until(lambda: uploads.is_dir() and list(uploads.iterdir()) == [])


def test_smuggled_requests_are_refused(lab: Lab) -> None:
    with running(lab) as url:
        place = urlsplit(url)
        for extra in (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
            "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            "Host: evil.example\r\n\r\n",
            "X-A: b\r\n folded: c\r\n\r\n",
        ):
            head = f"POST {API}/jobs HTTP/1.1\r\nHost: {place.netloc}\r\n{extra}"
            assert _status(place.hostname, place.port, head.encode()) in (400, 403, 415), extra
        long = f"GET /{'x' * 100_000} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n"
        assert _status(place.hostname, place.port, long.encode()) in (400, 404, 414, 431)


def _status(host: str | None, port: int | None, request: bytes) -> int:
    """The status of the answer to raw bytes; 400 when the connection just ends."""
    with socket.create_connection((host, port), 60) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            said = connection.recv(4096)
        except ConnectionError:
            return 400
    return int(said.split(b" ")[1]) if said else 400


# -- names and paths


def test_paths_lead_to_nothing_but_what_the_lab_knows(http: TestClient, lab: Lab) -> None:
    job = a_done_job(lab, {"run.etdp": b"x"})
    for path in (
        "/files/..%2f..%2fserver.key", "/files/%2e%2e", "/jobs/{job}/files/..%2f..%2flab.db",
        "/jobs/{job}/files/%2e%2e%2fserver.key", "/jobs/..%5c..%5cx",
        "/jobs/{job}/files//etc/passwd", "/jobs/{job}/files/%00", "/jobs/{job}/files/x%0d%0a",
        "/jobs/{job}/files/%252e%252e%252fx", "/jobs/{job}/files/run.etdp/..",
        "/../../../etc/passwd", "/jobs/{job}%0d%0aSet-Cookie:%20a=b", "/jobs/" + "a" * 5000,
        "/jobs/%ff%fe", "/jobs/*", "/jobs/%25", "/jobs/_",
    ):  # fmt: skip
        for base in (API, ""):
            answer = http.get(base + path.format(job=job.id))
            assert answer.status_code in (303, 307, 404, 405, 422), base + path
            assert "set-cookie" not in answer.headers
            assert b"root:" not in answer.content


def test_names_of_files_are_no_paths(http: TestClient, lab: Lab) -> None:
    data = program().read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    assert put(http, data, "ok.pte").status_code == 201
    for name in ("../../x", "/etc/passwd", "a\\b", "a\nb", "a\0b", "x" * 256, ""):
        assert put(http, data, name).status_code == 422, name
        spec = {"model": {"sha256": sha256, "name": name}}
        assert http.post(f"{API}/jobs", json=spec).status_code == (422 if name else 201), name


def test_names_of_artefacts_break_no_headers(http: TestClient, lab: Lab) -> None:
    names = ['a"b;c.txt', "ü\u202e.txt", "a;filename=evil.exe", "x'y"]
    job = a_done_job(lab, {name: name.encode() for name in names})
    for name in names:
        answer = http.get(f"{API}/jobs/{job.id}/files/{quote(name, safe='')}")
        assert (answer.status_code, answer.content) == (200, name.encode())
        said = answer.headers["content-disposition"]
        assert said.startswith("attachment; filename=") and said.isascii()
        assert said.count('"') == 2
        assert said.endswith(f"filename*=UTF-8''{quote(name, safe='')}")


def test_a_symlink_in_the_store_gives_nothing_away(lab: Lab, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    job = a_done_job(lab, {"run.etdp": b"public"})
    [kept] = [path for path in Path(lab.store.url).rglob("*")
              if path.is_file() and path.read_bytes() == b"public"]  # fmt: skip
    kept.unlink()
    kept.symlink_to(secret)
    with running(lab) as url, pytest.raises(httpx.RemoteProtocolError):  # it breaks off
        httpx.get(f"{url}api/v1/jobs/{job.id}/files/run.etdp")


# -- text that is code elsewhere


def test_text_stays_text(http: TestClient) -> None:
    data = program().read_bytes()
    put(http, data)
    sha256 = hashlib.sha256(data).hexdigest()
    jobs = {}
    for text in HOSTILE:
        spec = {
            "model": {"sha256": sha256, "name": text.replace("/", "_")}, "name": text,
            "labels": {text: text}, "device": {"name": text},
        }  # fmt: skip
        made = http.post(f"{API}/jobs?again=true", json=spec)
        assert (made.status_code, made.json()["spec"]["name"]) == (201, text)
        jobs[text] = made.json()["id"]
    paths = ["/", "/history", "/devices"]
    for text, job in jobs.items():
        paths += [f"/jobs/{job}", f"/?text={quote(text)}", f"/jobs/{quote(text, safe='')}"]
        found = http.get(f"{API}/jobs", params={"text": text}).json()
        assert [one["id"] for one in found["jobs"]] == [job]
    for path in paths:
        page = http.get(path).text
        assert "<script>alert" not in page, path
        assert "<img src=x" not in page, path
        assert "49{%" not in page, path
    wildcard = http.get(f"{API}/jobs", params={"text": "%"}).json()
    assert wildcard["total"] == sum("%" in text for text in HOSTILE)


def test_control_characters_do_not_get_in(http: TestClient) -> None:
    base = {"model": "sha256:" + "0" * 64}
    for spec in (
        {"name": "a\x1b[2J"}, {"name": "\x00"}, {"labels": {"a\r\nb": "c"}},
        {"labels": {"a": "\x7f"}}, {"method": "a\x00"}, {"device": "a\x00"},
        {"device": {"attributes": {"a": "\n"}}}, {"name": "\ud800"},
    ):  # fmt: skip
        body = json.dumps({**base, **spec})
        answer = http.post(
            f"{API}/jobs", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422, spec


def test_a_log_is_plain_text_in_a_sandbox(http: TestClient, lab: Lab) -> None:
    job = a_done_job(lab, {"log.txt": b"<script>alert(1)</script>\x1b[2J\r\nSet-Cookie: a=b"})
    answer = http.get(f"{API}/jobs/{job.id}/log")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert "set-cookie" not in answer.headers
    assert "<script>alert" not in http.get(f"/jobs/{job.id}").text


def test_json_that_is_deep_or_strange_is_an_error_of_the_sender(http: TestClient) -> None:
    for body in (
        b"[" * 100_000, b'{"model":' * 50_000, b'{"model": 1e999}', b'{"iterations": NaN}',
        b"\xff\xfe{}", b'{"a": "\\ud800"}', b"9" * 10_000, b'{"model": ' + b"9" * 5000 + b"}",
    ):  # fmt: skip
        answer = http.post(
            f"{API}/jobs", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in (400, 422), body[:20]
        assert set(answer.json()) == {"error", "slug", "hint"}


def test_simple_requests_of_a_form_are_no_api_calls(http: TestClient, lab: Lab) -> None:
    spec = json.dumps({"model": f"sha256:{a_job(lab).spec.model.sha256}"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = http.post(f"{API}/jobs?again=true", content=spec, headers={"Content-Type": kind})
        assert answer.status_code in (403, 415), kind
    assert lab.jobs().total == 1


def test_many_at_once_are_all_answered(lab: Lab) -> None:
    """One lab, many uploads of the same file at once: one object, every answer good."""
    data = program().read_bytes()
    path = f"{API}/files/{hashlib.sha256(data).hexdigest()}"
    codes: list[int] = []
    with running(lab) as url:

        def send() -> None:
            codes.append(httpx.put(url.rstrip("/") + path, content=data, headers=OCTETS,
                                   timeout=60).status_code)  # fmt: skip

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(codes) == 8
    assert set(codes) <= {200, 201}
