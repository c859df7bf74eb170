"""The tables, the same for SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    and_,
)

VERSION = 1  # of the schema

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class Instant(TypeDecorator[datetime]):
    """An aware time, in UTC: microseconds since 1970. SQLite has no type that keeps the zone."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + int(value) * _MICROSECOND


metadata = MetaData()

versions = Table("etscope_lab", metadata, Column("version", Integer, nullable=False))

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("content_hash", String(64), nullable=False),
    Column("again", Boolean, nullable=False),  # whether it may stand beside one of the same content
    Column("spec", JSON, nullable=False),
    Column("state", String(20), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("submitter", String(200), nullable=False),
    Column("device", String(200)),
    Column("worker", String(500)),
    Column("attempt", Integer, nullable=False, default=0),
    Column("engine", String(100)),
    Column("token", String(100)),
    Column("lease_until", Instant),
    Column("claimed_at", Instant),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("error", Text, nullable=False, default=""),
    Column("error_slug", String(100), nullable=False, default=""),
    Column("summary", JSON, nullable=False),
    Column("environment", JSON, nullable=False),
    Column("marks", JSON, nullable=False),
    Column("cancel_requested", Boolean, nullable=False, default=False),
    # To find jobs by, and the numbers of a history: all of it is in the columns above as well.
    Column("kind", String(20), nullable=False),
    Column("model_sha256", String(64), nullable=False),
    Column("model_name", String(255), nullable=False),
    Column("words", Text, nullable=False),
    Column("method", String(200)),
    Column("backend", String(200)),
    Column("p50_ms", Float),
    Column("p90_ms", Float),
    Column("load_ms", Float),
    Column("first_ms", Float),
)

_EXCLUSIVE = ("queued", "claimed", "running", "done")

Index(
    "one_job_of_a_content",
    jobs.c.content_hash,
    unique=True,
    sqlite_where=and_(jobs.c.again.is_(False), jobs.c.state.in_(_EXCLUSIVE)),
    postgresql_where=and_(jobs.c.again.is_(False), jobs.c.state.in_(_EXCLUSIVE)),
)
Index("jobs_by_content", jobs.c.content_hash)
Index("jobs_by_age", jobs.c.created_at, jobs.c.id)
Index("jobs_by_state", jobs.c.state, jobs.c.priority, jobs.c.created_at)
Index("jobs_by_device", jobs.c.device, jobs.c.created_at)
Index("jobs_by_model", jobs.c.model_sha256, jobs.c.created_at)
Index("jobs_by_engine", jobs.c.engine, jobs.c.state)
Index(
    "jobs_by_series",
    jobs.c.model_name, jobs.c.method, jobs.c.device, jobs.c.backend, jobs.c.finished_at,
)  # fmt: skip

labels = Table(
    "labels",
    metadata,
    Column("job_id", ForeignKey(jobs.c.id), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("value", String(500), nullable=False),
)
Index("labels_by_value", labels.c.key, labels.c.value)

events = Table(
    "events",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("job_id", ForeignKey(jobs.c.id), nullable=False, index=True),
    Column("at", Instant, nullable=False),
    Column("state", String(20), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("device", String(200)),
    Column("message", Text, nullable=False),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("job_id", ForeignKey(jobs.c.id), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("sha256", String(64), nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("media_type", String(200), nullable=False),
)

devices = Table(
    "devices",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("driver", String(200), nullable=False),
    Column("options", JSON, nullable=False),
    Column("own_attributes", JSON, nullable=False),  # of the configuration
    Column("attributes", JSON, nullable=False),
    Column("state", String(20), nullable=False),
    Column("job", String(40)),
    Column("seen_at", Instant),
    Column("conditions", JSON, nullable=False),
    Column("message", Text, nullable=False),
)

# Which engine sends jobs to a device. A device can be taken before it was ever seen.
holds = Table(
    "holds",
    metadata,
    Column("device", String(200), primary_key=True),
    Column("engine", String(100), nullable=False),
    Column("lease_until", Instant, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("scopes", JSON, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("used_at", Instant),
)
