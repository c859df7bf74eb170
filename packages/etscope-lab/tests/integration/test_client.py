"""`Client`: a lab by HTTP, over a real server on the loopback."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from etscope.errors import (
    FormatError,
    LabError,
    MissingDataError,
    MissingFileError,
    UsageError,
)
from etscope_lab.client import Client, verified
from etscope_lab.jobs.records import Filter, State
from etscope_lab.jobs.spec import JobSpec
from etscope_lab.lab import Lab
from etscope_lab.server.settings import Settings
from lab_support.server import a_done_job, a_job, program, running
from tests.support.artifacts import artifacts
from tests.support.ports import free_port, nobody_listens


@pytest.fixture
def client(lab: Lab) -> Iterator[Client]:
    with running(lab) as url, Client(url) as opened:
        yield opened


def test_submits_files_that_the_lab_has_not(lab: Lab, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    model = tmp_path / "mödel 1.pte"
    model.write_bytes(program().read_bytes())
    size = model.stat().st_size
    spec = JobSpec(model={"path": str(model)}, labels={"a": "b"}, iterations=3)
    with running(lab) as url, Client(url, progress=lambda *said: seen.append(said)) as client:
        job, new = client.submit_new(spec, submitter="ann")
        assert (new, job.state, job.submitter, job.spec.iterations) == (True, "queued", "ann", 3)
        assert job.spec.model.name == "mödel 1.pte"
        assert ("sending mödel 1.pte", size, size) in seen
        seen.clear()
        again, new = client.submit_new(spec)
        assert (new, again.id) == (False, job.id)
        assert not [one for one in seen if one[0].startswith("sending")]
        assert client.submit(spec, again=True).id != job.id
    assert lab.job(job.id) == job
    assert lab.store.has(hashlib.sha256(program().read_bytes()).hexdigest())
    # What a lab in this process makes of it is the same work.
    assert lab.submit_new(spec)[1] is False


def test_says_what_a_lab_says(client: Client, lab: Lab) -> None:
    dump = artifacts("two_methods").etdump.read_bytes()
    done = a_done_job(lab, {"run.etdp": dump, "log.txt": "ähm".encode()}, labels={"n": "1"})
    queued = a_job(lab, name="ünique")
    assert client.job(done.id[:10]) == done
    assert client.jobs() == lab.jobs()
    assert client.jobs(Filter(text="ünique")).jobs == (queued,)
    assert client.jobs(Filter((State.DONE,), labels={"n": "1"})).total == 1
    first = client.jobs(limit=1)
    assert client.jobs(limit=1, cursor=first.next).jobs == (done,)
    assert client.events(done.id) == lab.events(done.id)
    assert client.log(done.id) == "ähm"
    assert client.devices() == lab.devices()
    assert client.history() == lab.history()
    assert b"".join(client.read(done.id, "run.etdp")) == dump
    assert client.cancel(queued.id).state is State.CANCELLED


def test_fetches_whole_files(client: Client, lab: Lab, tmp_path: Path) -> None:
    files = {"run.etdp": b"x" * 3_000_000, "log.txt": b""}
    job = a_done_job(lab, files)
    paths = client.fetch(job.id, tmp_path / "out")
    assert {path.name: path.read_bytes() for path in paths} == files
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(files)
    with pytest.raises(MissingDataError, match=r"it has log\.txt, run\.etdp"):
        client.fetch(job.id, tmp_path / "out", ["other"])
    for api in (client, lab):  # also by the name of a folder
        [path] = api.fetch(job.id, str(tmp_path / "named"), ["log.txt"])
        assert (path, path.read_bytes()) == (tmp_path / "named" / "log.txt", b"")
    lying = a_done_job(lab, {"../evil": b"x"})
    with pytest.raises(FormatError, match="not a name for a file"):
        client.fetch(lying.id, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_damage_on_the_way_is_seen(
    client: Client, lab: Lab, tmp_path: Path, monkeypatch: Any
) -> None:
    job = a_done_job(lab, {"run.etdp": b"right"})
    monkeypatch.setattr(lab, "read", lambda *_: iter([b"wrong"]))
    with pytest.raises(LabError, match="was lost"):  # the server breaks off
        client.fetch(job.id, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(FormatError, match="arrived damaged"):  # one that does not
        list(verified([b"wrong"], job.artifacts["run.etdp"], lambda *_: None))


def test_errors_are_those_of_a_lab(client: Client, lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as missing:
        client.job("abc")
    with pytest.raises(MissingDataError) as here:
        lab.job("abc")
    assert (missing.value.message, missing.value.hint) == (here.value.message, here.value.hint)
    done = a_done_job(lab, {})
    with pytest.raises(UsageError):
        client.cancel(done.id)
    with pytest.raises(MissingFileError):
        client.submit(JobSpec(model={"path": str(tmp_path / "none.pte")}))
    text = tmp_path / "text.pte"
    text.write_text("hello, this is no program")
    with pytest.raises(UsageError, match="not a file for jobs"):
        client.submit(JobSpec(model={"path": str(text)}))
    with pytest.raises(UsageError):
        client.job("..")


def test_large_files_are_refused_before_they_are_sent(lab: Lab) -> None:
    settings = Settings(max_upload_bytes=100)
    with (
        running(lab, settings) as url,
        Client(url) as client,
        pytest.raises(UsageError, match="the lab takes 100 at most"),
    ):
        client.submit(JobSpec(model={"path": str(program())}))


def test_waits_for_the_end(client: Client, lab: Lab) -> None:
    job = a_job(lab)
    with pytest.raises(TimeoutError, match="is queued after"):
        client.wait(job.id, 0.3)
    threading.Timer(0.3, lambda: lab.cancel(job.id)).start()
    assert client.wait(job.id, 60).state is State.CANCELLED
    assert client.wait(job.id).state is State.CANCELLED


def test_a_restart_of_the_server_is_waited_for(lab: Lab) -> None:
    job = a_job(lab)
    port = free_port()
    found: list[Any] = []
    asked = threading.Event()
    with running(lab, None, port) as url:
        client = Client(url)
        client._http.event_hooks = {"request": [lambda request: asked.set()]}
        waiting = threading.Thread(target=lambda: found.append(client.wait(job.id, 300)))
        waiting.start()
        assert asked.wait(300)
    asked.clear()
    assert asked.wait(300)  # while nobody is there
    assert not found
    with running(lab, None, port):
        lab.cancel(job.id)
        waiting.join(300)
    client.close()
    assert [one.state for one in found] == [State.CANCELLED]


def test_what_is_no_lab_is_said_with_what_to_do(client: Client) -> None:
    wrong = "is not a lab of this version"
    with Client(client.url + "/x") as other, pytest.raises(LabError, match=wrong):
        other.jobs()
    with nobody_listens() as port, Client(f"http://127.0.0.1:{port}") as nobody:
        silent = rf"no lab answers at http://127\.0\.0\.1:{port}"
        with pytest.raises(LabError, match=silent) as caught:
            nobody.jobs()
    assert caught.value.hint == "etscope lab serve starts one"
    for address in ("127.0.0.1:8000", "ftp://x", "http://", "http://[::"):
        with pytest.raises(UsageError):
            Client(address)


def test_the_token_is_sent(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = lab.database.add_token("ann", ["admin"])
    with running(lab) as url:
        with Client(url) as nobody, pytest.raises(LabError, match="this needs a token"):
            nobody.jobs()
        monkeypatch.setenv("ETSCOPE_LAB_TOKEN", secret)
        with Client(url) as ann:
            assert ann.jobs().total == 0
            made = ann.add_token("ci", ["submit"])
            assert [(one.name, sorted(one.scopes)) for one in ann.tokens()][1][0] == "ci"
            with Client(url, made) as ci, pytest.raises(LabError, match="scope 'admin'"):
                ci.tokens()
            ann.revoke("ci")
            with Client(url, made) as ci, pytest.raises(LabError, match="not valid"):
                ci.jobs()
    with pytest.raises(UsageError, match="a token has no blanks"):
        Client(url, "a\nb")


def test_a_lost_connection_is_tried_again_where_that_is_safe(lab: Lab) -> None:
    job = a_job(lab)
    with running(lab) as url, Client(url) as client:
        real, lost = client._http, []

        class Flaky(httpx.BaseTransport):
            """Loses the connection after each first request."""

            def handle_request(self, request: httpx.Request) -> httpx.Response:
                answer = real._transport.handle_request(request)
                key = (request.method, request.url.path)
                if key not in lost:
                    lost.append(key)
                    answer.read()
                    raise httpx.ReadError("connection reset", request=request)
                return answer

        client._http = httpx.Client(transport=Flaky(), base_url=real.base_url, headers=real.headers)
        assert client.job(job.id).id == job.id
        made = client.submit(JobSpec(model={"path": str(program())}, iterations=7))
        assert client.submit(JobSpec(model={"path": str(program())}, iterations=7)) == made
        assert lab.jobs().total == 2
        with pytest.raises(LabError, match="was lost"):
            client.cancel(job.id)  # it may have been heard: whoever asks decides
        assert len(lost) >= 3
        client._http.close()
        client._http = real
