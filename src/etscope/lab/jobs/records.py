"""What the lab knows of a job, of its files and of a device: plain values, the same from the
database, over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from etscope.lab.jobs.spec import JobSpec
from etscope.lab.jobs.states import State


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of a job, in the content-addressed store.

    name: unique in its job ("run.etdp"). sha256: of the content, hex. size: bytes.
    """

    name: str
    sha256: str
    size: int
    media_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A step in a job's life. attempt: 0 before the first claim. message: for people."""

    at: datetime
    state: State
    attempt: int
    device: str | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stands now. Times are aware, in UTC.

    content_hash: of the spec (`JobSpec.content_hash`): equal jobs are equal work. device, worker:
    who has or had it. attempt: how often it was claimed. error: one sentence for people, and
    error_slug the section of docs/errors.md; both "" when there is none. summary: see
    `etscope.lab.jobs.results`; empty until it is measured. marks: conditions that could not be held
    or seen ("governor not readable"); a number with marks is a number with a caveat. artifacts: by
    name. cancel_requested: somebody wants it stopped.
    """

    id: str
    spec: JobSpec
    content_hash: str
    state: State
    created_at: datetime
    submitter: str = ""
    device: str | None = None
    worker: str | None = None
    attempt: int = 0
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str = ""
    error_slug: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """A device as the lab is told of it (`devices:` in lab.yaml).

    name: unique in the lab. driver: a name of `etscope.lab.devices.DRIVERS`. options: of the
    driver (host, port, serial, …). attributes: what selectors can ask for, beside what the driver
    finds out itself.
    """

    name: str
    driver: str
    options: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Device:
    """A device as it stands now.

    attributes: those of its configuration and those that its driver found (arch, os, soc, cores,
    memory_bytes, …), as text. state: "available", "busy", "offline" or "disabled". job: the one
    that it works on. conditions: as last seen (`etscope.lab.worker.conditions`).
    """

    config: DeviceConfig
    attributes: Mapping[str, str]
    state: str = "available"
    job: str | None = None
    seen_at: datetime | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
