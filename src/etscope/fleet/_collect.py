"""Any number of dumps into a dataset."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from time import monotonic
from typing import Any

from etscope.errors import LabError, MissingDataError, UsageError
from etscope.fleet._batches import Bad, Batch, Written, bad_of, plan, write_batch
from etscope.fleet._dataset import Dataset
from etscope.fleet._events import UNITS, Options
from etscope.fleet._schema import WANTED_BY
from etscope.fleet._sources import Record, Source, find_sources, record_at, records_in
from etscope.optional import require

# Batches run here, one after the other, or on Dask's workers.


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


Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collect did. found: dumps that were named. taken: that are now in the dataset;
    again: that were there already, or named twice. bad: those that could not be taken. events: rows
    added. without_record: of `taken`, where records were given and none fits. bytes: of the taken
    dumps."""

    dataset: Dataset
    found: int
    taken: int
    again: int
    bad: tuple[Bad, ...]
    events: int
    without_record: int
    bytes: int
    seconds: float


def collect(
    dumps: Iterable[str | os.PathLike[str] | Source],
    dataset: str | os.PathLike[str],
    *,
    etrecord: str | os.PathLike[str] | None = None,
    etrecord_dir: str | os.PathLike[str] | None = None,
    labels: Mapping[str, str] | None = None,
    source_unit: str = "ns",
    strict: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Collected:
    """Take ETDumps into a dataset, which is made if it is not there.

    dumps: what `find_sources` takes, or sources. A dump that is in the dataset already is not taken
    again, whatever its name. etrecord: of all dumps; etrecord_dir: a folder with records, of which
    each dump takes the one of its program, if there is one. labels: of all dumps, before those of
    their run.json; "device" and "model" are names. source_unit: of the dumps' clocks. strict: bad
    dumps raise nothing, but nothing is written when there are any. workers: so many processes of a
    Dask cluster of this machine; scheduler: the address of another cluster, whose workers see the
    same files. progress: told (dumps done, dumps in all).

    Raises `MissingDataError` when no dump is named, `UsageError` for arguments that do not go
    together and for a folder that is no dataset, the errors of the records. Bad dumps are in the
    answer.
    """
    begin = monotonic()
    require("pyarrow.parquet", wanted_by=WANTED_BY)
    options = _options(etrecord, etrecord_dir, labels, source_unit)
    sources, bad = _sources(dumps)
    if not sources and not bad:
        raise MissingDataError("there is no ETDump among what was named")
    target = Dataset.make(dataset)
    total = len(sources)
    with target.writing():
        known = frozenset(target.dump_ids())
        batches = [
            Batch(name, part, str(target.workplace(name)), str(target.folder))
            for part, name in zip(plan(sources, workers or 1), _names(), strict=False)
        ]
        waiting: list[Written] = []  # of a strict collect: until nothing is bad
        taken: set[str] = set()
        sums = _Sums()
        with run_batches(batches, options, known, workers, scheduler) as (written, again):
            for result in written:
                ids = {row["dump_id"] for row in result.rows}
                if ids & taken:  # two batches had the same dump
                    target.discard(result.batch.name)
                    target.workplace(result.batch.name)
                    again(result.batch, known | taken)
                    continue
                taken |= ids
                bad.extend(result.bad)
                sums.finished += len(result.batch.sources)
                sums.again += result.again
                if strict:
                    waiting.append(result)
                else:
                    _commit(target, result, sums)
                if progress is not None:
                    progress(sums.finished, total)
        for result in waiting if not bad else ():
            _commit(target, result, sums)
    return Collected(
        dataset=target,
        found=total,
        taken=sums.taken,
        again=sums.again,
        bad=tuple(bad),
        events=sums.events,
        without_record=sums.without_record if options.records else 0,
        bytes=sums.bytes,
        seconds=monotonic() - begin,
    )


@dataclass(slots=True)
class _Sums:
    """What was done so far; the rows themselves are not kept."""

    finished: int = 0
    taken: int = 0
    again: int = 0
    events: int = 0
    without_record: int = 0
    bytes: int = 0


def _commit(target: Dataset, written: Written, sums: _Sums) -> None:
    if written.rows:
        target.commit(written.batch.name, written.parts, written.rows)
    target.discard(written.batch.name)
    sums.taken += len(written.rows)
    sums.events += sum(row["events"] for row in written.rows)
    sums.without_record += sum(row["etrecord"] is None for row in written.rows)
    sums.bytes += sum(row["bytes"] for row in written.rows)


def _options(
    etrecord: str | os.PathLike[str] | None,
    etrecord_dir: str | os.PathLike[str] | None,
    labels: Mapping[str, str] | None,
    source_unit: str,
) -> Options:
    if etrecord is not None and etrecord_dir is not None:
        raise UsageError("one record for all dumps, or a folder of records: not both")
    if source_unit not in UNITS:
        raise UsageError(
            f"times in {source_unit} cannot be made nanoseconds",
            hint=f"units are: {', '.join(UNITS)}",
        )
    records: tuple[Record, ...] = () if etrecord is None else (record_at(etrecord),)
    if etrecord_dir is not None:
        records = records_in(etrecord_dir)
    return Options(
        labels=dict(labels or {}),
        unit=source_unit,
        collected_at=datetime.now(timezone.utc).replace(tzinfo=None),
        records=records,
        named=etrecord is not None,
    )


def _sources(
    dumps: Iterable[str | os.PathLike[str] | Source],
) -> tuple[list[Source], list[Bad]]:
    given = list(dumps)
    found, wrong = find_sources(name for name in given if not isinstance(name, Source))
    bad = [bad_of(name, error) for name, error in wrong]
    return found + [source for source in given if isinstance(source, Source)], bad


def _names() -> Iterator[str]:
    """Names of batches: in the order of time, and no other collect's."""
    start = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{os.urandom(4).hex()}"
    number = 0
    while True:
        yield f"{start}-{number:05d}"
        number += 1
