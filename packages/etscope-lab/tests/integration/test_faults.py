"""Processes are killed and servers restarted in the middle of jobs: no job is lost, none is done
twice, no file is half-written. `benchmarks/lab_queue.py` does the same many more times."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dask
import pytest
import yaml

from etscope.cli import main
from etscope_lab.engine import Engine, EngineOptions
from etscope_lab.jobs.records import State
from etscope_lab.lab import Lab
from lab_support import engine
from lab_support.checks import check_all_done_once, submit
from lab_support.postgresql import PostgreSql
from lab_support.simulated_device import fault, said, write_lab
from tests.support.artifacts import artifacts
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, until

_ENGINE = [sys.executable, engine.__file__]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_lab(tmp_path, artifacts("cnn_xnnpack").folder, 2, seconds=0.3)
    return tmp_path


def controls(home: Path) -> list[Path]:
    return [home / "sim-0", home / "sim-1"]


@contextmanager
def process(*command: str, stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process, and its end: by SIGTERM, then by SIGKILL."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as started:
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                started.kill()


def test_workers_that_are_killed_in_mid_job(home: Path) -> None:
    with Lab.open(home) as lab:
        for control in controls(home):
            fault(control, "once-kill-worker")
        jobs = [submit(lab, device=control.name)[0] for control in controls(home)]
        lab.start_engine()
        check_all_done_once(lab, jobs, controls(home))
        for control in controls(home):  # one was killed, and run again
            assert len(said(control, "begin")) > len(said(control, "end")) >= 1


@pytest.mark.nightly
def test_a_job_that_kills_its_worker_each_time_ends(home: Path) -> None:
    with Lab.open(home) as lab:
        fault(controls(home)[0], "kill-worker")
        [bad, innocent] = submit(lab, 2, device="sim-0", attempts=2)
        lab.start_engine()
        found = lab.wait(bad.id, PATIENCE)
        assert (found.state, found.attempt) == (State.DEVICE_LOST, 2)
        assert found.error == "its worker was killed, in every attempt"
        (controls(home)[0] / "kill-worker").unlink(missing_ok=True)
        assert lab.wait(innocent.id, PATIENCE).state in (State.DONE, State.DEVICE_LOST)


@pytest.mark.nightly
def test_a_worker_that_dask_gives_up_is_started_anew(
    home: Path,
) -> None:
    """Dask waits 15 s for a killed worker to come back: less than it takes on a busy machine."""
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}),
        Lab.open(home) as lab,
    ):
        fault(controls(home)[0], "once-kill-worker")
        jobs = submit(lab, 2, device="sim-0")
        lab.start_engine()
        check_all_done_once(lab, jobs, controls(home))


@pytest.mark.nightly
def test_engines_that_are_killed_between_claim_and_result(home: Path) -> None:
    """The second takes over what the first had; then a lab in this process."""
    with Lab.open(home) as lab:
        jobs = submit(lab, 3, device="sim-0")
        for _ in range(2):
            hang = fault(home / "sim-0", "once-hang")
            with process(*_ENGINE, str(home)) as engine:
                until(lambda hang=hang: not hang.exists())
                engine.kill()
            assert any(not lab.job(job.id).state.is_final for job in jobs)
        lab.engine = Engine(
            lab.home, lab.database, EngineOptions(in_process=True, lease_seconds=3.0), lab._notify
        )
        lab.engine.start()
        check_all_done_once(lab, jobs, controls(home))


def test_a_killed_engine_is_followed_long_before_its_lease_ends(home: Path) -> None:
    with Lab.open(home) as lab:
        jobs = submit(lab, 2, device="sim-0")
        hang = fault(home / "sim-0", "once-hang")
        with process(*_ENGINE, str(home), "6000") as engine:
            until(lambda: not hang.exists())
            engine.kill()
            engine.wait()
        lab.engine = Engine(lab.home, lab.database, EngineOptions(in_process=True), lab._notify)
        lab.engine.start()
        check_all_done_once(lab, jobs, controls(home))
        messages = [event.message for event in lab.events(jobs[0].id)]
        assert "the engine that had it is gone" in messages
    assert not list((home / "engines").iterdir())


@pytest.mark.nightly
def test_an_engine_sees_that_another_one_is_killed(home: Path) -> None:
    with Lab.open(home) as lab, process(*_ENGINE, str(home), "6000") as engine:
        hang = fault(home / "sim-0", "once-hang")
        jobs = submit(lab, 2, device="sim-0")
        until(lambda: not hang.exists())
        lab.start_engine()
        time.sleep(2)  # it lets an engine that lives have its job
        assert lab.job(jobs[0].id).state is State.RUNNING
        engine.kill()
        engine.wait()
        check_all_done_once(lab, jobs, controls(home))


def dask_cluster(*devices: str) -> tuple[str, list[str], list[str]]:
    """The address of a scheduler, its command, and that of the workers of devices."""
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", address]
    scheduler += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    worker = [sys.executable, "-m", "etscope", "lab", "worker", "--scheduler", address]
    for device in devices:
        worker += ["--device", device]
    return address, scheduler, worker


@pytest.mark.nightly
def test_a_scheduler_that_starts_jobs_again_does_not_exceed_their_attempts(home: Path) -> None:
    """Dask's own default is to try a task four times."""
    address, scheduler, lab_worker = dask_cluster("sim-0")
    fault(controls(home)[0], "kill-worker")
    with Lab.open(home) as lab, process(*scheduler), process(*lab_worker):
        until(lambda: listening(address))
        [job] = submit(lab, 1, device="sim-0", attempts=2)
        lab.engine = Engine(lab.home, lab.database, EngineOptions(scheduler=address), lab._notify)
        lab.engine.start()
        found = lab.wait(job.id, PATIENCE)
        assert (found.state, found.attempt) == (State.DEVICE_LOST, 2)
        assert found.error == "its worker was killed, in every attempt"
        assert len(said(controls(home)[0], "begin")) == 2
        events = lab.events(job.id)
        assert [event.attempt for event in events if event.state is State.RUNNING] == [1, 2]
        assert [event.message for event in events if event.state is State.QUEUED] == [
            "",
            "its worker was killed",
        ]


