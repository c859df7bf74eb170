"""The engine with simulated devices: what it does with jobs and devices, and how it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from etscope.errors import LabError, UsageError
from etscope_lab import engine as engines
from etscope_lab import engine as slots
from etscope_lab.engine import Engine, EngineOptions
from etscope_lab.jobs.records import Job, State
from etscope_lab.lab import Lab
from etscope_lab.worker import worker
from lab_support.checks import check_all_done_once, ended, submit
from lab_support.simulated_device import fault, said, write_lab
from tests.support.artifacts import artifacts
from tests.support.ports import nobody_listens
from tests.support.waiting import until


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(engines, "_CLUSTER_AGAIN", 0.2)
    monkeypatch.setattr(slots, "_CHECK_AGAIN", 0.2)
    monkeypatch.setattr(slots, "_CHECK_LATEST", 0.5)
    monkeypatch.setattr(engines, "_POLL", 0.1)
    monkeypatch.setattr(worker, "_lost", set())  # of this process, which works in other tests, too
    write_lab(tmp_path, artifacts("cnn_xnnpack").folder, 2)
    with Lab.open(tmp_path) as lab:
        yield lab


def start(lab: Lab, **options: Any) -> Engine:
    """An engine whose workers are threads of this process."""
    given = EngineOptions(in_process=True, **options)
    lab.engine = Engine(lab.home, lab.database, given, changed=lab._notify)
    lab.engine.start()
    return lab.engine


def controls(lab: Lab) -> list[Path]:
    return [Path(device.options["control"]) for device in lab.home.config.devices]


def wait_for(lab: Lab, job: Job, state: State) -> None:
    until(lambda: lab.job(job.id).state is state)


def test_jobs_go_to_all_devices_and_are_done_once(lab: Lab) -> None:
    before = submit(lab, 4)
    waits = [fault(control, "wait") for control in controls(lab)]
    start(lab)
    until(lambda: all(said(control, "begin") for control in controls(lab)))
    for path in waits:
        path.unlink()
    after = submit(lab, 2, iterations=4)
    check_all_done_once(lab, [*before, *after], controls(lab))
    assert {lab.job(job.id).device for job in before} == {"sim-0", "sim-1"}
    until(lambda: all(device.state == "available" for device in lab.devices()))
    assert all(device.attributes["arch"] == "simulated" for device in lab.devices())
    assert all(device.seen_at is not None for device in lab.devices())


def test_a_selector_chooses(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs for other devices do not stand in the way, however many are first."""
    monkeypatch.setattr(engines, "_FIRST", 3)
    others = submit(lab, 5, device="arch=aarch64")
    [mine] = submit(lab, device="arch=simulated,name=sim-1")
    start(lab)
    assert ended(lab, [mine])[0].device == "sim-1"
    assert {lab.job(job.id).state for job in others} == {State.QUEUED}
    never = others[0]
    assert lab.cancel(never.id).state is State.CANCELLED


def test_larger_priorities_go_first(lab: Lab) -> None:
    jobs = [submit(lab, device="sim-0", priority=n, iterations=n + 1)[0] for n in range(3)]
    start(lab, devices=["sim-0"])
    done = ended(lab, jobs)
    assert sorted(done, key=lambda job: job.started_at or job.created_at) == done[::-1]


def test_a_running_job_is_cancelled(lab: Lab) -> None:
    hang = [fault(control, "hang") for control in controls(lab)]
    running, waiting = submit(lab, 2, device="sim-0")
    start(lab)
    wait_for(lab, running, State.RUNNING)
    until(lambda: said(controls(lab)[0], "begin"))
    wait_for(lab, waiting, State.CLAIMED)
    until(lambda: "run: 4 executions" in lab.log(running.id))  # while it runs
    lab.cancel(waiting.id)
    lab.cancel(running.id)
    for job in ended(lab, [running, waiting]):
        assert (job.state, job.error) == (State.CANCELLED, "stopped on request")
    for path in hang:
        path.unlink()
    [after] = submit(lab, device="sim-0")
    assert ended(lab, [after])[0].state is State.DONE
    with pytest.raises(UsageError):
        lab.cancel(after.id)


def test_what_waits_for_a_busy_device_goes_to_a_free_one(lab: Lab) -> None:
    fault(controls(lab)[0], "hang")
    [stuck] = submit(lab, device="sim-0")
    start(lab, devices=["sim-0", "sim-1"])
    wait_for(lab, stuck, State.RUNNING)
    jobs = submit(lab, 3)
    assert {job.device for job in ended(lab, jobs)} == {"sim-1"}
    lab.cancel(stuck.id)
    ended(lab, [stuck])


def test_a_lost_device_is_offline_and_its_job_goes_elsewhere(lab: Lab) -> None:
    first, second = controls(lab)
    start(lab)
    until(lambda: {device.state for device in lab.devices()} == {"available"})
    fault(first, "lost-at-4")
    jobs = submit(lab, 3)
    check_all_done_once(lab, jobs, controls(lab))
    until(lambda: lab.devices()[0].state == "offline")
    assert "unplugged" in lab.devices()[0].message
    (first / "unplugged").unlink()
    until(lambda: lab.devices()[0].state == "available")
    [after] = submit(lab, device="sim-0")
    assert ended(lab, [after])[0].state is State.DONE
    assert len(said(second, "begin")) >= 2


