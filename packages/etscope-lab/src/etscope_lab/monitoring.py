"""Report the health of each part of the lab, and its metrics for Prometheus.

What the database knows is read when Prometheus asks; `counters` count in this process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from etscope.errors import EtscopeError
from etscope_lab.jobs.records import UNFINISHED

if TYPE_CHECKING:
    from etscope_lab.lab import Lab

Status = Literal["ok", "degraded", "failing"]

_LITTLE_SPACE = 1 << 30  # bytes: some jobs with their dumps


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
        labels = ["state", "project"]
        jobs = GaugeMetricFamily("etscope_lab_jobs", "Jobs that have not ended.", labels=labels)
        counts = {(state, ""): 0 for state in UNFINISHED}
        counts |= self._lab.database.counts(*UNFINISHED)
        for (state, project), count in counts.items():
            jobs.add_metric([state.value, project], count)
        return jobs

    def _devices(self) -> GaugeMetricFamily:
        devices = GaugeMetricFamily("etscope_lab_devices", "Devices.", labels=["state"])
        for state, count in Counter(one.state for one in self._lab.devices()).items():
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
    lab.database.engines()
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
