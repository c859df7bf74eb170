"""The Dask cluster that jobs run on: workers, each of which offers a device as a resource.

Everything of `distributed` that the engine needs is here. What happens is told to the engine by
`Message`s, from Dask's own threads.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, Nanny, Scheduler, SpecCluster, Worker
from distributed.comm import get_address_host_port
from distributed.scheduler import KilledWorker
from distributed.security import Security

from etscope.errors import LabError
from etscope.lab.jobs.records import DeviceConfig, Order, Outcome
from etscope.lab.worker import worker
from etscope.optional import require

PREFIX = "device-"  # of the name of a resource, before the device's

_CONNECT = 10.0  # seconds, to a scheduler that should be there
_CONNECT_OWN = 60.0  # to our own, on a machine that has much to do
_AGAIN = (0.5, 2.0)  # seconds before each new try to start workers
# A job whose worker was killed is given back to the engine, which counts its attempts. Dask's web
# servers show the logs of workers to everybody on the machine: they serve nothing here.
_SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.nanny.http.routes": [],
    "logging": {"distributed": "critical"},
}
_LOOPBACK = "127.0.0.1"

_logger = logging.getLogger("etscope.lab")


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has begun an attempt. by: its name."""

    token: str
    by: str


@dataclass(frozen=True, slots=True)
class Logged:
    """What an attempt's job has logged."""

    token: str
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt came back."""

    token: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Gone:
    """An attempt will not come back, for the reason that `why` says.

    lost: its worker was killed or left; else nobody can run it. innocent: so did the whole cluster,
    which cannot be the job's doing.
    """

    token: str
    why: str
    lost: bool
    innocent: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """A device was looked at."""

    device: str
    found: worker.Checked


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers came or left."""


Message = Started | Logged | Ended | Gone | Seen | Workers


class Cluster:
    """A cluster, from `open_cluster`, for one engine. Methods are of the engine's thread."""

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
        """The addresses of the workers that offer a device, by the device's name."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        return {
            resource.removeprefix(PREFIX): address
            for address, about in workers.items()
            for resource in about["resources"]
            if resource.startswith(PREFIX)
        }

    def run(self, order: Order) -> None:
        """Send an order to its device's worker. One that has another to do keeps it for later."""
        future = self._submit(order.device.name, worker.work, order, self._topic)
        self._futures[order.token] = future
        future.add_done_callback(lambda done: self._say(_end_of(order.token, done)))

    def check(self, config: DeviceConfig) -> None:
        """Have a device looked at, after the job it has."""
        key = f"check:{config.name}"
        future = self._submit(config.name, worker.check, config)
        self._futures[key] = future
        future.add_done_callback(lambda done: self._say(Seen(config.name, _found(done))))

    def forget(self, token: str) -> None:
        """An attempt that ended."""
        self._futures.pop(token, None)

    def withdraw(self, token: str, address: str | None) -> None:
        """Take an order back. If it has been begun meanwhile, it is ended."""
        future = self._futures.pop(token, None)
        self.stop(token, address)
        if future is not None:
            future.cancel(force=True, reason="withdrawn", msg="by the lab")

    def stop(self, token: str, address: str | None) -> None:
        """End an attempt; it comes back as cancelled."""
        if address is not None and self.alive:
            call = self._client.run(
                worker.stop, token, workers=[address], on_error="ignore", asynchronous=True
            )  # nobody waits for the answer: the worker may be gone
            asyncio.run_coroutine_threadsafe(call, self._client.loop.asyncio_loop)

    def close(self) -> None:
        with suppress(Exception):  # of a connection that is gone
            self._client.unsubscribe_topic("all")
            self._client.unsubscribe_topic(self._topic)
            self._client.close(timeout=2)
        if self._local is not None:
            self._local.close()

    def _submit(self, device: str, function: Callable[..., Any], *arguments: Any) -> Future:
        self._turn -= 1  # a device's worker takes what came first, and not what Dask thinks best
        return self._client.submit(
            function,
            *arguments,
            resources={PREFIX + device: 1},
            priority=self._turn,
            pure=False,
            retries=0,
        )

    def _hear(self, event: tuple[float, Any]) -> None:
        told = _told(event[1])
        if told is None:
            _logger.warning("what a worker says is malformed, and left out: %.200r", event[1])
        else:
            self._say(told)

    def _hear_of_workers(self, event: tuple[float, Mapping[str, Any]]) -> None:
        if event[1].get("action") in ("add-worker", "remove-worker"):
            self._say(Workers())