def test_a_job_that_loses_its_device_every_time(lab: Lab) -> None:
    control = controls(lab)[0]
    [job] = submit(lab, device="sim-0", attempts=2)
    fault(control, "lost-at-5")
    start(lab)
    until(lambda: (control / "unplugged").exists())
    fault(control, "lost-at-5")  # before the device is back
    (control / "unplugged").unlink()
    until(lambda: (control / "unplugged").exists())
    [found] = ended(lab, [job])
    assert (found.state, found.attempt) == (State.DEVICE_LOST, 2)
    assert "sim-0 is unplugged" in found.error


def test_a_store_that_fails_does_not_burn_the_queue(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = submit(lab, 6)
    files = Path(lab.home.store_url) / "sha256"
    away = files.rename(files.with_name("away"))
    start(lab)
    until(lambda: any(d.message.startswith("paused for ") for d in lab.devices()))
    until(lambda: {device.state for device in lab.devices()} == {"offline"})
    until(lambda: any("is its disk mounted?" in e.message for e in lab.events(jobs[0].id)))
    assert not any(lab.job(job.id).state.is_final for job in jobs)
    away.rename(files)
    check_all_done_once(lab, jobs, controls(lab))
    assert {lab.job(job.id).attempt for job in jobs} == {1}
    until(lambda: {device.state for device in lab.devices()} == {"available"})
    [first, *_] = [r.getMessage() for r in caplog.records if "goes back" in r.getMessage()]
    assert re.fullmatch(r"goes back to the queue and sim-. is paused for .*mounted\?", first)


def test_an_engine_of_few_jobs_does_not_wait_for_a_store_for_ever(lab: Lab) -> None:
    [job] = submit(lab, attempts=2)
    files = Path(lab.home.store_url) / "sha256"
    files.rename(files.with_name("away"))
    start(lab, only=[job.id])
    [found] = ended(lab, [job])
    assert (found.state, found.attempt) == (State.FAILED, 2)
    assert "is its disk mounted?" in found.error


@pytest.mark.parametrize("what", ["kill-runner", "kill-measuring"])
def test_a_killed_process_costs_an_attempt(lab: Lab, what: str) -> None:
    control = controls(lab)[0]
    fault(control, f"once-{what}")
    [job] = submit(lab, device="sim-0", attempts=2)
    start(lab, devices=["sim-0"])
    [found] = ended(lab, [job])
    assert (found.state, found.attempt) == (State.DONE, 2), found.error
    assert any("SIGKILL" in event.message for event in lab.events(job.id))
    fault(control, what)
    [job] = submit(lab, device="sim-0", attempts=2)
    [found] = ended(lab, [job])
    assert (found.state, found.attempt) == (State.FAILED, 2)
    assert "died of SIGKILL" in found.error


def test_two_engines_do_not_share_a_device(lab: Lab, tmp_path: Path) -> None:
    start(lab, devices=["sim-0"])
    until(lambda: lab.devices()[0].state == "available")
    with Lab.open(tmp_path) as other:
        start(other)
        jobs = submit(lab, 4)
        check_all_done_once(lab, jobs, controls(lab))


def test_a_dead_engines_jobs_are_taken_over(lab: Lab) -> None:
    jobs = submit(lab, 2)
    lab.database.renew("dead", 0.5)
    assert lab.database.claim(jobs[0].id, device="sim-0", engine="dead", token="old")
    start(lab, lease_seconds=3.0)
    check_all_done_once(lab, jobs, controls(lab))
    states = [event.state for event in lab.events(jobs[0].id)]
    assert states.count(State.CLAIMED) == 2


def test_an_engine_that_ends_gives_back_what_it_has_not_done(lab: Lab) -> None:
    fault(controls(lab)[0], "hang")
    jobs = submit(lab, 3, device="sim-0")
    engine = start(lab, drain_seconds=0.5)
    wait_for(lab, jobs[0], State.RUNNING)
    engine.close()
    lab.engine = None
    assert {lab.job(job.id).state for job in jobs} == {State.QUEUED}
    assert {lab.job(job.id).attempt for job in jobs} == {0}
    (controls(lab)[0] / "hang").unlink()
    start(lab)
    check_all_done_once(lab, jobs, controls(lab))


def test_a_database_that_is_away_for_a_while(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = submit(lab, 3)
    down = [True]

    real, dice = lab.database.together, Random(3)

    def together(actions: Any) -> Any:
        turn = dice.random()
        if down and turn < 1 / 3:
            raise LabError("the database is away")
        answer = real(actions)
        if down and turn < 2 / 3:  # carried out, and its answer is lost
            raise LabError("the database is away")
        return answer

    monkeypatch.setattr(lab.database, "together", together)
    start(lab)
    check_all_done_once(lab, jobs, controls(lab))
    down.clear()


def test_unknown_devices_and_schedulers(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no device 'sim-9'"):
        Engine(lab.home, lab.database, EngineOptions(devices=["sim-9"]))
    monkeypatch.setattr("etscope_lab.cluster._CONNECT", 0.5)
    with nobody_listens() as port:
        options = EngineOptions(scheduler=f"tcp://127.0.0.1:{port}")
        with pytest.raises(LabError, match="no Dask scheduler at tcp:"):
            Engine(lab.home, lab.database, options).start()
