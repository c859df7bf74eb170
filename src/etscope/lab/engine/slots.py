"""What an engine knows of its devices and of the attempts that are on their way."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from etscope.errors import LabError, UsageError
from etscope.lab.engine.cluster import Gone
from etscope.lab.jobs.records import Device, DeviceConfig, Job
from etscope.lab.jobs.states import State
from etscope.lab.jobs.task import Outcome

if TYPE_CHECKING:
    from etscope.lab.config import Home


AHEAD = 2  # attempts a device has: one at work, and one ready when that ends

_CHECK_AGAIN, _CHECK_LATEST = 5.0, 300.0  # seconds between looks at one out of reach: doubled


@dataclass(slots=True)
class Attempt:
    """A job that is with a device. started: the device works on it. cancelled: somebody wants it
    stopped."""

    job: Job
    token: str
    device: str
    started: bool = False
    cancelled: bool = False

    @property
    def may_repeat(self) -> bool:
        """Whether the job has attempts left after this one."""
        return self.job.attempt < self.job.spec.attempts


@dataclass(slots=True)
class Slot:
    """A device of the engine.

    address: of the worker that offers it; None while there is none. held: the engine has the lease
    of the device. reachable: as the last look, or the last job, found it. checking: it is being
    looked at. check_at: when it is looked at next, on the monotonic clock; None: not.
    """

    config: DeviceConfig
    attributes: Mapping[str, str]
    address: str | None = None
    held: bool = False
    reachable: bool = True
    checking: bool = False
    check_at: float | None = None
    failures: int = 0
    message: str = ""
    seen_at: datetime | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Whether it may be given work."""
        return self.held and self.reachable and self.address is not None

    @property
    def has_room(self) -> bool:
        return len(self.attempts) < AHEAD

    @property
    def working(self) -> Attempt | None:
        return next((attempt for attempt in self.attempts if attempt.started), None)

    def record(self) -> Device:
        """The device for the database."""
        working = self.working
        state = "busy" if working else "available" if self.ready else "offline"
        message = self.message
        if self.address is None and not message:
            message = "no worker offers it"
        return Device(
            config=self.config,
            attributes=self.attributes,
            state=state,
            job=working.job.id if working else None,
            seen_at=self.seen_at,
            conditions=self.conditions,
            message=message,
        )

    def lose(self, why: str) -> None:
        """It is out of reach. It is looked at again now, and then ever later."""
        self.reachable = False
        self.message = why or self.message
        self.failures += 1
        doublings = min(self.failures - 1, 20)  # a device may be away for weeks
        wait = min(_CHECK_AGAIN * 2**doublings, _CHECK_LATEST)
        self.check_at = time.monotonic() + (0 if self.failures == 1 else wait)

    def note_seen(self, attributes: Mapping[str, str], conditions: Mapping[str, Any]) -> None:
        self.attributes = {**attributes, **self.config.attributes}
        self.conditions = conditions
        self.seen_at = datetime.now(timezone.utc)
        self.reachable, self.failures, self.message = True, 0, ""


def choose(slots: Sequence[Slot], job: Job) -> Slot | None:
    """The device for a job: of those that it takes and that have room, the one with the least to
    do."""
    fit = [
        slot
        for slot in slots
        if slot.ready and slot.has_room and job.spec.device.takes(slot.config.name, slot.attributes)
    ]
    return min(fit, key=lambda slot: len(slot.attempts), default=None)


def slots_of(home: Home, names: Sequence[str] | None) -> dict[str, Slot]:
    """The configured devices of those names, or all. `UsageError` for a name that is none."""
    configured = {config.name: config for config in home.config.devices}
    unknown = [name for name in names or () if name not in configured]
    if unknown:
        raise UsageError(
            f"the lab has no device {unknown[0]!r}",
            hint=f"it has {', '.join(configured) or 'none'}; see lab.yaml in {home.folder}",
        )
    return {name: Slot(configured[name], {}) for name in names or configured}


# What the end of an attempt means for its job: a final state, or another attempt.


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
