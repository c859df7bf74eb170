"""Jobs, their files and devices as plain values, the same from the database, over HTTP and on the
command line.
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
import numpy.typing as npt

from etscope.errors import MissingDataError
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind
from etscope_lab.jobs.generations import ENERGY
from etscope_lab.jobs.spec import JobSpec


class _Word(str, Enum):
    def __str__(self) -> str:
        return str(self.value)


class State(_Word):
    """The state of a job. The database, the API and the command line use the value."""

    QUEUED = "queued"
    """Waits for a device that its selector matches."""
    CLAIMED = "claimed"
    """A device is chosen; the worker of that device has it."""
    RUNNING = "running"
    """The device works on it."""
    DONE = "done"
    """Measured under conditions that held: a result."""
    FAILED = "failed"
    """The runtime aborted, or the lab's own parts failed."""
    USER_ERROR = "user_error"
    """The submitted files cannot run: a damaged file, inputs that do not fit, no such method."""
    TIMEOUT = "timeout"
    """Did not end within its time."""
    CANCELLED = "cancelled"
    """Stopped on request."""
    DEVICE_LOST = "device_lost"
    """The device went away in every attempt."""
    INVALID = "invalid"
    """Measured beyond the limits that the job sets for its conditions: not a result."""

    @property
    def is_final(self) -> bool:
        return self in FINAL


FINAL = frozenset(
    {
        State.DONE, State.FAILED, State.USER_ERROR, State.TIMEOUT, State.CANCELLED,
        State.DEVICE_LOST, State.INVALID,
    }
)  # fmt: skip

UNFINISHED = tuple(state for state in State if state not in FINAL)
# A claimed or running job goes back to the queue when its worker or its engine is lost.
NEXT = MappingProxyType(
    {
        State.QUEUED: frozenset({State.CLAIMED, State.CANCELLED, State.USER_ERROR}),
        State.CLAIMED: frozenset({State.RUNNING, State.QUEUED}) | FINAL,
        State.RUNNING: frozenset({State.QUEUED}) | FINAL,
    }
)


def may_follow(before: State, after: State) -> bool:
    """True when a job may go from one state to another; a final state is never left."""
    return after in NEXT.get(before, ())


class Standing(_Word):
    """The verdict on a point of a series (`etscope_lab.comparison.changes`)."""

    UNJUDGED = "unjudged"
    """Marked, among the first five points, or in a series that alternates between levels."""
    STEADY = "steady"
    SUSPICIOUS = "suspicious"
    """Slower or off, but by too few points to be sure."""
    OUTLIER = "outlier"
    """Off, but the next one was not."""
    REGRESSED = "regressed"
    """The first point of a slower level: the model changed after the point before."""
    IMPROVED = "improved"


# The summary of a job, made of the raw samples in `run.json`, is plain JSON:
#
#     method            "forward"
#     backend           "XnnpackBackend", "A+B" or "portable": of the program's delegates
#     latency           {load_ms, first_ms, iterations, p10_ms, p50_ms, p90_ms, mean_ms, stdev_ms,
#                        mad_ms, cv, min_ms, max_ms}: of the untraced run; see `statistics_of`
#     traced_p50_ms     of the traced run, when there is one
#     memory            {peak_rss_bytes}: of the runner's process, when the device shows it
#     numerics          {metric, worst, worst_op, fine, compared}: when requested and possible
#     energy            of an execution: see `etscope_lab.worker.energy.Meter.energy`
#     sustained         how the times of a job with a duration moved, see
#                       `etscope_lab.worker.sampling.Course.sustained`
#     verification      {passed, failed}: of a bundle's expected outputs
#     ab                of an A/B job, see `etscope_lab.comparison.ab`
#     generation        [row] of a generate job, a prompt each: see `etscope_lab.jobs.generations`.
#                       Its `latency` is then of the tokens of the first prompt: from one to the
#                       next, and `first_ms` to the first one in a new process
#     quality           of a gate, see `etscope_lab.worker.generations`


_MS = 1e6  # ns


def _ms(title: str) -> Column:
    return Column(f"{title.lower()}_ms", Kind.DURATION, "ms", title)


LATENCY = (  # the columns of `latency`
    Column("iterations", Kind.COUNT),
    *map(_ms, ("load", "first", "p10", "p50", "p90", "mean", "stdev", "MAD")),
    Column("cv", Kind.SHARE, title="cv"),
    *map(_ms, ("min", "max")),
)


