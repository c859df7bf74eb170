"""Jobs in the database: queued, found, and moved from state to state.

Every change is one transaction, and is fenced: a job is claimed by a conditional update that one
of many wins, and what is said of an attempt counts only with that attempt's token and while the
job is at work. So a job ends once, whoever dies when, and whoever comes back late.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Connection, Select, func, insert, or_, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from etscope.errors import MissingDataError, UsageError
from etscope.lab.api import Filter, Page
from etscope.lab.database import _tables as tables
from etscope.lab.database._rows import event_of, jobs_of
from etscope.lab.records import Job, JobEvent
from etscope.lab.spec import JobSpec
from etscope.lab.states import State
from etscope.lab.task import Outcome

_ID_BYTES = 6
_AT_WORK = (State.CLAIMED.value, State.RUNNING.value)
_EXCLUSIVE = (State.QUEUED.value, *_AT_WORK, State.DONE.value)
_LONGEST_PAGE = 1000

jobs = tables.jobs


def now() -> datetime:
    return datetime.now(timezone.utc)


def new_id() -> str:
    """Random, so that short beginnings of ids are unambiguous."""
    return secrets.token_hex(_ID_BYTES)


# -- to queue


def add(
    connection: Connection, job_id: str, spec: JobSpec, submitter: str, again: bool
) -> tuple[Job, bool]:
    """Queue a job, or find one of the same content. `job_id`: of the new one; when a job of this id
    is there, it was added before by this very call."""
    content = spec.content_hash
    mine = connection.execute(select(jobs).where(jobs.c.id == job_id)).one_or_none()
    if mine is not None:
        return jobs_of(connection, [mine])[0], True
    if not again:
        found = connection.execute(
            select(jobs)
            .where(jobs.c.content_hash == content, jobs.c.state.in_(_EXCLUSIVE))
            .order_by(jobs.c.created_at.desc())
            .limit(1)
        ).one_or_none()
        if found is not None:
            return jobs_of(connection, [found])[0], False
    try:
        with connection.begin_nested():
            _insert(connection, job_id, spec, content, submitter, again)
    except IntegrityError:  # somebody else was faster, just now
        return add(connection, job_id, spec, submitter, again)
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).one()
    return jobs_of(connection, [row])[0], True


def _insert(
    connection: Connection, job_id: str, spec: JobSpec, content: str, submitter: str, again: bool
) -> None:
    at = now()
    name = spec.model.name or (spec.model.sha256 or "")[:12]
    words = [spec.title, name, *(f"{key}={value}" for key, value in spec.labels.items())]
    connection.execute(
        insert(jobs).values(
            id=job_id,
            content_hash=content,
            again=again,
            spec=spec.model_dump(mode="json"),
            state=State.QUEUED.value,
            priority=spec.priority,
            created_at=at,
            submitter=submitter[:200],
            summary={},
            environment={},
            marks=[],
            kind=spec.kind,
            model_sha256=spec.model.sha256,
            model_name=name,
            words="\n".join(words).lower(),
        )
    )
    pairs = [{"job_id": job_id, "key": k, "value": v} for k, v in spec.labels.items()]
    if pairs:
        connection.execute(insert(tables.labels), pairs)
    _note(connection, job_id, State.QUEUED, 0, None, "submitted", at)


def _note(
    connection: Connection,
    job_id: str,
    state: State,
    attempt: int,
    device: str | None,
    message: str,
    at: datetime,
) -> None:
    connection.execute(
        insert(tables.events).values(
            job_id=job_id,
            at=at,
            state=state.value,
            attempt=attempt,
            device=device,
            message=message,
        )
    )


# -- to find


def find(connection: Connection, text: str) -> Job:
    """By id, or an unambiguous beginning of it."""
    row = connection.execute(select(jobs).where(jobs.c.id == text)).one_or_none()
    if row is not None:
        return jobs_of(connection, [row])[0]
    if not text:
        raise UsageError("a job is named by its id, or a beginning of it")
    beginning = jobs.c.id.startswith(text, autoescape=True)
    rows = connection.execute(select(jobs).where(beginning).limit(6)).all()
    if not rows:
        raise MissingDataError(f"there is no job {text!r}", hint="etscope lab list shows all")
    if len(rows) > 1:
        several = ", ".join(row.id for row in rows[:5])
        raise UsageError(f"{text!r} is the beginning of several jobs: {several}")
    return jobs_of(connection, rows)[0]


def page(connection: Connection, wanted: Filter, limit: int, cursor: str | None) -> Page:
    """Some jobs of a filter, newest first."""
    if not 1 <= limit <= _LONGEST_PAGE:
        raise UsageError(f"a page has from 1 to {_LONGEST_PAGE} jobs, not {limit}")
    query = _filtered(wanted)
    total = connection.scalar(select(func.count()).select_from(query.subquery())) or 0
    shown = query.with_only_columns(*jobs.c).order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
    if cursor is not None:
        at, job_id = _position(connection, cursor)
        shown = shown.where(tuple_(jobs.c.created_at, jobs.c.id) < tuple_(at, job_id))
    rows = connection.execute(shown.limit(limit + 1)).all()
    found = jobs_of(connection, rows[:limit])
    return Page(tuple(found), found[-1].id if len(rows) > limit else None, total)


def _position(connection: Connection, cursor: str) -> tuple[Any, Any]:
    """A cursor is the id of the last job that was shown."""
    at = connection.scalar(select(jobs.c.created_at).where(jobs.c.id == cursor))
    if at is None:
        raise UsageError(f"no such place in the list: {cursor!r}", hint="begin without a cursor")
    from sqlalchemy import literal

    return literal(at, tables.Instant), literal(cursor)


def _filtered(wanted: Filter) -> Select[Any]:
    query = select(jobs.c.id)
    if wanted.states:
        query = query.where(jobs.c.state.in_([State(state).value for state in wanted.states]))
    if wanted.device is not None:
        query = query.where(jobs.c.device == wanted.device)
    if wanted.kind is not None:
        query = query.where(jobs.c.kind == wanted.kind)
    if wanted.model_sha256 is not None:
        query = query.where(jobs.c.model_sha256 == wanted.model_sha256)
    if wanted.since is not None:
        query = query.where(jobs.c.created_at >= wanted.since)
    for word in (wanted.text or "").lower().split():
        query = query.where(
            or_(
                jobs.c.words.contains(word, autoescape=True),
                jobs.c.id.startswith(word, autoescape=True),
            )
        )
    for key, value in (wanted.labels or {}).items():
        label = tables.labels
        query = query.where(
            select(label.c.job_id)
            .where(label.c.job_id == jobs.c.id, label.c.key == key, label.c.value == value)
            .exists()
        )
    return query


def events(connection: Connection, job_id: str) -> list[JobEvent]:
    table = tables.events
    query = select(table).where(table.c.job_id == job_id).order_by(table.c.number)
    return [event_of(row) for row in connection.execute(query)]


def queued(connection: Connection, limit: int) -> list[Job]:
    rows = connection.execute(
        select(jobs)
        .where(jobs.c.state == State.QUEUED.value)
        .order_by(jobs.c.priority.desc(), jobs.c.created_at, jobs.c.id)
        .limit(limit)
    ).all()
    return jobs_of(connection, rows)


# -- from state to state


def claim(
    connection: Connection, job_id: str, device: str, engine: str, token: str, seconds: float
) -> Job | None:
    at = now()
    row = _get(connection, job_id)
    if row.token == token and row.state in _AT_WORK:
        return jobs_of(connection, [row])[0]  # this very call, whose answer was lost
    claimed = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state == State.QUEUED.value)
        .values(
            state=State.CLAIMED.value,
            device=device,
            worker=None,
            engine=engine,
            token=token,
            attempt=jobs.c.attempt + 1,
            lease_until=at + timedelta(seconds=seconds),
            claimed_at=at,
            started_at=None,
        )
    )
    if claimed.rowcount != 1:
        return None
    row = _get(connection, job_id)
    _note(connection, job_id, State.CLAIMED, row.attempt, device, f"by {device}", at)
    return jobs_of(connection, [row])[0]


def started(connection: Connection, job_id: str, token: str, worker: str) -> bool:
    at = now()
    row = _held(connection, job_id, token)
    if row is None:
        return False
    again = row.state == State.RUNNING.value
    if again and row.worker == worker:
        return True
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id)
        .values(state=State.RUNNING.value, worker=worker, started_at=at)
    )
    message = f"again, on {worker}" if again else f"on {worker}"
    _note(connection, job_id, State.RUNNING, row.attempt, row.device, message, at)
    return True


def finish(connection: Connection, outcome: Outcome) -> bool:
    if not outcome.state.is_final:
        raise UsageError(f"a job does not end as {outcome.state}")
    at = now()
    row = _held(connection, outcome.job_id, outcome.token)
    if row is None:
        before = _get(connection, outcome.job_id)
        return bool(before.token == outcome.token and before.state == outcome.state.value)
    latency = outcome.summary.get("latency") or {}
    connection.execute(
        update(jobs)
        .where(jobs.c.id == outcome.job_id)
        .values(
            state=outcome.state.value,
            summary=dict(outcome.summary),
            environment=dict(outcome.environment),
            marks=list(outcome.marks),
            error=outcome.error,
            error_slug=outcome.error_slug,
            finished_at=at,
            engine=None,
            lease_until=None,
            method=outcome.summary.get("method"),
            backend=outcome.summary.get("backend"),
            **{name: latency.get(name) for name in ("p50_ms", "p90_ms", "load_ms", "first_ms")},
        )
    )
    files = [
        {
            "job_id": outcome.job_id,
            "name": one.name,
            "sha256": one.sha256,
            "size": one.size,
            "media_type": one.media_type,
        }
        for one in outcome.artifacts
    ]
    if files:
        connection.execute(insert(tables.artifacts), files)
    _note(connection, outcome.job_id, outcome.state, row.attempt, row.device, outcome.error, at)
    return True


def release(
    connection: Connection, job_id: str, token: str, message: str, *, counted: bool
) -> bool:
    row = _held(connection, job_id, token)
    if row is None:
        before = _get(connection, job_id)
        return bool(before.token == token and before.state == State.QUEUED.value)
    _requeue(connection, row, message, counted=counted)
    return True


def requeue_expired(connection: Connection) -> list[str]:
    rows = connection.execute(
        select(jobs).where(jobs.c.state.in_(_AT_WORK), jobs.c.lease_until < now()).with_for_update()
    ).all()
    for row in rows:
        _requeue(connection, row, "nobody was at work on it any more", counted=True)
    return [row.id for row in rows]


def _requeue(connection: Connection, row: Any, message: str, *, counted: bool) -> None:
    """Back into the queue, or to its end when somebody wants that."""
    at = now()
    state = State.CANCELLED if row.cancel_requested else State.QUEUED
    connection.execute(
        update(jobs)
        .where(jobs.c.id == row.id)
        .values(
            state=state.value,
            engine=None,
            lease_until=None,
            worker=None,
            claimed_at=None,
            started_at=None,
            finished_at=at if state.is_final else None,
            attempt=row.attempt if counted else row.attempt - 1,
            device=row.device if state.is_final else None,
        )
    )
    _note(connection, row.id, state, row.attempt, row.device, message, at)


def request_cancel(connection: Connection, job_id: str) -> Job:
    at = now()
    row = _get(connection, job_id, lock=True)
    state = State(row.state)
    if state.is_final and not row.cancel_requested:
        raise UsageError(f"job {job_id} has ended already: {state}")
    if state is State.QUEUED:
        connection.execute(
            update(jobs)
            .where(jobs.c.id == job_id)
            .values(state=State.CANCELLED.value, cancel_requested=True, finished_at=at)
        )
        _note(connection, job_id, State.CANCELLED, row.attempt, None, "before it began", at)
    elif not row.cancel_requested:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(cancel_requested=True))
        _note(connection, job_id, state, row.attempt, row.device, "is to be cancelled", at)
    return jobs_of(connection, [_get(connection, job_id)])[0]


def renew(connection: Connection, engine: str, seconds: float) -> None:
    until = now() + timedelta(seconds=seconds)
    connection.execute(
        update(jobs)
        .where(jobs.c.engine == engine, jobs.c.state.in_(_AT_WORK))
        .values(lease_until=until)
    )
    holds = tables.holds
    connection.execute(update(holds).where(holds.c.engine == engine).values(lease_until=until))


def _get(connection: Connection, job_id: str, *, lock: bool = False) -> Any:
    query = select(jobs).where(jobs.c.id == job_id)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise MissingDataError(f"there is no job {job_id!r}", hint="etscope lab list shows all")
    return row


def _held(connection: Connection, job_id: str, token: str) -> Any | None:
    """The row, locked, when the job is at work in the attempt of this token."""
    query = select(jobs).where(
        jobs.c.id == job_id, jobs.c.token == token, jobs.c.state.in_(_AT_WORK)
    )
    return connection.execute(query.with_for_update()).one_or_none()


def referenced(connection: Connection) -> Sequence[str]:
    """The content hashes that the database knows: of artefacts, and of the jobs' own files."""
    named = set(connection.scalars(select(tables.artifacts.c.sha256).distinct()))
    for spec in connection.scalars(select(jobs.c.spec)):
        for ref in JobSpec.model_validate(spec).files.values():
            named.add(ref.sha256 or "")
    return sorted(named - {""})
