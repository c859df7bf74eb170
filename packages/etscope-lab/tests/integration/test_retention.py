"""Old jobs lose their files, not their results; no file is removed that a job needs."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from etscope.errors import MissingDataError
from etscope_lab import retention
from etscope_lab.database import Database
from etscope_lab.jobs.records import Alarm, AlarmState, Job, State
from etscope_lab.jobs.spec import JobSpec
from etscope_lab.lab import Lab
from etscope_lab.retention import Retention
from etscope_lab.store import Store
from lab_support.jobs import claimed, measured

ALL = -1  # days: also jobs that have just ended are old


def done(database: Database, store: Store, text: str, **more: str) -> Job:
    """A job with a program and a trace of its own, and a log as all others have it."""
    model = store.put_stream([text.encode()], "net.pte").sha256
    files = tuple(
        store.put_stream([content.encode()], name)
        for name, content in (("run.etdp", f"trace of {text}"), ("log.txt", "done"))
    )
    spec = JobSpec(model={"sha256": model, "name": "net.pte"}, labels=more)
    job, _ = database.add(spec, again=True)
    outcome = measured(claimed(database, job), job.id)
    assert database.finish(replace(outcome, artifacts=files))
    return database.job(job.id)


def test_old_jobs_keep_their_results_and_lose_their_files(
    database: Database, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    old, twin, pinned, alarming, newest = (
        done(database, store, text, **labels)
        for text, labels in (
            ("a", {"branch": "x"}), ("b", {}), ("b", {"keep": "release 1"}), ("c", {}), ("d", {}),
        )
    )  # fmt: skip
    now = datetime.now(timezone.utc)
    [series] = database.history()
    alarm = Alarm(
        "ab", AlarmState.CLOSED, series.key, alarming.id, newest.id, newest.id, 0.1, 1.0, now, now
    )
    database.add_alarm(alarm)
    waiting, _ = database.add(JobSpec(model={"sha256": old.spec.model.sha256}, seed=3))
    assert Retention(database, store, 1).sweep() == 0
    for path in (tmp_path / "store").rglob("*"):
        os.utime(path, (1, 1))

    assert Retention(database, store, ALL).sweep() == 1 == Retention(database, store, 1).sweep() + 1

    # The log and the program of "b" are others' too, and "a" waits to be run again.
    kept = [pinned, alarming, newest]
    assert not store.has(old.artifacts["run.etdp"].sha256)
    for job in kept:
        assert database.job(job.id) == job
        assert all(store.has(file.sha256) for file in job.artifacts.values())
    assert store.has(str(waiting.spec.model.sha256)) and store.has(str(twin.spec.model.sha256))
    for job in (old, twin):
        found = database.job(job.id)
        assert found.files_removed_at is not None and found.artifacts == {}
        assert found.summary == job.summary and found.spec == job.spec
        with pytest.raises(MissingDataError) as caught:
            found.artifact("run.etdp")
        assert "they were removed on" in str(caught.value.hint)
    assert [len(one.points) for one in database.history()] == [5]
    again, new = database.add(old.spec)  # what was removed is no answer
    assert new and again.id != old.id


def test_files_that_are_submitted_while_they_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job that waits has its file, however often the same file is removed and sent again."""
    monkeypatch.setattr(retention, "_JUST_NAMED", -1.0)  # the age of files protects none
    model = tmp_path / "net.pte"
    model.write_bytes(b"a program")
    ends: list[bool] = []
    with Lab.open(tmp_path / "lab") as lab:

        def submit(_: int) -> None:
            for _ in range(15):
                job = lab.submit(JobSpec(model=str(model)), again=True)
                assert lab.store.has(str(job.spec.model.sha256))
                assert lab.cancel(job.id).state is State.CANCELLED

        def remove() -> int:
            removed = 0
            while not ends:
                removed += Retention(lab.database, lab.store, ALL).sweep()
            return removed

        with ThreadPoolExecutor(4) as pool:
            sweeping = pool.submit(remove)
            list(pool.map(submit, range(3)))
            ends.append(True)
            assert sweeping.result() >= 1


def test_a_sweep_removes_what_is_older_than_the_lab_keeps(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("keep_days: 1\n")
    with Lab.open(tmp_path) as lab:
        job = done(lab.database, lab.store, "a")
        lab.store.put_stream([b"of no job"], "x")
        assert lab.sweep(-1) == 1  # the job is of today
        assert lab.database.job(job.id) == job