def statistics_of(samples_ns: npt.ArrayLike, load_ns: int, first_ns: int) -> dict[str, Any]:
    """Statistics of untraced executions, times in ms.

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
    """A step in a job's life. attempt: 0 before the first claim. message: one sentence."""

    at: datetime
    state: State
    attempt: int
    device: str | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job in its current state. Times have a time zone, UTC.

    content_hash: the hash of the spec (`JobSpec.content_hash`), equal for equal work. project: of
    the submitter's token, "" without one. device,
    worker: the device and the worker that run or ran it. attempt: how often a worker took it.
    error: one sentence; error_slug: the section of docs/reference/errors.md; both are "" without an
    error. summary: see `etscope_lab.jobs.records`; empty until the job is measured. marks:
    conditions that could not be kept or read ("governor not readable"); they are a caveat to the
    result. artifacts: the job's files by name. cancel_requested: True if it should stop.
    files_removed_at: when its files were removed, as they were older than the lab keeps them.
    """

    id: str
    spec: JobSpec
    content_hash: str
    state: State
    created_at: datetime
    submitter: str = ""
    project: str = ""
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
    files_removed_at: datetime | None = None

    def artifact(self, name: str) -> Artifact:
        """Return a file by its name. Raises `MissingDataError` with the existing names."""
        if name not in self.artifacts:
            held = ", ".join(sorted(self.artifacts)) or "no files"
            if self.files_removed_at is not None:
                held = f"no files: they were removed on {self.files_removed_at:%Y-%m-%d}"
            raise MissingDataError(f"job {self.id} has no {name!r}", hint=f"it has {held}")
        return self.artifacts[name]


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """A device as configured (`devices:` in lab.yaml).

    name: unique in the lab. driver: a name in `etscope_lab.devices.driver.DRIVERS`. options: the
    driver's options (host, port, serial, …). attributes: for selectors, in addition to what the
    driver finds.
    """

    name: str
    driver: str
    options: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Device:
    """A device in its current state.

    attributes: text values from its configuration and from its driver (arch, os, soc, cores,
    memory_bytes, …). state: "available", "busy", "offline" or "disabled". job: the id of the job
    that it works on. conditions: as last read (`etscope_lab.worker.conditions`). calibrations: its
    measured peaks, for each runner (`etscope_lab.devices.peaks.DeviceCalibration.summary`).
    """

    config: DeviceConfig
    attributes: Mapping[str, str]
    state: str = "available"
    job: str | None = None
    seen_at: datetime | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    calibrations: tuple[Mapping[str, Any], ...] = ()


# -- the contract between the engine and the worker of a device: a task is a pure function of its
# order. It reads files from the store, writes files to the store, and returns its outcome. It
# knows no database, so a worker needs only the scheduler and the store.


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt at a job on a device.

    token: identifies this attempt; an outcome with another token than the job's belongs to an
    abandoned attempt. store: the URL of the artefact store. calibrations: the device's
    calibrations, as in `etscope.formats.calibration`.
    """

    job_id: str
    attempt: int
    token: str
    spec: Mapping[str, Any]
    device: DeviceConfig
    store: str
    calibrations: tuple[Mapping[str, Any], ...] = ()


class Interruption(str, Enum):
    """The reason why an attempt ended without a result, although the job is not to blame."""

    LAB = "lab"
    """The lab's store or a disk of the worker failed."""
    KILLED = "killed"
    """The runner or the process that measures was killed: by the system, which had no memory left,
    or by a person."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an attempt. state: a final one. summary, environment, marks, error, error_slug: as
    in `Job`. artifacts: files that are already in the store. busy_seconds: the time that it used
    the device. interruption: None when the job itself ended in this state.
    """

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
    interruption: Interruption | None = None


def input_path(field: str, name: str) -> str:
    """Return the path of a job's file in the folder of `etscope_lab.worker.measure`:
    "files/model-net.pte".

    field: a field of `JobSpec.files`. name: the submitted name; it is not trusted, so only harmless
    characters are kept.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", PurePosixPath(name).name)[-100:].lstrip(".")
    return f"files/{field}-{safe}" if safe else f"files/{field}"


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of jobs; all given fields must match. text: a text that the name, a label or the
    model's name contains.
    """

    states: tuple[State, ...] = ()
    device: str | None = None
    kind: str | None = None
    model_sha256: str | None = None
    text: str | None = None
    labels: Mapping[str, str] | None = None
    since: datetime | None = None


