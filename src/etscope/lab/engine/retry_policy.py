"""What the end of an attempt means for its job: a final state, or another attempt."""

from __future__ import annotations

from dataclasses import dataclass, replace

from etscope.errors import LabError
from etscope.lab.engine.cluster import Gone
from etscope.lab.engine.slots import Attempt
from etscope.lab.jobs.states import State
from etscope.lab.jobs.task import Outcome


@dataclass(frozen=True, slots=True)
class Again:
    """The job is queued again. counted: this was one of the attempts that it has."""

    message: str
    counted: bool = False


def settled(attempt: Attempt, outcome: Outcome) -> Outcome | Again:
    """What an answer means."""
    if outcome.state is State.DEVICE_LOST:
        begun = outcome.busy_seconds > 0
        if attempt.cancelled:
            return replace(outcome, state=State.CANCELLED)
        if not begun or attempt.may_repeat:
            return Again(f"the device was lost: {outcome.error}", counted=begun)
    elif outcome.state is State.CANCELLED and not attempt.cancelled:
        return Again("the lab was stopped")
    return outcome


def settled_without_answer(attempt: Attempt, gone: Gone) -> Outcome | Again:
    """What it means that none will come."""
    if attempt.cancelled:
        return stopped(attempt)
    if not gone.lost:
        error = f"the worker cannot run jobs: {gone.why}"
        return _ended(attempt, State.FAILED, error, LabError.slug)
    if attempt.may_repeat or gone.innocent or not attempt.started:
        return Again(gone.why, counted=attempt.started and not gone.innocent)
    return _ended(attempt, State.DEVICE_LOST, f"{gone.why}, in every attempt", "device-lost")


def stopped(attempt: Attempt) -> Outcome:
    """The end of an attempt that somebody wanted stopped."""
    return _ended(attempt, State.CANCELLED, "stopped on request", "")


def _ended(attempt: Attempt, state: State, error: str, slug: str) -> Outcome:
    return Outcome(attempt.job.id, attempt.token, state, error=error, error_slug=slug)
