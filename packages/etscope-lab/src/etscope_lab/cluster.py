"""The Dask cluster that jobs run on: each worker offers a device as a resource.

All that the engine needs of `distributed` is here. The engine gets `Message`s, from Dask's own
threads.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import dask
from distributed import Client, Future, Nanny, Scheduler, SpecCluster, Worker
from distributed.comm import get_address_host_port
from distributed.scheduler import KilledWorker
from distributed.security import Security

from etscope.errors import LabError
from etscope_lab.devices.peaks import CalibrationOrder, DeviceCalibration
from etscope_lab.jobs.records import DeviceConfig, Interruption, Job, Order, Outcome, State
from etscope_lab.worker import worker

PREFIX = "device-"  # of the name of a resource, before the device's

_CONNECT = 10.0  # seconds, to a scheduler that should be there
_CONNECT_OWN = 60.0  # to our own, on a busy machine
_ANSWER = 30.0  # of a scheduler to a question
_AGAIN = (0.5, 2.0)  # seconds before each new try to start workers
# When a worker is killed, its job goes back to the engine, which counts the attempts. Dask's web
# servers would show the logs of workers to every user of the machine: they serve nothing here.
# Dask's statistics of itself, up to 100 a second, are not used, and take time on a machine that
# measures.
_SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.nanny.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.work-stealing": False,
    "logging": {"distributed": "critical"},
}
_LOOPBACK = "127.0.0.1"

_logger = logging.getLogger("etscope_lab")


@dataclass(frozen=True, slots=True)
class AttemptGone:
    """An attempt will have no outcome; `why` is the reason.

    worker_lost: its worker was killed or left; else no worker can run it. cluster_lost: the whole
    cluster is gone, which cannot be the job's fault.
    """

    token: str
    why: str
    worker_lost: bool
    cluster_lost: bool = False

    @classmethod
    def with_cluster(cls, token: str) -> AttemptGone:
        return cls(token, "the Dask scheduler is gone", worker_lost=True, cluster_lost=True)


@dataclass(slots=True)
class Attempt:
    """A job that was given to a device. started: the device works on it. cancelled: its
    cancellation was requested."""

    job: Job
    token: str
    device: str
    started: bool = False
    cancelled: bool = False

    @property
    def may_repeat(self) -> bool:
        """True when the job has attempts left after this one."""
        return self.job.attempt < self.job.spec.attempts


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job is queued again. counted: the attempt counts as one of the job's attempts."""

    message: str
    counted: bool = False


def conclude(attempt: Attempt, outcome: Outcome, *, patient: bool = True) -> Outcome | Requeue:
    """Decide about a job from the outcome of an attempt: its final state, or another attempt.

    patient: while the store or a disk fails, the job waits, whatever its number of attempts.
    """
    if outcome.interruption is Interruption.LAB:
        if attempt.cancelled:
            return replace(outcome, state=State.CANCELLED)
        if patient or attempt.may_repeat:
            return Requeue(outcome.error, counted=not patient)
    elif outcome.interruption is Interruption.KILLED:
        if attempt.may_repeat and not attempt.cancelled:
            return Requeue(outcome.error, counted=True)
    elif outcome.state is State.DEVICE_LOST:
        begun = outcome.busy_seconds > 0
        if attempt.cancelled:
            return replace(outcome, state=State.CANCELLED)
        if not begun or attempt.may_repeat:
            return Requeue(f"the device was lost: {outcome.error}", counted=begun)
    elif outcome.state is State.CANCELLED and not attempt.cancelled:
        return Requeue("the lab was stopped")
    return outcome


def conclude_without_outcome(attempt: Attempt, gone: AttemptGone) -> Outcome | Requeue:
    """Decide about a job when its attempt will not report an outcome."""
    if attempt.cancelled:
        return no_result(attempt, State.CANCELLED, "stopped on request")
    if not gone.worker_lost:
        error = f"the worker cannot run jobs: {gone.why}"
        return no_result(attempt, State.FAILED, error, LabError.slug)
    if attempt.may_repeat or gone.cluster_lost or not attempt.started:
        return Requeue(gone.why, counted=attempt.started and not gone.cluster_lost)
    return no_result(attempt, State.DEVICE_LOST, f"{gone.why}, in every attempt", "device-lost")


def no_result(attempt: Attempt, state: State, error: str, slug: str = "") -> Outcome:
    return Outcome(attempt.job.id, attempt.token, state, error=error, error_slug=slug)


class Listener(Protocol):
    """Hears of a cluster: of attempts and calibrations by their tokens."""

    def started(self, token: str, worker: str) -> None: ...
    def logged(self, token: str, text: str) -> None: ...
    def ended(self, token: str, outcome: Outcome) -> None: ...
    def gone(self, gone: AttemptGone) -> None: ...
    def checked(self, device: str, check: worker.DeviceCheck) -> None: ...
    def calibrated(self, device: str, token: str, found: DeviceCalibration | str) -> None: ...
    def workers_changed(self) -> None: ...


