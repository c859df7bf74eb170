"""The page of one job, and its files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from fastapi.responses import Response

from etscope.errors import EtscopeError
from etscope.formats.run_json import RUN_JSON
from etscope.lab.comparison.history import AbHistory, ab_history
from etscope.lab.jobs.records import LATENCY, Filter, Job, State
from etscope.lab.lab import Lab
from etscope.lab.pages import _artifact_cache as _recipes
from etscope.lab.pages import _pending_page as _made
from etscope.lab.pages._artifact_cache import Workshop
from etscope.lab.server import files as downloads
from etscope.model.table import Kind

# The raw samples of a job, as the charts of its page need them.


_MS = 1e6  # ns
_MOST_POINTS = 2000  # of a chart; of more samples, the least and the greatest of each stretch
_MOST_BYTES = 32 << 20  # of a file that a page reads
_LARGEST = 256  # charts and conditions that are remembered


def chart(lab: Lab, job: Job) -> Mapping[str, Any] | None:
    """The samples of the runs whose times count, in ms: {series: [{name, x, y}], first, count}.
    None where there are none."""
    artifact = job.artifacts.get("ab.json") or job.artifacts.get(RUN_JSON)
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


_LOG_SHOWN = 200_000  # characters, the last ones
_MOST_REPEATS = 20  # of an A/B job that are looked for
_HELP = {
    "load_ms": "Loading the program and the method, once.",
    "first_ms": "The first execution after loading, warm-up included.",
    "p10_ms": "Of the steady executions, as all that follow.",
    "p50_ms": "The median.",
    "p90_ms": "One of ten executions takes longer.",
    "stdev_ms": "Standard deviation of the sample.",
    "mad_ms": "The median of the distances to the median.",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file of the job. name: what it is saved as."""

    artifact: str
    name: str
    size: int
    sha256: str
    what: str


_WHAT = {
    "run.etdp": "ETDump of the traced run",
    "values.etdp": "ETDump with logged values",
    "debug.bin": "the logged values",
    "outputs.npz": "outputs of the model",
    RUN_JSON: "raw samples",
    "conditions.json": "conditions before and after",
    "log.txt": "log",
}


def context(lab: Lab, workshop: Workshop, job_id: str) -> dict[str, Any]:
    """What the template shows. Raises `MissingDataError` for a job that is not there."""
    job = lab.job(job_id)
    events = lab.events(job.id)
    log = lab.log(job.id)
    measured = bool(job.summary)
    has_dump = _recipes.has_dump(job)
    return {
        "job": job,
        "events": events,
        "log": log[-_LOG_SHOWN:],
        "log_cut": len(log) > _LOG_SHOWN,
        "refresh": not job.state.is_final,
        "statistics": _statistics(job),
        "conditions": conditions(lab, job),
        "repeats": _repeats(lab, job),
        "sides": _recipes.sides(job) is not None,
        "chart": chart(lab, job) if measured else None,
        "operators": _made.tables(workshop, _recipes.operators(job)) if has_dump else None,
        "has_dump": has_dump,
        "files": [_file(job, name) for name in sorted(job.artifacts)],
        "inputs": _inputs(job),
        "spec": job.spec.model_dump(mode="json", exclude_defaults=True),
        "not_a_result": job.state is State.INVALID,
        "ended_badly": job.state in _BAD,
        "dump_name": _saved_name(job, "run.etdp"),
    }


_BAD = frozenset({State.FAILED, State.USER_ERROR, State.TIMEOUT, State.DEVICE_LOST, State.INVALID})


def download(lab: Lab, job_id: str, name: str) -> Response:
    """A file of a job, as something to save under a name that tells whose it is."""
    return downloads.download(lab, job_id, name, save_as=_saved_name(lab.job(job_id), name))


def _statistics(job: Job) -> list[Mapping[str, Any]]:
    latency = job.summary.get("latency") or {}
    return [
        {"name": one.title, "value": latency[one.name], "help": _HELP.get(one.name, "")}
        for one in LATENCY
        if one.kind is Kind.DURATION and one.name in latency
    ]


def _repeats(lab: Lab, job: Job) -> AbHistory | None:
    """What this A/B job and its repeats answered; None when it was not repeated."""
    if job.spec.kind != "ab" or job.state is not State.DONE:
        return None
    model = job.spec.model.sha256
    like = Filter((State.DONE,), device=job.device, kind="ab", model_sha256=model)
    found = ab_history(lab.jobs(like, limit=_MOST_REPEATS).jobs, job)
    return None if found.floor is None else found


def _file(job: Job, name: str) -> File:
    artifact = job.artifacts[name]
    saved = _saved_name(job, name)
    return File(name, saved, artifact.size, artifact.sha256, _WHAT.get(name, ""))


def _saved_name(job: Job, name: str) -> str:
    """What a file is saved as: the dump has the name of its job."""
    if name != "run.etdp":
        return name
    stem = PurePosixPath(job.spec.title.replace("\\", "/")).name
    stem = stem.rpartition(".")[0] or stem
    plain = "".join(char if char.isalnum() or char in "-_." else "-" for char in stem).strip("-.")
    return f"{plain or job.id}.etdp"


def _inputs(job: Job) -> list[Mapping[str, Any]]:
    """The files that were submitted."""
    return [
        {"field": field, "name": ref.name or ref.path or "", "sha256": ref.sha256 or ""}
        for field, ref in job.spec.files.items()
    ]
