"""Jobs as they are found in the database."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Select, Text, and_, func, select, type_coerce, update
from sqlalchemy.engine import Connection, Row

from etscope.errors import LabError, MissingDataError, UsageError, VersionError
from etscope.lab.database import schema
from etscope.lab.database.connection import now
from etscope.lab.jobs.records import (
    Artifact,
    Filter,
    Job,
    JobEvent,
    Outcome,
    Page,
    Point,
    Series,
    State,
    may_follow,
)
from etscope.lab.jobs.spec import JobSpec

# The numbers of done benchmarks, in series.


_results = schema.results.c
_SERIES = (_results.model, _results.method, _results.device, _results.backend)
_TIMES = ("p50_ms", "p90_ms", "load_ms", "first_ms")
_POINT = (
    _results.job_id,
    _results.at_us,
    *(_results[name] for name in _TIMES),
    _results.marked,
    _results.model_sha256,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def note_result(connection: Connection, seq: int, job: Job) -> None:
    """Take a done job into its series, when it has what a point needs."""
    latency = job.summary.get("latency")
    if job.spec.kind != "benchmark" or not isinstance(latency, Mapping):
        return
    times = {name: _number(latency.get(name)) for name in _TIMES}
    if any(value is None for value in times.values()):
        return
    row = {
        "job": seq,
        "job_id": job.id,
        "at_us": _microseconds(job.finished_at),
        "model": schema.clean(job.spec.model.name or job.spec.title),
        "method": schema.clean(str(job.summary.get("method") or job.spec.method or "forward")),
        "device": job.device or "",
        "backend": schema.clean(str(job.summary.get("backend") or "")),
        "model_sha256": job.spec.model.sha256,
        "marked": bool(job.marks),
        "labels": dict(job.spec.labels),
    }
    connection.execute(schema.results.insert().values(**row, **times))


def history(
    connection: Connection, model: str | None, device: str | None, limit: int
) -> list[Series]:
    """All series, or those of a model's name, of a device; the newest `limit` points of each."""
    if limit < 1:
        raise UsageError(f"a history of {limit} points", hint="limit is 1 or more")
    age = func.row_number().over(partition_by=_SERIES, order_by=_results.job.desc())
    query = select(_results.job, age.label("age"))
    if model is not None:
        query = query.where(_results.model == schema.clean(model))
    if device is not None:
        query = query.where(_results.device == schema.clean(device))
    newest = query.subquery()
    rows = connection.execute(
        select(*_SERIES, *_POINT, type_coerce(_results.labels, Text))
        .join(newest, newest.c.job == _results.job)
        .where(newest.c.age <= limit)
        .order_by(_results.job)
    ).all()
    # One text of JSON, and not thousands.
    labels = json.loads(f"[{','.join(row[-1] for row in rows)}]")
    found: dict[tuple[str, str, str, str], list[Point]] = defaultdict(list)
    for row, own in zip(rows, labels, strict=True):
        model, method, board, backend, job_id, at_us, p50, p90, load, first, marked, sha256, _ = row
        at = datetime.fromtimestamp(at_us / 1e6, timezone.utc)
        point = Point(job_id, at, p50, p90, load, first, marked, own, sha256)
        found[model, method, board, backend].append(point)
    return [Series(*names, tuple(found[names])) for names in sorted(found)]


def _microseconds(at: datetime | None) -> int:
    if at is None:
        raise LabError("a done job without the time when it ended")
    return (at - _EPOCH) // timedelta(microseconds=1)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


_ID = re.compile(r"[0-9a-f]{1,32}")
_CURSOR = re.compile(r"[0-9]{1,18}")
_LONGEST_TEXT = 1000  # SQLite refuses longer patterns, of some 50,000 bytes
_AFTER_HEX = "g"  # follows every digit of an id

_jobs = schema.jobs.c
_COLUMNS = [
    column
    for column in schema.jobs.columns
    if column.name not in ("sole", "priority", "expired", "token", "engine", "lease_until", "seeks")
]


def find(connection: Connection, job_id: str) -> Job:
    """By id or an unambiguous beginning of it. `MissingDataError`, `UsageError`."""
    return one(connection, row_of(connection, job_id))


