"""Collect any number of dumps into a dataset.

Dumps are read in batches, here or on Dask's workers; each batch writes a file for each partition. A
worker knows nothing of the dataset but the folder that it writes to.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from etscope.errors import EtscopeError, FormatError, LabError, MissingDataError, UsageError
from etscope_lab.fleet._dataset import (
    EVENTS,
    ROW_GROUP,
    Dataset,
    Part,
    arrow_schema,
    event_path,
    writer_options,
)
from etscope_lab.fleet._events import UNITS, Options, Taken, content_of, take
from etscope_lab.fleet._sources import Source, find_sources, record_at, records_in

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Bad:
    """A dump, or a name for dumps, that could not be collected. slug: the error's slug."""

    url: str
    error: str
    slug: str


@dataclass(frozen=True, slots=True)
class Collected:
    """Counts of a collect.

    found: dumps that were named. taken: dumps that were added; again: dumps that were already in
    the dataset, or named twice. bad: dumps that could not be taken. events: rows added.
    without_record: taken dumps that no given record fits. bytes: size of the taken dumps.
    """

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
    """Collect ETDumps into a dataset, which is created if it is missing.

    dumps: names as for `find_sources`, or sources. A dump that is already in the dataset is
    skipped, whatever its name. etrecord: the record of all dumps. etrecord_dir: a folder of
    records; for each dump, the record of its program is used, if there is one. labels: labels of
    all dumps; they override the labels of a run.json. The labels "device" and "model" set the names
    of device and model. source_unit: the unit of the dumps' clocks. strict: write nothing if there
    are bad dumps; bad dumps never raise an error. workers: the number of processes of a Dask
    cluster on this machine. scheduler: the address of another cluster; its workers must see the
    same files. progress: a function that is called with the number of dumps done, and the total.

    Raises `MissingDataError` when no dump is named, `UsageError` for arguments that exclude each
    other and for a folder that is not a dataset, and the errors of the records. The result lists
    the bad dumps.
    """
    begin = monotonic()
    options = collect_options(etrecord, etrecord_dir, labels, source_unit)
    given = list(dumps)
    sources, wrong = find_sources(name for name in given if not isinstance(name, Source))
    sources += [source for source in given if isinstance(source, Source)]
    bad = [_bad(name, error) for name, error in wrong]
    if not sources and not bad:
        raise MissingDataError("no ETDump was found under the given names")
    target = Dataset.make(dataset)
    total = len(sources)
    with target.writing():
        known = frozenset(target.dump_ids())
        # Names of batches sort by time, and differ between collects.
        start = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{os.urandom(4).hex()}"
        batches = []
        for number, part in enumerate(plan(sources, workers or 1)):
            name = f"{start}-{number:05d}"
            batches.append(Batch(name, part, str(target.workplace(name)), str(target.folder)))
        waiting: list[Written] = []  # in a strict collect: until all batches are good
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
    """Counts so far; the rows themselves are not kept."""

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


def collect_options(
    etrecord: str | os.PathLike[str] | None,
    etrecord_dir: str | os.PathLike[str] | None,
    labels: Mapping[str, str] | None,
    source_unit: str,
) -> Options:
    """Check the options of `collect`, and read the records."""
    if etrecord is not None and etrecord_dir is not None:
        raise UsageError("give one record for all dumps, or a folder of records, not both")
    if source_unit not in UNITS:
        raise UsageError(
            f"times in {source_unit} cannot be converted to nanoseconds",
            hint=f"units are: {', '.join(UNITS)}",
        )
    records = () if etrecord_dir is None else records_in(etrecord_dir)
    if etrecord is not None:
        records = (record_at(etrecord),)
    return Options(
        labels=dict(labels or {}),
        unit=source_unit,
        collected_at=datetime.now(timezone.utc).replace(tzinfo=None),
        records=records,
        named=etrecord is not None,
    )


def _bad(url: str, error: Exception) -> Bad:
    """An error as an entry of the report."""
    if isinstance(error, FormatError):
        error.path = error.path or url
    slug = error.slug if isinstance(error, EtscopeError) else "bad-file"
    text = " ".join(str(error).split())
    return Bad(url, text.removeprefix(f"{url}: "), slug)


# -- One batch.

