"""One attempt at a job, as a Dask worker executes it: what happened, in one of the final states."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import LabError
from etscope_lab.jobs.records import DeviceConfig, Interruption, Order, State, input_path
from etscope_lab.lab import Lab
from etscope_lab.store import Store
from etscope_lab.worker import subprocesses as child
from etscope_lab.worker import worker
from lab_support.checks import submit
from lab_support.devices import ended
from lab_support.simulated_device import fault, said, write_lab
from tests.support.artifacts import artifacts
from tests.support.waiting import until


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(worker, "_lost", set())
    write_lab(tmp_path / "lab", artifacts("cnn_xnnpack").folder, 1)
    with Lab.open(tmp_path / "lab") as lab:
        yield lab
    assert list(temporary.glob("etscope-job-*")) == []


def order(lab: Lab, token: str = "", **spec: Any) -> Order:
    [job] = submit(lab, **spec)
    plain = job.spec.model_dump(mode="json")
    return Order(
        job.id, 1, token or uuid.uuid4().hex, plain, lab.home.config.devices[0], lab.home.store_url
    )


def control(lab: Lab) -> Path:
    return lab.home.folder / "sim-0"


def test_what_was_measured(lab: Lab) -> None:
    heard: list[Any] = []
    outcome = worker.work(order(lab, traced_iterations=3), heard.append)
    assert outcome.state is State.DONE
    assert outcome.summary["latency"]["iterations"] == 3
    names = {artifact.name for artifact in outcome.artifacts}
    assert {"run.json", "run.etdp", "outputs.npz", "conditions.json", "log.txt"} <= names
    assert all(lab.store.has(artifact.sha256) for artifact in outcome.artifacts)
    assert outcome.busy_seconds > 0
    assert heard[0]["kind"] == "started"
    told = "".join(message["text"] for message in heard[1:])
    [log] = [artifact for artifact in outcome.artifacts if artifact.name == "log.txt"]
    assert lab.store.open(log.sha256).read().decode() == told
    assert "sim-0 ran" in told


def test_a_runtime_that_aborts(lab: Lab) -> None:
    fault(control(lab), "abort")
    outcome = worker.work(order(lab))
    assert outcome.state is State.FAILED
    assert "SIGABRT" in outcome.error
    assert outcome.error_slug == "runtime-failure"
    assert [artifact.name for artifact in outcome.artifacts if artifact.name == "log.txt"]


def test_a_model_that_hangs(lab: Lab) -> None:
    fault(control(lab), "hang")
    outcome = worker.work(order(lab, timeout_seconds=2.0))
    assert outcome.state is State.TIMEOUT
    assert outcome.error == "the job did not end within 2 s"
    assert [artifact.name for artifact in outcome.artifacts] == ["log.txt"]


def test_a_job_that_is_stopped(lab: Lab) -> None:
    fault(control(lab), "hang")
    given = order(lab, "stopped")

    def stop_when_begun(message: Any) -> None:
        if "executions" in message.get("text", ""):
            worker.stop("stopped")

    assert worker.work(given, stop_when_begun).state is State.CANCELLED


def test_a_job_that_is_stopped_before_it_begins(lab: Lab) -> None:
    worker.stop("early")
    outcome = worker.work(order(lab, "early"))
    assert (outcome.state, outcome.busy_seconds) == (State.CANCELLED, 0.0)


def test_a_lost_device_gets_no_more_orders_until_it_is_found(lab: Lab) -> None:
    unplugged = fault(control(lab), "lost-at-3").with_name("unplugged")
    outcome = worker.work(order(lab))
    assert outcome.state is State.DEVICE_LOST
    assert "sim-0 is unplugged" in outcome.error
    unplugged.unlink()
    assert worker.work(order(lab)).busy_seconds == 0
    [device] = lab.home.config.devices
    found = worker.check(device)
    assert (found.error, found.attributes["arch"]) == ("", "simulated")
    assert worker.work(order(lab)).state is State.DONE


def test_a_device_out_of_reach(lab: Lab) -> None:
    fault(control(lab), "unplugged")
    [device] = lab.home.config.devices
    assert "unplugged" in worker.check(device).error
    missing = worker.check(DeviceConfig("x", "tests.nowhere:Driver"))
    assert "tests.nowhere" in missing.error


def test_a_store_that_is_gone(lab: Lab) -> None:
    given = order(lab)
    Path(lab.home.store_url).rename(lab.home.folder / "elsewhere")
    outcome = worker.work(given)
    assert outcome.state is State.FAILED
    assert outcome.error_slug == LabError.slug
    assert outcome.error.startswith("the lab could not do this job: ")
    assert "is its disk mounted?" in outcome.error
    assert outcome.interruption is Interruption.LAB


def test_a_file_that_the_store_lost(lab: Lab) -> None:
    given = order(lab)
    lab.store.put_stream([b"another file"], "other")
    sha256 = given.spec["model"]["sha256"]
    (Path(lab.home.store_url) / "sha256" / sha256[:2] / sha256).unlink()
    outcome = worker.work(given)
    assert (outcome.state, outcome.interruption) == (State.FAILED, None)
    assert "has no object" in outcome.error


def test_a_full_temporary_folder(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Store, "fetch", full)
    outcome = worker.work(order(lab))
    assert (outcome.state, outcome.error_slug) == (State.FAILED, LabError.slug)
    assert "No space left on device" in outcome.error
    assert outcome.interruption is Interruption.LAB


def test_a_full_store_keeps_nothing_half(lab: Lab, small_disk: Callable[[str], Path]) -> None:
    small = small_disk("256k")
    store = Store(small)
    given = order(lab, traced_iterations=3)
    store.put_file(artifacts("cnn_xnnpack").pte, "program.pte")
    _fill(small)
    outcome = worker.work(replace(given, store=str(small)))
    assert (outcome.state, outcome.error_slug) == (State.FAILED, LabError.slug)
    assert outcome.artifacts == ()
    assert outcome.interruption is Interruption.LAB
    kept = [path for path in (small / "sha256").rglob("*") if path.is_file()]
    assert [path.name for path in kept] == [given.spec["model"]["sha256"]]


@pytest.mark.parametrize("stays", [False, True])
def test_a_temporary_folder_that_fills_while_a_job_runs(
    lab: Lab,
    small_disk: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    stays: bool,
) -> None:
    """While it is filled, the job waits."""
    small = small_disk("1m")
    monkeypatch.setattr(tempfile, "tempdir", str(small))
    given = order(lab)
    waits = fault(control(lab), "wait")

    done = threading.Event()
    filling: list[threading.Thread] = []

    def keep_full() -> None:
        while not done.wait(0.01):
            _fill(small)

    def fill(message: Any) -> None:
        if "executions" in message.get("text", ""):
            _fill(small)
            if stays:  # nor is there room for the answer when the job's files are gone
                filling.append(threading.Thread(target=keep_full))
                filling[0].start()
            waits.unlink(missing_ok=True)

    try:
        outcome = worker.work(given, fill)
    finally:
        done.set()
        for thread in filling:
            thread.join()
    assert (outcome.state, outcome.interruption) == (State.FAILED, Interruption.LAB)
    # By the process that measures, or if it has no room to say so, by its worker.
    assert "disk" in outcome.error and "is full" in outcome.error


def _fill(folder: Path) -> None:
    handle = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        with pytest.raises(OSError, match="No space"):
            while True:
                os.write(handle, bytes(4096))
    finally:
        os.close(handle)


def _locks(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def test_what_a_killed_worker_left_at_a_device_ends_first(lab: Lab) -> None:
    given = order(lab)
    with worker._device_alone(given.store, given.device, child.Stop()) as [handle]:
        path = os.readlink(f"/proc/self/fd/{handle}")
        code = "import time; time.sleep(600)"
        left = subprocess.Popen([sys.executable, "-c", code], pass_fds=(handle,))
    other = os.open(path, os.O_RDWR)
    try:
        assert not _locks(other)
        threading.Timer(0.2, left.kill).start()
        with worker._device_alone(given.store, given.device, child.Stop()):
            assert left.wait(120) == -signal.SIGKILL
            assert not _locks(other)
        assert _locks(other)
    finally:
        left.kill()
        left.wait()
        os.close(other)


_HANGS = """
import sys
from etscope_lab.worker import subprocesses as child
child.run_child("tests.support.child_programs", ["hang", sys.argv[1]], child.Path(sys.argv[2]),
                timeout=600, stop=child.Stop())
