"""Jobs for tests of the lab's database."""

from __future__ import annotations

from typing import Any

from etscope_lab.database import Database
from etscope_lab.jobs.records import Artifact, Job, Outcome, State
from etscope_lab.jobs.spec import FileRef, JobSpec

LEASE = 600.0


def spec_of_number(number: int, **more: Any) -> JobSpec:
    """A job whose model's content, and so its own, is of this number."""
    model = FileRef(sha256=f"{number:064x}", name=more.pop("model_name", f"net{number}.pte"))
    return JobSpec(model=model, **more)


def claimed(database: Database, job: Job, token: str = "", device: str = "host") -> str:
    """Claim a job for an engine that lives; the token."""
    token = token or f"token of {job.id}"
    database.renew("engine", LEASE)
    found = database.claim(job.id, device=device, engine="engine", token=token)
    assert found is not None
    return token


def measured(token: str, job_id: str, p50: float = 1.0, **more: Any) -> Outcome:
    """A result of round numbers."""
    latency = {"p50_ms": p50, "p90_ms": 2 * p50, "load_ms": 3.0, "first_ms": 4.0}
    summary = {
        "method": more.pop("method", "forward"),
        "backend": more.pop("backend", "portable"),
        "latency": latency,
    }
    files = (Artifact("run.json", "ab" * 32, 12), Artifact("run.etdp", "cd" * 32, 1 << 40))
    values = {"summary": summary, "artifacts": files, "environment": {"os": "Linux"}, **more}
    return Outcome(job_id, token, values.pop("state", State.DONE), **values)


def run_through(database: Database, spec: JobSpec, p50: float = 1.0, **more: Any) -> Job:
    """Queue, claim, start and finish a job."""
    job = database.add(spec, again=True)[0]
    token = claimed(database, job, device=more.pop("device", "host"))
    assert database.started(job.id, token, "worker")
    assert database.finish(measured(token, job.id, p50, **more))
    return database.job(job.id)
