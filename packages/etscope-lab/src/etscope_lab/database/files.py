"""Files that no job needs. Each function is called inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from sqlalchemy import and_, delete, exists, select, update
from sqlalchemy.engine import Connection

from etscope_lab.database import schema
from etscope_lab.database.connection import lock, now

FILES = "files"  # the name of a lock
_KEEP = "keep"  # the label of jobs whose files stay
_OF_ALARM = ("before", "job", "newest", "ab_job")

_jobs = schema.jobs.c
_results = schema.results.c


def remove_unused(
    connection: Connection, _: bool, files: Collection[str], remove: Callable[[str], bool]
) -> int:
    """Call `remove` with those of the files (SHA-256) that no job reads or wrote; how often it was
    True. A job that needs one of them is added before, or after that: who adds it then finds that
    the file is gone."""
    lock(connection, FILES)
    unused = set(files)
    for table in (schema.inputs, schema.artifacts):
        query = select(table.c.sha256).where(table.c.sha256.in_(files)).distinct()
        unused -= set(connection.execute(query).scalars())
    return sum(map(remove, unused))


def forget_files(
    connection: Connection, _: bool, after: datetime, before: datetime, limit: int
) -> tuple[datetime | None, set[str]]:
    """Forget the files of the first jobs that ended between two times: all but those with the label
    "keep", of alarms, and the last of each series. Return the end of the last job, None if there
    are no more, and the files that were theirs."""
    old = and_(_jobs.finished_at > after, _jobs.finished_at < before)
    query = select(_jobs.finished_at, _jobs.seq, _jobs.id)
    query = query.where(old, _jobs.files_removed_at.is_(None)).limit(limit)
    rows = connection.execute(query.order_by(_jobs.finished_at, _jobs.seq)).all()
    if not rows:
        return None, set()
    named = {row.id: row.seq for row in rows}
    kept = select(schema.labels.c.job).where(schema.labels.c.key == _KEEP)
    kept = kept.where(schema.labels.c.job.in_(named.values()))
    gone = set(named.values()) - set(connection.execute(kept).scalars())
    for alarm in connection.execute(select(*(schema.alarms.c[name] for name in _OF_ALARM))):
        gone -= {named.get(one) for one in alarm}
    last = schema.results.alias().c
    later = [last.job > _results.job]
    for one in schema.SERIES:  # PostgreSQL finds equal ones only in the index
        other = last[one.name]
        later.append(other.is_not_distinct_from(one) if one.nullable else other == one)
    newest = select(_results.job).where(_results.job.in_(gone), ~exists().where(*later))
    gone -= set(connection.execute(newest).scalars())
    files: set[str] = set()
    for table in (schema.inputs, schema.artifacts):
        removed = delete(table).where(table.c.job.in_(gone)).returning(table.c.sha256)
        files |= set(connection.execute(removed).scalars())
    mark = update(schema.jobs).where(_jobs.seq.in_(gone))
    connection.execute(mark.values(sole=None, files_removed_at=now(connection)))
    return rows[-1].finished_at, files
