"""The engine assigns queued jobs to devices and writes the results into the database.

One thread takes all decisions and does all writing; Dask's threads and other threads of this
process put messages into its inbox. Each attempt at a job has a token, and a result counts only
while its token is the job's. So no job is lost and none is done twice, whatever is killed and when.

A device has one attempt at work and another one waiting at its worker (`AHEAD`), so that it does
not wait for this thread between two jobs. The database is asked twice a second whether something
happened to a job; only then the queue is read. Steps of jobs that come together are written
together.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any

from etscope.errors import EtscopeError, LabError, UsageError
from etscope_lab.cluster import (
    Attempt,
    AttemptGone,
    Cluster,
    Message,
    Requeue,
    conclude,
    conclude_without_outcome,
    no_result,
    open_cluster,
)
from etscope_lab.config import Home
from etscope_lab.counters import count_end, count_requeue, note_claim
from etscope_lab.database import Database
from etscope_lab.devices.calibrator import Calibrator
from etscope_lab.devices.peaks import DeviceCalibration
from etscope_lab.jobs.records import (
    Device,
    DeviceConfig,
    Interruption,
    Job,
    Order,
    Outcome,
    State,
)
from etscope_lab.outbox import Outbox
from etscope_lab.shares import HALF_LIFE, Shares
from etscope_lab.store import Store
from etscope_lab.worker.worker import DeviceCheck

AHEAD = 2  # attempts a device has: one at work, and one that is ready when that ends

# Seconds between checks of a lost device, and of a pause: doubled each time.
_CHECK_AGAIN, _CHECK_LATEST = 5.0, 300.0
_POLL = 1.0  # seconds
_LOOK = 0.5  # between two looks whether something happened to a job
_REST = 5.0  # between two looks at the queue and devices if nothing did
_REFRESH = 15.0  # between two polls of the cluster's workers; changes are reported at once
_CHECK = 600.0  # between two checks of an idle device
_CLUSTER_AGAIN = 5.0  # between two attempts to reach a cluster that went away
_END = 120.0  # for what the engine writes and closes at its end, in addition to running jobs
_FIRST, _DEEPEST = 100, 10_000  # queued jobs that are read
_AT_ONCE = 100  # jobs that are claimed in a transaction
_SHARE = 10.0  # seconds between two looks at what other engines gave to projects

_logger = logging.getLogger("etscope_lab")


@dataclass(slots=True)
class Slot:
    """A device of the engine.

    address: the address of the worker that offers the device; None if there is none. held: True if
    the engine has the lease of the device. reachable: whether the last check or the last job
    reached it. checking: True during a check. check_at: the time of the next check, on the
    monotonic clock; None if no check is planned. paused: why it gets no work until `paused_until`;
    "" if it is not paused. pauses: how often it was paused since the last job that was done.
    calibrating: the token of the calibration that is running, or "". disabled: a person took it out
    of service.
    """

    config: DeviceConfig
    attributes: Mapping[str, str]
    address: str | None = None
    held: bool = False
    reachable: bool = True
    checking: bool = False
    check_at: float | None = None
    failures: int = 0
    paused: str = ""
    paused_until: float = 0.0
    pauses: int = 0
    message: str = ""
    seen_at: datetime | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    calibrating: str = ""
    disabled: bool = False

    @property
    def ready(self) -> bool:
        """True when the device may be given work."""
        usable = self.held and self.reachable and self.address is not None
        return usable and not self.paused and not self.disabled

    @property
    def has_room(self) -> bool:
        return len(self.attempts) < AHEAD and not self.calibrating

    @property
    def working(self) -> Attempt | None:
        return next((attempt for attempt in self.attempts if attempt.started), None)

    def record(self) -> Device:
        """The device as the database stores it."""
        working = self.working
        return Device(
            config=self.config,
            attributes=self.attributes,
            state="busy"
            if working or self.calibrating
            else "available"
            if self.ready
            else "offline",
            job=working.job.id if working else None,
            seen_at=self.seen_at,
            conditions=self.conditions,
            message=self.paused
            or self.message
            or ("no worker offers it" if self.address is None else "")
            or ("its peaks are being measured, once" if self.calibrating and not working else ""),
        )

    def lose(self, why: str) -> None:
        """Note that the device is unreachable. It is checked at once, then less and less often."""
        self.reachable = False
        self.message = why or self.message
        self.failures += 1
        self.check_at = time.monotonic() + (0 if self.failures == 1 else _wait(self.failures))

    def pause(self, why: str) -> float:
        """Give the device no work for a while, longer each time; return the seconds."""
        self.pauses += 1
        seconds = _wait(self.pauses)
        self.paused_until = time.monotonic() + seconds
        self.paused = f"paused for {seconds:g} s: {why}"
        return seconds

    def note_seen(self, attributes: Mapping[str, str], conditions: Mapping[str, Any]) -> None:
        self.attributes = {**attributes, **self.config.attributes}
        self.conditions = conditions
        self.seen_at = datetime.now(timezone.utc)
        self.reachable, self.failures, self.message = True, 0, ""


def _wait(failures: int) -> float:
    """Seconds to wait after so many failures in succession."""
    doublings = min(failures - 1, 20)  # a device may be away for weeks
    return min(_CHECK_AGAIN * 2.0**doublings, _CHECK_LATEST)


def choose(slots: Sequence[Slot], job: Job) -> Slot | None:
    """Return the first device that matches a job's selector; None without one."""
    takes = job.spec.device.takes
    return next((slot for slot in slots if takes(slot.config.name, slot.attributes)), None)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of an engine. devices: names of the lab's configured devices; None: all. scheduler:
    the address of a Dask cluster; None: the configured one, or workers on this machine. only: ids
    of the jobs to work on; None: all. in_process: workers are threads of this process; None: if
    `only` is given, as there are few jobs to do then. lease_seconds: time after which another
    engine takes over the jobs of one that died on another machine; on the same machine and folder
    it does so at once. drain_seconds: time that running jobs get to end when the engine is closed.
    """

    devices: Sequence[str] | None = None
    scheduler: str | None = None
    only: Sequence[str] | None = None
    in_process: bool | None = None
    lease_seconds: float = 30.0
    drain_seconds: float = 10.0


class Engine:
    """Works on the jobs of a lab until it is closed; it cannot be started again then."""

    def __init__(
        self,
        home: Home,
        database: Database,
        options: EngineOptions | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """changed: called, from the engine's thread, after it changed a job in the database.

        Raises `UsageError` for a device that the lab does not have.
        """
        options = options or EngineOptions()
        self.id = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._home, self._database = home, database
        self._scheduler = options.scheduler or home.config.scheduler
        self._only = None if options.only is None else list(options.only)
        in_process = options.in_process
        self._in_process = self._only is not None if in_process is None else in_process
        self._lease, self._drain_seconds = options.lease_seconds, options.drain_seconds
        self._changed = changed
        configured = {config.name: config for config in home.config.devices}
        names = options.devices or configured
        unknown = [name for name in names if name not in configured]
        if unknown:
            raise UsageError(
                f"the lab has no device {unknown[0]!r}",
                hint=f"the lab's devices: {', '.join(configured) or 'none'}; see lab.yaml in "
                f"{home.folder}",
            )
        self._slots = {name: Slot(configured[name], {}) for name in names}
        # With `only`, a user waits for these jobs, and would wait for the calibration too.
        wanted = home.config.calibrate and self._only is None
        self._calibrator = Calibrator(database, home.store_url, wanted=wanted)
        self._shares = Shares(home.config.projects)
        self._attempts: dict[str, Attempt] = {}  # by token
        self._later: dict[str, float] = {}  # job: when it may be tried again (monotonic clock)
        self._outbox = Outbox(database.together, lambda: time.sleep(0 if self._closing else _POLL))
        self._unshown: dict[str, Slot] = {}  # devices to write
        self._waiting = True  # jobs were left in the queue
        self._last_event = -1  # of the jobs in the database
        self._inbox: queue.Queue[Message | None] = queue.Queue()
        self._due: dict[str, float] = {}
        self._deep_from = 0.0
        self._closing = False
        self._cluster: Cluster | None = None
        self._let_go: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="etscope-lab-engine", daemon=True)

    def start(self) -> None:
        """Open the cluster, take the devices, begin. Raises `LabError` without a cluster."""
        self._let_go = self._home.hold_engine(self.id)
        try:
            self._cluster = self._open_cluster()
        except BaseException:
            self._let_go()
            raise
        self.wake()  # jobs that are queued already must not wait for a message
        self._thread.start()

    @property
    def has_cluster(self) -> bool:
        """True while the scheduler of its workers answers."""
        return self._cluster is not None and self._cluster.alive

    def wake(self) -> None:
        """Let the engine look into the database now."""
        self._inbox.put(None)

    def close(self) -> None:
        """Begin no further job; let running ones end for `drain_seconds`, then queue them again;
        release the devices. Raises `LabError` when the engine does not end."""
        self._closing = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(2 * self._drain_seconds + _END)
            if self._thread.is_alive():
                raise LabError(
                    "the lab's engine does not end: its database or its workers do not answer",
                    hint="end this process; the jobs are queued again when another engine starts",
                )

    # -- the thread

    def _run(self) -> None:
        self._outbox.attempt(self._begin)
        while not self._closing:
            self._step(_LOOK)
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
        """Receive messages, write what they change, do what is due, and give out work."""
        heard: list[Message | None] = []
        with suppress(queue.Empty):
            heard.append(self._inbox.get(timeout=patience))
            while True:
                heard.append(self._inbox.get_nowait())
        for message in filter(None, heard):
            message(self)
        if not self._save() or self._closing:
            return
        self._outbox.attempt(self._housekeep)
        if heard:
            self._outbox.attempt(self._calibrate)
        if None in heard:
            self._due.pop("look", None)
        if self._is_due("look", _LOOK):
            self._outbox.attempt(self._look)
        elif heard and self._waiting:
            self._outbox.attempt(self._dispatch)

    # -- messages (`Listener`); nothing here touches the database: that is left to the outbox

    def logged(self, token: str, text: str) -> None:
        attempt = self._attempts.get(token)
        if attempt is not None:
            log = self._home.live_log(attempt.job.id)
            with suppress(OSError), log.open("a", encoding="utf-8", errors="replace") as file:
                file.write(text)

    def ended(self, token: str, outcome: Outcome) -> None:
        attempt = self._drop(token)
        if attempt is None:
            return
        self._shares.note_use(attempt.job.project, outcome.busy_seconds)
        if outcome.state is State.DEVICE_LOST:
            begun = outcome.busy_seconds > 0
            self._slots[attempt.device].lose(outcome.error if begun else "")
        elif outcome.interruption is Interruption.LAB:
            self._pause(attempt, outcome.error)
        elif outcome.state is State.DONE:
            self._slots[attempt.device].pauses = 0
            self._calibrator.note_done(attempt.device, outcome.environment, outcome.marks)
        # With `only`, a user waits for these jobs.
        self._apply(attempt, conclude(attempt, outcome, patient=self._only is None))

    def gone(self, gone: AttemptGone) -> None:
        attempt = self._drop(gone.token)
        if attempt is None:
            return
        if gone.worker_lost:
            attempt.started = attempt.started or self._began(attempt)
            self._slots[attempt.device].address = None  # until the cluster shows a worker again
            self.workers_changed()
        self._apply(attempt, conclude_without_outcome(attempt, gone))

    def workers_changed(self) -> None:
        self._due.pop("workers", None)

    def _began(self, attempt: Attempt) -> bool:
        """True when a worker has begun an attempt; it may have been killed before it said so."""
        try:
            return Store(self._home.store_url).began(attempt.token)
        except EtscopeError:  # of the store; its jobs wait until it is back
            return False

    def started(self, token: str, worker: str) -> None:
        attempt = self._attempts.get(token)
        if attempt is None:
            return
        log = self._home.live_log(attempt.job.id)
        with suppress(OSError):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("")
        attempt.started = True

        def then(counts: bool) -> None:
            if not counts:
                self._give_up(attempt)
            self._changed()

        job = attempt.job.id
        self._outbox.add(lambda: self._database.started(job, token, worker), then)
        self._show(self._slots[attempt.device])

    def checked(self, device: str, check: DeviceCheck) -> None:
        slot = self._slots[device]
        slot.checking = False
        if check.error:
            slot.lose(check.error)
            slot.failures += slot.failures == 1  # this check was the first of two
        else:
            slot.note_seen(check.attributes, check.conditions)
            slot.check_at = None if self._only is not None else time.monotonic() + _CHECK
        self._show(slot)

    def calibrated(self, device: str, token: str, found: DeviceCalibration | str) -> None:
        slot = self._slots[device]
        if slot.calibrating != token:
            return
        slot.calibrating = ""
        if self._cluster is not None:
            self._cluster.forget(token)
        if isinstance(found, DeviceCalibration):
            self._outbox.add(partial(self._calibrator.keep, found))
        elif found and not self._closing:
            _logger.warning("%s was not calibrated: %s", device, found)
        self._show(slot)

    def _pause(self, attempt: Attempt, why: str) -> None:
        """Pause a device after an attempt that failed by the lab's fault, and let other jobs go
        first: this one may be what fills the disk."""
        slot = self._slots[attempt.device]
        seconds = slot.pause(why)
        for waiting in [other for other in slot.attempts if not other.started]:
            self._withdraw(waiting)
            self._release(waiting, Requeue(f"{attempt.device} is paused"))
        self._later[attempt.job.id] = time.monotonic() + 2 * seconds
        _logger.warning(
            "goes back to the queue and %s is paused for %g s: %s", attempt.device, seconds, why,
            extra={"job": attempt.job.id},
        )  # fmt: skip

    def _apply(self, attempt: Attempt, decision: Outcome | Requeue) -> None:
        if isinstance(decision, Requeue):
            self._release(attempt, decision)
        else:
            self._finish(attempt, decision)

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        def then(counts: bool) -> None:
            if counts:
                count_end(outcome.state, outcome.error_slug)
                _logger.info(
                    "ended on %s: %s%s", attempt.device, outcome.state,
                    f": {outcome.error}" if outcome.error else "", extra={"job": outcome.job_id},
                )  # fmt: skip
            if any(artifact.name == "log.txt" for artifact in outcome.artifacts):
                self._home.live_log(outcome.job_id).unlink(missing_ok=True)
            self._changed()

        self._outbox.add(lambda: self._database.finish(outcome), then)
        self._show(self._slots[attempt.device])

    def _release(self, attempt: Attempt, why: Requeue) -> None:
        job, token = attempt.job, attempt.token
        self._outbox.add(
            lambda: self._database.release(job.id, token, why.message, counted=why.counted),
            lambda _: self._changed(),
        )
        self._waiting = True
        count_requeue()
        _logger.info("is queued again: %s", why.message, extra={"job": job.id})
        self._show(self._slots[attempt.device])

    def _drop(self, token: str) -> Attempt | None:
        """Forget an attempt; None when it is not one of ours any more."""
        if self._cluster is not None:
            self._cluster.forget(token)
        attempt = self._attempts.pop(token, None)
        if attempt is not None:
            self._slots[attempt.device].attempts.remove(attempt)
        return attempt

    def _withdraw(self, attempt: Attempt) -> None:
        """Take an attempt back from its worker, and forget it."""
        if self._cluster is not None:
            self._cluster.withdraw(attempt.token, self._slots[attempt.device].address)
        self._drop(attempt.token)

    def _give_up(self, attempt: Attempt) -> None:
        """Stop an attempt that the database no longer counts as ours."""
        self._withdraw(attempt)
        self._show(self._slots[attempt.device])

    def _show(self, slot: Slot) -> None:
        """Write the device into the database at the next `save`, in its state then."""
        self._unshown[slot.config.name] = slot

    def _save(self) -> bool:
        """Write what changed. False if the database cannot be reached."""
        if slots := self._unshown:
            self._unshown = {}
            write = self._database.set_devices
            self._outbox.add(lambda: write(*(slot.record() for slot in slots.values())))
        return self._outbox.save()

    # -- what is due

    def _housekeep(self) -> None:
        if self._is_due("dead", _POLL):
            self._home.dead_engines(self._forget_engine)
        if self._is_due("leases", self._lease / 3):
            self._database.renew(self.id, self._lease)
            self._acquire()
        if self._is_due("shares", _SHARE):
            if unsaved := self._shares.unsaved:
                self._database.note_use(unsaved, HALF_LIFE)
                unsaved.clear()
            self._shares.load(self._database.used(HALF_LIFE))
        if self._is_due("expired", self._lease / 3):
            for job_id in self._database.requeue_expired():
                for attempt in [a for a in self._attempts.values() if a.job.id == job_id]:
                    self._give_up(attempt)
        cluster = self._live_cluster()
        if cluster is None:
            return
        if self._is_due("workers", _REFRESH):
            offered = cluster.offered()
            for name, slot in self._slots.items():
                before, slot.address = slot.address, offered.get(name)
                if before != slot.address and slot.held:
                    self._show(slot)
        if self._is_due("poll", _POLL):
            if not all(slot.held for slot in self._slots.values()):
                self._acquire()
            self._check_devices(cluster)
            self._resume()
            self._balance()

    def _look(self) -> None:
        """Do what other processes ask for in the database, if something happened in it."""
        before, self._last_event = self._last_event, self._database.last_event()
        if self._last_event == before and not self._is_due("rest", _REST):
            return
        self._heed_disabled()
        if self._cluster is not None:
            self._cancel_requested(self._cluster)
        self._dispatch()

    def _forget_engine(self, engine: str) -> None:
        self._database.abandon(engine)
        for what in ("leases", "expired"):
            self._due.pop(what, None)

    def _is_due(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._due.get(what, 0):
            return False
        self._due[what] = now + seconds
        return True

    def _acquire(self) -> None:
        mine = self._database.acquire_devices(self._slots, self.id)
        for name, slot in self._slots.items():
            if slot.held and name not in mine:
                for attempt in list(slot.attempts):
                    self._give_up(attempt)
            elif name in mine and not slot.held:
                self._show(slot)
                self.wake()
            slot.held = name in mine

    def _live_cluster(self) -> Cluster | None:
        """The cluster. One that went away is looked for at its address every few seconds."""
        if self._cluster is not None and not self._cluster.alive:
            self._cluster.close()
            self._cluster = None
            for token in list(self._attempts):
                self.gone(AttemptGone.with_cluster(token))
            for slot in self._slots.values():
                slot.checking, slot.address, slot.calibrating = False, None, ""
        if self._cluster is None and self._is_due("cluster", _CLUSTER_AGAIN):
            self._cluster = self._open_cluster()
            self._due.pop("workers", None)
        return self._cluster

    def _open_cluster(self) -> Cluster:
        return open_cluster(
            list(self._slots),
            topic=f"etscope-lab-{self.id}",
            say=self._inbox.put,
            scheduler=self._scheduler,
            in_process=self._in_process,
        )

    def _cancel_requested(self, cluster: Cluster) -> None:
        wanted = self._database.cancelled_of(self.id) if self._attempts else ()
        for attempt in list(self._attempts.values()):
            if attempt.cancelled or attempt.job.id not in wanted:
                continue
            attempt.cancelled = True
            if attempt.started:
                cluster.stop(attempt.token, self._slots[attempt.device].address)
            else:
                self._withdraw(attempt)
                self._finish(attempt, no_result(attempt, State.CANCELLED, "stopped on request"))

    def _heed_disabled(self) -> None:
        """Take waiting jobs from devices that were taken out of service; running ones end there."""
        disabled = self._database.disabled_devices()
        for name, slot in self._slots.items():
            slot.disabled = name in disabled
            for waiting in [one for one in slot.attempts if slot.disabled and not one.started]:
                self._withdraw(waiting)
                self._release(waiting, Requeue(f"{name} was taken out of service"))

    def _check_devices(self, cluster: Cluster) -> None:
        now = time.monotonic()
        for slot in self._slots.values():
            due = slot.check_at is not None and slot.check_at <= now
            free = slot.held and slot.address is not None and not slot.checking
            if due and free and not (slot.reachable and slot.attempts):
                slot.checking = True
                cluster.check(slot.config)

    def _resume(self) -> None:
        now = time.monotonic()
        for slot in self._slots.values():
            if slot.paused and slot.paused_until <= now:
                slot.paused = ""
                self._show(slot)
                self.wake()
        self._later = {job: moment for job, moment in self._later.items() if moment > now}

    def _calibrate(self) -> None:
        """Calibrate the devices that are due since their last job. Jobs that they already have are
        done first; others wait."""
        for slot in self._slots.values():
            if self._cluster is None or not slot.ready or slot.calibrating:
                continue
            order = self._calibrator.due(slot.config)
            if order is not None:
                slot.calibrating = order.token
                self._cluster.calibrate(order)
                self._show(slot)

    # -- giving out work

    def _dispatch(self) -> None:
        cluster = self._cluster
        slots = [slot for slot in self._slots.values() if slot.ready and slot.has_room]
        self._waiting = True
        if cluster is None or not slots:
            return
        if self._only is not None:
            jobs = [self._database.job(job_id) for job_id in self._only]
            jobs = [job for job in jobs if job.state is State.QUEUED]
            attempts = self._chosen(slots, jobs)
        else:
            first = _FIRST + len(slots)
            jobs = self._database.queued(first)
            attempts = self._chosen(slots, jobs)
            now = time.monotonic()
            if not attempts and len(jobs) >= first and now >= self._deep_from:
                jobs = self._database.queued(_DEEPEST)
                attempts = self._chosen(slots, jobs)
                took = time.monotonic() - now
                self._deep_from = now + 20 * took  # at most 5 % of the time goes into this
        for first in range(0, len(attempts), _AT_ONCE):
            self._claim(cluster, attempts[first : first + _AT_ONCE])
        self._waiting = len(jobs) > len(attempts)

    def _chosen(self, slots: Sequence[Slot], jobs: Sequence[Job]) -> list[Attempt]:
        """Attempts at the jobs whose turn it is, on the devices that have least to do."""
        at_work: Counter[str] = Counter()
        if self._shares.matter(jobs):
            for (_, project), count in self._database.counts(State.CLAIMED, State.RUNNING).items():
                at_work[project] += count
        free = sorted(slots, key=lambda slot: len(slot.attempts))
        room = {slot.config.name: AHEAD - len(slot.attempts) for slot in slots}
        found: list[Attempt] = []
        nowhere: set[str] = set()  # selectors that match none of those that are left
        for job in self._shares.order(jobs, at_work):
            wanted = repr(job.spec.device)
            if job.id in self._later or wanted in nowhere:
                continue
            slot = choose(free, job)
            if slot is None:
                nowhere.add(wanted)
                continue
            name = slot.config.name
            found.append(Attempt(job, uuid.uuid4().hex, name))
            at_work[job.project] += 1
            room[name] -= 1
            free.remove(slot)
            if room[name]:
                free.append(slot)
            if not free:
                break
        return found

    def _claim(self, cluster: Cluster, attempts: Sequence[Attempt]) -> None:
        """Claim the jobs of attempts, and send the attempts to the workers."""
        known = self._calibrator.known_of(*(one.device for one in attempts))
        claim, release = self._database.claim, self._database.release
        try:
            claimed = self._database.together(
                [
                    partial(
                        claim, one.job.id, device=one.device, engine=self.id, token=one.token,
                        limit=self._shares.limit_of(one.job.project),
                    )
                    for one in attempts
                ]
            )  # fmt: skip
        except Exception:
            # They may have been claimed all the same, and would never be worked on.
            why = "the database was away"
            for one in attempts:
                self._outbox.add(partial(release, one.job.id, one.token, why, counted=False))
            raise
        for one, job in zip(attempts, claimed, strict=True):
            if job is None:
                continue
            one.job = job
            note_claim(job)
            name, slot = one.device, self._slots[one.device]
            _logger.info("is given to %s, attempt %d", name, job.attempt, extra={"job": job.id})
            self._attempts[one.token] = one
            slot.attempts.append(one)
            spec = job.spec.model_dump(mode="json")
            store, peaks = self._home.store_url, known[name]
            cluster.run(Order(job.id, job.attempt, one.token, spec, slot.config, store, peaks))

    def _balance(self) -> None:
        """Take back attempts that wait behind another one when an idle device can do them."""
        slots = self._slots.values()
        idle = [one for one in slots if one.ready and one.has_room and not one.attempts]
        nowhere: set[str] = set()
        for waiting in [attempt for one in slots if one.working for attempt in one.attempts]:
            wanted = repr(waiting.job.spec.device)
            if waiting.started or waiting.cancelled or wanted in nowhere:
                continue
            to = choose(idle, waiting.job)
            if to is None:
                nowhere.add(wanted)
                continue
            idle.remove(to)
            self._withdraw(waiting)
            self._release(waiting, Requeue(f"taken to {to.config.name}"))
            self.wake()

    # -- the end

    def _drain(self) -> None:
        for attempt in [a for a in self._attempts.values() if not a.started]:
            self._take_back(attempt)
        for slot in self._slots.values():
            if slot.calibrating and self._cluster is not None:
                self._cluster.stop(slot.calibrating, slot.address)
        self._wait_for_ends(self._drain_seconds)
        for attempt in list(self._attempts.values()):
            if self._cluster is not None:
                self._cluster.stop(attempt.token, self._slots[attempt.device].address)
        self._wait_for_ends(self._drain_seconds)
        for attempt in list(self._attempts.values()):
            self._take_back(attempt)
        for slot in self._slots.values():
            if slot.held:
                self._show(slot)
        self._outbox.add(lambda: self._database.release_devices(self.id))
        for _ in range(3):
            if self._save():
                break
            time.sleep(_POLL)
        if self._cluster is not None:
            self._cluster.close()
        self._let_go()

    def _take_back(self, attempt: Attempt) -> None:
        self._withdraw(attempt)
        self._release(attempt, Requeue("the lab was stopped"))

    def _wait_for_ends(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        slots = self._slots.values()
        while self._attempts or any(slot.calibrating for slot in slots):
            left = end - time.monotonic()
            if left <= 0:
                break
            self._step(min(left, _POLL))
