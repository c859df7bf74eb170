"""What the lab knows of a job, of its files and of a device: plain values, the same from the
database, over HTTP and on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from etscope.errors import MissingDataError
from etscope.lab.jobs.spec import JobSpec
from etscope.lab.jobs.states import State
from etscope.model.table import Column, Kind

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
    p10, p50, p90 = np.percentile(samples, [10, 50, 90]).tolist()
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