_MOST_BYTES = 128 << 20  # of dumps in a batch: some million events
_MOST_DUMPS = 1024
_OPEN_PARTS = 32  # files written at a time; each may hold a row group in memory


@dataclass(frozen=True, slots=True)
class Batch:
    """Dumps that are written together.

    name: unique in the dataset. workplace: the folder to write to. dataset: the dataset's folder.
    """

    name: str
    sources: tuple[Source, ...]
    workplace: str
    dataset: str


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a batch. rows: rows for the table of dumps. again: how many dumps were already
    in the dataset.
    """

    batch: Batch
    parts: tuple[Part, ...]
    rows: list[dict[str, Any]]
    bad: tuple[Bad, ...]
    again: int


def plan(sources: Sequence[Source], workers: int) -> list[tuple[Source, ...]]:
    """Divide the dumps into batches of neighbours, so that a folder's model becomes one file.
    Batches are large, but there are enough of them for all workers."""
    total = sum(source.size for source in sources)
    most = min(_MOST_BYTES, max(total // (4 * workers), 1)) if workers > 1 else _MOST_BYTES
    batches: list[list[Source]] = []
    size = most
    for source in sources:
        if size >= most or len(batches[-1]) >= _MOST_DUMPS:
            batches.append([])
            size = 0
        batches[-1].append(source)
        size += source.size
    return [tuple(batch) for batch in batches]


def write_batch(batch: Batch, options: Options, known: frozenset[str] | None = None) -> Written:
    """Read the dumps of a batch, and write each with a SHA-256 that is not in `known`; None: not
    in the dataset.

    Dumps that cannot be read are in the result's `bad`. Raises `UsageError` when the dataset cannot
    be written.
    """
    if known is None:
        known = _known(batch.dataset, batch.name.rpartition("-")[0])
    # An abandoned worker may still write, so each attempt has its own folder.
    writer = _Writer(Path(tempfile.mkdtemp(dir=batch.workplace)), batch.name)
    rows: list[dict[str, Any]] = []
    bad: list[Bad] = []
    seen: set[str] = set()
    again = 0
    try:
        for source in batch.sources:
            try:
                if source.sha256 is not None and source.sha256 in known:
                    again += 1
                    continue
                buffer, dump_id = content_of(source)
                if dump_id in known or dump_id in seen:
                    again += 1
                    continue
                taken = take(source, buffer, dump_id, options)
            except (EtscopeError, OSError) as error:
                bad.append(_bad(source.url, error))
                continue
            seen.add(dump_id)
            rows.append(taken.row)
            writer.add(taken)
        parts = writer.finish()
    except OSError as error:  # from writing; errors from reading are in `bad`
        writer.abandon()
        raise UsageError(f"cannot write to {batch.dataset}: {error}") from error
    except BaseException:
        writer.abandon()
        raise
    return Written(batch, parts, rows, tuple(bad), again)


@lru_cache(maxsize=1)
def _known(dataset: str, collect: str) -> frozenset[str]:
    """The dumps in the dataset at this process's first batch of a collect."""
    return frozenset(Dataset.open(dataset).dump_ids())


@dataclass
class _Open:
    """A file of events that is being written."""

    part: Path
    target: str
    writer: Any
    waiting: list[Any] = field(default_factory=list)
    waiting_rows: int = 0

    def flush(self) -> None:
        """Write the waiting rows as one row group, or several if a dump needs that many."""
        if self.waiting:
            # One dictionary a column: Parquet drops a row group's dictionaries when its chunks
            # have several.
            table = pa.concat_tables(self.waiting).unify_dictionaries().combine_chunks()
            size = len(table) if len(table) < 2 * ROW_GROUP else ROW_GROUP
            self.writer.write_table(table, row_group_size=size)
        self.waiting, self.waiting_rows = [], 0


