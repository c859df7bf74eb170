"""What the lab knows of a job, of its files and of a device: plain values, the same from the
database, over HTTP and on the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from etscope.errors import MissingDataError
from etscope.lab.jobs.spec import JobSpec
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind

# The life of a job: its states, and which may follow which.


class State(str, Enum):
    """Where a job is. The value is what the database, the API and the command line say."""

    QUEUED = "queued"
    """Waits for a device that its selector takes."""
    CLAIMED = "claimed"
    """A device is chosen; the worker of that device has it."""
    RUNNING = "running"
    """The device works on it."""
    DONE = "done"
    """Measured under conditions that held: a result."""
    FAILED = "failed"
    """The runtime aborted, or the lab's own parts failed."""
    USER_ERROR = "user_error"
    """What was submitted cannot run: a damaged file, inputs that do not fit, no such method."""
    TIMEOUT = "timeout"
    """Did not end within its time."""
    CANCELLED = "cancelled"
    """Somebody stopped it."""
    DEVICE_LOST = "device_lost"
    """The device went away in every attempt."""
    INVALID = "invalid"
    """Measured, but beyond the limits that the job sets for its conditions: not a result."""

    @property
    def is_final(self) -> bool:
        return self in FINAL

    def __str__(self) -> str:
        return self.value


FINAL = frozenset(
    {
        State.DONE,
        State.FAILED,
        State.USER_ERROR,
        State.TIMEOUT,
        State.CANCELLED,
        State.DEVICE_LOST,
        State.INVALID,
    }
)

# A claimed or running job goes back to the queue when its worker or its engine is lost.
NEXT = MappingProxyType(
    {
        State.QUEUED: frozenset({State.CLAIMED, State.CANCELLED, State.USER_ERROR}),
        State.CLAIMED: frozenset({State.RUNNING, State.QUEUED}) | FINAL,
        State.RUNNING: frozenset({State.QUEUED}) | FINAL,
    }
)


def may_follow(before: State, after: State) -> bool:
    """Whether a job may go from one state to another; from a final one it goes nowhere."""
    return after in NEXT.get(before, ())


# The numbers of a job: its summary, made of `run.json`'s raw samples.
#
# A summary is plain JSON:
#
#     method            "forward"
#     backend           "XnnpackBackend", "A+B" or "portable": of the program's delegates
#     latency           {load_ms, first_ms, iterations, p10_ms, p50_ms, p90_ms, mean_ms, stdev_ms,
#                        mad_ms, cv, min_ms, max_ms}: of the untraced run; see `statistics_of`
#     traced_p50_ms     of the traced run, when there is one
#     memory            {peak_rss_bytes}: of the runner's process, when the device shows it
#     numerics          {metric, worst, worst_op, fine, compared}: when asked for and possible
#     verification      {passed, failed}: of a bundle's expected outputs
#     ab                of an A/B job, see `etscope.lab.comparison.ab`


_MS = 1e6  # ns


def _ms(title: str) -> Column:
    return Column(f"{title.lower()}_ms", Kind.DURATION, "ms", title)


LATENCY = (  # what `latency` has, as it is shown
    Column("iterations", Kind.COUNT),
    *map(_ms, ("load", "first", "p10", "p50", "p90", "mean", "stdev", "MAD")),
    Column("cv", Kind.SHARE, title="cv"),
    *map(_ms, ("min", "max")),
)


def statistics_of(samples_ns: Sequence[int], load_ns: int, first_ns: int) -> dict[str, Any]:
    """The statistics of untraced executions, times in ms.

    samples_ns: [iterations], without the warm-up. Percentiles are interpolated linearly. stdev is
    of the sample (n - 1; None for one sample); mad the median of the distances to the median, not
    scaled; cv = stdev / mean. Raises `MissingDataError` for no samples.
    """
    samples = np.asarray(samples_ns, dtype=np.float64) / _MS
    if samples.size == 0:
        raise MissingDataError("nothing was timed", hint="iterations: 1 or more")
    p10, p50, p90 = map(float, summarize(samples, ("p10", "p50", "p90")).values())
    mean = float(samples.mean())
    stdev = float(samples.std(ddof=1)) if samples.size > 1 else None
    return {
        "load_ms": load_ns / _MS,
        "first_ms": first_ns / _MS,
        "iterations": int(samples.size),
        "p10_ms": p10,
        "p50_ms": p50,
        "p90_ms": p90,
        "mean_ms": mean,
        "stdev_ms": stdev,
        "mad_ms": float(np.median(np.abs(samples - p50))),
        "cv": None if stdev is None or mean == 0 else stdev / mean,
        "min_ms": float(samples.min()),
        "max_ms": float(samples.max()),
    }


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
    `etscope.lab.jobs.records`; empty until it is measured. marks: conditions that could not be held
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


# What goes to a worker and what comes back: the contract between the engine and the place where
# a device is.
#
# A task is a pure function of its order: it reads files from the store, writes files to the store,
# and answers. It knows no database, so a worker needs only the scheduler and the store.


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt at a job on a device. token: of this attempt; an answer with another one than
    the job's is of an attempt that was given up. store: URL of the artefact store."""

    job_id: str
    attempt: int
    token: str
    spec: Mapping[str, Any]
    device: DeviceConfig
    store: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended. state: a final one. summary, environment, marks, error, error_slug: as
    in `Job`. Artefacts are in the store already. busy_seconds: how long it had the device."""

    job_id: str
    token: str
    state: State
    summary: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    error: str = ""
    error_slug: str = ""
    busy_seconds: float = 0.0


def input_path(field: str, name: str) -> str:
    """Where a job's file is in the folder of `etscope.lab.worker.measure`: "files/model-net.pte".

    field: of `JobSpec.files`. name: as submitted, by anybody; only its harmless letters are taken.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", PurePosixPath(name).name)[-100:].lstrip(".")
    return f"files/{field}-{safe}" if safe else f"files/{field}"


# What a lab can do, whether it is in this process (`Lab`) or behind HTTP (`Client`).


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
