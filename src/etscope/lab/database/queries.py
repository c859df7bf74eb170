"""Jobs as they are found in the database."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Select, Text, and_, func, select, type_coerce
from sqlalchemy.engine import Connection, Row

from etscope.errors import LabError, MissingDataError, UsageError, VersionError
from etscope.lab.database import schema
from etscope.lab.jobs.api import Filter, Page, Point, Series
from etscope.lab.jobs.records import Artifact, Job, JobEvent
from etscope.lab.jobs.spec import JobSpec
from etscope.lab.jobs.states import State

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
