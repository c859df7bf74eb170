"""The folder of a dataset:

    etscope-dataset.json                              what it is, and of which version
    dumps/part-BATCH.parquet                          a row for each dump
    events/model=M/month=YYYY-MM/part-BATCH.N.parquet  a row for each timed event of each run

A batch is what was written together. Its file of `dumps` appears last: a batch without one is not
there, for readers and for the next collect, which removes what is left of it. What is being written
is in `.collecting`.

Why these partitions: nearly every question is about one model (times of operators of different
models do not compare), and most about a time; a reader skips the folders of others. Devices are no
partition, since a fleet has thousands, which would be as many small files; the statistics of the
row groups let a reader skip those of other devices, since dumps stay in the order in which they are
named, a folder's together.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from etscope.errors import FormatError, MissingFileError, UsageError, VersionError, reading
from etscope.fleet._schema import DUMPS, EVENTS, SCHEMA, WANTED_BY, arrow_schema, writer_options
from etscope.formats.bytes.atomic_write import atomic_write, make_folder
from etscope.formats.exported_program.exported_json import mapping, parse_json
from etscope.optional import require

_MARK = "etscope-dataset.json"
_WORK = ".collecting"
_LOCK = ".lock"
_FAMILY = SCHEMA.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Part:
    """A written file of events. work: where it is now; place: below `events`, where it goes."""

    work: str
    place: str
    rows: int


@dataclass(frozen=True)
class Dataset:
    """A dataset in a folder."""

    folder: Path

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Dataset:
        """The dataset at a path. Raises `MissingFileError` when there is none, `FormatError` for a
        folder that is something else, `VersionError` for one of a later etscope."""
        path = Path(folder)
        mark = path / _MARK
        if not mark.is_file():
            if not path.exists():
                raise MissingFileError(f"dataset not found: {path}")
            raise FormatError(
                f"not a dataset of dumps: it has no {_MARK}",
                path=path,
                hint="etscope collect makes one",
            )
        with reading("dataset", mark):
            found = mapping(parse_json(mark.read_text(encoding="utf-8")), "a dataset").get("schema")
            if found != SCHEMA:
                if isinstance(found, str) and found.startswith(_FAMILY):
                    raise VersionError(f"a dataset of version {found}; etscope reads {SCHEMA}")
                raise FormatError("not a dataset of dumps")
        return cls(path.absolute())

    @classmethod
    def make(cls, folder: str | os.PathLike[str]) -> Dataset:
        """The dataset at a path, a new one if there is nothing. `UsageError` for a folder that
        holds something else."""
        path = make_folder(folder)
        if not (path / _MARK).exists():
            if any(name.name not in (_WORK, _LOCK) for name in path.iterdir()):
                raise UsageError(
                    f"{path} is not empty, and no dataset", hint="name a new folder with -o"
                )
            with atomic_write(path / _MARK) as file:
                file.write(json.dumps({"schema": SCHEMA}).encode() + b"\n")
        return cls.open(path)

    # -- what is in it

    def batches(self) -> dict[str, Path]:
        """The batches that are there, each with its file of dumps, oldest first."""
        files = sorted((self.folder / DUMPS).glob("part-*.parquet"))
        return {_batch(path): path for path in files}

    def event_files(self, batches: Collection[str] | None = None) -> list[Path]:
        """The files of events of `batches`; None: of all that are there."""
        there = self.batches() if batches is None else batches
        return [path for path in self._event_files() if _batch(path) in there]

    def dump_ids(self) -> set[str]:
        """The SHA-256 of every dump that is in."""
        pq = require("pyarrow.parquet", wanted_by=WANTED_BY)
        found: set[str] = set()
        for path in self.batches().values():
            with reading("dataset", path):
                found.update(pq.read_table(path, columns=["dump_id"])["dump_id"].to_pylist())
        return found

    # -- writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nobody else writes meanwhile. What an interrupted collect left is removed before, and
        what is not committed after. Raises `UsageError` when somebody does."""
        with _locked(self.folder / _LOCK):
            self._sweep()
            try:
                yield
            finally:
                shutil.rmtree(self.folder / _WORK, ignore_errors=True)

    def workplace(self, batch: str) -> Path:
        """A folder for the files of a batch that are not finished."""
        return make_folder(self.folder / _WORK / batch)

    def commit(self, batch: str, parts: Iterable[Part], rows: list[dict[str, Any]]) -> None:
        """Make a batch part of the dataset: its files of events, then the rows of its dumps."""
        pa = require("pyarrow", wanted_by=WANTED_BY)
        pq = require("pyarrow.parquet", wanted_by=WANTED_BY)
        for part in parts:
            place = self.folder / EVENTS / part.place
            make_folder(place.parent)
            Path(part.work).replace(place)
        table = pa.Table.from_pylist(rows, schema=arrow_schema(DUMPS))
        with atomic_write(make_folder(self.folder / DUMPS) / f"part-{batch}.parquet") as file:
            pq.write_table(table, file, **writer_options(DUMPS))

    def discard(self, batch: str) -> None:
        """Remove what was written of a batch that is not to be committed."""
        shutil.rmtree(self.folder / _WORK / batch, ignore_errors=True)

    def _event_files(self) -> list[Path]:
        return sorted((self.folder / EVENTS).glob("*/*/part-*.parquet"))

    def _sweep(self) -> None:
        shutil.rmtree(self.folder / _WORK, ignore_errors=True)
        there = self.batches()
        for path in self._event_files():
            if _batch(path) not in there:
                path.unlink()


def event_place(partition: tuple[str, str], batch: str, number: int) -> str:
    """Where file `number` of a batch goes, below `events`; it is of one partition."""
    model, month = (quote(value, safe=" ") for value in partition)
    return f"model={model}/month={month}/part-{batch}.{number}.parquet"


def _batch(path: Path) -> str:
    return path.name.removeprefix("part-").partition(".")[0]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl  # not on Windows; a dataset is only read there

    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"another collect writes to {path.parent}", hint="wait until it has ended"
            ) from error
        yield
