"""The life of a job: its states, and which may follow which."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType


class State(str, Enum):
    """Where a job is. The value is what the database, the API and the command line say."""

    QUEUED = "queued"
    """Waits for a device that its selector takes."""
    CLAIMED = "claimed"
    """A device is chosen; the worker of that device has it."""
    RUNNING = "running"
    """The device works on it."""
    DONE = "done"
    """Measured under conditions that held: a result."""
    FAILED = "failed"
    """The runtime aborted, or the lab's own parts failed."""
    USER_ERROR = "user_error"
    """What was submitted cannot run: a damaged file, inputs that do not fit, no such method."""
    TIMEOUT = "timeout"
    """Did not end within its time."""
    CANCELLED = "cancelled"
    """Somebody stopped it."""
    DEVICE_LOST = "device_lost"
    """The device went away in every attempt."""
    INVALID = "invalid"
    """Measured, but beyond the limits that the job sets for its conditions: not a result."""

    @property
    def is_final(self) -> bool:
        return self in FINAL

    def __str__(self) -> str:
        return self.value


FINAL = frozenset(
    {
        State.DONE,
        State.FAILED,
        State.USER_ERROR,
        State.TIMEOUT,
        State.CANCELLED,
        State.DEVICE_LOST,
        State.INVALID,
    }
)

# A claimed or running job goes back to the queue when its worker or its engine is lost.
NEXT = MappingProxyType(
    {
        State.QUEUED: frozenset({State.CLAIMED, State.CANCELLED, State.USER_ERROR}),
        State.CLAIMED: frozenset({State.RUNNING, State.QUEUED}) | FINAL,
        State.RUNNING: frozenset({State.QUEUED}) | FINAL,
    }
)


def may_follow(before: State, after: State) -> bool:
    """Whether a job may go from one state to another; from a final one it goes nowhere."""
    return after in NEXT.get(before, ())