Message = Callable[[Listener], None]  # to be called by the listener's own thread


class Cluster:
    """A cluster, from `open_cluster`, for one engine. To be called from the engine's thread."""

    def __init__(
        self, client: Client, local: _Local | None, topic: str, say: Callable[[Message], None]
    ) -> None:
        self._client = client
        self._local = local
        self._topic = topic
        self._say = say
        self._futures: dict[str, Future] = {}
        self._turn = 0
        client.subscribe_topic(topic, self._hear)
        client.subscribe_topic("all", self._hear_of_workers)

    @property
    def alive(self) -> bool:
        return bool(self._client.status == "running")

    def offered(self) -> dict[str, str]:
        """The addresses of the workers that offer a device, by the device's name. Raises `LabError`
        when the scheduler does not answer."""
        if self._local is not None:
            self._local.start_missing()
        identity = self._client.scheduler.identity
        try:
            found = self._client.sync(identity, n_workers=-1, callback_timeout=_ANSWER)
        except (OSError, asyncio.TimeoutError) as error:
            raise LabError(
                f"the Dask scheduler does not answer: {error or type(error).__name__}"
            ) from error
        workers = found["workers"]
        return {
            resource.removeprefix(PREFIX): address
            for address, about in workers.items()
            for resource in about["resources"]
            if resource.startswith(PREFIX)
        }

    def run(self, order: Order) -> None:
        """Send an order to its device's worker, which keeps it until its present order has
        ended.
        """
        token = order.token
        future = self._submit(order.device.name, worker.work, order, self._topic)
        self._futures[token] = future

        def ended(done: Future) -> None:
            try:
                outcome = done.result()
            except (KilledWorker, worker.AlreadyBegun):
                gone = AttemptGone(token, "its worker was killed", worker_lost=True)
            except Exception as error:
                if done.status == "cancelled":  # withdrawn, or the scheduler is gone
                    gone = AttemptGone.with_cluster(token)
                else:
                    why = f"{type(error).__name__}: {error}"
                    gone = AttemptGone(token, why, worker_lost=False)
            else:
                self._say(lambda listener: listener.ended(token, outcome))
                return
            self._say(lambda listener: listener.gone(gone))

        future.add_done_callback(ended)

    def check(self, config: DeviceConfig) -> None:
        """Check a device, after its present job."""

        def ended(check: worker.DeviceCheck | None, why: str) -> None:
            found = check or worker.DeviceCheck(error=f"could not be checked: {why}")
            self._say(lambda listener: listener.checked(config.name, found))

        self._ask(f"check:{config.name}", ended, config.name, worker.check, config)

    def calibrate(self, order: CalibrationOrder) -> None:
        """Calibrate a device, after its present jobs."""
        name, token = order.device.name, order.token

        def ended(found: DeviceCalibration | str | None, why: str) -> None:
            self._say(lambda listener: listener.calibrated(name, token, found or why))

        self._ask(token, ended, name, worker.calibrate, order)

    def _ask(
        self, key: str, ended: Callable[[Any, str], None], device: str, function: Any, argument: Any
    ) -> None:
        """Call a function on a device's worker; `ended` gets its result, or None and why."""
        self._futures[key] = future = self._submit(device, function, argument)

        def hear(done: Future) -> None:
            try:
                result, why = done.result(), ""
            except Exception as error:  # of Dask: a killed worker, a scheduler that is gone
                result, why = None, f"{type(error).__name__}: {error}"
            ended(result, why)

        future.add_done_callback(hear)

    def forget(self, token: str) -> None:
        """Drop an attempt, or a calibration, that ended."""
        self._futures.pop(token, None)

    def withdraw(self, token: str, address: str | None) -> None:
        """Take an order back. If its worker has begun it meanwhile, stop it."""
        future = self._futures.pop(token, None)
        self.stop(token, address)
        if future is not None:
            future.cancel(force=True, reason="withdrawn", msg="by the lab")

    def stop(self, token: str, address: str | None) -> None:
        """Stop an attempt. Its outcome is then cancelled."""
        if address is not None and self.alive:
            call = self._client.run(
                worker.stop, token, workers=[address], on_error="ignore", asynchronous=True
            )  # without waiting for the answer: the worker may be gone
            asyncio.run_coroutine_threadsafe(call, self._client.loop.asyncio_loop)

    def close(self) -> None:
        with suppress(Exception):  # of a connection that is gone
            self._client.unsubscribe_topic("all")
            self._client.unsubscribe_topic(self._topic)
            self._client.close(timeout=2)
        if self._local is not None:
            self._local.close()

    def _submit(self, device: str, function: Callable[..., Any], *arguments: Any) -> Future:
        self._turn -= 1  # a worker takes orders as they came, not as Dask thinks best
        return self._client.submit(
            function,
            *arguments,
            resources={PREFIX + device: 1},
            priority=self._turn,
            pure=False,
            retries=0,
        )

    def _hear(self, event: tuple[float, Any]) -> None:
        # See `worker.Tell`. Clients of other users of the scheduler may write to our topic.
        match event[1]:
            case {"kind": "started", "token": str(token), "by": str(by)}:
                self._say(lambda listener: listener.started(token, by))
            case {"kind": "log", "token": str(token), "text": str(text)}:
                self._say(lambda listener: listener.logged(token, text))
            case _:
                _logger.warning("ignored a malformed message of a worker: %.200r", event[1])

    def _hear_of_workers(self, event: tuple[float, Mapping[str, Any]]) -> None:
        if event[1].get("action") in ("add-worker", "remove-worker"):
            self._say(lambda listener: listener.workers_changed())


