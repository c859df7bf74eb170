"""What a lab can do, whether it is in this process (`Lab`) or behind HTTP (`Client`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from etscope.lab.jobs.records import Device, Job, JobEvent
from etscope.lab.jobs.spec import JobSpec
from etscope.lab.jobs.states import State


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs: all that are given must hold. text: in the name, labels or model's name."""

    states: tuple[State, ...] = ()
    device: str | None = None
    kind: str | None = None
    model_sha256: str | None = None
    text: str | None = None
    labels: Mapping[str, str] | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, newest first. next: the cursor of what follows; None at the end. total: of the
    filter."""

    jobs: tuple[Job, ...]
    next: str | None
    total: int


@dataclass(frozen=True, slots=True)
class Point:
    """A result in a history. p50_ms and the others: of the steady runs."""

    job_id: str
    at: datetime
    p50_ms: float
    p90_ms: float
    load_ms: float
    first_ms: float
    marked: bool
    labels: Mapping[str, str]
    model_sha256: str


@dataclass(frozen=True, slots=True)
class Series:
    """The results of one model (by its name) and method on one device and backend, oldest first."""

    model: str
    method: str
    device: str
    backend: str
    points: tuple[Point, ...]


class LabApi(Protocol):
    """Jobs, their files, and devices.

    Raises `MissingDataError` for a job, device or file that is not there, `UsageError` for what
    cannot be asked.
    """

    def submit(self, spec: JobSpec, *, again: bool = False, submitter: str = "") -> Job:
        """Queue a job; its files by path are taken into the store first. A job of the same content
        that is queued, at work or done is answered instead, unless `again`."""
        ...

    def job(self, job_id: str) -> Job:
        """A job, by its id or an unambiguous beginning of it."""
        ...

    def jobs(
        self, wanted: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page: ...

    def events(self, job_id: str) -> Sequence[JobEvent]: ...

    def log(self, job_id: str) -> str:
        """What the job's processes said; of a job at work, so far."""
        ...

    def cancel(self, job_id: str) -> Job:
        """Stop a job. `UsageError` when it has ended."""
        ...

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job when it has ended. `TimeoutError` after `timeout` seconds."""
        ...

    def read(self, job_id: str, artifact: str) -> Iterator[bytes]:
        """A file of a job, in pieces."""
        ...

    def fetch(self, job_id: str, folder: Path, names: Sequence[str] = ()) -> list[Path]:
        """Write files of a job into a folder: all, or some by name. Their content is checked."""
        ...

    def devices(self) -> Sequence[Device]: ...

    def history(
        self, model: str | None = None, device: str | None = None, *, limit: int = 200
    ) -> Sequence[Series]:
        """Done jobs as series; `limit`: points of each, the newest."""
        ...

    def compare(self, first: str, second: str) -> Mapping[str, Any]:
        """The verdict on the times of two done jobs, and what differs."""
        ...
