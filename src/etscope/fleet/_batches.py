"""A batch: some dumps read one after the other, and written to a file for each partition.

This is what a worker does; it knows no dataset but the folder that it writes to.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from etscope.errors import EtscopeError, UsageError
from etscope.fleet._dataset import Dataset, Part, event_place
from etscope.fleet._events import Options, Taken, content_of, take
from etscope.fleet._schema import EVENTS, ROW_GROUP, WANTED_BY, arrow_schema, writer_options
from etscope.fleet._sources import Source
from etscope.optional import require

_MOST_BYTES = 128 << 20  # of dumps in a batch: some million events
_MOST_DUMPS = 1024
_OPEN_PARTS = 32  # files written at a time; each may hold a row group in memory


@dataclass(frozen=True, slots=True)
class Bad:
    """A dump, or a name for dumps, that could not be taken. slug: of the error."""

    url: str
    error: str
    slug: str


@dataclass(frozen=True, slots=True)
class Batch:
    """name: unique in the dataset. workplace: the folder to write to. dataset: its folder."""

    name: str
    sources: tuple[Source, ...]
    workplace: str
    dataset: str


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a batch. rows: of the table of dumps. again: how many were there already."""

    batch: Batch
    parts: tuple[Part, ...]
    rows: list[dict[str, Any]]
    bad: tuple[Bad, ...]
    again: int


def plan(sources: Sequence[Source], workers: int) -> list[tuple[Source, ...]]:
    """The dumps in batches: of neighbours, so that a folder's model is one part; large ones, but
    enough of them that all workers have some."""
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
    """Read the dumps of a batch and write those that are not `known` by their SHA-256; None: that
    are not in the dataset.

    Dumps that cannot be read are in the answer's `bad`. Raises `UsageError` when the dataset cannot
    be written.
    """
    if known is None:
        known = _known(batch.dataset, batch.name.rpartition("-")[0])
    # A worker that was given up may still write: each attempt has a folder of its own.
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
                bad.append(bad_of(source.url, error))
                continue
            seen.add(dump_id)
            rows.append(taken.row)
            writer.add(taken)
        parts = writer.finish()
    except OSError as error:  # of writing; those of reading are in `bad`
        writer.abandon()
        raise UsageError(f"cannot write to {batch.dataset}: {error}") from error
    except BaseException:
        writer.abandon()
        raise
    return Written(batch, parts, rows, tuple(bad), again)


@lru_cache(maxsize=1)
def _known(dataset: str, collect: str) -> frozenset[str]:
    """What the dataset had at the first batch of a collect that this process got."""
    return frozenset(Dataset.open(dataset).dump_ids())


def bad_of(url: str, error: Exception) -> Bad:
    """An error as a line of the report."""
    slug = error.slug if isinstance(error, EtscopeError) else "bad-file"
    text = " ".join(str(error).split())
    return Bad(url, text.removeprefix(f"{url}: "), slug)


@dataclass
class _Open:
    """A file of events that is written to."""

    part: Path
    place: str
    writer: Any
    waiting: list[Any] = field(default_factory=list)
    waiting_rows: int = 0
    rows: int = 0

    def flush(self) -> None:
        """Write the row group that has come together."""
        if self.waiting:
            table = _together(self.waiting)
            # One row group, unless a dump is several: no small ones between the others.
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
            self._open[taken.partition] = self._new(taken.partition)
        file = self._open[taken.partition]
        file.waiting.append(taken.events)
        file.waiting_rows += len(taken.events)
        file.rows += len(taken.events)
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

    def _new(self, partition: tuple[str, str]) -> _Open:
        pq = require("pyarrow.parquet", wanted_by=WANTED_BY)
        number = len(self._done) + len(self._open)
        path = self._folder / f"{number}.parquet"
        place = event_place(partition, self._batch, number)
        writer = pq.ParquetWriter(path, arrow_schema(EVENTS), **writer_options(EVENTS))
        return _Open(path, place, writer)

    def _close(self, partition: tuple[str, str]) -> None:
        file = self._open.pop(partition)
        file.flush()
        file.writer.close()
        self._done.append(Part(str(file.part), file.place, file.rows))


def _together(tables: Sequence[Any]) -> Any:
    """The rows of several dumps with one dictionary a column: a row group whose chunks have several
    is written without any."""
    pa = require("pyarrow", wanted_by=WANTED_BY)
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
