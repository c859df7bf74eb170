"""The page of one job, and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fastapi.responses import Response

from etscope.lab.comparison.noise import AbHistory, ab_history
from etscope.lab.jobs.api import Filter
from etscope.lab.jobs.records import Job
from etscope.lab.jobs.results import LATENCY
from etscope.lab.jobs.states import State
from etscope.lab.lab import Lab
from etscope.lab.pages import _pending_page as _made
from etscope.lab.pages import _recipes, _samples
from etscope.lab.pages._artifact_cache import Workshop
from etscope.lab.server import downloads
from etscope.model.table import Kind

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
    "run.json": "raw samples",
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
        "conditions": _samples.conditions(lab, job),
        "repeats": _repeats(lab, job),
        "sides": _recipes.sides(job) is not None,
        "chart": _samples.chart(lab, job) if measured else None,
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
    return downloads.download(lab, job_id, name, saved_as=_saved_name(lab.job(job_id), name))


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