def row_of(connection: Connection, job_id: str) -> Row[Any]:
    if not _ID.fullmatch(job_id):
        raise _missing(job_id)
    wanted = and_(_jobs.id >= job_id, _jobs.id < job_id + _AFTER_HEX)
    rows = connection.execute(_select().where(wanted).order_by(_jobs.id).limit(2)).all()
    if not rows:
        raise _missing(job_id)
    if len(rows) > 1 and rows[0].id != job_id:
        raise UsageError(
            f"several jobs begin with {job_id!r}: {rows[0].id}, {rows[1].id}, …",
            hint="give more of the id",
        )
    return rows[0]


def row_by_id(connection: Connection, job_id: str) -> Row[Any] | None:
    return connection.execute(_select().where(_jobs.id == job_id)).one_or_none()


def row_by_content(
    connection: Connection, content_hash: str, states: Iterable[State]
) -> Row[Any] | None:
    """The newest job of this content in one of these states."""
    wanted = and_(_jobs.content_hash == content_hash, _jobs.state.in_([*states]))
    return connection.execute(_select().where(wanted).order_by(_jobs.seq.desc()).limit(1)).first()


def queued(connection: Connection, limit: int) -> list[Job]:
    """By priority, then age."""
    wanted = _select().where(_jobs.state == State.QUEUED).limit(limit)
    order = schema.jobs.c.priority.desc(), _jobs.seq
    return [_job(row, {}) for row in connection.execute(wanted.order_by(*order))]


def page(connection: Connection, wanted: Filter, limit: int, cursor: str | None) -> Page:
    """Newest first. The cursor is the place of the last job shown: what is added meanwhile neither
    repeats nor hides one."""
    if limit < 1:
        raise UsageError(f"a page of {limit} jobs", hint="limit is 1 or more")
    where = _where(wanted)
    total = connection.execute(select(func.count()).select_from(schema.jobs).where(*where))
    query = _select().where(*where).order_by(_jobs.seq.desc()).limit(limit + 1)
    if cursor is not None:
        if not _CURSOR.fullmatch(cursor):
            raise UsageError(f"{cursor[:80]!r} is no cursor of a page", hint="take Page.next")
        query = query.where(_jobs.seq < int(cursor))
    rows = connection.execute(query).all()
    shown = rows[:limit]
    more = str(shown[-1].seq) if len(rows) > limit else None
    return Page(tuple(many(connection, shown)), more, total.scalar_one())


def one(connection: Connection, row: Row[Any]) -> Job:
    return many(connection, [row])[0]


def many(connection: Connection, rows: Sequence[Row[Any]]) -> list[Job]:
    """Jobs of rows, with their artefacts."""
    table = schema.artifacts
    held: dict[int, dict[str, Artifact]] = defaultdict(dict)
    query = select(table).where(table.c.job.in_([row.seq for row in rows])).order_by(table.c.name)
    for row in connection.execute(query):
        held[row.job][row.name] = Artifact(row.name, row.sha256, row.size, row.media_type)
    return [_job(row, held[row.seq]) for row in rows]


def events(connection: Connection, job_id: str) -> list[JobEvent]:
    table = schema.events.c
    seq = row_of(connection, job_id).seq
    rows = connection.execute(select(schema.events).where(table.job == seq).order_by(table.seq))
    return [
        JobEvent(row.at, State(row.state), row.attempt, row.device, row.message) for row in rows
    ]


def referenced(connection: Connection) -> set[str]:
    """SHA-256 of all that jobs read or wrote."""
    found: set[str] = set()
    for table in (schema.inputs, schema.artifacts):
        found |= set(connection.execute(select(table.c.sha256).distinct()).scalars())
    return found


def seeks_of(spec: JobSpec) -> str:
    """What a search for text looks at: the name, the model's name, the labels."""
    pairs = [f"{key}={value}" for key, value in spec.labels.items()]
    return schema.clean("\n".join([spec.title, spec.model.name, *pairs]).casefold())


def _select() -> Select[Any]:
    return select(*_COLUMNS)


