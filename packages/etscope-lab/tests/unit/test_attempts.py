"""What the end of an attempt means for its job."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from etscope_lab.cluster import AttemptGone
from etscope_lab.engine import Attempt, Requeue, conclude, conclude_without_outcome
from etscope_lab.jobs.records import Interruption, Job, Outcome, State
from etscope_lab.jobs.spec import spec_of

LOST = State.DEVICE_LOST


def attempt(number: int, *, started: bool = True, cancelled: bool = False) -> Attempt:
    """The first or second of two attempts."""
    spec = spec_of({"model": "sha256:" + "0" * 64, "attempts": 2})
    job = Job(
        "job", spec, spec.content_hash, State.RUNNING, datetime.now(timezone.utc), attempt=number
    )
    return Attempt(job, "token", "phone", started=started, cancelled=cancelled)


def outcome(state: State, busy: float, why: Interruption | None = None) -> Outcome:
    return Outcome("job", "token", state, error="unplugged", busy_seconds=busy, interruption=why)


@pytest.mark.parametrize(
    ("now", "state", "busy", "then"),
    [
        (attempt(1), State.DONE, 1.0, State.DONE),
        (attempt(1), State.FAILED, 1.0, State.FAILED),
        (attempt(1), LOST, 1.0, Requeue("the device was lost: unplugged", counted=True)),
        (attempt(2), LOST, 1.0, LOST),
        (attempt(2), LOST, 0.0, Requeue("the device was lost: unplugged")),  # it never had it
        (attempt(1, cancelled=True), LOST, 1.0, State.CANCELLED),
        (attempt(1, cancelled=True), State.DONE, 1.0, State.DONE),
        (attempt(1, cancelled=True), State.CANCELLED, 1.0, State.CANCELLED),
        (attempt(2), State.CANCELLED, 1.0, Requeue("the lab was stopped")),
    ],
)
def test_an_answer(now: Attempt, state: State, busy: float, then: State | Requeue) -> None:
    found = conclude(now, outcome(state, busy))
    assert (found.state if isinstance(found, Outcome) else found) == then


@pytest.mark.parametrize(
    ("now", "why", "patient", "then"),
    [
        (attempt(2), Interruption.LAB, True, Requeue("unplugged")),
        (attempt(1), Interruption.LAB, False, Requeue("unplugged", counted=True)),
        (attempt(2), Interruption.LAB, False, State.FAILED),
        (attempt(1, cancelled=True), Interruption.LAB, True, State.CANCELLED),
        (attempt(1), Interruption.KILLED, True, Requeue("unplugged", counted=True)),
        (attempt(2), Interruption.KILLED, True, State.FAILED),
        (attempt(1, cancelled=True), Interruption.KILLED, True, State.FAILED),
    ],
)
def test_an_interruption(
    now: Attempt, why: Interruption, patient: bool, then: State | Requeue
) -> None:
    found = conclude(now, outcome(State.FAILED, 1.0, why), patient=patient)
    assert (found.state if isinstance(found, Outcome) else found) == then


@pytest.mark.parametrize(
    ("now", "lost", "innocent", "then"),
    [
        (attempt(1), True, False, Requeue("killed", counted=True)),
        (attempt(2), True, False, LOST),
        (attempt(2), True, True, Requeue("killed")),
        (attempt(2, started=False), True, False, Requeue("killed")),
        (attempt(1), False, False, State.FAILED),
        (attempt(1, cancelled=True), True, False, State.CANCELLED),
    ],
)
def test_no_answer(now: Attempt, lost: bool, innocent: bool, then: State | Requeue) -> None:
    found = conclude_without_outcome(now, AttemptGone("token", "killed", lost, innocent))
    if isinstance(found, Outcome):
        assert (found.job_id, found.token) == ("job", "token")
        assert found.error
    assert (found.state if isinstance(found, Outcome) else found) == then
