"""Jobs in the database: the steps of a job's life, searches and histories.

Each function is called inside a transaction. unsure: an earlier try of it may have been
committed. A step changes a job only in a state that it may follow (`State`) and, when it belongs to
an attempt, only with that attempt's token. So of two callers that want the same step one gets it,
and messages of an abandoned attempt have no effect.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    and_,
    func,
    select,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.engine import Connection, Row

from etscope.errors import LabError, MissingDataError, UsageError, VersionError
from etscope_lab.database import audit, schema
from etscope_lab.database.connection import lock, now, upsert
from etscope_lab.database.files import FILES
from etscope_lab.jobs.generations import (
    ENERGY,
    EXECUTION,
    SUSTAINED,
    drawn_prompt,
    rows_of,
    times_of,
)
from etscope_lab.jobs.records import (
    MOST_COUNTED,
    SERIES_KEY,
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
from etscope_lab.jobs.spec import LONGEST_LABEL, MOST_LABELS, GenerationSpec, JobSpec
from etscope_lab.worker.conditions import is_lasting

# Jobs that are returned in place of a new one of the same content.
_ANSWERS = (State.QUEUED, State.CLAIMED, State.RUNNING, State.DONE)
_AT_WORK = (State.CLAIMED, State.RUNNING)
# How often the engine of a running job may vanish. This does not count as an attempt, as a restart
# of the lab is not the job's fault; but a job may be what brings the lab down.
_MOST_EXPIRED = 20
_ID = re.compile(r"[0-9a-f]{1,32}")
_CURSOR = re.compile(r"[0-9]{1,18}")
_LONGEST_TEXT = 1000  # SQLite refuses longer patterns, of some 50,000 bytes
_FEWEST_LETTERS = 3  # that the index of texts finds
_AFTER_HEX = "g"  # follows every digit of an id
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_jobs = schema.jobs.c
_results = schema.results.c
_OF_JOB = tuple(one.name for one in fields(Job) if one.name in _jobs)
_COLUMNS = [_jobs.seq, *(_jobs[name] for name in _OF_JOB)]
_NO_ENGINE: dict[str, Any] = {"token": None, "engine": None}
_AT_ONCE = 500  # jobs that a migration reads together
_TIMES = ("p50_ms", "p90_ms", "load_ms", "first_ms")
_POINT = (
    _results.job_id,
    _results.at_us,
    *(_results[name] for name in _TIMES),
    _results.marked,
    _results.model_sha256,
    _results.software,
)


# -- the steps of a job


def add(
    connection: Connection,
    unsure: bool,
    job_id: str,
    spec: JobSpec,
    owner: tuple[str, str],
    again: bool,
    most: int | None,
    failure: str,
) -> tuple[Job, bool]:
    """Return the job and True when it is new. owner: submitter and project. most: jobs of the
    project that may wait. failure: why it ends at once; "" queues it.

    Raises `IntegrityError` when another process adds the same job at this moment; the next try then
    finds that job. `UsageError`: too many labels. `LabError`: as many jobs wait as may.
    """
    if len(spec.labels) > MOST_LABELS or max(map(len, spec.labels.values()), default=0) > (
        LONGEST_LABEL
    ):
        raise UsageError(
            f"a job has at most {MOST_LABELS} labels of at most {LONGEST_LABEL} characters"
        )
    content_hash = spec.content_hash
    if unsure and _exists(connection, _jobs.id == job_id):
        return _job_by_id(connection, job_id), True
    if not again:
        same = and_(
            _jobs.content_hash == content_hash,
            _jobs.state.in_(_ANSWERS),
            _jobs.files_removed_at.is_(None),
        )
        newest = _select().where(same).order_by(_jobs.seq.desc()).limit(1)
        other = connection.execute(newest).first()
        if other is not None:
            return _with_artifacts(connection, [other])[0], False
    project = schema.clean(owner[1], 200)
    if most is not None and not _has_room(connection, project, most, State.QUEUED):
        raise LabError(
            f"{most} jobs of the project {project} wait, and no more may",
            hint="submit it when some have ended; max_queued in lab.yaml is the limit",
        )
    # `files.remove_unused` looks for references now, or when this transaction has ended.
    lock(connection, FILES, shared=True)
    at = now(connection)
    pairs = [f"{key}={text}" for key, text in spec.labels.items()]
    values = {
        "id": job_id,
        "state": State.QUEUED.value,
        "priority": spec.priority,
        "content_hash": content_hash,
        "sole": None if again else content_hash,
        "kind": spec.kind,
        "model_sha256": spec.model.sha256,
        "created_at": at,
        "submitter": schema.clean(owner[0], 200),
        "project": project,
        "seeks": schema.clean("\n".join([spec.title, spec.model.name, project, *pairs]).casefold()),
        "spec": spec.model_dump_json(),
    }
    query = schema.jobs.insert().values(values)
    row = connection.execute(query.returning(_jobs.seq, _jobs.attempt, _jobs.device)).one()
    if spec.labels:
        labels = [{"job": row.seq, "key": key, "value": text} for key, text in spec.labels.items()]
        connection.execute(schema.labels.insert(), labels)
    files = [
        {"job": row.seq, "field": field, "sha256": ref.sha256} for field, ref in spec.files.items()
    ]
    connection.execute(schema.inputs.insert(), files)
    _note(connection, row, at, State.QUEUED)
    if failure:
        _end(connection, row, State.USER_ERROR, failure, UsageError.slug)
    return _job_by_id(connection, job_id), True


def claim(
    connection: Connection,
    unsure: bool,
    job_id: str,
    device: str,
    engine: str,
    token: str,
    limit: tuple[str, int] | None,
) -> Job | None:
    """limit: a project, and how many of its jobs may be at work."""
    mine = and_(_jobs.id == job_id, _jobs.token == token, _jobs.state == State.CLAIMED)
    if unsure and _exists(connection, mine):
        return _job_by_id(connection, job_id)
    if limit is not None and not _has_room(connection, *limit, *_AT_WORK):
        return None
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
    )
    if row is None:
        return None
    _note(connection, row, at, State.CLAIMED)
    return _job_by_id(connection, job_id)


def start(connection: Connection, _: bool, job_id: str, token: str, worker: str) -> bool:
    at = now(connection)
    mine = and_(_jobs.id == job_id, _jobs.token == token)
    row = _step(
        connection,
        and_(mine, _jobs.state == State.CLAIMED),
        state=State.RUNNING.value,
        worker=schema.clean(worker, 500),
        started_at=at,
    )
    if row is None:  # the worker may report it twice
        return _exists(connection, and_(mine, _jobs.state == State.RUNNING))
    _note(connection, row, at, State.RUNNING)
    return True


def finish(connection: Connection, unsure: bool, outcome: Outcome) -> bool:
    state = State(outcome.state)
    if not state.is_final:
        raise UsageError(f"an attempt cannot end in the state {state}")
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
    }
    if state is not State.DONE:
        changes["sole"] = None
    before = [other for other in State if may_follow(other, state)]
    row = _step(connection, and_(mine, _jobs.state.in_(before)), **changes)
    if row is None:
        return unsure and _exists(connection, and_(mine, _jobs.state == state))
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
    _note(connection, row, at, state, outcome.error)
    if state is State.DONE:
        results = _results_of(row.seq, _job_by_id(connection, outcome.job_id))
        if results:
            connection.execute(schema.results.insert(), results)
    return True


def release(
    connection: Connection, unsure: bool, job_id: str, token: str, message: str, counted: bool
) -> bool:
    mine = and_(_jobs.id == job_id, _jobs.token == token, _jobs.state.in_(_AT_WORK))
    row = _locked(connection, mine)
    if row is None:
        waits = and_(_jobs.id == job_id, _jobs.state == State.QUEUED)
        return unsure and _exists(connection, waits)
    _requeue(connection, row, message, counted=counted)
    return True


def expired_ids(connection: Connection) -> list[str]:
    late = and_(_jobs.state.in_(_AT_WORK), _jobs.engine.not_in(alive(connection)))
    return [*connection.execute(select(_jobs.id).where(late).order_by(_jobs.seq)).scalars()]


def requeue_expired(connection: Connection, unsure: bool, job_id: str) -> bool:
    """Take a job from an attempt after the lease of its engine ran out."""
    gone = _jobs.engine.not_in(alive(connection))
    late = and_(_jobs.id == job_id, _jobs.state.in_(_AT_WORK), gone)
    row = _locked(connection, late)
    if row is None:
        return unsure
    running = row.state == State.RUNNING
    if running and row.expired + 1 >= _MOST_EXPIRED:
        why = f"the lab went down {_MOST_EXPIRED} times while this job was running"
        _end(connection, row, State.FAILED, why, "lab")
        return True
    times = {"expired": row.expired + 1} if running else {}
    _requeue(connection, row, "the engine that had it is gone", counted=False, **times)
    return True


def request_cancel(connection: Connection, unsure: bool, job_id: str, by: str) -> Job:
    who, by = by, f" by {by}" if by else ""
    seq = _row_of(connection, job_id).seq
    row = _locked(connection, _jobs.seq == seq)
    assert row is not None  # jobs are never removed
    if row.state == State.QUEUED:
        _end(connection, row, State.CANCELLED, f"stopped on request{by}", "")
    elif row.state in _AT_WORK:
        if not row.cancel_requested:
            _step(connection, _jobs.seq == seq, cancel_requested=True)
            at = now(connection)
            _note(connection, row, at, State(row.state), f"its cancellation was requested{by}")
    elif not (unsure and row.state == State.CANCELLED):
        raise UsageError(f"job {row.id} has ended: {row.state}")
    if not State(row.state).is_final and not row.cancel_requested:
        audit.note(connection, who, "cancel", row.id, submitter=row.submitter)
    return _job_by_id(connection, row.id)


def renew(connection: Connection, _: bool, engine: str, lease_seconds: float) -> None:
    until = now(connection) + timedelta(seconds=lease_seconds)
    upsert(connection, schema.engines, [{"engine": engine, "until": until}])


def alive(connection: Connection) -> Select[tuple[str]]:
    """Select the engines whose lease has not run out: their jobs and devices are theirs."""
    return select(schema.engines.c.engine).where(schema.engines.c.until >= now(connection))


def cancelled_of(connection: Connection, engine: str) -> set[str]:
    """The jobs of an engine that should stop."""
    mine = and_(_jobs.engine == engine, _jobs.state.in_(_AT_WORK))
    return set(connection.execute(select(_jobs.id).where(mine, _jobs.cancel_requested)).scalars())


def used(connection: Connection, half_life: float) -> tuple[dict[str, float], datetime]:
    """The device time of projects, halved each `half_life` seconds, and the time."""
    at = now(connection)
    return {
        row.project: row.seconds * 0.5 ** ((at - row.at).total_seconds() / half_life)
        for row in connection.execute(select(schema.shares))
    }, at


def _has_room(connection: Connection, project: str, most: int, *states: State) -> bool:
    """True when another job of a project may come into these states, in this transaction."""
    lock(connection, f"limits of {states[0]}")
    return sum(n for (_, one), n in counts(connection, states).items() if one == project) < most


def _requeue(
    connection: Connection, row: Row[Any], message: str, *, counted: bool, **more: Any
) -> None:
    """Queue a job again, or end it when its cancellation was requested."""
    if row.cancel_requested:
        _end(connection, row, State.CANCELLED, "stopped on request", "")
        return
    _step(
        connection,
        _jobs.seq == row.seq,
        state=State.QUEUED.value,
        attempt=row.attempt if counted else row.attempt - 1,
        **_NO_ENGINE,
        worker=None,
        device=None,
        claimed_at=None,
        started_at=None,
        **more,
    )
    _note(connection, row, now(connection), State.QUEUED, message)


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
        **_NO_ENGINE,
    )
    _note(connection, row, at, state, error)


def _step(connection: Connection, where: ColumnElement[bool], **changes: Any) -> Row[Any] | None:
    """Change the job for which `where` holds; None when it does not hold, or no longer."""
    columns = _jobs.seq, _jobs.attempt, _jobs.device
    query = update(schema.jobs).where(where).values(**changes).returning(*columns)
    return connection.execute(query).one_or_none()


def _locked(connection: Connection, where: ColumnElement[bool]) -> Row[Any] | None:
    """The job for which `where` holds, locked until this transaction ends."""
    return connection.execute(select(schema.jobs).with_for_update().where(where)).one_or_none()


def _note(
    connection: Connection, row: Row[Any], at: datetime, state: State, message: str = ""
) -> None:
    """Add an event of the job in a row that has its seq, attempt and device."""
    event = {
        "job": row.seq,
        "at": at,
        "state": state.value,
        "attempt": row.attempt,
        "device": row.device,
        "message": schema.clean(message),
    }
    connection.execute(schema.events.insert().values(**event))


# -- jobs that are there


def find(connection: Connection, job_id: str) -> Job:
    """The job of an id or an unambiguous beginning of one. `MissingDataError`, `UsageError`."""
    return _with_artifacts(connection, [_row_of(connection, job_id)])[0]


def queued(connection: Connection, limit: int) -> list[Job]:
    """Queued jobs by priority, then age; the first ones of each project."""
    waits = _jobs.state == State.QUEUED
    order = _jobs.priority.desc(), _jobs.seq
    found: list[Row[Any]] = []
    first = select(func.min(_jobs.project)).where(waits)
    project = connection.execute(first).scalar()
    while project is not None:  # a step in the index for each
        query = select(*_COLUMNS, _jobs.priority, _jobs.seq).where(waits, _jobs.project == project)
        found.extend(connection.execute(query.order_by(*order).limit(limit)))
        project = connection.execute(first.where(_jobs.project > project)).scalar()
    found.sort(key=lambda row: (-row.priority, row.seq))
    return [_job(row, {}) for row in found]


def page(connection: Connection, wanted: Filter, limit: int, cursor: str | None) -> Page:
    """Jobs, newest first. The cursor is the position of the last job shown, so jobs that are added
    meanwhile neither repeat nor hide one."""
    if limit < 1:
        raise UsageError(f"a page of {limit} jobs", hint="limit is 1 or more")
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        raise UsageError(f"{cursor[:80]!r} is not a cursor of a page", hint="take Page.next")
    rows: list[Row[Any]] = []
    total = 0
    # An index yields the jobs of one state in order.
    each: list[tuple[State, ...]] = [(one,) for one in dict.fromkeys(wanted.states)]
    for states in each or [()]:
        query, place = _matching(connection, replace(wanted, states=states))
        counted = query.with_only_columns(place).limit(MOST_COUNTED + 1).subquery()
        total += connection.execute(select(func.count()).select_from(counted)).scalar_one()
        if cursor is not None:
            query = query.where(place < int(cursor))
        rows += connection.execute(query.order_by(place.desc()).limit(limit + 1)).all()
    rows.sort(key=lambda row: -row.seq)
    shown = rows[:limit]
    more = str(shown[-1].seq) if len(rows) > limit else None
    return Page(tuple(_with_artifacts(connection, shown)), more, min(total, MOST_COUNTED + 1))


def events(connection: Connection, job_id: str) -> list[JobEvent]:
    table = schema.events.c
    seq = _row_of(connection, job_id).seq
    rows = connection.execute(select(schema.events).where(table.job == seq).order_by(table.seq))
    return [
        JobEvent(row.at, State(row.state), row.attempt, row.device, row.message) for row in rows
    ]


def last_event(connection: Connection) -> int:
    """The number of the last event of any job."""
    return connection.execute(select(func.max(schema.events.c.seq))).scalar() or 0


def counts(connection: Connection, states: Sequence[State]) -> dict[tuple[State, str], int]:
    key = _jobs.state, _jobs.project
    query = select(*key, func.count()).where(_jobs.state.in_([one.value for one in states]))
    return {
        (State(state), project): count
        for state, project, count in connection.execute(query.group_by(*key))
    }


def _matching(connection: Connection, wanted: Filter) -> tuple[Select[Any], ColumnElement[int]]:
    """Select the jobs that match a filter. The column is a job's number in an index that yields
    them in order: of a label, of texts, or of the jobs themselves."""
    query = _select()
    place: ColumnElement[int] = _jobs.seq
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
        sought = schema.clean(wanted.text.casefold())
        if connection.dialect.name == "sqlite" and len(sought) >= _FEWEST_LETTERS:
            quoted = '"' + sought.replace('"', '""') + '"'
            place = schema.seeks.c.rowid
            query = query.join(schema.seeks, place == _jobs.seq)
            where.append(schema.seeks.c.lab_seeks.op("MATCH")(quoted))
        else:
            where.append(_jobs.seeks.contains(sought, autoescape=True))
    if wanted.since is not None:
        if wanted.since.tzinfo is None:
            raise UsageError(f"since {wanted.since} has no time zone")
        where.append(_jobs.created_at >= wanted.since)
    for key, value in (wanted.labels or {}).items():
        label = schema.labels.alias()
        place = label.c.job
        query = query.join(label, place == _jobs.seq)
        where += [label.c.key == schema.clean(key), label.c.value == schema.clean(value)]
    return query.where(*where), place


def _select() -> Select[Any]:
    return select(*_COLUMNS)


def _exists(connection: Connection, where: ColumnElement[bool]) -> bool:
    return connection.execute(select(_jobs.seq).where(where)).first() is not None


def _row_of(connection: Connection, job_id: str) -> Row[Any]:
    missing = MissingDataError(
        f"the lab has no job {job_id[:80]!r}", hint="etscope lab list shows the lab's jobs"
    )
    if not _ID.fullmatch(job_id):
        raise missing
    wanted = and_(_jobs.id >= job_id, _jobs.id < job_id + _AFTER_HEX)
    rows = connection.execute(_select().where(wanted).order_by(_jobs.id).limit(2)).all()
    if not rows:
        raise missing
    if len(rows) > 1 and rows[0].id != job_id:
        raise UsageError(
            f"several jobs begin with {job_id!r}: {rows[0].id}, {rows[1].id}, …",
            hint="give more of the id",
        )
    return rows[0]


def _job_by_id(connection: Connection, job_id: str) -> Job:
    row = connection.execute(_select().where(_jobs.id == job_id)).one()
    return _with_artifacts(connection, [row])[0]


def _with_artifacts(connection: Connection, rows: Sequence[Row[Any]]) -> list[Job]:
    table = schema.artifacts
    held: dict[int, dict[str, Artifact]] = defaultdict(dict)
    query = select(table).where(table.c.job.in_([row.seq for row in rows])).order_by(table.c.name)
    for row in connection.execute(query):
        held[row.job][row.name] = Artifact(row.name, row.sha256, row.size, row.media_type)
    return [_job(row, held[row.seq]) for row in rows]


def _job(row: Row[Any], artifacts: Mapping[str, Artifact]) -> Job:
    values = {name: getattr(row, name) for name in _OF_JOB}
    values |= {"spec": _spec(row.spec), "state": State(row.state), "marks": tuple(row.marks)}
    return Job(**values, artifacts=artifacts)


@lru_cache(maxsize=4096)  # the same ones are read again and again, and never change
def _spec(text: str) -> JobSpec:
    try:
        return JobSpec.model_validate_json(text)
    except ValidationError as error:
        raise VersionError(
            f"a job in the lab's database has a specification that this etscope does not read: "
            f"{error.errors(include_url=False)[0]['msg']}",
            hint="use the etscope that the lab's server has",
        ) from error


# -- the numbers of done benchmarks, in series


SeriesKey = tuple[Any, ...]  # of a series: the values of `SERIES_KEY`


def series_since(connection: Connection, at_us: int) -> dict[SeriesKey, int]:
    """The series with results from a time on, each with the time of its last one; microseconds
    since 1970."""
    if at_us <= 0:
        query = select(*schema.SERIES, func.max(_results.at_us)).group_by(*schema.SERIES)
    else:  # in the order of time: grouped, SQLite would read all results in the order of series
        new = _results.at_us >= at_us
        query = select(*schema.SERIES, _results.at_us).where(new).order_by(_results.at_us)
    return {tuple(row[:-1]): row[-1] for row in connection.execute(query)}


def history(connection: Connection, keys: Sequence[SeriesKey], limit: int) -> list[Series]:
    """The newest `limit` points of each series."""
    if limit < 1:
        raise UsageError(f"a history of {limit} points", hint="limit is 1 or more")
    return [_series(connection, key, limit) for key in keys]


def _series(connection: Connection, key: SeriesKey, limit: int) -> Series:
    # Each row is read from the index of series; a query of all would sort all results.
    same = (
        column.is_(None) if value is None else column == value
        for column, value in zip(schema.SERIES, key, strict=True)
    )
    rows = connection.execute(
        select(*_POINT, _jobs.marks, type_coerce(_results.labels, Text))
        .outerjoin(schema.jobs, and_(_jobs.seq == _results.job, _results.marked))
        .where(*same)
        .order_by(_results.job.desc())
        .limit(limit)
    ).all()[::-1]
    # One JSON text is parsed much faster than hundreds.
    labels = json.loads(f"[{','.join(row[-1] for row in rows)}]")
    points = tuple(
        Point(
            job_id=row.job_id,
            at=datetime.fromtimestamp(row.at_us / 1e6, timezone.utc),
            **{name: getattr(row, name) for name in _TIMES},
            marked=row.marked,
            labels=own,
            model_sha256=row.model_sha256,
            marks=tuple(mark for mark in row.marks or () if not is_lasting(mark)),
            software=row.software,
        )
        for row, own in zip(rows, labels, strict=True)
    )
    return Series(**dict(zip(SERIES_KEY, key, strict=True)), points=points)


def measured_since(
    connection: Connection, since: datetime
) -> dict[tuple[str, str], tuple[int, int]]:
    """Model and device of the series with results of jobs that ended at that time or later: the
    number of these results, and of their newest job."""
    after = _results.at_us >= (since - _EPOCH) // timedelta(microseconds=1)
    query = select(_results.model, _results.device, func.count(), func.max(_results.job))
    rows = connection.execute(query.where(after).group_by(_results.model, _results.device))
    return {(model, device): (count, newest) for model, device, count, newest in rows}


def ended_after(
    connection: Connection, at: datetime, seq: int, limit: int
) -> tuple[list[Job], tuple[datetime, int]]:
    """Jobs that ended after a place in the order of their ends, and the place of the last one."""
    after = tuple_(_jobs.finished_at, _jobs.seq) > (at, seq)
    order = (_jobs.finished_at, _jobs.seq)
    rows = connection.execute(_select().where(after).order_by(*order).limit(limit)).all()
    place = (rows[-1].finished_at, rows[-1].seq) if rows else (at, seq)
    return _with_artifacts(connection, rows), place


def fill_history(connection: Connection) -> None:
    """Fill the empty table of results, which histories show, with all done jobs."""
    kinds = _jobs.kind.in_(("benchmark", "generate"))
    done = _select().where(_jobs.state == State.DONE, kinds).order_by(_jobs.seq)
    last = 0
    while rows := connection.execute(done.where(_jobs.seq > last).limit(_AT_ONCE)).all():
        found = [result for row in rows for result in _results_of(row.seq, _job(row, {}))]
        if found:
            connection.execute(schema.results.insert(), found)
        last = rows[-1].seq


def _results_of(seq: int, job: Job) -> list[dict[str, Any]]:
    """A done job's rows of `results`: of a benchmark one, of generations one for each prompt and
    time; none of other jobs. Times that are not finite have none."""
    if job.finished_at is None:
        raise LabError("a done job has no end time")
    latency = job.summary.get("latency")
    latency = latency if isinstance(latency, Mapping) else {}
    found: list[tuple[str, str, Mapping[str, Any]]] = []  # inputs, metric, times
    if job.spec.kind == "benchmark":
        file = job.spec.inputs
        inputs = f"seed {job.spec.seed}" if file is None else f"sha256:{file.sha256}"
        metric = EXECUTION if job.spec.duration_seconds is None else SUSTAINED
        found.append((inputs, metric, latency))
        energy = job.summary.get("energy")
        joules = energy.get("per_inference_j") if isinstance(energy, Mapping) else None
        if joules is not None and _is_finite(joules):
            mj = joules * 1e3
            found.append((inputs, ENERGY, {**latency, "p50_ms": mj, "p90_ms": mj}))
    elif job.spec.kind == "generate":
        for row in rows_of(job.summary):
            cold = row.get("cold_first_token_p50_ms")
            once = {
                "load_ms": row.get("load_ms"),
                "first_ms": row.get("first_token_p50_ms") if cold is None else cold,
            }
            found += [
                (_inputs_of(job.spec, row), metric, {**once, **times})
                for metric, times in times_of(row).items()
            ]
    facts = job.environment
    threads = facts.get("threads")
    software = (("ExecuTorch", facts.get("executorch")), ("etscope", facts.get("etscope")))
    shared = {
        "job": seq,
        "job_id": job.id,
        "at_us": (job.finished_at - _EPOCH) // timedelta(microseconds=1),
        "model": schema.clean(job.spec.model.name or job.spec.title),
        "method": schema.clean(str(job.summary.get("method") or job.spec.method or "forward")),
        "device": job.device or "",
        "backend": schema.clean(str(job.summary.get("backend") or "")),
        # What ran; if the job did not record it, what was asked for.
        "runner": schema.clean(str(facts.get("runner") or job.spec.runner)),
        "threads": threads if isinstance(threads, int) else job.spec.threads,
        "software": schema.clean(
            ", ".join(f"{name} {version}" for name, version in software if version)
        ),
        "model_sha256": job.spec.model.sha256,
        "marked": not all(map(is_lasting, job.marks)),
        "labels": dict(job.spec.labels),
    }
    return [
        {
            **shared,
            "number": number,
            "inputs": schema.clean(inputs),
            "metric": metric,
            **{name: times[name] for name in _TIMES},
        }
        for number, (inputs, metric, times) in enumerate(found)
        if all(_is_finite(times.get(name)) for name in _TIMES)
    ]


def _is_finite(ms: Any) -> bool:
    is_number = isinstance(ms, int | float) and not isinstance(ms, bool)
    return is_number and math.isfinite(ms)


def _inputs_of(spec: JobSpec, row: Mapping[str, Any]) -> str:
    """The prompt of a generation, by its content, and the number of tokens asked for."""
    given = spec.generation or GenerationSpec()
    prompt, ids = row.get("prompt"), str(row.get("prompt_sha256") or "")
    is_drawn = prompt in {drawn_prompt(length, spec.seed) for length in spec.lengths}
    # The content, not the line: other lines of the file may come and go.
    name = str(prompt) if is_drawn else f"prompt {ids[:12]} of {row.get('prompt_tokens')} tokens"
    name += f", {given.new_tokens} new"
    if given.temperature:
        name += f", temperature {given.temperature:g}"
        name += "" if given.top_k is None else f", top_k {given.top_k}"
        name += "" if given.top_p is None else f", top_p {given.top_p:g}"
    return name
