"""Rows as records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from etscope.lab.database import _tables as tables
from etscope.lab.records import Artifact, Device, DeviceConfig, Job, JobEvent
from etscope.lab.spec import JobSpec
from etscope.lab.states import State


def jobs_of(connection: Connection, rows: Sequence[Row[Any]]) -> list[Job]:
    """Jobs with their artefacts, in the order of the rows."""
    files: dict[str, dict[str, Artifact]] = defaultdict(dict)
    table = tables.artifacts
    if rows:
        wanted = table.c.job_id.in_([row.id for row in rows])
        for row in connection.execute(select(table).where(wanted).order_by(table.c.name)):
            files[row.job_id][row.name] = Artifact(row.name, row.sha256, row.size, row.media_type)
    return [_job(row, files[row.id]) for row in rows]


def _job(row: Row[Any], files: dict[str, Artifact]) -> Job:
    return Job(
        id=row.id,
        spec=JobSpec.model_validate(row.spec),
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
        artifacts=files,
        cancel_requested=row.cancel_requested,
    )


def event_of(row: Row[Any]) -> JobEvent:
    return JobEvent(row.at, State(row.state), row.attempt, row.device, row.message)


def device_of(row: Row[Any]) -> Device:
    return Device(
        config=DeviceConfig(row.name, row.driver, row.options, row.own_attributes),
        attributes=row.attributes,
        state=row.state,
        job=row.job,
        seen_at=row.seen_at,
        conditions=row.conditions,
        message=row.message,
    )