def _where(wanted: Filter) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if wanted.states:
        where.append(_jobs.state.in_([State(state) for state in wanted.states]))
    if wanted.device is not None:
        where.append(_jobs.device == schema.clean(wanted.device))
    if wanted.kind is not None:
        where.append(_jobs.kind == schema.clean(wanted.kind))
    if wanted.model_sha256 is not None:
        where.append(_jobs.model_sha256 == schema.clean(wanted.model_sha256))
    if wanted.text:
        if len(wanted.text) > _LONGEST_TEXT:
            raise UsageError(f"a text to search for has {_LONGEST_TEXT:,} characters at most")
        where.append(_jobs.seeks.contains(schema.clean(wanted.text.casefold()), autoescape=True))
    if wanted.since is not None:
        if wanted.since.tzinfo is None:
            raise UsageError(f"since {wanted.since} has no time zone")
        where.append(_jobs.created_at >= wanted.since)
    label = schema.labels.c
    for key, value in (wanted.labels or {}).items():
        held = and_(label.key == schema.clean(key), label.value == schema.clean(value))
        where.append(_jobs.seq.in_(select(label.job).where(held)))
    return where


def _job(row: Row[Any], artifacts: Mapping[str, Artifact]) -> Job:
    return Job(
        id=row.id,
        spec=_spec(row.spec),
        content_hash=row.content_hash,
        state=State(row.state),
        created_at=row.created_at,
        submitter=row.submitter,
        device=row.device,
        worker=row.worker,
        attempt=row.attempt,
        claimed_at=row.claimed_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        error=row.error,
        error_slug=row.error_slug,
        summary=row.summary,
        environment=row.environment,
        marks=tuple(row.marks),
        artifacts=artifacts,
        cancel_requested=row.cancel_requested,
    )


@lru_cache(maxsize=4096)  # they are read again and again, and never change
def _spec(text: str) -> JobSpec:
    try:
        return JobSpec.model_validate_json(text)
    except ValidationError as error:
        raise VersionError(
            f"a job in the lab's database has a specification that this etscope does not read: "
            f"{error.errors(include_url=False)[0]['msg']}",
            hint="use the etscope that the lab's server has",
        ) from error


def _missing(job_id: str) -> MissingDataError:
    return MissingDataError(
        f"the lab has no job {job_id[:80]!r}", hint="etscope lab list shows its jobs"
    )


# The steps of a job's life, a transaction each.
#
# A step changes a job only in a state that it may follow (`etscope.lab.jobs.records`) and, for what
# belongs to an attempt, only with that attempt's token. So of two that want the same step one gets
# it, and what an attempt says that was given up counts for nothing.


# Jobs whose answer a new submission of the same content gets.
_ANSWERS = (State.QUEUED, State.CLAIMED, State.RUNNING, State.DONE)
_AT_WORK = (State.CLAIMED, State.RUNNING)
# So often may the engine of a running job vanish. That does not count as an attempt, as a restart
# of the lab is not the job's fault; but a job may be what brings the lab down.
_MOST_EXPIRED = 20

_jobs_of_transitions = schema.jobs.c
_NOBODY: dict[str, Any] = {"token": None, "engine": None, "lease_until": None}


def new_id() -> str:
    return secrets.token_hex(8)


def add(
    connection: Connection, job_id: str, spec: JobSpec, submitter: str, again: bool, unsure: bool
) -> tuple[Job, bool]:
    """The job and whether it is new. Raises `IntegrityError` when another one adds the same at
    this moment: done again, this then finds that job."""
    content_hash = spec.content_hash
    if unsure and (mine := row_by_id(connection, job_id)) is not None:
        return one(connection, mine), True
    if not again:
        other = row_by_content(connection, content_hash, _ANSWERS)
        if other is not None:
            return one(connection, other), False
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
        "seeks": seeks_of(spec),
        "spec": spec.model_dump_json(),
    }
    seq = connection.execute(
        schema.jobs.insert().values(row).returning(_jobs_of_transitions.seq)
    ).scalar_one()
    _add_parts(connection, seq, spec)
    _note(connection, seq, at, State.QUEUED, 0, None, "")
    return one(connection, _there(row_by_id(connection, job_id))), True


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
        and_(_jobs_of_transitions.id == job_id, _jobs_of_transitions.state == State.QUEUED),
        state=State.CLAIMED.value,
        attempt=_jobs_of_transitions.attempt + 1,
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
        mine = and_(
            _jobs_of_transitions.id == job_id,
            _jobs_of_transitions.token == token,
            _jobs_of_transitions.state == State.CLAIMED,
        )
        if connection.execute(select(_jobs_of_transitions.seq).where(mine)).first() is None:
            return None
    else:
        _note(connection, row.seq, at, State.CLAIMED, row.attempt, device, "")
    return one(connection, _there(row_by_id(connection, job_id)))


