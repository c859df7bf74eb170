"""Whose job is next, on generated queues of several projects."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from etscope_lab.config import ProjectConfig
from etscope_lab.jobs.records import Job, State
from etscope_lab.shares import Shares
from lab_support.jobs import spec_of_number

_JOB = Job("0", spec_of_number(0), "", State.QUEUED, datetime.now(timezone.utc))


def jobs_of(project: str, count: int) -> list[Job]:
    return [replace(_JOB, id=f"{project}{n}", project=project) for n in range(count)]


class Device:
    """A device that works on what `Shares` puts first; seconds: of a job of each project."""

    def __init__(self, shares: dict[str, ProjectConfig], seconds: dict[str, float]) -> None:
        self.now = 0.0
        self.shares = Shares(shares, lambda: self.now)
        self.seconds = seconds
        self.used: Counter[str] = Counter()

    def work(self, queue: list[Job], until: float) -> None:
        while queue and self.now < until:
            job = next(self.shares.order(queue, Counter()))
            queue.remove(job)
            self.now += self.seconds[job.project]
            self.used[job.project] += int(self.seconds[job.project])
            self.shares.note_use(job.project, self.seconds[job.project])


@pytest.mark.parametrize("seconds", [{"a": 10.0, "b": 10.0}, {"a": 40.0, "b": 5.0}])
def test_device_time_is_divided_by_shares_however_long_jobs_are(seconds: dict[str, float]) -> None:
    device = Device({"a": ProjectConfig(share=2)}, seconds)
    device.work(jobs_of("a", 3000) + jobs_of("b", 3000), until=20_000)
    assert device.used["a"] / device.used["b"] == pytest.approx(2, rel=0.05)


def test_a_newcomer_goes_first_and_takes_its_share_only() -> None:
    device = Device({}, {"a": 10.0, "b": 10.0})
    queue = jobs_of("a", 5000)
    device.work(queue, until=30_000)
    queue += jobs_of("b", 5000)
    assert next(device.shares.order(queue, Counter())).project == "b"
    before = device.used["a"]
    device.work(queue, until=60_000)  # in the long run both have the same
    assert 0.3 < (device.used["a"] - before) / device.used["b"] < 1


def test_one_project_keeps_its_order_and_a_full_one_waits() -> None:
    shares = Shares({"a": ProjectConfig(max_running=2)})
    jobs = jobs_of("b", 5)
    assert not shares.matter(jobs) and shares.matter(jobs_of("a", 1))
    assert list(shares.order(jobs, Counter())) == jobs
    at_work = Counter({"a": 1})
    taken = []
    for job in shares.order(jobs_of("a", 3) + jobs, at_work):
        taken.append(job.id)
        at_work[job.project] += 1
    assert sorted(taken) == ["a0", "b0", "b1", "b2", "b3", "b4"]
