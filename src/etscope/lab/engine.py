"""The engine: takes queued jobs to the devices, and what was measured to the database.

One thread. It alone decides, and writes to the database; Dask's threads and other threads of this
process leave messages in its inbox. Each attempt at a job has a token: whatever is killed and
whenever, an answer counts only while its token is the job's, so that no job is lost and none is
done twice.

A device has an attempt at work and another one ready at its worker (`slots.AHEAD`), so that it need
not wait for this thread between two jobs. The database is looked at about once a second for what
other processes wrote into it.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

from etscope.errors import EtscopeError, LabError, UsageError
from etscope.lab.cluster import (
    Cluster,
    Ended,
    Gone,
    Logged,
    Message,
    Seen,
    Started,
    Workers,
    open_cluster,
)
from etscope.lab.jobs.records import Device, DeviceConfig, Job, Order, Outcome, State

if TYPE_CHECKING:
    from etscope.lab.config import Home
    from etscope.lab.lab import Lab


# What an engine knows of its devices and of the attempts that are on their way.


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


# What an engine has to write into the database, which may be away for a while.


_logger = logging.getLogger("etscope.lab")


class Journal:
    """Changes, written in the order that they came in. Of one thread.

    rest: called when something failed, to wait until it is tried again.
    """

    def __init__(self, rest: Callable[[], None]) -> None:
        self._rest = rest
        self._unsaved: deque[Callable[[], object]] = deque()
        self._complained = ""

    def add(self, change: Callable[[], object]) -> None:
        """Something to be done by the next `save`. Done twice when the database goes away while it
        answers: the second time must change nothing."""
        self._unsaved.append(change)

    def save(self) -> bool:
        """Write what there is. False when something is left, as the database is away."""
        return self.attempt(self._save)

    def attempt(self, action: Callable[..., object], *arguments: object) -> bool:
        """Do something that needs the database, and say whether it was done."""
        try:
            action(*arguments)
        except (EtscopeError, SQLAlchemyError, OSError) as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            if text != self._complained:
                _logger.warning("the lab's engine has to wait: %s", text)
            self._complained = text
            self._rest()
            return False
        except Exception:  # a bug of ours must not leave the lab without an engine
            _logger.exception("the lab's engine failed, and goes on")
            self._rest()
            return False
        self._complained = ""
        return True

    def _save(self) -> None:
        while self._unsaved:
            self._unsaved[0]()
            self._unsaved.popleft()


LEASE_SECONDS = 30.0  # after which another engine takes over what this one left
DRAIN_SECONDS = 10.0  # that jobs at work have to end when the engine is closed

_POLL = 1.0  # seconds
_REFRESH = 15.0  # between two looks at the cluster's workers, beside what it tells
_CHECK = 600.0  # between two looks at a device that has nothing to do
_CLUSTER_AGAIN = 5.0  # between two looks for a cluster that went away
_FIRST, _DEEPEST = 100, 10_000  # queued jobs that are looked at


class Engine:
    """Works on the jobs of a lab until it is closed. Not used again after that."""

    def __init__(
        self,
        lab: Lab,
        *,
        devices: Sequence[str] | None = None,
        scheduler: str | None = None,
        only: Sequence[str] | None = None,
        in_process: bool | None = None,
        changed: Callable[[], None] = lambda: None,
        lease_seconds: float = LEASE_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        """See `Lab.start_engine`.

        in_process: whether workers are threads of this process; None: when there are few jobs to do
        (`only`). changed: called, from the engine's thread, after it changed a job in the database.
        Raises `UsageError` for a device that the lab does not have.
        """
        self.id = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._lab = lab
        self._database = lab.database
        self._scheduler = scheduler or lab.home.config.scheduler
        self._only = None if only is None else list(only)
        self._in_process = only is not None if in_process is None else in_process
        self._changed = changed
        self._lease, self._drain_seconds = lease_seconds, drain_seconds
        self._slots = slots_of(lab.home, devices)
        self._attempts: dict[str, Attempt] = {}  # by token
        self._journal = Journal(self._rest)
        self._inbox: queue.Queue[Message | None] = queue.Queue()
        self._due: dict[str, float] = {}
        self._deep_from = 0.0
        self._closing = False
        self._cluster: Cluster | None = None
        self._thread = threading.Thread(target=self._run, name="etscope-lab-engine", daemon=True)

    def start(self) -> None:
        """Open the cluster, take the devices, begin. Raises `LabError` when that cannot be."""
        self._cluster = self._opened()
        self.wake()  # what is queued already does not wait for news
        self._thread.start()

    def wake(self) -> None:
        """There is something new in the database."""
        self._inbox.put(None)

    def close(self) -> None:
        """Begin nothing more; let jobs at work end, for `drain_seconds`, and queue again what then
        still is; leave the devices to others."""
        self._closing = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join()

    # The thread.

    def _run(self) -> None:
        self._journal.attempt(self._begin)
        while not self._closing:
            self._step(_POLL)
        self._drain()

    def _begin(self) -> None:
        known = {device.config.name: device for device in self._database.devices()}
        for name, slot in self._slots.items():
            before = known.get(name)
            slot.attributes = {**(before.attributes if before else {}), **slot.config.attributes}
            slot.seen_at = before.seen_at if before else None
            slot.conditions = before.conditions if before else {}
            if self._only is None or slot.seen_at is None:
                slot.check_at = time.monotonic()

    def _step(self, patience: float) -> None:
        """Hear what happened, write it down, see what is due, and give out work."""
        woken = False
        with suppress(queue.Empty):
            self._hear(self._inbox.get(timeout=patience))
            woken = True
            while True:
                self._hear(self._inbox.get_nowait())
        if self._journal.save() and not self._closing:
            self._journal.attempt(self._housekeep, woken)
            self._journal.attempt(self._dispatch)

    def _rest(self) -> None:
        time.sleep(0 if self._closing else _POLL)

    # What is heard. Nothing here touches the database: that is left to the journal.

    def _hear(self, message: Message | None) -> None:
        if isinstance(message, Started):
            self._hear_started(message)
        elif isinstance(message, Logged):
            self._hear_logged(message)
        elif isinstance(message, Ended):
            attempt = self._dropped(message.token)
            if attempt is not None:
                self._settle(attempt, message.outcome)
        elif isinstance(message, Gone):
            attempt = self._dropped(message.token)
            if attempt is not None:
                self._settle_gone(attempt, message)
        elif isinstance(message, Seen):
            self._hear_seen(self._slots[message.device], message)
        elif isinstance(message, Workers):
            self._due.pop("workers", None)

    def _hear_started(self, started: Started) -> None:
        attempt = self._attempts.get(started.token)
        if attempt is None:
            return
        live = self._lab.live_log(attempt.job.id)
        with suppress(OSError):
            live.parent.mkdir(parents=True, exist_ok=True)
            live.write_text("")
        attempt.started = True
        self._journal.add(lambda: self._note_start(attempt, started.by))
        self._show(self._slots[attempt.device])

    def _hear_logged(self, logged: Logged) -> None:
        attempt = self._attempts.get(logged.token)
        if attempt is not None:
            live = self._lab.live_log(attempt.job.id)
            with suppress(OSError), live.open("a", encoding="utf-8", errors="replace") as file:
                file.write(logged.text)

    def _note_start(self, attempt: Attempt, worker: str) -> None:
        if not self._database.started(attempt.job.id, attempt.token, worker):
            self._give_up(attempt)
        self._changed()

    def _settle(self, attempt: Attempt, outcome: Outcome) -> None:
        """What an answer means for the job, and for the device."""
        if outcome.state is State.DEVICE_LOST:
            begun = outcome.busy_seconds > 0
            self._slots[attempt.device].lose(outcome.error if begun else "")
        self._conclude(attempt, settled(attempt, outcome))

    def _settle_gone(self, attempt: Attempt, gone: Gone) -> None:
        if gone.lost:
            self._slots[attempt.device].address = None  # until the cluster shows a worker again
            self._due.pop("workers", None)
        self._conclude(attempt, settled_without_answer(attempt, gone))

    def _conclude(self, attempt: Attempt, found: Outcome | Again) -> None:
        if isinstance(found, Again):
            self._release(attempt, found.message, counted=found.counted)
        else:
            self._finish(attempt, found)

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        def save() -> None:
            self._database.finish(outcome)
            if any(artifact.name == "log.txt" for artifact in outcome.artifacts):
                self._lab.live_log(outcome.job_id).unlink(missing_ok=True)
            self._changed()

        self._journal.add(save)
        self._show(self._slots[attempt.device])

    def _release(self, attempt: Attempt, message: str, *, counted: bool) -> None:
        job, token = attempt.job, attempt.token
        self._journal.add(lambda: self._database.release(job.id, token, message, counted=counted))
        self._journal.add(self._changed)
        self._show(self._slots[attempt.device])

    def _dropped(self, token: str) -> Attempt | None:
        if self._cluster is not None:
            self._cluster.forget(token)
        attempt = self._attempts.pop(token, None)
        if attempt is not None:
            self._slots[attempt.device].attempts.remove(attempt)
        return attempt

    # Devices.

    def _hear_seen(self, slot: Slot, seen: Seen) -> None:
        slot.checking = False
        if seen.found.error:
            slot.lose(seen.found.error)
            slot.failures += slot.failures == 1  # the one just now was the first of two
        else:
            slot.note_seen(seen.found.attributes, seen.found.conditions)
            slot.check_at = None if self._only is not None else time.monotonic() + _CHECK
        self._show(slot)

    def _show(self, slot: Slot) -> None:
        """Put the device as it is now into the database, later."""
        self._journal.add(lambda: self._database.set_device(slot.record()))

    def _check_devices(self, cluster: Cluster) -> None:
        now = time.monotonic()
        for slot in self._slots.values():
            due = slot.check_at is not None and slot.check_at <= now
            free = slot.held and slot.address is not None and not slot.checking
            if due and free and not (slot.reachable and slot.attempts):
                slot.checking = True
                cluster.check(slot.config)

    def _acquire(self) -> None:
        for name, slot in self._slots.items():
            held = self._database.acquire_device(name, self.id, self._lease)
            if slot.held and not held:
                for attempt in list(slot.attempts):
                    self._give_up(attempt)
            if held != slot.held:
                slot.held = held
                if held:
                    self._database.set_device(slot.record())

    def _refresh_workers(self, cluster: Cluster) -> None:
        offered = cluster.offered()
        for name, slot in self._slots.items():
            before, slot.address = slot.address, offered.get(name)
            if before != slot.address and slot.held:
                self._show(slot)

    # What is due.

    def _housekeep(self, woken: bool) -> None:
        if self._is_due("leases", self._lease / 3):
            self._database.renew(self.id, self._lease)
            self._acquire()
        if self._is_due("expired", self._lease / 3):
            for job_id in self._database.requeue_expired():
                for attempt in [a for a in self._attempts.values() if a.job.id == job_id]:
                    self._give_up(attempt)
        cluster = self._cluster_again()
        if cluster is None:
            return
        if self._is_due("workers", _REFRESH):
            self._refresh_workers(cluster)
        if self._is_due("poll", _POLL) or woken:
            if not all(slot.held for slot in self._slots.values()):
                self._acquire()
            self._cancel_requested(cluster)
            self._check_devices(cluster)

    def _is_due(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._due.get(what, 0):
            return False
        self._due[what] = now + seconds
        return True

    def _cluster_again(self) -> Cluster | None:
        """The cluster; one that went away is looked for at its address now and then."""
        if self._cluster is not None and not self._cluster.alive:
            self._cluster.close()
            self._cluster = None
            for token in list(self._attempts):
                self._hear(Gone(token, "the Dask scheduler is gone", lost=True, innocent=True))
            for slot in self._slots.values():
                slot.checking, slot.address = False, None
        if self._cluster is None and self._is_due("cluster", _CLUSTER_AGAIN):
            self._cluster = self._opened()
            self._due.pop("workers", None)
        return self._cluster

    def _opened(self) -> Cluster:
        return open_cluster(
            list(self._slots),
            topic=f"etscope-lab-{self.id}",
            say=self._inbox.put,
            scheduler=self._scheduler,
            in_process=self._in_process,
        )

    def _cancel_requested(self, cluster: Cluster) -> None:
        for attempt in list(self._attempts.values()):
            if attempt.cancelled or not self._database.job(attempt.job.id).cancel_requested:
                continue
            attempt.cancelled = True
            address = self._slots[attempt.device].address
            if attempt.started:
                cluster.stop(attempt.token, address)
            else:
                cluster.withdraw(attempt.token, address)
                self._dropped(attempt.token)
                self._finish(attempt, stopped(attempt))

    def _give_up(self, attempt: Attempt) -> None:
        """End an attempt that the database no longer counts as ours."""
        if self._cluster is not None:
            self._cluster.withdraw(attempt.token, self._slots[attempt.device].address)
        self._dropped(attempt.token)
        self._show(self._slots[attempt.device])

    # Giving out work.

    def _dispatch(self) -> None:
        cluster = self._cluster
        slots = [slot for slot in self._slots.values() if slot.ready]
        if cluster is None or not slots:
            return
        for job in self._queued(slots):
            slot = choose(slots, job)
            if slot is not None:
                self._claim(cluster, slot, job)
        self._balance(cluster, slots)

    def _queued(self, slots: Sequence[Slot]) -> Sequence[Job]:
        """Queued jobs, in their order: the first ones, or more when these are for others."""
        if self._only is not None:
            jobs = [self._database.job(job_id) for job_id in self._only]
            return [job for job in jobs if job.state is State.QUEUED]
        if not any(slot.has_room for slot in slots):
            return []
        jobs = self._database.queued(_FIRST)
        now = time.monotonic()
        if len(jobs) < _FIRST or any(choose(slots, job) for job in jobs) or now < self._deep_from:
            return jobs
        jobs = self._database.queued(_DEEPEST)
        took = time.monotonic() - now
        self._deep_from = now + 20 * took  # at most a twentieth of the time goes into this
        return jobs

    def _claim(self, cluster: Cluster, slot: Slot, job: Job) -> None:
        token = uuid.uuid4().hex
        name = slot.config.name
        try:
            claimed = self._database.claim(
                job.id, device=name, engine=self.id, token=token, lease_seconds=self._lease
            )
        except Exception:
            # It may have been claimed all the same: then nobody would ever work on it.
            why = "the database was away"
            self._journal.add(lambda: self._database.release(job.id, token, why, counted=False))
            raise
        if claimed is None:
            return
        attempt = Attempt(claimed, token, name)
        self._attempts[token] = attempt
        slot.attempts.append(attempt)
        spec = claimed.spec.model_dump(mode="json")
        store = self._lab.home.store_url
        cluster.run(Order(claimed.id, claimed.attempt, token, spec, slot.config, store))

    def _balance(self, cluster: Cluster, slots: Sequence[Slot]) -> None:
        """Take back what waits behind another job when a device that takes it has nothing."""
        for idle in (slot for slot in slots if not slot.attempts):
            for busy in slots:
                waiting = [a for a in busy.attempts if not a.started and not a.cancelled]
                if busy.working is None or not waiting or choose([idle], waiting[0].job) is None:
                    continue
                attempt = waiting[0]
                cluster.withdraw(attempt.token, busy.address)
                self._dropped(attempt.token)
                self._release(attempt, f"taken to {idle.config.name}", counted=False)
                self.wake()
                break

    # The end.

    def _drain(self) -> None:
        cluster = self._cluster
        for attempt in [a for a in self._attempts.values() if not a.started]:
            self._take_back(cluster, attempt)
        self._wait_for_ends(self._drain_seconds)
        for attempt in list(self._attempts.values()):
            if cluster is not None:
                cluster.stop(attempt.token, self._slots[attempt.device].address)
        self._wait_for_ends(self._drain_seconds)
        for attempt in list(self._attempts.values()):
            self._take_back(cluster, attempt)
        for slot in self._slots.values():
            if slot.held:
                self._show(slot)
        self._journal.add(lambda: self._database.release_devices(self.id))
        for _ in range(3):
            if self._journal.save():
                break
            time.sleep(_POLL)
        if cluster is not None:
            cluster.close()

    def _take_back(self, cluster: Cluster | None, attempt: Attempt) -> None:
        if cluster is not None:
            cluster.withdraw(attempt.token, self._slots[attempt.device].address)
        self._dropped(attempt.token)
        self._release(attempt, "the lab was stopped", counted=False)

    def _wait_for_ends(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._attempts and (left := end - time.monotonic()) > 0:
            self._step(min(left, _POLL))
