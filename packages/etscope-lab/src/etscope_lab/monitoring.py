"""Report the health of each part of the lab, and its metrics for Prometheus.

Counters are of this process; what the database knows is read when Prometheus asks.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily

from etscope.errors import EtscopeError, LabError
from etscope_lab.jobs.records import Job, State

if TYPE_CHECKING:
    from etscope_lab.lab import Lab

Status = Literal["ok", "degraded", "failing"]

# The cause of a job's end; other states end by the model.
_FAULTS = {
    State.DONE: "none",
    State.CANCELLED: "user",
    State.USER_ERROR: "user",
    State.DEVICE_LOST: "device",
    State.INVALID: "device",
}
_LITTLE_SPACE = 1 << 30  # bytes: some jobs with their dumps
_DELAYS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, float("inf"))  # seconds

_ended = Counter(
    "etscope_lab_jobs_ended", "Jobs that ended, by state and by whose fault.", ["state", "fault"]
)
_requeued = Counter("etscope_lab_attempts_requeued", "Attempts whose job was queued again.")
_dispatch = Histogram(
    "etscope_lab_dispatch_seconds",
    "Time from the submission of a job to its first device.",
    buckets=_DELAYS,
)


def count_end(state: State, error_slug: str = "") -> None:
    """Count a job that ended."""
    lab = state is State.FAILED and error_slug == LabError.slug
    _ended.labels(state.value, "lab" if lab else _FAULTS.get(state, "model")).inc()


def count_requeue() -> None:
    _requeued.inc()


def note_claim(job: Job) -> None:
    """Observe how long a job waited, if this is its first attempt."""
    if job.attempt == 1 and job.claimed_at is not None:
        _dispatch.observe((job.claimed_at - job.created_at) / timedelta(seconds=1))


class _LabCollector:
    """Reads gauges of a lab. A part that cannot be reached has none; `etscope_lab_up` is 0."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def describe(self) -> list[GaugeMetricFamily]:
        return []  # asked when the collector is registered: nothing is read then

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily(
            "etscope_lab_up", "1 if the part of the lab is not failing.", labels=["part"]
        )
        is_up = {name: part.status != "failing" for name, part in parts(self._lab).items()}
        for name, value in is_up.items():
            up.add_metric([name], float(value))
        yield up
        if is_up["database"]:
            yield from (self._jobs(), self._devices())
        if is_up["store"]:
            yield self._space()

    def _jobs(self) -> GaugeMetricFamily:
        jobs = GaugeMetricFamily("etscope_lab_jobs", "Jobs that have not ended.", labels=["state"])
        for state, count in self._lab.database.unfinished().items():
            jobs.add_metric([state], count)
        return jobs

    def _devices(self) -> GaugeMetricFamily:
        devices = GaugeMetricFamily("etscope_lab_devices", "Devices.", labels=["state"])
        for state, count in Counts(one.state for one in self._lab.devices()).items():
            devices.add_metric([state], count)
        return devices

    def _space(self) -> GaugeMetricFamily:
        free = self._lab.store.free_bytes()
        return GaugeMetricFamily(
            "etscope_lab_store_free_bytes",
            "Free space of the store; NaN if unknown.",
            value=float("nan") if free is None else free,
        )


def registry_of(lab: Lab) -> CollectorRegistry:
    """Return the metrics of a lab and of this process."""
    found = CollectorRegistry(auto_describe=False)
    found.register(_LabCollector(lab))
    found.register(REGISTRY)
    return found


@dataclass(frozen=True, slots=True)
class Part:
    """The state of a part of a lab. message: one sentence, "" if there is nothing to say."""

    status: Status
    message: str = ""


def parts(lab: Lab) -> dict[str, Part]:
    """Check the database, the store, the engine, its scheduler (if the engine is in this process)
    and the devices."""
    checks = {"database": _database, "store": _store, "engine": _engine, "devices": _devices}
    found = {name: _checked(check, lab) for name, check in checks.items()}
    if lab.engine is not None:
        lost = Part("degraded", "the Dask cluster does not answer")
        found["scheduler"] = Part("ok") if lab.engine.has_cluster else lost
    return found


def _checked(check: Callable[[Lab], Part], lab: Lab) -> Part:
    try:
        return check(lab)
    except EtscopeError as error:
        return Part("failing", error.message)


def _database(lab: Lab) -> Part:
    lab.database.unfinished()
    return Part("ok")


def _store(lab: Lab) -> Part:
    free = lab.store.free_bytes()
    if free is not None and free < _LITTLE_SPACE:
        return Part("degraded", f"{free / (1 << 20):,.0f} MiB are free")
    return Part("ok")


def _engine(lab: Lab) -> Part:
    if lab.database.engines():
        return Part("ok")
    return Part("degraded", "no engine has a device, so jobs wait")


def _devices(lab: Lab) -> Part:
    devices = lab.devices()
    away = [one.config.name for one in devices if one.state == "offline"]
    if away:
        return Part("degraded", f"{len(away)} of {len(devices)} are offline: {', '.join(away)}")
    return Part("ok")
