"""`etscope report --serve`: its routes, what it refuses, and that it follows the files."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import MissingFileError, UsageError
from etscope.reporting import serve as serving
from etscope.reporting.report import ReportOptions
from etscope.reporting.serve import (
    FileWatcher,
    ReportStore,
    event_stream,
    is_own_name,
    wsgi_application,
)
from tests.support.artifacts import artifacts

Response = tuple[int, dict[str, str], bytes]


class Client:
    """Calls a WSGI application."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def get(
        self, address: str, *, host: str = "127.0.0.1:1", method: str = "GET", **more: Any
    ) -> Response:
        path, _, query = address.partition("?")
        environ = {
            **more,
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "HTTP_HOST": host,
        }
        started: list[Any] = []
        body = b"".join(self._application(environ, lambda *given: started.append(given)))
        ((status, headers),) = started
        return int(status.split()[0]), dict(headers), body


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a run, and a folder in it with a record alone."""
    files = artifacts("cnn_portable")
    shutil.copy(files.etdump_timing, tmp_path / "a.etdp")
    shutil.copy(files.etrecord, tmp_path / "a.etrecord")
    inner = tmp_path / "alone"
    inner.mkdir()
    shutil.copy(files.etrecord, inner / "b.etrecord")
    return tmp_path


@pytest.fixture
def store(folder: Path) -> ReportStore:
    return ReportStore([str(folder)], ReportOptions())


@pytest.fixture
def client(store: ReportStore) -> Client:
    return Client(wsgi_application(store, FileWatcher(store.stamps)))


def test_the_routes(client: Client, folder: Path) -> None:
    status, headers, body = client.get("/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'id="app"' in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]

    status, headers, body = client.get("/reports.json")
    entries = json.loads(body)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert [entry["title"] for entry in entries] == [folder.name, f"{folder.name}/alone"]

    first, second = (json.loads(client.get(f"/data.json?report={e['id']}")[2]) for e in entries)
    assert first["runs"][0]["methods"] and not second["runs"][0]["methods"]
    assert json.loads(client.get("/data.json")[2]) == first


def test_a_path_leads_to_no_file(client: Client) -> None:
    for path in (
        "/../../etc/passwd",
        "/a.etdp",
        "/etscope/views/page/html.py",
        "//etc/passwd",
        "/%2e%2e/a.etdp",
        "/data.json/../a.etdp",
        "",
    ):
        assert client.get(path)[0] == 404, path
    for name in ("../alone", "/etc/passwd", "none", "alone%00"):
        assert client.get(f"/data.json?report={name}")[0] == 404, name
    assert client.get("/data.json?report=")[0] == 200


def opened(client: Client, name: str, content: bytes, **more: Any) -> Response:
    """Open a file as the page does."""
    token = client.get("/reports.json")[1]["etscope-token"]
    query = urllib.parse.urlencode({"drop": more.pop("drop", "1"), "name": name})
    given = {
        "HTTP_ETSCOPE_TOKEN": token,
        "CONTENT_LENGTH": str(len(content)),
        "wsgi.input": io.BytesIO(content),
    }
    return client.get(f"/files?{query}", method="POST", **{**given, **more})


def test_files_that_are_opened_together_are_one_report(client: Client) -> None:
    files = artifacts("cnn_portable")
    for path, name in ((files.etrecord, "m.etrecord"), (files.etdump_timing, "run.etdp")):
        status, _, report = opened(client, name, path.read_bytes())
        assert status == 200
    run = json.loads(client.get(f"/data.json?report={report.decode()}")[2])["runs"][0]
    assert run["methods"] and run["graphs"]
    assert opened(client, "b.pte", files.pte.read_bytes(), drop="2")[0] == 200
    titles = [entry["title"] for entry in json.loads(client.get("/reports.json")[2])]
    assert titles[-2:] == ["m.etrecord, run.etdp", "b.pte"]


def test_what_cannot_be_opened_is_refused(client: Client, store: ReportStore) -> None:
    dump = artifacts("cnn_portable").etdump_timing.read_bytes()
    before = len(store.entries())
    for name in ("../a.etdp", "/tmp/a.etdp", "..", ".a", "a\\b", "", "x" * 300, "a\0b"):
        assert opened(client, name, dump)[0] == 422, name
    assert opened(client, "a.etdp", dump, drop="../1")[0] == 422
    status, _, text = opened(client, "a.py", b"print(1)")
    assert status == 422 and b"not a file that etscope reads" in text
    assert opened(client, "a.etdp", dump, CONTENT_LENGTH=str(len(dump) + 1))[0] == 422
    for size in ("", "-1", str(1 << 40)):
        assert opened(client, "a.etdp", dump, CONTENT_LENGTH=size)[0] == 413, size
    for token in ("", "wrong", "ä"):
        assert opened(client, "a.etdp", dump, HTTP_ETSCOPE_TOKEN=token)[0] == 403
    assert client.get("/files?drop=1&name=a.etdp")[0] == 405
    assert len(store.entries()) == before
    foreign = Client(wsgi_application(store, FileWatcher(store.stamps), "0.0.0.0"))
    assert "etscope-token" not in foreign.get("/reports.json")[1]
    assert foreign.get("/files", method="POST")[0] == 405  # nothing takes POST


def test_another_name_for_this_machine_is_refused(client: Client) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        for path in ("/", "/data.json", "/reports.json", "/events"):
            assert client.get(path, host=host)[0] == 403


def test_own_names() -> None:
    for header, host, expected in (
        ("127.0.0.1:8000", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("LOCALHOST.:99", "127.0.0.1", True),
        ("[::1]:8000", "::1", True),
        ("192.168.1.5:80", "127.0.0.1", False),
        ("192.168.1.5:80", "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        ("box.local:1", "box.local", True),
    ):
        assert is_own_name(header, host) is expected, header


def test_only_reading_is_known(client: Client) -> None:
    assert client.get("/data.json", method="POST")[0] == 405
    status, headers, body = client.get("/data.json", method="HEAD")
    assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 1000


def test_a_broken_file_is_an_answer(client: Client, folder: Path) -> None:
    (folder / "a.etrecord").write_bytes((folder / "a.etrecord").read_bytes()[:2000])
    status, headers, body = client.get(f"/data.json?report={folder.name}")
    assert status in (404, 422)
    assert headers["Content-Type"].startswith("text/plain")
    assert b"Traceback" not in body


def test_a_report_is_made_again_when_a_file_changes(store: ReportStore, folder: Path) -> None:
    watch = FileWatcher(store.stamps)
    before = store.data(folder.name)
    assert store.data(folder.name) is before
    watch.look()
    assert watch.count == 0

    shutil.copy(artifacts("cnn_portable").etdump, folder / "a.etdp")
    watch.look()
    assert watch.count == 0  # it may not be complete
    watch.look()

    assert watch.after(0, 0) == [folder.name]
    after = json.loads(store.data(folder.name))
    assert after["runs"][0]["files"] != json.loads(before)["runs"][0]["files"]


def test_a_new_folder_is_a_new_report(store: ReportStore, folder: Path) -> None:
    watch = FileWatcher(store.stamps)
    new = folder / "new"
    new.mkdir()
    shutil.copy(artifacts("cnn_portable").pte, new / "m.pte")
    watch.look()
    watch.look()
    (identifier,) = watch.after(0, 0)
    assert {entry.id: entry.title for entry in store.entries()}[identifier] == f"{folder.name}/new"


def test_the_stream_tells_changes(store: ReportStore, folder: Path) -> None:
    watch = FileWatcher(store.stamps)
    stream = event_stream(watch, seconds=0.01)
    assert next(stream).startswith(b"retry:")
    assert next(stream) == b": still here\n\n"
    os.utime(folder / "a.etdp", ns=(1, 1))
    watch.look()
    watch.look()
    assert next(stream) == f"data: {folder.name}\n\n".encode()


def test_nothing_to_show_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        ReportStore([], ReportOptions())
    with pytest.raises(UsageError, match="holds no file"):
        ReportStore([str(tmp_path)], ReportOptions())
    with pytest.raises(MissingFileError):
        ReportStore([str(tmp_path / "none.etdp")], ReportOptions())


def test_titles_that_are_alike_get_ids_of_their_own(tmp_path: Path) -> None:
    for name in ("x/m", "y/m"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(artifacts("cnn_portable").pte, tmp_path / name / "m.pte")
    store = ReportStore([str(tmp_path / "x" / "m"), str(tmp_path / "y" / "m")], ReportOptions())
    assert [entry.id for entry in store.entries()] == ["m", "m-2"]


def test_a_port_that_is_taken_is_told(store: ReportStore) -> None:
    pytest.importorskip("werkzeug")
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot listen"):
            serving.serve(store, port=taken.getsockname()[1])


# -- the command


@pytest.fixture
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a child that ignores SIGINT, as jobs in the background of a shell do."""
    pytest.importorskip("werkzeug")
    process = subprocess.Popen(
        [sys.executable, "-m", "etscope", "report", "--serve", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        address = process.stdout.readline().strip()
        if not address.startswith("http://127.0.0.1:"):
            process.kill()
            pytest.fail(f"{address}\n{process.stderr.read()}")
        yield process, address
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_told_to_end(
    served: tuple[subprocess.Popen[str], str], number: signal.Signals
) -> None:
    process, address = served

    def ask(_: int) -> bytes:
        with urllib.request.urlopen(f"{address}data.json", timeout=120) as response:
            found: bytes = response.read()
        return found

    with ThreadPoolExecutor(5) as pool:
        [answer] = {*pool.map(ask, range(5))}
    assert json.loads(answer)["schema"] == "etscope.report/3"
    stream = urllib.request.urlopen(f"{address}events", timeout=120)  # left open
    assert stream.readline() == b"retry: 1000\n"

    process.send_signal(number)

    assert process.wait(60) == 0
    stream.close()
