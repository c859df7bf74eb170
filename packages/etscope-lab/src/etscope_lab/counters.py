"""Count what happens to jobs, for Prometheus: in this process, since it started."""

from __future__ import annotations

from datetime import timedelta

from prometheus_client import Counter, Histogram

from etscope.errors import LabError
from etscope_lab.jobs.records import Job, State

# The cause of a job's end; other states end by the model.
_FAULTS = {
    State.DONE: "none",
    State.CANCELLED: "user",
    State.USER_ERROR: "user",
    State.DEVICE_LOST: "device",
    State.INVALID: "device",
}
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
