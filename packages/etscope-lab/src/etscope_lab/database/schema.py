"""The tables of the lab's database, and their version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import ColumnClause, TableClause
from sqlalchemy.types import TypeDecorator

from etscope_lab.jobs.records import SERIES_KEY

VERSION = 7  # of the last revision in `migrations/versions`


class Instant(TypeDecorator[datetime]):
    """An aware time, in UTC. SQLite keeps no time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(timezone.utc)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc)
        return value.astimezone(timezone.utc)


class Words(TypeDecorator[str]):
    """Text that is changed so that every database accepts it, as a value and in a condition."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else clean(value)


class Plain(TypeDecorator[Any]):
    """Plain JSON as text: the same in all databases, without numbers and characters that one of
    them refuses."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        return json.dumps(plain(value), separators=(",", ":"), allow_nan=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


def plain(value: Any) -> Any:
    """Convert a value to what JSON has: NaN and infinities become null, numpy's scalars numbers,
    other objects text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    item = getattr(value, "item", None)  # numpy's
    return plain(item()) if callable(item) and getattr(value, "ndim", 1) == 0 else str(value)


def clean(value: str, limit: int = 65_536) -> str:
    """Make a text that every database takes: without NUL and lone surrogates, and cut."""
    text = value[:limit].replace("\x00", "\ufffd")
    return text.encode("utf-8", "replace").decode()


_Seq = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER counts up by itself there
# Compared by code points, so that the ids with a common beginning are a range of the index.
_Id = Words(32).with_variant(Words(32, collation="C"), "postgresql")
_Sha256 = String(64)

metadata = MetaData()

version = Table("etscope_lab", metadata, Column("version", Integer, nullable=False))
revision = Table("lab_revision", metadata, Column("version_num", String(32), primary_key=True))

# seq: the order of submission. sole: the content hash while no other job of that content may be
# added; NULL for jobs added "again" and for jobs that ended without a result, or whose files were
# removed. token, engine: of the present attempt. seeks: the text that searches look at, case
# folded.
jobs = Table(
    "lab_jobs",
    metadata,
    Column("seq", _Seq, primary_key=True, autoincrement=True),
    Column("id", _Id, nullable=False, unique=True),
    Column("state", String(16), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("content_hash", _Sha256, nullable=False, index=True),
    Column("sole", _Sha256, unique=True),
    Column("kind", String(16), nullable=False),
    Column("model_sha256", _Sha256, nullable=False),
    Column("device", Words),
    Column("worker", Words),
    Column("attempt", Integer, nullable=False, default=0),
    Column("expired", Integer, nullable=False, default=0),
    Column("token", Words),
    Column("engine", Words, index=True),
    Column("cancel_requested", Boolean, nullable=False, default=False),
    Column("created_at", Instant, nullable=False),
    Column("claimed_at", Instant),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("submitter", Words, nullable=False, default=""),
    Column("project", Words, nullable=False, server_default=""),
    Column("seeks", Words, nullable=False),
    Column("error", Words, nullable=False, default=""),
    Column("error_slug", Words, nullable=False, default=""),
    Column("spec", Text, nullable=False),
    Column("summary", Plain, nullable=False, default=dict),
    Column("environment", Plain, nullable=False, default=dict),
    Column("marks", Plain, nullable=False, default=list),
    Column("files_removed_at", Instant),
    sqlite_autoincrement=True,  # numbers are never reused
)
Index("lab_jobs_queue", jobs.c.state, jobs.c.project, jobs.c.priority.desc(), jobs.c.seq)
Index("lab_jobs_by_state", jobs.c.state, jobs.c.seq)
Index("lab_jobs_by_device", jobs.c.device, jobs.c.seq)
Index("lab_jobs_by_model", jobs.c.model_sha256, jobs.c.seq)
Index("lab_jobs_by_kind", jobs.c.kind, jobs.c.seq)
Index("lab_jobs_by_time", jobs.c.created_at, jobs.c.seq)
Index("lab_jobs_by_end", jobs.c.finished_at, jobs.c.seq)

# An index of each three letters of `seeks`, so that a search does not read all jobs: in SQLite a
# table that triggers fill, in PostgreSQL an index that a search by LIKE uses.
seeks = TableClause("lab_seeks", ColumnClause("rowid"), ColumnClause("lab_seeks"))
_OF_TEXTS = {
    "sqlite": (
        "CREATE VIRTUAL TABLE lab_seeks USING fts5"
        "(seeks, content='lab_jobs', content_rowid='seq', tokenize='trigram')",
        "CREATE TRIGGER lab_seeks_added AFTER INSERT ON lab_jobs BEGIN "
        "INSERT INTO lab_seeks (rowid, seeks) VALUES (new.seq, new.seeks); END",
        "CREATE TRIGGER lab_seeks_removed AFTER DELETE ON lab_jobs BEGIN "
        "INSERT INTO lab_seeks (lab_seeks, rowid, seeks) "
        "VALUES ('delete', old.seq, old.seeks); END",
    ),
    "postgresql": (
        "CREATE EXTENSION IF NOT EXISTS pg_trgm",
        "CREATE INDEX lab_jobs_by_text ON lab_jobs USING gin (seeks gin_trgm_ops)",
    ),
}


def _job_column(**more: Any) -> Column[int]:
    return Column(
        "job", _Seq, ForeignKey("lab_jobs.seq", ondelete="CASCADE"), nullable=False, **more
    )


labels = Table(
    "lab_labels",
    metadata,
    _job_column(primary_key=True),
    Column("key", Words, primary_key=True),
    Column("value", Words, nullable=False),
)
Index("lab_labels_by_value", labels.c.key, labels.c.value, labels.c.job)

inputs = Table(
    "lab_inputs",
    metadata,
    _job_column(primary_key=True),
    Column("field", String(32), primary_key=True),
    Column("sha256", _Sha256, nullable=False, index=True),
)

artifacts = Table(
    "lab_artifacts",
    metadata,
    _job_column(primary_key=True),
    Column("name", Words, primary_key=True),
    Column("sha256", _Sha256, nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("media_type", Words, nullable=False),
)

events = Table(
    "lab_events",
    metadata,
    Column("seq", _Seq, primary_key=True, autoincrement=True),
    _job_column(),
    Column("at", Instant, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("device", Words),
    Column("message", Words, nullable=False),
)
Index("lab_events_of_job", events.c.job, events.c.seq)

# The numbers of done benchmarks and generations, for histories: narrow rows, as thousands are read
# at once. All of them follow from the jobs (`jobs.fill_history`). number: from 0, of the times of
# a job. at_us: microseconds since 1970. metric, runner, threads, inputs: see `Series`.
results = Table(
    "lab_results",
    metadata,
    _job_column(primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("job_id", _Id, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("model", Words, nullable=False),
    Column("method", Words, nullable=False),
    Column("device", Words, nullable=False),
    Column("backend", Words, nullable=False),
    Column("runner", Words, nullable=False),
    Column("threads", Integer),
    Column("inputs", Words, nullable=False),
    Column("metric", String(32), nullable=False),
    Column("software", Words, nullable=False),
    Column("model_sha256", _Sha256, nullable=False),
    Column("p50_ms", Float, nullable=False),
    Column("p90_ms", Float, nullable=False),
    Column("load_ms", Float, nullable=False),
    Column("first_ms", Float, nullable=False),
    Column("marked", Boolean, nullable=False),
    Column("labels", Plain, nullable=False),
)
SERIES = tuple(results.c[name] for name in SERIES_KEY)
Index("lab_results_series", *SERIES, results.c.job.desc())
Index("lab_results_device", results.c.device)
Index("lab_results_time", results.c.at_us)

# Models that became slower (`Alarm`). series_key: the hash of `series`. Of several engines that
# find the same, one adds it.
alarms = Table(
    "lab_alarms",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("series_key", _Sha256, nullable=False),
    Column("series", Plain, nullable=False),
    Column("before", _Id, nullable=False),
    Column("job", _Id, nullable=False),
    Column("newest", _Id, nullable=False),
    Column("relative", Float, nullable=False),
    Column("expected_ms", Float, nullable=False),
    Column("ab_job", _Id),
    Column("verdict", String(32), nullable=False),
    Column("reason", Words, nullable=False),
    Column("found", Plain, nullable=False),
    Column("by", Words, nullable=False),
    Column("told", Plain, nullable=False),
    Column("opened_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
)
Index("lab_alarms_of_series", alarms.c.series_key, alarms.c.newest, unique=True)
Index("lab_alarms_by_state", alarms.c.state, alarms.c.opened_at)

devices = Table(
    "lab_devices",
    metadata,
    Column("name", Words, primary_key=True),
    Column("driver", Words, nullable=False),
    Column("options", Plain, nullable=False),
    Column("configured", Plain, nullable=False),
    Column("attributes", Plain, nullable=False),
    Column("state", String(16), nullable=False),
    Column("job", Words),
    Column("seen_at", Instant),
    Column("conditions", Plain, nullable=False),
    Column("message", Words, nullable=False),
    Column("disabled", Words, nullable=False, server_default=""),  # why it gets no jobs
)

# The peaks of devices (`etscope_lab.devices.peaks.DeviceCalibration`), or why there are none.
calibrations = Table(
    "lab_calibrations",
    metadata,
    Column("device", Words, primary_key=True),
    Column("runner", Words, primary_key=True),
    Column("description", Plain, nullable=False),
    Column("threads", Plain, nullable=False),
    Column("at", Instant, nullable=False),
    Column("content", Plain, nullable=False),
    Column("summary", Plain, nullable=False),
    Column("error", Words, nullable=False),
)

# An engine renews one row, however many jobs and devices it has: they are its own until then.
engines = Table(
    "lab_engines",
    metadata,
    Column("engine", Words, primary_key=True),
    Column("until", Instant, nullable=False),
)

# The engine that gives work to a device.
leases = Table(
    "lab_leases",
    metadata,
    Column("device", Words, primary_key=True),
    Column("engine", Words, nullable=False, index=True),
)

# The device time of projects, as of that time (`etscope_lab.shares`).
shares = Table(
    "lab_shares",
    metadata,
    Column("project", Words, primary_key=True),
    Column("seconds", Float, nullable=False),
    Column("at", Instant, nullable=False),
)

tokens = Table(
    "lab_tokens",
    metadata,
    Column("name", Words, primary_key=True),
    Column("key", String(16), nullable=False, unique=True),
    Column("sha256", _Sha256, nullable=False),
    Column("scopes", Plain, nullable=False),
    Column("project", Words, nullable=False, server_default=""),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("last_used_at", Instant),
)

audit = Table(
    "lab_audit",
    metadata,
    Column("seq", _Seq, primary_key=True, autoincrement=True),
    Column("at", Instant, nullable=False),
    Column("by", Words, nullable=False),
    Column("action", String(32), nullable=False),
    Column("target", Words, nullable=False),
    Column("detail", Plain, nullable=False),
    sqlite_autoincrement=True,
)


def index_texts(connection: Connection) -> None:
    """Index the texts of jobs. A PostgreSQL without pg_trgm, or that does not let this user add it,
    stays without the index: searches then read all jobs."""
    try:
        with connection.begin_nested():
            for statement in _OF_TEXTS[connection.dialect.name]:
                connection.execute(text(statement))
    except DBAPIError:
        if connection.dialect.name != "postgresql":
            raise