def open_cluster(
    devices: Sequence[str],
    *,
    topic: str,
    say: Callable[[Message], None],
    scheduler: str | None = None,
    in_process: bool = False,
) -> Cluster:
    """Open the cluster at a scheduler's address, or one on this machine with a worker per device.

    say: receives the messages. in_process: the workers are threads of this process, which start at
    once. Otherwise they are processes, which are restarted when they are killed and take orders of
    this cluster only. Raises `LabError` when no scheduler answers at the address, or workers cannot
    be started, as by a script without `if __name__ == "__main__":`.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if scheduler is None:
        local = _start_local(devices, in_process)
        try:
            client = Client(local.cluster, timeout=_CONNECT_OWN, set_as_default=False)
        except (OSError, asyncio.TimeoutError) as error:
            local.close()
            raise LabError(f"the workers of this machine do not answer: {error}") from error
        return Cluster(client, local, topic, say)
    try:
        # A Client that finds no scheduler never goes away quite: try the port first.
        socket.create_connection(get_address_host_port(scheduler), _CONNECT).close()
        client = Client(scheduler, timeout=_CONNECT, set_as_default=False, name="etscope")
    except (OSError, asyncio.TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise LabError(
            f"no Dask scheduler at {scheduler}: {error}",
            hint="scheduler: in lab.yaml is the address that `dask scheduler` prints",
        ) from error
    return Cluster(client, None, topic, say)


def resources_of(devices: Sequence[str]) -> dict[str, float]:
    """The resources that a worker for these devices has to offer."""
    return {PREFIX + name: 1 for name in devices}


@dataclass(frozen=True, slots=True)
class _Local:
    """A cluster on this machine, and the folder of its workers."""

    cluster: SpecCluster
    folder: tempfile.TemporaryDirectory[str]

    def start_missing(self) -> None:
        """Restart workers that Dask gave up on: killed ones that are not back after
        `distributed.deploy.lost-worker-timeout` (15 s), as happens on a busy machine.
        """
        if len(self.cluster.workers) < len(self.cluster.worker_spec):
            self.cluster.scale(len(self.cluster.worker_spec))

    def close(self) -> None:
        with suppress(Exception):
            self.cluster.close(timeout=10)
        self.folder.cleanup()


def _start_local(devices: Sequence[str], in_process: bool) -> _Local:
    waits = iter(_AGAIN)  # a worker may die as it starts while the machine has no memory left
    while True:
        # Not Dask's folder: all clusters of the machine share its locks.
        folder = tempfile.TemporaryDirectory(prefix="etscope-workers-", ignore_cleanup_errors=True)
        try:
            return _Local(_local(devices, in_process, folder.name), folder)
        except (OSError, RuntimeError, asyncio.TimeoutError) as error:
            folder.cleanup()
            wait = next(waits, None)
            if wait is None:
                raise LabError(f"workers cannot be started on this machine: {error}") from error
            time.sleep(wait)


def _local(devices: Sequence[str], in_process: bool, folder: str) -> SpecCluster:
    # Whoever can talk to a worker can have it run anything, and every user of the machine reaches
    # its loopback: our processes know each other by a certificate that exists in them only.
    security = {} if in_process else {"security": Security.temporary()}
    protocol = "inproc://" if in_process else "tls://"
    common: dict[str, Any] = {"protocol": protocol, "dashboard": False, **security}
    common |= {} if in_process else {"host": _LOOPBACK}
    # Dask's own web servers cannot be left out.
    http = {"dashboard_address": f"{_LOOPBACK}:0"}
    own = {**common, **http, "nthreads": 1, "memory_limit": None, "local_directory": folder}
    own |= {"silence_logs": logging.CRITICAL}
    with dask.config.set(_SETTINGS):
        return SpecCluster(
            workers={
                name: {
                    "cls": Worker if in_process else Nanny,
                    "options": {**own, "name": name, "resources": resources_of([name])},
                }
                for name in devices
            },
            scheduler={"cls": Scheduler, "options": {**common, **http, "port": 0}},
            silence_logs=logging.CRITICAL,
            **security,
        )
