"""The folder of a dataset:

    etscope-dataset.json                              the format and its version
    dumps/part-BATCH.parquet                          a row for each dump
    events/model=M/month=YYYY-MM/part-BATCH.N.parquet  a row for each timed event of each run

A batch is written together. Its file of `dumps` appears last: without one, readers ignore the
batch, and the next collect removes its files. Unfinished files are in `.collecting`.

Many small batches become one, whose name ends with "+": its file of `dumps` names the batches that
it replaces, so readers see either these or it. Their files stay for an hour, for queries that have
listed them.

Nearly every query is about one model (times of operators of different models do not compare), and
most are about a period, so events are partitioned by these; a reader skips the other folders.
Devices are not a partition: a fleet has thousands, which would be as many small files. Dumps stay
in the given order, a folder's together, so that the statistics of the row groups
let a reader skip other devices.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from etscope.errors import FormatError, MissingFileError, UsageError, VersionError, reading
from etscope.formats.bytes.files import atomic_write, make_folder
from etscope.formats.json_values import read_json

# -- The columns of both tables.
#
# Texts are dictionary encoded, as most repeat in every run. Times of day are UTC without a zone
# (DuckDB needs a further package to compute with zones). The metadata of a Parquet file holds
# {"schema": SCHEMA, "table": …} as JSON under "etscope"; a field's metadata "unit" and "about".

SCHEMA = "etscope.fleet/4"
EVENTS, DUMPS = "events", "dumps"
# Hive partitions of `events`: folders, not columns of the files.
PARTITIONS = ("model", "month")

ROW_GROUP = 1 << 18  # rows that a reader can skip by their statistics, and reads on one core
# Columns that are smallest as differences, as they grow along a run.
_DIFFERENCES = ("start_ns", "duration_ns")


class Field(NamedTuple):
    """A column. type: "text" (dictionary encoded), "string", "int32", "int64", "float64", "bool",
    "time" (microseconds, UTC), "texts", "ints" or "longs" (lists), "pairs" (text -> text), or
    "numbers" (text -> float64)."""

    name: str
    type: str
    about: str
    unit: str | None = None


def _fields(table: str) -> tuple[Field, ...]:
    """The columns of a table, in order, as columns.tsv lists them."""
    text = (files("etscope_lab.fleet") / "columns.tsv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(
        Field(row["name"], row["type"], row["about"], row["unit"] or None)
        for row in rows
        if row["table"] == table
    )


EVENT_FIELDS, DUMP_FIELDS = _fields(EVENTS), _fields(DUMPS)


def arrow_schema(table: str) -> Any:
    """The schema of the files of a table, a `pyarrow.Schema`."""
    import pyarrow as pa

    fields = EVENT_FIELDS if table == EVENTS else DUMP_FIELDS
    about = json.dumps({"schema": SCHEMA, "table": table})
    return pa.schema(
        [
            pa.field(
                f.name,
                arrow_type(f.type),
                metadata={"about": f.about, **({} if f.unit is None else {"unit": f.unit})},
            )
            for f in fields
        ],
        metadata={"etscope": about},
    )


def arrow_type(name: str) -> Any:
    """The Arrow type that a `Field.type` names."""
    import pyarrow as pa

    return {
        "text": lambda: pa.dictionary(pa.int32(), pa.string()),
        "string": pa.string,
        "int32": pa.int32,
        "int64": pa.int64,
        "float64": pa.float64,
        "bool": pa.bool_,
        "time": lambda: pa.timestamp("us"),
        "texts": lambda: pa.list_(pa.string()),
        "ints": lambda: pa.list_(pa.int32()),
        "longs": lambda: pa.list_(pa.int64()),
        "pairs": lambda: pa.map_(pa.string(), pa.string()),
        "numbers": lambda: pa.map_(pa.string(), pa.float64()),
    }[name]()


def writer_options(table: str) -> dict[str, Any]:
    """Options of `pyarrow.parquet.ParquetWriter` for a table."""
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1}
    if table == EVENTS:
        plain = {*_DIFFERENCES, "own_clock", "leaf", "value", "backend_columns"}
        texts = [f.name for f in EVENT_FIELDS if f.name not in plain]
        # A list column is named by the path of its items.
        options["use_dictionary"] = [
            "debug_handles.list.element" if name == "debug_handles" else name for name in texts
        ]
        options["column_encoding"] = dict.fromkeys(_DIFFERENCES, "DELTA_BINARY_PACKED")
    return options


# -- The folder.

_MARK = "etscope-dataset.json"
_WORK = ".collecting"
_LOCK = ".lock"
MERGED = "+"  # end of the name of a batch that replaces others
_REPLACES = b"replaces"
_GRACE_SECONDS = 3600.0
_FAMILY = SCHEMA.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Part:
    """A written file of events. work: its path now. target: its final path below `events`."""

    work: str
    target: str


@dataclass(frozen=True)
class Dataset:
    """A dataset in a folder."""

    folder: Path

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Dataset:
        """Open a dataset. Raises `MissingFileError` when there is none, `FormatError` for another
        folder, `VersionError` for a dataset of another version of etscope."""
        path = Path(folder)
        mark = path / _MARK
        if not mark.is_file():
            if not path.exists():
                raise MissingFileError(f"dataset not found: {path}")
            raise FormatError(
                f"not a dataset of dumps: it has no {_MARK}",
                path=path,
                hint="etscope lab collect makes one",
            )
        with reading("dataset", mark):
            found = read_json(mark, "dataset").get("schema").value
            if found != SCHEMA:
                if isinstance(found, str) and found.startswith(_FAMILY):
                    raise VersionError(
                        f"the dataset is of the format {found}; this etscope reads {SCHEMA}",
                        hint="collect the dataset's dumps anew: etscope lab collect DUMPS -o NEW",
                    )
                raise FormatError("not a dataset of dumps")
        return cls(path.absolute())

    @classmethod
    def make(cls, folder: str | os.PathLike[str]) -> Dataset:
        """Open a dataset, or make one. Raises `UsageError` for a folder with other files."""
        path = make_folder(folder)
        if not (path / _MARK).exists():
            if any(name.name not in (_WORK, _LOCK) for name in path.iterdir()):
                raise UsageError(
                    f"{path} is not empty and not a dataset", hint="name a new folder with -o"
                )
            with atomic_write(path / _MARK) as file:
                file.write(json.dumps({"schema": SCHEMA}).encode() + b"\n")
        return cls.open(path)

    @property
    def standings(self) -> Path:
        """The file with the newest verdicts of a lab's history on its jobs, if there are any."""
        return self.folder / DUMPS / "standings.parquet"

    def batches(self) -> dict[str, Path]:
        """The finished batches, each with its file of dumps, oldest first."""
        files = self._dump_files()
        replaced = _replaced(files)
        return {batch_of(path): path for path in files if batch_of(path) not in replaced}

    def event_files(self, batches: Collection[str] | None = None) -> list[Path]:
        """Return the files with the events of `batches`; None for all finished batches."""
        wanted = self.batches() if batches is None else batches
        return [path for path in self._event_files() if batch_of(path) in wanted]

    def dump_ids(self) -> set[str]:
        """The SHA-256 of every dump in the dataset."""
        import pyarrow.parquet as pq

        found: set[str] = set()
        for path in self.batches().values():
            with reading("dataset", path):
                found.update(pq.read_table(path, columns=["dump_id"])["dump_id"].to_pylist())
        return found

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the dataset for writing. Files of an interrupted collect are removed before, and
        files that were not committed after. Raises `UsageError` when another process writes."""
        import fcntl  # not on Windows, where a dataset is only read

        work = self.folder / _WORK
        with (self.folder / _LOCK).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UsageError(
                    f"another collect writes to {self.folder}", hint="wait until it has ended"
                ) from error
            shutil.rmtree(work, ignore_errors=True)
            dumps, oldest = self._dump_files(), time.time() - _GRACE_SECONDS
            old = {name for name, at in _replaced(dumps).items() if at < oldest}
            kept = {batch_of(path) for path in dumps} - old
            for path in (*self._event_files(), *dumps):
                if batch_of(path) not in kept:
                    path.unlink()
            try:
                yield
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def workplace(self, batch: str) -> Path:
        """A folder for the unfinished files of a batch."""
        return make_folder(self.folder / _WORK / batch)

    def commit(
        self, batch: str, parts: Iterable[Part], rows: Any, replaces: Sequence[str] = ()
    ) -> None:
        """Make a batch part of the dataset: its files of events, then the rows of its dumps, a
        `pyarrow.Table`. replaces: batches that it takes the place of."""
        import pyarrow.parquet as pq

        for part in parts:
            target = self.folder / EVENTS / part.target
            make_folder(target.parent)
            Path(part.work).replace(target)
        if replaces:
            named = {**rows.schema.metadata, _REPLACES: json.dumps(replaces)}
            rows = rows.replace_schema_metadata(named)
        with atomic_write(make_folder(self.folder / DUMPS) / f"part-{batch}.parquet") as file:
            pq.write_table(rows, file, **writer_options(DUMPS))

    def add_standings(self, standings: Mapping[str, str]) -> None:
        """Keep the newest verdicts on jobs, by id, beside those of other jobs."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        known: dict[str, str] = {}
        if self.standings.is_file():
            with reading("dataset", self.standings):
                columns = pq.read_table(self.standings).to_pydict()
                known = dict(zip(columns["job"], columns["standing"], strict=True))
        if standings.items() <= known.items():
            return
        known |= standings
        table = pa.table({"job": list(known), "standing": list(known.values())})
        with atomic_write(self.standings) as file:
            pq.write_table(table, file)

    def discard(self, batch: str) -> None:
        """Remove the unfinished files of a batch."""
        shutil.rmtree(self.folder / _WORK / batch, ignore_errors=True)

    def _dump_files(self) -> list[Path]:
        return sorted((self.folder / DUMPS).glob("part-*.parquet"))

    def _event_files(self) -> list[Path]:
        return sorted((self.folder / EVENTS).glob("*/*/part-*.parquet"))


def _replaced(files: Iterable[Path]) -> dict[str, float]:
    """The batches that others among these files of dumps have replaced, with the time of that."""
    import pyarrow.parquet as pq

    found: dict[str, float] = {}
    for path in files:
        if batch_of(path).endswith(MERGED):
            with reading("dataset", path):
                names = json.loads(pq.read_schema(path).metadata[_REPLACES])
                found |= dict.fromkeys(names, path.stat().st_mtime)
    return found


def event_path(partition: tuple[str, str], batch: str, number: int) -> str:
    """The path of file `number` of a batch below `events`; partition: model and month."""
    model, month = (quote(value, safe=" ") for value in partition)
    return f"model={model}/month={month}/part-{batch}.{number}.parquet"


def partition_of(path: Path) -> tuple[str, str]:
    """Model and month of a file of events."""
    model, month = (unquote(part.partition("=")[2]) for part in path.parts[-3:-1])
    return model, month


def batch_of(path: Path) -> str:
    return path.name.removeprefix("part-").partition(".")[0]
