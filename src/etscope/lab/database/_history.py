"""Done jobs as series: one model and method on one device and backend over time."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, func, select

from etscope.errors import UsageError
from etscope.lab.api import Point, Series
from etscope.lab.database import _tables as tables
from etscope.lab.states import State

jobs = tables.jobs
_SERIES = (jobs.c.model_name, jobs.c.method, jobs.c.device, jobs.c.backend)


def history(
    connection: Connection, model: str | None, device: str | None, limit: int
) -> list[Series]:
    """Of a model's name, of a device, or of all; the newest `limit` points of each series, oldest
    first."""
    if limit < 1:
        raise UsageError(f"a series has 1 point or more, not {limit}")
    rank = func.row_number().over(partition_by=_SERIES, order_by=jobs.c.finished_at.desc())
    query = select(
        jobs.c.id,
        *_SERIES,
        jobs.c.finished_at,
        jobs.c.p50_ms,
        jobs.c.p90_ms,
        jobs.c.load_ms,
        jobs.c.first_ms,
        jobs.c.marks,
        jobs.c.model_sha256,
        rank.label("rank"),
    ).where(jobs.c.state == State.DONE.value, jobs.c.p50_ms.is_not(None), jobs.c.kind != "ab")
    if model is not None:
        query = query.where(jobs.c.model_name == model)
    if device is not None:
        query = query.where(jobs.c.device == device)
    ranked = query.subquery()
    rows = connection.execute(
        select(ranked)
        .where(ranked.c.rank <= limit)
        .order_by(*(ranked.c[one.name] for one in _SERIES), ranked.c.finished_at, ranked.c.id)
    ).all()
    labels = _labels(connection, [row.id for row in rows])
    series: dict[tuple[str, str, str, str], list[Point]] = defaultdict(list)
    for row in rows:
        key = (row.model_name, row.method or "", row.device or "", row.backend or "")
        series[key].append(
            Point(
                job_id=row.id,
                at=row.finished_at,
                p50_ms=row.p50_ms,
                p90_ms=row.p90_ms,
                load_ms=row.load_ms,
                first_ms=row.first_ms,
                marked=bool(row.marks),
                labels=labels.get(row.id, {}),
                model_sha256=row.model_sha256,
            )
        )
    return [Series(*key, tuple(points)) for key, points in series.items()]


def _labels(connection: Connection, job_ids: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    table = tables.labels
    for start in range(0, len(job_ids), 500):  # SQLite takes so many parameters, not any number
        some = job_ids[start : start + 500]
        for row in connection.execute(select(table).where(table.c.job_id.in_(some))):
            found[row.job_id][row.key] = row.value
    return found
