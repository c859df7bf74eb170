"""The raw samples of a job, as the charts of its page need them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from etscope.errors import EtscopeError
from etscope.lab.jobs.records import Job
from etscope.lab.lab import Lab

_MS = 1e6  # ns
_MOST_POINTS = 2000  # of a chart; of more samples, the least and the greatest of each stretch
_MOST_BYTES = 32 << 20  # of a file that a page reads
_LARGEST = 256  # charts and conditions that are remembered


def chart(lab: Lab, job: Job) -> Mapping[str, Any] | None:
    """The samples of the runs whose times count, in ms: {series: [{name, x, y}], first, count}.
    None where there are none."""
    artifact = job.artifacts.get("ab.json") or job.artifacts.get("run.json")
    if artifact is None or artifact.size > _MOST_BYTES:
        return None
    read = _sides if artifact.name == "ab.json" else _untraced
    return _remembered(lab.store, artifact.sha256, read)


def conditions(lab: Lab, job: Job) -> Sequence[Mapping[str, Any]]:
    """The readings of the device's conditions, in order; none where they were not kept."""
    artifact = job.artifacts.get("conditions.json")
    if artifact is None or artifact.size > _MOST_BYTES:
        return ()
    found = _remembered(lab.store, artifact.sha256, _readings)
    return () if found is None else found["readings"]


@lru_cache(maxsize=_LARGEST)
def _remembered(store: Any, sha256: str, read: Any) -> Mapping[str, Any] | None:
    """What `read` makes of a JSON file. Made by the lab's own processes, it may yet be missing or
    damaged: then there is no chart, and the file's own download says why."""
    try:
        with store.open(sha256) as file:
            found = read(json.loads(file.read()))
    except (EtscopeError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return found if isinstance(found, Mapping) else None


def _readings(content: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    start = content[0]["at"] if content else 0.0
    return {"readings": [_reading(one, start) for one in content]}


def _reading(one: Mapping[str, Any], start: float) -> Mapping[str, Any]:
    """A reading as a page shows it; None for what the device does not show."""
    load, cores, clocks = one.get("load"), one.get("cores"), one.get("frequencies_mhz") or ()
    return {
        "after_s": float(one["at"]) - start,
        "temperature_c": one.get("temperature_c"),
        "sensor": str(one.get("sensor") or ""),
        "governors": ", ".join(map(str, one.get("governors") or ())) or None,
        "clock": f"{min(clocks):,.0f} to {max(clocks):,.0f} MHz" if clocks else None,
        "load": None if load is None or not cores else load / cores,
        "battery_percent": one.get("battery_percent"),
        "memory_available_bytes": one.get("memory_available_bytes"),
    }


def _untraced(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = [one for one in content["latencies"] if one.get("traced") is None]
    series = [
        _series(str(one.get("method") or "method"), one["samples_ns"])
        for one in found
        if one["samples_ns"]
    ]
    count = sum(len(one["samples_ns"]) for one in found)
    return {"series": series, "count": count, "x": "execution"} if series else None


def _sides(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The median of each round's process, of both sides."""
    series = []
    for side in ("baseline", "model"):
        rounds = [(one["round"] + 1, one[f"{side}_ns"]) for one in content["runs"]]
        there = [(number, float(np.median(samples)) / _MS) for number, samples in rounds if samples]
        x, y = ([point[axis] for point in there] for axis in (0, 1))
        series.append({"name": side, "x": x, "y": y})
    count = len(content["runs"])
    return {"series": series, "count": count, "x": "round"} if count else None


def _series(name: str, samples_ns: Sequence[int]) -> Mapping[str, Any]:
    samples = np.asarray(samples_ns, dtype=np.float64) / _MS
    at = np.arange(len(samples))
    if len(samples) > _MOST_POINTS:
        at = _extremes(samples)
    return {"name": name, "x": (at + 1).tolist(), "y": samples[at].tolist()}


def _extremes(samples: Any) -> Any:
    """The positions of the least and the greatest sample of each stretch."""
    found = set()
    for stretch in np.array_split(np.arange(len(samples)), _MOST_POINTS // 2):
        found |= {
            int(stretch[samples[stretch].argmin()]),
            int(stretch[samples[stretch].argmax()]),
        }
    return np.array(sorted(found))