def test_a_scheduler_that_is_killed_and_comes_back(home: Path) -> None:
    """Its worker waits for it, also when it is not there yet."""
    address, scheduler, lab_worker = dask_cluster("sim-0")
    told = home / "told"
    with Lab.open(home) as lab, told.open("w") as log:
        hang = fault(controls(home)[0], "once-hang")
        jobs = submit(lab, 2, device="sim-0")
        with process(*lab_worker, stderr=log.fileno()) as offering:
            waiting = f"waiting for the scheduler at {address} (Connection refused) …\n"
            until(lambda: told.read_text() == waiting)
            with process(*scheduler) as first:
                # Nothing of Dask's own log, neither of this process nor of the worker's.
                until(lambda: told.read_text() == f"{waiting}offering sim-0 to {address}\n")
                lab.engine = Engine(
                    lab.home, lab.database, EngineOptions(scheduler=address), lab._notify
                )
                lab.engine.start()
                until(lambda: not hang.exists())
                first.kill()
                first.wait()
            with process(*scheduler):
                check_all_done_once(lab, jobs, controls(home))
                offering.terminate()
                assert offering.wait(60) == 0


def test_a_worker_without_a_scheduler_is_stopped_by_a_signal() -> None:
    _, _, lab_worker = dask_cluster("sim-0")
    with process(*lab_worker, stderr=subprocess.PIPE) as offering:
        assert offering.stderr is not None
        assert offering.stderr.readline().startswith("waiting for the scheduler at ")
        offering.terminate()
        assert offering.communicate(timeout=PATIENCE)[1] == ""
        assert offering.returncode == 0


def test_a_worker_rejects_what_is_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "worker", "--scheduler", "lab.example", "--device", "sim-0"]) == 2
    assert "'lab.example' is not the address of a scheduler" in capsys.readouterr().err


def listening(address: str) -> bool:
    host, _, port = address.removeprefix("tcp://").partition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 10):
        return True
    return False


@pytest.mark.nightly
def test_postgresql_restarts_under_jobs(home: Path, postgresql_server: PostgreSql) -> None:
    config = yaml.safe_load((home / "lab.yaml").read_text())
    config["database"] = postgresql_server.new()
    (home / "lab.yaml").write_text(yaml.safe_dump(config))
    with Lab.open(home) as lab:
        lab.engine = Engine(lab.home, lab.database, EngineOptions(in_process=True), lab._notify)
        lab.engine.start()
        jobs = []
        for _ in range(2):
            begun = len(said(controls(home)[0], "begin"))
            jobs += submit(lab, 2, device="sim-0")
            until(lambda begun=begun: len(said(controls(home)[0], "begin")) > begun)
            postgresql_server.stop()
            postgresql_server.start()
        check_all_done_once(lab, jobs, controls(home))
