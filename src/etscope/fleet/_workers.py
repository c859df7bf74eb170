"""Batches run here, one after the other, or on Dask's workers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from typing import Any

from etscope.errors import LabError, UsageError
from etscope.fleet._batches import Batch, Written, write_batch
from etscope.fleet._events import Options
from etscope.optional import require

_WANTED_BY = "collecting on several workers"
_CONNECT_SECONDS = 30
_LOOPBACK = "127.0.0.1"
_AHEAD = 2  # batches a worker has, the one at work and those that wait

Again = Callable[[Batch, frozenset[str]], None]


@contextmanager
def run_batches(
    batches: Iterable[Batch],
    options: Options,
    known: frozenset[str],
    workers: int | None,
    scheduler: str | None,
) -> Iterator[tuple[Iterator[Written], Again]]:
    """What came of each batch, as it comes, and what queues a batch again, without more dumps that
    are known. Raises `LabError` when the cluster cannot be reached or loses a batch for good."""
    if workers is not None and scheduler is not None:
        raise UsageError("workers of this machine, or a scheduler that has its own: not both")
    if workers is None and scheduler is None:
        here = _Here(options, deque((batch, known) for batch in batches))
        yield iter(here), here.again
        return
    with ExitStack() as stack:
        there = _There(_client(workers, scheduler, stack), options, batches)
        yield iter(there), there.again


class _Here:
    def __init__(self, options: Options, waiting: deque[tuple[Batch, frozenset[str]]]) -> None:
        self._options = options
        self._waiting = waiting

    def again(self, batch: Batch, known: frozenset[str]) -> None:
        self._waiting.append((batch, known))

    def __iter__(self) -> Iterator[Written]:
        while self._waiting:
            batch, known = self._waiting.popleft()
            yield write_batch(batch, self._options, known)


class _There:
    """Few batches are on the cluster at a time: neither it nor this process holds them all.

    Workers read themselves what the dataset has: data that is sent to them once is lost with them.
    """

    def __init__(self, client: Any, options: Options, batches: Iterable[Batch]) -> None:
        self._client = client
        self._options = options
        self._batches = iter(batches)
        self._repeated: deque[tuple[Batch, frozenset[str]]] = deque()
        self._running: Any = require("distributed", wanted_by=_WANTED_BY).as_completed(
            loop=client.loop
        )

    def again(self, batch: Batch, known: frozenset[str]) -> None:
        self._repeated.append((batch, known))

    def __iter__(self) -> Iterator[Written]:
        slots = max(1, sum(self._client.nthreads().values()))
        for _ in range(_AHEAD * slots):
            self._submit()
        for future in self._running:
            try:
                written: Written = future.result()
            except self._cluster_errors() as error:
                raise LabError(
                    f"a batch of dumps was lost with its worker: {error}",
                    hint="what was finished is in the dataset; collect again takes the rest",
                ) from error
            future.release()
            yield written
            self._submit()

    def _submit(self) -> None:
        known: frozenset[str] | None
        if self._repeated:
            batch, known = self._repeated.popleft()
        else:
            following = next(self._batches, None)
            if following is None:
                return
            batch, known = following, None
        self._running.add(
            self._client.submit(write_batch, batch, self._options, known, pure=False, retries=1)
        )

    def _cluster_errors(self) -> tuple[type[BaseException], ...]:
        scheduler = require("distributed.scheduler", wanted_by=_WANTED_BY)
        comm = require("distributed.comm", wanted_by=_WANTED_BY)
        return (scheduler.KilledWorker, comm.CommClosedError, CancelledError)


def _client(workers: int | None, scheduler: str | None, stack: ExitStack) -> Any:
    distributed = require("distributed", wanted_by=_WANTED_BY)
    if scheduler is None:
        address = stack.enter_context(
            distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                host=_LOOPBACK,
                # Dask's own web servers cannot be left out; nobody else gets to them.
                dashboard_address=f"{_LOOPBACK}:0",
                worker_dashboard_address=f"{_LOOPBACK}:0",
                silence_logs=logging.CRITICAL,
            )
        )
    else:
        address = scheduler
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise LabError(
            f"no Dask scheduler answers at {scheduler}: {error}",
            hint="an address is tcp://HOST:PORT",
        ) from error
    return stack.enter_context(client)