class _Writer:
    """The files of a batch, one for each partition."""

    def __init__(self, folder: Path, batch: str) -> None:
        self._folder = folder
        self._batch = batch
        self._open: dict[tuple[str, str], _Open] = {}
        self._done: list[Part] = []

    def add(self, taken: Taken) -> None:
        if not len(taken.events):
            return
        if taken.partition not in self._open:
            while len(self._open) >= _OPEN_PARTS:
                self._close(next(iter(self._open)))
            number = len(self._done) + len(self._open)
            path = self._folder / f"{number}.parquet"
            target = event_path(taken.partition, self._batch, number)
            writer = pq.ParquetWriter(path, arrow_schema(EVENTS), **writer_options(EVENTS))
            self._open[taken.partition] = _Open(path, target, writer)
        file = self._open[taken.partition]
        file.waiting.append(taken.events)
        file.waiting_rows += len(taken.events)
        if file.waiting_rows >= ROW_GROUP:
            file.flush()

    def finish(self) -> tuple[Part, ...]:
        for partition in list(self._open):
            self._close(partition)
        return tuple(self._done)

    def abandon(self) -> None:
        for file in self._open.values():
            with suppress(OSError):
                file.writer.close()

    def _close(self, partition: tuple[str, str]) -> None:
        file = self._open.pop(partition)
        file.flush()
        file.writer.close()
        self._done.append(Part(str(file.part), file.target))


# -- Batches in this process, or on Dask's workers.

_CONNECT_SECONDS = 30
_LOOPBACK = "127.0.0.1"
_SETTINGS: dict[str, list[str] | str] = {
    **{f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker", "nanny")},
    # A killed worker is started again, however long that takes. After 15 s, less than the imports
    # on a busy machine, Dask would give it up, and have none.
    "distributed.deploy.lost-worker-timeout": "1h",
}
_AHEAD = 2  # batches of a worker: one at work, one waiting

Again = Callable[[Batch, frozenset[str]], None]


@contextmanager
def run_batches(
    batches: Iterable[Batch],
    options: Options,
    known: frozenset[str],
    workers: int | None,
    scheduler: str | None,
) -> Iterator[tuple[Iterator[Written], Again]]:
    """The result of each batch as it comes, and a function that queues a batch again, with more
    known dumps. Raises `LabError` when the cluster cannot be reached or loses a batch for good."""
    if workers is not None and scheduler is not None:
        raise UsageError("give workers on this machine, or a scheduler with its own, not both")
    if workers is None and scheduler is None:
        waiting = deque((batch, known) for batch in batches)

        def results() -> Iterator[Written]:
            while waiting:
                batch, known = waiting.popleft()
                yield write_batch(batch, options, known)

        yield results(), lambda batch, known: waiting.append((batch, known))
        return
    with ExitStack() as stack:
        there = _There(_client(workers, scheduler, stack), options, batches)
        yield iter(there), there.again


class _There:
    """Runs batches on a Dask cluster, a few at a time: neither it nor this process holds them all.

    Workers read the known dumps from the dataset themselves: data sent to them once would be lost
    with them.
    """

    def __init__(self, client: Any, options: Options, batches: Iterable[Batch]) -> None:
        import distributed

        self._client = client
        self._options = options
        self._batches = iter(batches)
        self._repeated: deque[tuple[Batch, frozenset[str]]] = deque()
        self._running: Any = distributed.as_completed(loop=client.loop)

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
                    hint="finished batches are in the dataset; run collect again for the rest",
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
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        return (KilledWorker, CommClosedError, CancelledError)


def _client(workers: int | None, scheduler: str | None, stack: ExitStack) -> Any:
    import dask
    import distributed
    from distributed.security import Security

    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise LabError(
                f"no Dask scheduler answers at {scheduler}: {error}",
                hint="an address is tcp://HOST:PORT, or tls://HOST:PORT with certificates",
            ) from error
        return stack.enter_context(client)

    # Whoever can talk to a Dask process can have it run anything, and every user of the machine
    # reaches its loopback: ours know each other by a certificate that exists in them only.
    security = Security.temporary()
    stack.enter_context(dask.config.set(_SETTINGS))
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host=_LOOPBACK,
        protocol="tls://",
        security=security,
        # Dask's own web servers cannot be turned off; they serve nothing, on this machine only.
        dashboard_address=f"{_LOOPBACK}:0",
        worker_dashboard_address=f"{_LOOPBACK}:0",
        silence_logs=logging.CRITICAL,
    )
    stack.enter_context(cluster)
    client = distributed.Client(cluster, timeout=_CONNECT_SECONDS, set_as_default=False)
    return stack.enter_context(client)