def start(connection: Connection, job_id: str, token: str, worker: str) -> bool:
    at = now(connection)
    mine = and_(_jobs_of_transitions.id == job_id, _jobs_of_transitions.token == token)
    row = _step(
        connection,
        and_(mine, _jobs_of_transitions.state == State.CLAIMED),
        state=State.RUNNING.value,
        worker=schema.clean(worker, 500),
        started_at=at,
    )
    if row is None:  # told twice is no fault
        running = and_(mine, _jobs_of_transitions.state == State.RUNNING)
        return (
            connection.execute(select(_jobs_of_transitions.seq).where(running)).first() is not None
        )
    _note(connection, row.seq, at, State.RUNNING, row.attempt, row.device, "")
    return True


def finish(connection: Connection, outcome: Outcome, unsure: bool) -> bool:
    state = State(outcome.state)
    if not state.is_final:
        raise UsageError(f"an attempt does not end in the state {state}")
    at = now(connection)
    mine = and_(
        _jobs_of_transitions.id == outcome.job_id, _jobs_of_transitions.token == outcome.token
    )
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
    row = _step(connection, and_(mine, _jobs_of_transitions.state.in_(_before(state))), **changes)
    if row is None:
        ended = and_(mine, _jobs_of_transitions.state == state)
        return (
            unsure
            and connection.execute(select(_jobs_of_transitions.seq).where(ended)).first()
            is not None
        )
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
        job = one(connection, _there(row_by_id(connection, outcome.job_id)))
        note_result(connection, row.seq, job)
    return True


def release(
    connection: Connection, job_id: str, token: str, message: str, counted: bool, unsure: bool
) -> bool:
    mine = and_(
        _jobs_of_transitions.id == job_id,
        _jobs_of_transitions.token == token,
        _jobs_of_transitions.state.in_(_AT_WORK),
    )
    row = _locked(connection, mine)
    if row is None:
        waits = and_(_jobs_of_transitions.id == job_id, _jobs_of_transitions.state == State.QUEUED)
        return (
            unsure
            and connection.execute(select(_jobs_of_transitions.seq).where(waits)).first()
            is not None
        )
    _back(connection, row, message, counted=counted)
    return True


def expired_ids(connection: Connection) -> list[str]:
    late = and_(
        _jobs_of_transitions.state.in_(_AT_WORK), _jobs_of_transitions.lease_until < now(connection)
    )
    return [
        *connection.execute(
            select(_jobs_of_transitions.id).where(late).order_by(_jobs_of_transitions.seq)
        ).scalars()
    ]


def requeue(connection: Connection, unsure: bool, *, job_id: str) -> bool:
    """Take a job from an attempt whose lease ran out."""
    late = and_(
        _jobs_of_transitions.id == job_id,
        _jobs_of_transitions.state.in_(_AT_WORK),
        _jobs_of_transitions.lease_until < now(connection),
    )
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
    seq = row_of(connection, job_id).seq
    row = _there(_locked(connection, _jobs_of_transitions.seq == seq))
    if row.state == State.QUEUED:
        _end(connection, row, State.CANCELLED, "stopped on request", "")
    elif row.state in _AT_WORK:
        if not row.cancel_requested:
            _step(connection, _jobs_of_transitions.seq == seq, cancel_requested=True)
            text = "somebody asked to stop it"
            state = State(row.state)
            _note(connection, seq, now(connection), state, row.attempt, row.device, text)
    elif not (unsure and row.state == State.CANCELLED):
        raise UsageError(f"job {row.id} has ended: {row.state}")
    return one(connection, _there(row_by_id(connection, row.id)))


def renew(connection: Connection, engine: str, lease_seconds: float) -> None:
    until = now(connection) + timedelta(seconds=lease_seconds)
    mine = and_(_jobs_of_transitions.engine == engine, _jobs_of_transitions.state.in_(_AT_WORK))
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
        _jobs_of_transitions.seq == row.seq,
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
        _jobs_of_transitions.seq == row.seq,
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
    columns = _jobs_of_transitions.seq, _jobs_of_transitions.attempt, _jobs_of_transitions.device
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
