"""Two done jobs side by side: the verdict on their times, and what differs.

The answer is plain JSON, times in ms:

    first, second   {id, title, device, backend, finished_at, marks, latency}
    verdict         "regressed", "improved", "no difference" or "cannot tell" of the second job
                    against the first, from the untraced samples; `reason` says why not, else ""
    relative        second / first - 1 of their trimmed means; low, high: its interval; p
    noise_floor     the change that noise between jobs alone can pass for, None when not known
    noise           {source, jobs, spread}: what is known of that noise; see `etscope.lab.noise`
    min_effect, confidence
    environment     [{name, first, second}]: what differs of where they ran; `spec` of what was asked
    operators       [{name, module, source, status, first_ms, second_ms, change_ms, relative,
                    verdict, reason}] of the traced runs, the largest changes first; [] without dumps
    notes           [sentence]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.analysis.compare_samples import Noise, Policy, compare_samples
from etscope.errors import MissingDataError
from etscope.lab.records import Job

if TYPE_CHECKING:
    from etscope.lab.api import LabApi


@dataclass(frozen=True, slots=True)
class Side:
    """A done job and its files. run: its run.json, parsed. dump, etrecord: local files, or None."""

    job: Job
    run: Mapping[str, Any]
    dump: Path | None = None
    etrecord: Path | None = None


def compare(
    lab: LabApi, first: str, second: str, *, policy: Policy | None = None
) -> dict[str, Any]:
    """Two done jobs of a lab, by id; the second is held against the first.

    Reads run.json, run.etdp and the records of both with `lab.read`, and the history of the device
    with `lab.jobs`. Raises `MissingDataError` for a job that is not there, is not done or has no
    samples.
    """
    import json

    sides = []
    for name in (first, second):
        job = lab.job(name)
        if "run.json" not in job.artifacts:
            raise MissingDataError(f"job {job.id} has no samples", hint=f"it is {job.state}")
        sides.append(Side(job, json.loads(b"".join(lab.read(job.id, "run.json")))))
    return compare_jobs(sides[0], sides[1], policy=policy)


def compare_jobs(
    first: Side, second: Side, *, noise: Noise | None = None, policy: Policy | None = None
) -> dict[str, Any]:
    """As `compare`, of jobs whose files are at hand."""
    policy = policy or Policy()
    found = compare_samples(_samples(first), _samples(second), policy, noise=noise)
    return {
        "first": _shown(first.job),
        "second": _shown(second.job),
        "verdict": found.verdict.value,
        "reason": found.reason,
        "relative": found.relative,
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "noise_floor": found.noise_floor if noise else None,
        "noise": {"source": "none", "jobs": 0, "spread": None},
        "min_effect": policy.min_effect,
        "confidence": policy.confidence,
        "environment": [],
        "spec": [],
        "operators": [],
        "notes": [],
    }


def _samples(side: Side) -> list[int]:
    for latency in side.run.get("latencies", ()):
        if latency["traced"] is None and latency["samples_ns"]:
            return list(latency["samples_ns"])
    raise MissingDataError(f"job {side.job.id} has no untraced samples")


def _shown(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "title": job.spec.title,
        "device": job.device,
        "backend": job.summary.get("backend"),
        "finished_at": None if job.finished_at is None else job.finished_at.isoformat(),
        "marks": list(job.marks),
        "latency": job.summary.get("latency"),
    }
