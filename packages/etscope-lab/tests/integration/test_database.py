"""The lab's database: jobs added, found, and taken from state to state. SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from etscope.errors import MissingDataError, UsageError
from etscope_lab.database import Database
from etscope_lab.jobs.records import FINAL, Artifact, Job, Outcome, State
from etscope_lab.jobs.spec import FileRef
from lab_support.jobs import LEASE, claimed, measured, run_through, spec_of_number

# Text that means something to SQL, to LIKE, to a driver or to a terminal.
ODD = [
    "100%", "_", "a_b", "it's", 'say "x"', "back\\slash", "'; DROP TABLE jobs; --", "1 OR 1=1",
    "%s %(x)s :name ?", "\x00", "\ud800", "ÄÖß 中文 🙂", "x" * 100_000, "{} $1",
]  # fmt: skip


def states(database: Database, job: Job) -> list[State]:
    return [event.state for event in database.events(job.id)]


def test_a_job_from_queue_to_result(database: Database) -> None:
    spec = spec_of_number(1, name="first", labels={"branch": "main"}, priority=3)
    before = datetime.now(timezone.utc) - timedelta(seconds=5)

    job, new = database.add(spec, submitter="somebody")

    assert new and job.state is State.QUEUED and job.attempt == 0 and job.spec == spec
    assert job.content_hash == spec.content_hash and job.submitter == "somebody"
    assert before < job.created_at and job.created_at.utcoffset() == timedelta(0)

    taken = database.claim(job.id, device="host", engine="e", token="t")
    assert taken is not None and taken.state is State.CLAIMED
    assert (taken.attempt, taken.device, taken.worker) == (1, "host", None)
    assert database.claim(job.id, device="b", engine="e2", token="u") is None
    assert database.job(job.id).device == "host" and database.queued() == []
    assert database.started(job.id, "t", "tcp://worker:1")
    running = database.job(job.id)
    assert running.state is State.RUNNING and running.worker == "tcp://worker:1"
    assert running.claimed_at is not None and running.started_at is not None

    assert database.finish(measured("t", job.id, marks=("governor not readable",)))
    done = database.job(job.id)
    assert done.state is State.DONE and done.summary["latency"]["p50_ms"] == 1.0
    assert done.marks == ("governor not readable",) and done.environment == {"os": "Linux"}
    assert done.artifacts["run.etdp"] == Artifact("run.etdp", "cd" * 32, 1 << 40)
    assert set(done.artifacts) == {"run.etdp", "run.json"}
    assert done.finished_at is not None and done.finished_at >= done.created_at
    assert states(database, job) == [State.QUEUED, State.CLAIMED, State.RUNNING, State.DONE]
    assert [event.attempt for event in database.events(job.id)] == [0, 1, 1, 1]
    assert [event.device for event in database.events(job.id)][1:] == ["host"] * 3


def test_equal_work_is_one_job_unless_it_is_asked_for_again(database: Database) -> None:
    job, _ = database.add(spec_of_number(1))
    renamed = spec_of_number(1, name="another name", model_name="other.pte", priority=5)

    assert database.add(renamed)[0].id == job.id
    assert database.add(renamed)[1] is False
    twin, new = database.add(spec_of_number(1), again=True)
    assert new and twin.id != job.id
    assert database.add(spec_of_number(2))[1]
    assert database.jobs().total == 3


def test_only_a_result_stands_for_equal_work(database: Database) -> None:
    for number, state in enumerate(sorted(FINAL)):
        job, _ = database.add(spec_of_number(number))
        assert database.finish(Outcome(job.id, claimed(database, job), state))
        with pytest.raises(UsageError, match=state.value):
            database.request_cancel(job.id)

        other, new = database.add(spec_of_number(number))

        assert new == (state is not State.DONE) and (other.id == job.id) == (state is State.DONE)


def test_a_job_without_its_files_is_not_taken(database: Database) -> None:
    spec = spec_of_number(1).model_copy(update={"model": FileRef(path="net.pte")})
    with pytest.raises(UsageError, match="not in the lab yet: model"):
        database.add(spec)
    assert database.jobs().total == 0


@pytest.mark.parametrize("action", ["started", "finish", "release"])
def test_what_another_attempt_says_does_not_count(database: Database, action: str) -> None:
    def act(job: Job, token: str) -> bool:
        if action == "started":
            return database.started(job.id, token, "worker")
        if action == "finish":
            return database.finish(measured(token, job.id))
        return database.release(job.id, token, "lost")

    job, _ = database.add(spec_of_number(1))
    assert not act(job, "never")  # not at work
    old = claimed(database, job, "old")
    assert database.release(job.id, old, "the worker was lost")
    assert not act(job, "never")
    if action != "release":  # queued again: what the lost worker says comes too late
        assert not act(job, old)
    new = claimed(database, job, "new")
    before = states(database, job)
    assert not act(job, old) and not act(job, "never")
    assert states(database, job) == before and database.job(job.id).attempt == 2
    assert act(job, new)
    if action == "release":
        new = claimed(database, job, "third")
    assert database.finish(measured(new, job.id, state=State.FAILED, error="it broke")) or (
        action == "finish"
    )
    ended, before = database.job(job.id), states(database, job)
    for token in (old, "never"):
        assert not act(job, token)
    if action != "finish":
        assert not act(job, new)
    assert database.job(job.id) == ended and states(database, job) == before


def test_a_final_state_stays(database: Database) -> None:
    job, _ = database.add(spec_of_number(1))
    token = claimed(database, job)
    for state in (State.QUEUED, State.CLAIMED, State.RUNNING):
        with pytest.raises(UsageError):  # which is no end
            database.finish(Outcome(job.id, token, state))
    assert database.finish(measured(token, job.id, 7.0))
    ended = database.job(job.id)
    for state in FINAL - {State.DONE}:
        assert not database.finish(Outcome(job.id, token, state))
    database.finish(measured(token, job.id, 7.0))  # the answer got lost, and it is said again
    assert database.job(job.id) == ended
    assert states(database, job).count(State.DONE) == 1
    assert database.requeue_expired() == []


def test_release_counts_as_an_attempt_or_not(database: Database) -> None:
    job, _ = database.add(spec_of_number(1))
    for counted, attempts in ((True, 1), (False, 1), (False, 1), (True, 2)):
        token = claimed(database, job, f"token {len(database.events(job.id))}")
        database.started(job.id, token, "worker")
        assert database.release(job.id, token, "why", counted=counted)
        found = database.job(job.id)
        assert found.state is State.QUEUED and found.attempt == attempts
        assert found.started_at is None and found.worker is None
    assert database.events(job.id)[-1].message == "why"
    assert [one.id for one in database.queued()] == [job.id]


def test_leases_run_out_and_can_be_renewed(database: Database) -> None:
    lost, kept, done = (database.add(spec_of_number(n))[0] for n in range(3))
    for job, engine in ((lost, "dead"), (kept, "alive"), (done, "dead")):
        assert database.claim(job.id, device="d", engine=engine, token=job.id)
    assert database.finish(measured(done.id, done.id))
    assert database.started(lost.id, lost.id, "worker")
    database.renew("alive", LEASE)

    assert database.requeue_expired() == [lost.id]
    assert database.requeue_expired() == []
    assert database.job(lost.id).state is State.QUEUED
    assert database.job(kept.id).state is State.CLAIMED
    assert not database.finish(measured(lost.id, lost.id))  # it comes back, and comes too late
    claimed(database, lost, "new")
    assert database.job(lost.id).attempt == 1  # that its engine was gone is not the job's fault


def test_a_job_that_brings_the_lab_down_each_time_fails_in_the_end(database: Database) -> None:
    job, _ = database.add(spec_of_number(1))
    for number in range(100):
        token = f"{number}"
        if not database.claim(job.id, device="d", engine="e", token=token):
            break
        database.started(job.id, token, "worker")
        assert database.requeue_expired() == [job.id]
    found = database.job(job.id)
    assert found.state is State.FAILED and 1 < number < 50 and "went down" in found.error


def test_cancel_in_every_state(database: Database) -> None:
    queued, taken, running, released, late = (database.add(spec_of_number(n))[0] for n in range(5))
    assert database.request_cancel(queued.id).state is State.CANCELLED
    assert states(database, queued)[-1] is State.CANCELLED and database.job(queued.id).finished_at
    assert database.claim(queued.id, device="d", engine="e", token="t") is None

    token = claimed(database, taken)
    asked = database.request_cancel(taken.id)
    assert asked.state is State.CLAIMED and asked.cancel_requested
    database.request_cancel(taken.id)  # twice is as once
    assert database.started(taken.id, token, "worker")
    assert database.finish(Outcome(taken.id, token, State.CANCELLED))

    token = claimed(database, running)
    database.started(running.id, token, "worker")
    assert database.request_cancel(running.id).state is State.RUNNING
    assert database.finish(measured(token, running.id))  # it was done already
    assert database.job(running.id).state is State.DONE

    token = claimed(database, released)
    database.request_cancel(released.id)
    assert database.release(released.id, token, "the worker was lost")
    assert database.job(released.id).state is State.CANCELLED  # and not queued again

    assert database.claim(late.id, device="d", engine="e", token="t")
    database.request_cancel(late.id)
    database.requeue_expired()
    assert database.job(late.id).state is State.CANCELLED
    assert database.queued() == []
    for job in (queued, taken, running, released, late):
        with pytest.raises(UsageError, match="ended"):
            database.request_cancel(job.id)
    with pytest.raises(MissingDataError):
        database.request_cancel("no such job")


def test_the_queue_has_larger_priorities_first_then_older_ones(database: Database) -> None:
    order = [database.add(spec_of_number(n, priority=p))[0] for n, p in enumerate([0, 5, 0, -1, 5])]
    expected = [order[i].id for i in (1, 4, 0, 2, 3)]
    assert [job.id for job in database.queued()] == expected
    assert [job.id for job in database.queued(2)] == expected[:2]
    token = claimed(database, order[1])
    database.release(order[1].id, token, "again", counted=False)
    assert [job.id for job in database.queued()] == expected  # it keeps its place


def test_values_that_a_database_may_refuse(database: Database) -> None:
    job, _ = database.add(spec_of_number(1), submitter="x\x00\ud800" * 100)
    token = claimed(database, job)
    assert database.started(job.id, token, "worker \x00\ud800" * 100)
    outcome = measured(
        token,
        job.id,
        error="a\x00b\ud800" + "long " * 1000,
        backend="+".join(f"Backend{n}" for n in range(100)),
        method="m" * 1000,
        marks=("\x00",),
        environment={"nan": float("nan"), "deep": [float("inf"), {"x": "\x00\ud800"}]},
    )
    twice = (*outcome.artifacts, Artifact("run.json", "ef" * 32, 5))
    assert database.finish(Outcome(**{**_fields(outcome), "artifacts": twice}))
    done = database.job(job.id)
    assert done.state is State.DONE and done.error.startswith("a") and len(done.artifacts) == 2
    assert done.environment["nan"] is None and done.environment["deep"][0] is None
    assert len(database.history()) == 1


def test_no_text_is_more_than_text(database: Database) -> None:
    """Each text that comes from outside, through each way that it can come."""
    job, _ = database.add(spec_of_number(1))
    for text in ODD:
        for act in (database.job, database.events, database.request_cancel, database.revoke):
            with pytest.raises((MissingDataError, UsageError)):
                act(text)
        with pytest.raises(UsageError):
            database.jobs(cursor=text)
        claim = database.claim(text, device=text, engine=text, token=text)
        assert claim is None and not database.release(text, text, text)
        assert not database.started(job.id, text, text)
        assert not database.finish(Outcome(text, text, State.DONE))
        assert database.check_token(text) is None
        assert database.history(text, text) == []
        database.renew(text, 1)
        assert database.acquire_devices([text[:200]], text)
        database.release_devices(text)
        token = claimed(database, job, f"token {text}", device=text)
        assert database.started(job.id, token, text)
        assert database.release(job.id, token, text)
        assert [one.id for one in database.queued()] == [job.id]


def test_all_files_that_jobs_have_or_need(database: Database) -> None:
    spec = spec_of_number(1).model_copy(update={"inputs": FileRef(sha256="1" * 64)})
    database.add(spec)
    run_through(database, spec_of_number(2))
    used = {"1" * 64, f"{1:064x}", f"{2:064x}", "ab" * 32, "cd" * 32}
    removed: list[str] = []
    assert database.remove_unused([*used, "e" * 64], lambda one: not removed.append(one)) == 1
    assert removed == ["e" * 64]


def _fields(outcome: Outcome) -> dict[str, object]:
    return {name: getattr(outcome, name) for name in Outcome.__slots__}