"""


def test_a_child_ends_with_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pids"
    parent = subprocess.Popen([sys.executable, "-c", _HANGS, str(pids), str(tmp_path)])
    try:
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    finally:
        parent.kill()
        parent.wait()
    assert all(ended(int(pid)) for pid in pids.read_text().split())


def test_a_log_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LOG_LIMIT", 1000)
    heard: list[str] = []
    end = child.run_child(
        "tests.support.child_programs", ["talk", "100000"], tmp_path,
        timeout=600, stop=child.Stop(), hear=heard.append,
    )  # fmt: skip
    assert (end.code, end.reason) == (0, "")
    log = (tmp_path / "log.txt").read_text()
    assert len(log) < 1100
    assert log.endswith("(the log was cut here)\n")
    assert "".join(heard) == log


@pytest.mark.usefixtures("real_children")
def test_a_program_that_ignores_its_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "GRACE", 0.5)
    stop = child.Stop()

    def hear(text: str) -> None:
        if "ready" in text:
            stop.want()

    end = child.run_child(
        "tests.support.child_programs", ["stubborn"], tmp_path, timeout=600, stop=stop, hear=hear
    )
    assert (end.code, end.reason) == (-signal.SIGKILL, "stopped")


def test_names_of_files_are_harmless() -> None:
    for name, place in (
        ("net.pte", "files/model-net.pte"),
        ("../../etc/passwd", "files/model-passwd"),
        ("a b\n;$(x).pte", "files/model-a_b____x_.pte"),
        ("..", "files/model"),
        ("", "files/model"),
        ("x" * 300 + ".pte", "files/model-" + "x" * 96 + ".pte"),
    ):
        assert input_path("model", name) == place


def test_an_attempt_is_executed_once(lab: Lab) -> None:
    given = order(lab, token="once")
    assert worker.work(given).state is State.DONE
    with pytest.raises(worker.AlreadyBegun):
        worker.work(given)
    assert len(said(control(lab), "begin")) == 1
    assert lab.store.began("once") and not lab.store.began("never")
    lab.store.sweep(lab.database.remove_unused, 0)
    assert lab.store.began("once")  # it may still come back
