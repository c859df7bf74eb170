"""Any number of dumps into a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from time import monotonic

from etscope.errors import MissingDataError, UsageError
from etscope.fleet._batches import Bad, Batch, Written, bad_of, plan
from etscope.fleet._dataset import Dataset
from etscope.fleet._events import UNITS, Options
from etscope.fleet._records import Record, record_at, records_in
from etscope.fleet._schema import WANTED_BY
from etscope.fleet._sources import Source, find_sources
from etscope.fleet._workers import run_batches
from etscope.optional import require

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
        done: list[Written] = []
        taken: set[str] = set()
        finished = 0
        with run_batches(batches, options, known, workers, scheduler) as (written, again):
            for result in written:
                ids = {row["dump_id"] for row in result.rows}
                if ids & taken:  # two batches had the same dump
                    target.discard(result.batch.name)
                    batch = replace(
                        result.batch, workplace=str(target.workplace(result.batch.name))
                    )
                    again(batch, known | taken)
                    continue
                taken |= ids
                done.append(result)
                bad.extend(result.bad)
                finished += len(result.batch.sources)
                if not strict:
                    _commit(target, result)
                if progress is not None:
                    progress(finished, total)
        if strict and not bad:
            for result in done:
                _commit(target, result)
    kept = [] if strict and bad else [row for result in done for row in result.rows]
    return Collected(
        dataset=target,
        found=total,
        taken=len(kept),
        again=sum(result.again for result in done),
        bad=tuple(bad),
        events=sum(row["events"] for row in kept),
        without_record=sum(row["etrecord"] is None for row in kept) if options.records else 0,
        bytes=sum(row["bytes"] for row in kept),
        seconds=monotonic() - begin,
    )


def _commit(target: Dataset, written: Written) -> None:
    if written.rows:
        target.commit(written.batch.name, written.parts, written.rows)
    target.discard(written.batch.name)


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
