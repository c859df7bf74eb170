"""The numbers of done benchmarks, in series."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Text, func, select, type_coerce
from sqlalchemy.engine import Connection

from etscope.errors import LabError, UsageError
from etscope.lab.database import schema
from etscope.lab.jobs.api import Point, Series
from etscope.lab.jobs.records import Job

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
