"""The steps of a job's life, a transaction each.

A step changes a job only in a state that it may follow (`etscope.lab.jobs.states`) and, for what
belongs to an attempt, only with that attempt's token. So of two that want the same step one gets
it, and what an attempt says that was given up counts for nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, select, update
from sqlalchemy.engine import Connection, Row

from etscope.errors import LabError, UsageError
from etscope.lab.database import queries as found
from etscope.lab.database import schema
from etscope.lab.database.connection import now
from etscope.lab.database.queries import note_result
from etscope.lab.jobs.records import Job
from etscope.lab.jobs.spec import JobSpec
from etscope.lab.jobs.states import State, may_follow
from etscope.lab.jobs.task import Outcome

# Jobs whose answer a new submission of the same content gets.
_ANSWERS = (State.QUEUED, State.CLAIMED, State.RUNNING, State.DONE)
_AT_WORK = (State.CLAIMED, State.RUNNING)
# So often may the engine of a running job vanish. That does not count as an attempt, as a restart
# of the lab is not the job's fault; but a job may be what brings the lab down.
_MOST_EXPIRED = 20

_jobs = schema.jobs.c
_NOBODY: dict[str, Any] = {"token": None, "engine": None, "lease_until": None}


def new_id() -> str:
    return secrets.token_hex(8)


def add(
    connection: Connection, job_id: str, spec: JobSpec, submitter: str, again: bool, unsure: bool
) -> tuple[Job, bool]:
    """The job and whether it is new. Raises `IntegrityError` when another one adds the same at
    this moment: done again, this then finds that job."""
    content_hash = spec.content_hash
    if unsure and (mine := found.row_by_id(connection, job_id)) is not None:
        return found.one(connection, mine), True
    if not again:
        other = found.row_by_content(connection, content_hash, _ANSWERS)
        if other is not None:
            return found.one(connection, other), False
    at = now(connection)
    row = {
        "id": job_id,
        "state": State.QUEUED.value,
        "priority": spec.priority,
        "content_hash": content_hash,
        "sole": None if again else content_hash,
        "kind": spec.kind,
        "model_sha256": spec.model.sha256,
        "created_at": at,
        "submitter": schema.clean(submitter, 200),
        "seeks": found.seeks_of(spec),
        "spec": spec.model_dump_json(),
    }
    seq = connection.execute(schema.jobs.insert().values(row).returning(_jobs.seq)).scalar_one()
    _add_parts(connection, seq, spec)
    _note(connection, seq, at, State.QUEUED, 0, None, "")
    return found.one(connection, _there(found.row_by_id(connection, job_id))), True


def claim(
    connection: Connection,
    job_id: str,
    device: str,
    engine: str,
    token: str,
    lease_seconds: float,
    unsure: bool,
) -> Job | None:
    at = now(connection)
    row = _step(
        connection,
        and_(_jobs.id == job_id, _jobs.state == State.QUEUED),
        state=State.CLAIMED.value,
        attempt=_jobs.attempt + 1,
        device=device,
        worker=None,
        engine=engine,
        token=token,
        claimed_at=at,
        started_at=None,
        lease_until=at + timedelta(seconds=lease_seconds),
    )
    if row is None:
        if not unsure:
            return None
        mine = and_(_jobs.id == job_id, _jobs.token == token, _jobs.state == State.CLAIMED)
        if connection.execute(select(_jobs.seq).where(mine)).first() is None:
            return None
    else:
        _note(connection, row.seq, at, State.CLAIMED, row.attempt, device, "")
    return found.one(connection, _there(found.row_by_id(connection, job_id)))


def start(connection: Connection, job_id: str, token: str, worker: str) -> bool:
    at = now(connection)
    mine = and_(_jobs.id == job_id, _jobs.token == token)
    row = _step(
        connection,
        and_(mine, _jobs.state == State.CLAIMED),
        state=State.RUNNING.value,
        worker=schema.clean(worker, 500),
        started_at=at,
    )
    if row is None:  # told twice is no fault
        running = and_(mine, _jobs.state == State.RUNNING)
        return connection.execute(select(_jobs.seq).where(running)).first() is not None
    _note(connection, row.seq, at, State.RUNNING, row.attempt, row.device, "")
    return True


def finish(connection: Connection, outcome: Outcome, unsure: bool) -> bool:
    state = State(outcome.state)
    if not state.is_final:
        raise UsageError(f"an attempt does not end in the state {state}")
    at = now(connection)
    mine = and_(_jobs.id == outcome.job_id, _jobs.token == outcome.token)
    changes: dict[str, Any] = {
        "state": state.value,
        "finished_at": at,
        "summary": dict(outcome.summary),
        "environment": dict(outcome.environment),
        "marks": [str(mark) for mark in outcome.marks],
        "error": schema.clean(outcome.error),
        "error_slug": schema.clean(outcome.error_slug, 100),
        "engine": None,
        "lease_until": None,
    }
    if state is not State.DONE:
        changes["sole"] = None
    row = _step(connection, and_(mine, _jobs.state.in_(_before(state))), **changes)
    if row is None:
        ended = and_(mine, _jobs.state == state)
        return unsure and connection.execute(select(_jobs.seq).where(ended)).first() is not None
    files = {file.name: file for file in outcome.artifacts}
    if files:
        connection.execute(
            schema.artifacts.insert(),
            [
                {
                    "job": row.seq,
                    "name": schema.clean(file.name),
                    "sha256": file.sha256,
                    "size": file.size,
                    "media_type": schema.clean(file.media_type),
                }
                for file in files.values()
            ],
        )
    _note(connection, row.seq, at, state, row.attempt, row.device, outcome.error)
    if state is State.DONE:
        job = found.one(connection, _there(found.row_by_id(connection, outcome.job_id)))
        note_result(connection, row.seq, job)
    return True


def release(
    connection: Connection, job_id: str, token: str, message: str, counted: bool, unsure: bool
) -> bool:
    mine = and_(_jobs.id == job_id, _jobs.token == token, _jobs.state.in_(_AT_WORK))
    row = _locked(connection, mine)
    if row is None:
        waits = and_(_jobs.id == job_id, _jobs.state == State.QUEUED)
        return unsure and connection.execute(select(_jobs.seq).where(waits)).first() is not None
    _back(connection, row, message, counted=counted)
    return True


def expired_ids(connection: Connection) -> list[str]:
    late = and_(_jobs.state.in_(_AT_WORK), _jobs.lease_until < now(connection))
    return [*connection.execute(select(_jobs.id).where(late).order_by(_jobs.seq)).scalars()]


def requeue(connection: Connection, unsure: bool, *, job_id: str) -> bool:
    """Take a job from an attempt whose lease ran out."""
    late = and_(_jobs.id == job_id, _jobs.state.in_(_AT_WORK), _jobs.lease_until < now(connection))
    row = _locked(connection, late)
    if row is None:
        return unsure
    running = row.state == State.RUNNING
    if running and row.expired + 1 >= _MOST_EXPIRED:
        why = f"the lab went down {_MOST_EXPIRED} times while this job was running"
        _end(connection, row, State.FAILED, why, "lab")
        return True
    times = {"expired": row.expired + 1} if running else {}
    _back(connection, row, "the engine that had it is gone", counted=False, **times)
    return True


def request_cancel(connection: Connection, job_id: str, unsure: bool) -> Job:
    seq = found.row_of(connection, job_id).seq
    row = _there(_locked(connection, _jobs.seq == seq))
    if row.state == State.QUEUED:
        _end(connection, row, State.CANCELLED, "stopped on request", "")
    elif row.state in _AT_WORK:
        if not row.cancel_requested:
            _step(connection, _jobs.seq == seq, cancel_requested=True)
            text = "somebody asked to stop it"
            state = State(row.state)
            _note(connection, seq, now(connection), state, row.attempt, row.device, text)
    elif not (unsure and row.state == State.CANCELLED):
        raise UsageError(f"job {row.id} has ended: {row.state}")
    return found.one(connection, _there(found.row_by_id(connection, row.id)))


def renew(connection: Connection, engine: str, lease_seconds: float) -> None:
    until = now(connection) + timedelta(seconds=lease_seconds)
    mine = and_(_jobs.engine == engine, _jobs.state.in_(_AT_WORK))
    connection.execute(update(schema.jobs).where(mine).values(lease_until=until))
    table = schema.leases
    connection.execute(update(table).where(table.c.engine == engine).values(until=until))


def _back(
    connection: Connection, row: Row[Any], message: str, *, counted: bool, **more: Any
) -> None:
    """To the queue; or to the end, when somebody wants it stopped."""
    if row.cancel_requested:
        _end(connection, row, State.CANCELLED, "stopped on request", "")
        return
    attempt = row.attempt if counted else row.attempt - 1
    changes = {**_NOBODY, "worker": None, "device": None, "claimed_at": None, "started_at": None}
    _step(
        connection,
        _jobs.seq == row.seq,
        state=State.QUEUED.value,
        attempt=attempt,
        **changes,
        **more,
    )
    _note(connection, row.seq, now(connection), State.QUEUED, row.attempt, row.device, message)


def _end(connection: Connection, row: Row[Any], state: State, error: str, slug: str) -> None:
    at = now(connection)
    _step(
        connection,
        _jobs.seq == row.seq,
        state=state.value,
        sole=None,
        finished_at=at,
        error=error,
        error_slug=slug,
        **_NOBODY,
    )
    _note(connection, row.seq, at, state, row.attempt, row.device, error)


def _step(connection: Connection, where: ColumnElement[bool], **changes: Any) -> Row[Any] | None:
    """Change the job that `where` finds; None when it is not, or not any more, as it says there."""
    columns = _jobs.seq, _jobs.attempt, _jobs.device
    query = update(schema.jobs).where(where).values(**changes).returning(*columns)
    return connection.execute(query).one_or_none()


def _locked(connection: Connection, where: ColumnElement[bool]) -> Row[Any] | None:
    """The job that `where` finds, which nobody else changes until this transaction ends."""
    return connection.execute(select(schema.jobs).where(where).with_for_update()).one_or_none()


def _before(state: State) -> Iterable[State]:
    return [before for before in State if may_follow(before, state)]


def _add_parts(connection: Connection, seq: int, spec: JobSpec) -> None:
    if spec.labels:
        pairs = [{"job": seq, "key": key, "value": text} for key, text in spec.labels.items()]
        connection.execute(schema.labels.insert(), pairs)
    files = [
        {"job": seq, "field": field, "sha256": ref.sha256} for field, ref in spec.files.items()
    ]
    connection.execute(schema.inputs.insert(), files)


def _note(
    connection: Connection,
    seq: int,
    at: datetime,
    state: State,
    attempt: int,
    device: str | None,
    message: str,
) -> None:
    row = {"job": seq, "at": at, "state": state.value, "attempt": attempt, "device": device}
    connection.execute(schema.events.insert().values(**row, message=schema.clean(message)))


def _there(row: Row[Any] | None) -> Row[Any]:
    if row is None:
        raise LabError("a job vanished from the lab's database", hint="was it changed by hand?")
    return row
