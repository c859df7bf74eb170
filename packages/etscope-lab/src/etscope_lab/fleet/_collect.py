"""Collect any number of dumps into a dataset.

Dumps are read in batches, here or in other processes; each batch writes a file for each partition.
A worker knows nothing of the dataset but the folder that it writes to.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from etscope.errors import (
    EtscopeError,
    FormatError,
    LabError,
    MissingDataError,
    UsageError,
    reading,
)
from etscope_lab.fleet._dataset import (
    DUMPS,
    EVENTS,
    MERGED,
    ROW_GROUP,
    Dataset,
    Part,
    arrow_schema,
    batch_of,
    event_path,
    partition_of,
    writer_options,
)
from etscope_lab.fleet._events import UNITS, Options, content_of, take
from etscope_lab.fleet._sources import Source, find_sources, record_at, records_in

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Bad:
    """A dump, or a name for dumps, that could not be collected. slug: the error's slug."""

    url: str
    error: str
    slug: str


@dataclass(slots=True)
class Collected:
    """Counts of a collect.

    found: dumps that were named. taken: dumps that were added; again: dumps that were already in
    the dataset, or named twice. bad: dumps that could not be taken. events: rows added.
    without_record: taken dumps that no given record fits. bytes: size of the taken dumps.
    """

    dataset: Dataset
    found: int
    bad: tuple[Bad, ...] = ()
    taken: int = 0
    again: int = 0
    events: int = 0
    without_record: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def commit(self, written: Written, *, with_records: bool) -> None:
        """Make a written batch part of the dataset, and count it."""
        if written.rows:
            rows = pa.Table.from_pylist(written.rows, schema=arrow_schema(DUMPS))
            self.dataset.commit(written.batch.name, written.parts, rows)
        self.dataset.discard(written.batch.name)
        self.taken += len(written.rows)
        for row in written.rows:
            self.events += row["events"]
            self.bytes += row["bytes"]
            self.without_record += with_records and row["has_dump"] and row["etrecord"] is None


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
    progress: Progress | None = None,
) -> Collected:
    """Collect ETDumps into a dataset, which is created if it is missing.

    dumps: names as for `find_sources`, or sources. A dump that is already in the dataset is
    skipped, whatever its name. etrecord: the record of all dumps. etrecord_dir: a folder of
    records; for each dump, the record of its program is used, if there is one. labels: labels of
    all dumps; they override the labels of a run.json. The labels "device" and "model" set the names
    of device and model. source_unit: the unit of the dumps' clocks. strict: write nothing if there
    are bad dumps; bad dumps never raise an error. workers: the number of processes; None for this
    one only. progress: a function that is called with the number of dumps done, and the total.

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
    done = Collected(target, len(sources))
    finished = 0
    with target.writing():
        # Names of batches sort by time, and differ between collects.
        start = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{os.urandom(4).hex()}"
        waiting: deque[_Order] = deque()
        for number, part in enumerate(plan(sources, workers or 1)):
            name = f"{start}-{number:05d}"
            batch = Batch(name, part, str(target.workplace(name)), str(target.folder))
            waiting.append((batch, None))
        written: list[Written] = []  # in a strict collect: until all batches are good
        taken: set[str] = set()
        for result in _results(waiting, options, workers):
            ids = {row["dump_id"] for row in result.rows}
            if ids & taken:  # two batches had the same dump
                target.discard(result.batch.name)
                target.workplace(result.batch.name)
                waiting.append((result.batch, frozenset(target.dump_ids() | taken)))
                continue
            taken |= ids
            bad.extend(result.bad)
            finished += len(result.batch.sources)
            done.again += result.again
            if strict:
                written.append(result)
            else:
                done.commit(result, with_records=bool(options.records))
            if progress is not None:
                progress(finished, len(sources))
        for result in written if not bad else ():
            done.commit(result, with_records=bool(options.records))
        with suppress(EtscopeError, OSError):  # the dataset is as it was; the next collect tries
            _merge_small(target, f"{start}-merged{MERGED}")
    done.bad, done.seconds = tuple(bad), monotonic() - begin
    return done


_MANY = 32  # small batches, which become one
_SMALL = 64 << 20  # bytes of events of a small batch


def _merge_small(target: Dataset, name: str) -> None:
    """Make one batch of many small ones: a query opens each file of a dataset."""
    files: dict[str, list[Path]] = {batch: [] for batch in target.batches()}
    for path in target.event_files():
        files[batch_of(path)].append(path)
    sizes = {batch: sum(path.stat().st_size for path in files[batch]) for batch in files}
    small = [batch for batch in files if sizes[batch] < _SMALL]
    if len(small) < _MANY:
        return
    writer = _Writer(target.workplace(name), name)
    try:
        for path in sorted((path for batch in small for path in files[batch]), key=partition_of):
            with reading("dataset", path), pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    writer.add(file.read_row_group(group), partition_of(path))
        dumps = [target.batches()[batch] for batch in small]
        with reading("dataset", target.folder):
            rows = pa.concat_tables(pq.read_table(path) for path in dumps)
        target.commit(name, writer.finish(), rows, small)
    finally:
        writer.abandon()
        target.discard(name)


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
            writer.add(taken.events, taken.partition)
        parts = writer.finish()
    except OSError as error:  # from writing; errors from reading are in `bad`
        raise UsageError(f"cannot write to {batch.dataset}: {error}") from error
    finally:
        writer.abandon()
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

    def add(self, events: Any, partition: tuple[str, str]) -> None:
        """Add rows, a `pyarrow.Table`; none of a result without a dump."""
        if not events:
            return
        if partition not in self._open:
            while len(self._open) >= _OPEN_PARTS:
                self._close(next(iter(self._open)))
            number = len(self._done) + len(self._open)
            path = self._folder / f"{number}.parquet"
            target = event_path(partition, self._batch, number)
            writer = pq.ParquetWriter(path, arrow_schema(EVENTS), **writer_options(EVENTS))
            self._open[partition] = _Open(path, target, writer)
        file = self._open[partition]
        file.waiting.append(events)
        file.waiting_rows += len(events)
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


# -- Batches in this process, or in others.

_AHEAD = 2  # batches of a process: one at work, one waiting

_Order = tuple["Batch", frozenset[str] | None]  # and the dumps that it may not take again


def _results(waiting: deque[_Order], options: Options, workers: int | None) -> Iterator[Written]:
    """The result of each batch as it comes; more may be added to `waiting` meanwhile. A few run at
    a time: their results do not wait in memory. Raises `LabError` when a batch is lost."""
    if workers is None:
        while waiting:
            batch, known = waiting.popleft()
            yield write_batch(batch, options, known)
        return
    running: set[Future[Written]] = set()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        while waiting or running:
            while waiting and len(running) < _AHEAD * workers:
                batch, known = waiting.popleft()
                running.add(pool.submit(write_batch, batch, options, known))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            try:
                yield from (future.result() for future in done)
            except BrokenExecutor as error:
                raise LabError(
                    f"a batch of dumps was lost with its process: {error}",
                    hint="finished batches are in the dataset; run collect again for the rest",
                ) from error