def open_cluster(
    devices: Sequence[str],
    *,
    topic: str,
    say: Callable[[Message], None],
    scheduler: str | None = None,
    in_process: bool = False,
) -> Cluster:
    """A cluster by the scheduler's address, or one of this machine with a worker a device.

    in_process: its workers are threads of this process, which starts in no time, and not processes
    of their own that are started again when one is killed; those take orders of this cluster only.
    Raises `LabError` when there is nobody at the address, workers cannot be started, or each would
    start the program again that calls this.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if scheduler is None:
        local = _started(devices, in_process)
        try:
            client = Client(local.cluster, timeout=_CONNECT_OWN, set_as_default=False)
        except (OSError, asyncio.TimeoutError) as error:
            local.close()
            raise LabError(f"the workers of this machine do not answer: {error}") from error
        return Cluster(client, local, topic, say)
    try:
        # A Client that finds nobody is never quite gone: ask for the port first.
        socket.create_connection(get_address_host_port(scheduler), _CONNECT).close()
        client = Client(scheduler, timeout=_CONNECT, set_as_default=False, name="etscope")
    except (OSError, asyncio.TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise LabError(
            f"no Dask scheduler at {scheduler}: {error}",
            hint="scheduler: in lab.yaml is the address that `dask scheduler` prints",
        ) from error
    return Cluster(client, None, topic, say)


def resources_of(devices: Sequence[str]) -> dict[str, float]:
    """What a worker for these devices has to offer."""
    return {PREFIX + name: 1 for name in devices}


@dataclass(frozen=True, slots=True)
class _Local:
    """A cluster of this machine, and the folder of its workers."""

    cluster: SpecCluster
    folder: tempfile.TemporaryDirectory[str]

    def close(self) -> None:
        with suppress(Exception):
            self.cluster.close(timeout=10)
        self.folder.cleanup()


def _started(devices: Sequence[str], in_process: bool) -> _Local:
    """A worker's process may die as it starts, of a machine that has no memory left: try again."""
    if not in_process:
        _check_main()
        require("cryptography", wanted_by="the lab's workers")
    waits = iter(_AGAIN)
    while True:
        # Not Dask's folder, whose locks all clusters of the machine share.
        folder = tempfile.TemporaryDirectory(prefix="etscope-workers-", ignore_cleanup_errors=True)
        try:
            return _Local(_local(devices, in_process, folder.name), folder)
        except (OSError, RuntimeError, asyncio.TimeoutError) as error:
            folder.cleanup()
            wait = next(waits, None)
            if wait is None:
                raise LabError(f"workers cannot be started on this machine: {error}") from error
            time.sleep(wait)


def _check_main() -> None:
    """Refuse a script whose every line each worker would run again, as far as can be seen: what
    `multiprocessing` says of it is long, and comes once a worker."""
    main = sys.modules["__main__"]
    again = getattr(multiprocessing.current_process(), "_inheriting", False)
    source = ""
    if getattr(main, "__spec__", None) is None and getattr(main, "__file__", None):
        with suppress(OSError):
            source = Path(str(main.__file__)).read_text("utf-8", "replace")
    guarded = not source or "__name__" in source or "parent_process" in source
    if again or not guarded:
        raise LabError(
            f"{Path(str(main.__file__)).name} starts the lab's workers, and each of them would run "
            "it again from its first line",
            hint='put what it does under `if __name__ == "__main__":`',
        )


def _local(devices: Sequence[str], in_process: bool, folder: str) -> SpecCluster:
    # Who can talk to a worker can have it run anything, and every user of the machine reaches its
    # loopback: processes know each other by a certificate that is nowhere but in them.
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
            scheduler={
                "cls": Scheduler,
                "options": {**common, **http, "port": 0},
            },
            silence_logs=logging.CRITICAL,
            **security,
        )


def _told(message: Any) -> Started | Logged | None:
    """What a worker says by `worker.Tell`. Another scheduler's clients may write into our topic."""
    match message:
        case {"kind": "started", "token": str(token), "by": str(by)}:
            return Started(token, by)
        case {"kind": "log", "token": str(token), "text": str(text)}:
            return Logged(token, text)
    return None


def _end_of(token: str, future: Future) -> Message:
    try:
        return Ended(token, future.result())
    except KilledWorker:
        return Gone(token, "its worker was killed", lost=True)
    except Exception as error:
        if future.status == "cancelled":  # withdrawn, or the scheduler is gone
            return Gone(token, "the Dask scheduler is gone", lost=True, innocent=True)
        return Gone(token, f"{type(error).__name__}: {error}", lost=False)


def _found(future: Future) -> worker.Checked:
    try:
        found: worker.Checked = future.result()
    except Exception as error:  # of Dask: a killed worker, a scheduler that is gone
        return worker.Checked(error=f"could not be asked: {type(error).__name__}: {error}")
    return found
