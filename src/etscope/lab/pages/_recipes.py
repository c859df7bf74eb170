"""Which of a job's files go into what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from etscope.errors import MissingDataError
from etscope.lab.jobs.records import Job
from etscope.lab.pages._artifact_builders import INPUTS, MODEL, RECORD
from etscope.lab.pages._artifact_cache import Recipe

DUMP = "run.etdp"
VALUES = "values.etdp"
_MEASURED = (DUMP, VALUES, "debug.bin", "run.json")
# Of the second side of an A/B job.
_BASELINE = "baseline."


def has_dump(job: Job) -> bool:
    return DUMP in job.artifacts or VALUES in job.artifacts


def operators(job: Job) -> Recipe:
    """The table of operators. Raises `MissingDataError` without a dump."""
    if not has_dump(job):
        raise MissingDataError("the job has no ETDump", hint="traced_iterations: 1 or more")
    wanted = {name: sha for name, sha in _files(job).items() if not name.startswith(INPUTS)}
    return Recipe("operators", wanted)


def report(job: Job) -> Recipe:
    """The one-file report; of a job that measured nothing, the model's graphs alone."""
    return Recipe("report", _files(job), {"title": job.spec.title, "method": job.spec.method})


def tensorboard(job: Job) -> Recipe:
    """The log directory for TensorBoard."""
    return Recipe("tensorboard", _files(job), {"method": job.spec.method})


def sides(job: Job) -> Recipe | None:
    """The operators of an A/B job's two sides, when both were traced."""
    other = f"{_BASELINE}{DUMP}"
    if DUMP not in job.artifacts or other not in job.artifacts or job.spec.baseline is None:
        return None
    files = _files(job)
    found: dict[str, Any] = {f"second/{name}": files[name] for name in (DUMP, MODEL)}
    found["first/" + DUMP] = job.artifacts[other].sha256
    found["first/" + MODEL] = job.spec.baseline.sha256
    policy = {"min_effect": job.spec.min_effect, "confidence": job.spec.confidence}
    return Recipe("differences", found, policy)


def _files(job: Job) -> Mapping[str, str]:
    spec = job.spec
    found = {name: job.artifacts[name].sha256 for name in _MEASURED if name in job.artifacts}
    for name, ref in ((MODEL, spec.model), (RECORD, spec.etrecord)):
        if ref is not None and ref.sha256 is not None:
            found[name] = ref.sha256
    inputs = spec.inputs
    if inputs is not None and inputs.sha256 is not None:
        suffix = PurePosixPath(inputs.name).suffix
        known = suffix if suffix in (".npz", ".npy", ".safetensors", ".pt") else ".npz"
        found[f"{INPUTS}{known}"] = inputs.sha256
    return found