MOST_COUNTED = 1000  # counting all of a million jobs takes longer than a page may


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, newest first. next: the cursor of the next page; None at the end. total: number of
    jobs that match the filter, counted up to `MOST_COUNTED` + 1."""

    jobs: tuple[Job, ...]
    next: str | None
    total: int

    @property
    def count(self) -> str:
        """The total in words: "37", "more than 1,000"."""
        return f"{self.total:,}" if self.total <= MOST_COUNTED else f"more than {MOST_COUNTED:,}"


@dataclass(frozen=True, slots=True)
class Point:
    """A result in a history.

    p50_ms and the other times: of the steady runs. marked: True if conditions were not kept;
    conditions that the device can never keep or report do not count. marks: the same in words.
    software: versions, "ExecuTorch 1.5.1, etscope 0.1.0". expected_ms: the middle of the level that
    the point is compared with, low_ms and high_ms what is near it; relative: the distance of the
    point from it, of a changed point that of its level. None of unjudged points. before: the job
    before the change.
    """

    job_id: str
    at: datetime
    p50_ms: float
    p90_ms: float
    load_ms: float
    first_ms: float
    marked: bool
    labels: Mapping[str, str]
    model_sha256: str
    marks: tuple[str, ...] = ()
    software: str = ""
    standing: Standing = Standing.UNJUDGED
    expected_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    relative: float | None = None
    before: str | None = None


SCOPES = ("read", "submit", "operate", "admin")


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. scopes: from `SCOPES`; each scope includes the scopes before it.
    last_used_at: accurate to the minute. project: of the jobs that are submitted with it.
    """

    name: str
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    project: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change by a person or program.

    number: counts up. by: the token or user; "": who has the lab's folder. action: "cancel", "add
    token", "revoke token", "disable device", "enable device", "settings". target: the job, token,
    device or file. detail: plain JSON.
    """

    number: int
    at: datetime
    by: str
    action: str
    target: str
    detail: Mapping[str, Any]


class AlarmState(_Word):
    """The state of an alarm."""

    CHECKING = "checking"
    """An A/B job compares the two programs; nobody was told yet."""
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    CLOSED = "closed"
    DISMISSED = "dismissed"
    """The A/B job showed no slowdown, or did not run: nobody was told."""


def short_commit(label: str) -> str:
    """A label `commit` as people read it: of a hash, the beginning."""
    return label[:12] if re.fullmatch("[0-9a-f]{40}", label) else label


TOLD = (AlarmState.OPEN, AlarmState.ACKNOWLEDGED, AlarmState.CLOSED)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A model that became slower, or may have (`etscope_lab.watch`).

    series: the columns of its series by name, without points. before: the last job at the faster
    level; job: the first at the slower one; newest: the last that was known then. relative: the
    change, 0.05: 5 % slower; by the A/B job once that has ended. expected_ms: the level before.
    ab_job: the A/B job that decides; None when the programs cannot be compared. verdict: its
    verdict; "" without one. reason: one sentence: why it is in this state. found: plain JSON:
    commits [before, after], software [before, after], operator {name, module, source, change_ms},
    each only if known. by: who changed the state last; "" for the lab. told: sinks that know.
    """

    id: str
    state: AlarmState
    series: Mapping[str, Any]
    before: str
    job: str
    newest: str
    relative: float
    expected_ms: float
    opened_at: datetime
    changed_at: datetime
    ab_job: str | None = None
    verdict: str = ""
    reason: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """One kind of time of one model (by its name), measured in the same way in each job, oldest
    first.

    metric: the kind of time: "execution" of a method, or "sustained execution"; for a language
    model "token", "first token" or "cold first token". Or "energy" of an execution: the numbers of
    its points are mJ then, p50 and p90 the same. runner, threads: the runner and its thread pool
    size, None if unknown.
    inputs: "seed N" for generated inputs, "sha256:…" for a file, or the prompt. unjudged: why none
    of the points can be judged, and what to do; "" if some can.
    """

    model: str
    method: str
    device: str
    backend: str
    runner: str
    threads: int | None
    inputs: str
    points: tuple[Point, ...]
    unjudged: str = ""
    metric: str = "execution"
    alarms: tuple[Alarm, ...] = ()

    @property
    def unit(self) -> str:
        """The unit of the points' p50 and p90."""
        return unit_of(self.metric)

    @property
    def key(self) -> dict[str, Any]:
        """The series without its points, as in `Alarm.series`."""
        return {name: getattr(self, name) for name in SERIES_KEY}


def unit_of(metric: str) -> str:
    """The unit of the numbers of a series of this metric."""
    return "mJ" if metric == ENERGY else "ms"


SERIES_KEY = ("model", "method", "device", "backend", "runner", "threads", "inputs", "metric")


class LabApi(Protocol):
    """Calls of a lab, in this process (`Lab`) or behind HTTP (`Client`)."""

    def submit(self, spec: JobSpec, *, again: bool = False, submitter: str = "") -> Job: ...
    def job(self, job_id: str) -> Job: ...
    def jobs(
        self, wanted: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page: ...
    def read(self, job_id: str, artifact: str) -> Iterator[bytes]: ...
    def fetch(self, job_id: str, folder: Path, names: Sequence[str] = ()) -> list[Path]: ...
    def compare(self, first: str, second: str) -> Mapping[str, Any]: ...
    def history(
        self, model: str | None = None, device: str | None = None, *, limit: int = 200
    ) -> Sequence[Series]: ...
