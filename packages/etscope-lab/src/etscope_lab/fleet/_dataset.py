"""The folder of a dataset:

    etscope-dataset.json                              the format and its version
    dumps/part-BATCH.parquet                          a row for each dump
    events/model=M/month=YYYY-MM/part-BATCH.N.parquet  a row for each timed event of each run

A batch is written together. Its file of `dumps` appears last: without one, readers ignore the
batch, and the next collect removes its files. Unfinished files are in `.collecting`.

Nearly every query is about one model (times of operators of different models do not compare), and
most are about a period, so events are partitioned by these; a reader skips the other folders.
Devices are not a partition: a fleet has thousands, which would be as many small files. Dumps stay
in the given order, a folder's together, so that the statistics of the row groups
let a reader skip other devices.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from etscope.errors import FormatError, MissingFileError, UsageError, VersionError, reading
from etscope.formats.bytes.files import atomic_write, make_folder
from etscope.formats.json_values import read_json

# -- The columns of both tables.
#
# Texts are dictionary encoded, as most repeat in every run. Times of day are UTC without a zone
# (DuckDB needs a further package to compute with zones). The metadata of a Parquet file holds
# {"schema": SCHEMA, "table": …} as JSON under "etscope"; a field's metadata "unit" and "about".

SCHEMA = "etscope.fleet/3"
EVENTS, DUMPS = "events", "dumps"
# Hive partitions of `events`: folders, not columns of the files.
PARTITIONS = ("model", "month")

ROW_GROUP = 1 << 18  # rows that a reader can skip by their statistics, and reads on one core
# Columns that are smallest as differences, as they grow along a run.
_DIFFERENCES = ("start_ns", "duration_ns")


class Field(NamedTuple):
    """A column. type: "text" (dictionary encoded), "string", "int32", "int64", "float64", "bool",
    "time" (microseconds, UTC), "texts", "ints" or "longs" (lists), or "pairs" (text -> text)."""

    name: str
    type: str
    about: str
    unit: str | None = None


EVENT_FIELDS = (
    Field("dump_id", "text", "SHA-256 of the dump"),
    Field("recorded_at", "time", "time of the runs; the file's time, if that is not recorded"),
    Field("collected_at", "time", "when the dump was added to the dataset"),
    Field("device", "text", "device that the dump was recorded on"),
    Field("program_sha256", "text", "SHA-256 of the .pte; null if unknown"),
    Field("method", "text", "method that ran; null without a record"),
    Field("block", "text", "the runtime's name of the run: Default (loading) or Execute"),
    Field("run", "int32", "index of the run in the dump"),
    Field(
        "iteration", "int32", "number of the run among its method's runs, from 0; null for loading"
    ),
    Field("phase", "text", "phase of the run's call: prefill, decode, an encoder; load or execute"),
    Field(
        "position", "int32", "position in the context of the call's first token; null if unknown"
    ),
    Field("tokens", "int32", "number of tokens that the call takes; null if unknown"),
    Field(
        "counted", "bool", "true if the run counts: neither a cold first run nor a disturbed one"
    ),
    Field("kind", "text", "execute, load, call, kernel, delegate, delegated, rest, control, other"),
    Field(
        "leaf",
        "bool",
        "true if the time is added up; other times are sums of leaves or no part of the total",
    ),
    Field("name", "text", "the event's name as the runtime logged it, or a delegate's identifier"),
    Field("op", "text", "the operator; for a delegate call its backend"),
    Field("instruction_id", "int32", "index of the instruction in the method"),
    Field("debug_handles", "ints", "debug handles of the nodes behind the event"),
    Field("delegate", "text", "the backend of a delegate call and of the events inside"),
    Field("own_clock", "bool", "true if the times are on the delegate's own clock, not in ns"),
    Field(
        "quantity", "text", "for an event inside a delegate: interval, counter, estimate or instant"
    ),
    Field(
        "value",
        "float64",
        "a counter, an estimate, or an interval that is not in ns; its unit is in `unit`",
    ),
    Field("unit", "text", "unit of `value`: us, cycles, bytes, count; ns for estimated times"),
    Field("backend_columns", "pairs", "further columns of the backend, such as compute_unit"),
    Field("module", "text", "path of the innermost module that contains all nodes of the event"),
    Field("source", "text", "file:line, with the number of further lines"),
    Field("flops", "float64", "FLOPs of one occurrence; null if unknown"),
    Field(
        "activation_bytes",
        "float64",
        "bytes of activations and state read and written; null if unknown",
    ),
    Field(
        "weight_bytes", "float64", "bytes of the constants that the event reads; null if unknown"
    ),
    Field("intensity", "float64", "FLOPs for each byte"),
    Field(
        "least_ns",
        "float64",
        "least possible time by the machine's roofline; null without a calibration",
        "ns",
    ),
    Field("bound", "text", "compute, memory or overhead; null without a calibration"),
    Field("start_ns", "int64", "start of the event on the device's clock", "ns"),
    Field("duration_ns", "int64", "end - start", "ns"),
)
DUMP_FIELDS = (
    Field("dump_id", "string", "SHA-256 of the dump"),
    Field("path", "string", "path or URL where the dump was found"),
    Field("bytes", "int64", "size of the dump", "B"),
    Field("recorded_at", "time", "see events"),
    Field("collected_at", "time", "see events"),
    Field("device", "string", "device that the dump was recorded on"),
    Field("model", "string", "name of the model"),
    Field("program_sha256", "string", "SHA-256 of the .pte; null if unknown"),
    Field("etrecord", "string", "the record that gave operators and lines"),
    Field("fingerprint", "string", "hash of the sequence of events: equal for equal programs"),
    Field("methods", "texts", "methods that ran; null without a record"),
    Field("runs", "int64", "number of runs in the dump, including loading"),
    Field("executions", "int64", "number of executions of a method"),
    Field("counted", "int64", "number of executions that count; statistics exclude the others"),
    Field("warmup", "int64", "number of executions before them that are not in the dump"),
    Field("events", "int64", "number of timed events"),
    Field("values", "int64", "number of logged values; logging makes the times of a dump longer"),
    Field("allocations", "int64", "number of logged allocations"),
    Field("load_ns", "int64", "time of all loading that was logged", "ns"),
    Field("execute_ns", "int64", "time of all executions", "ns"),
    Field("p50_ns", "float64", "median time of the executions that count", "ns"),
    Field("samples_ns", "longs", "times of the executions in runs without tracing", "ns"),
    Field("untraced_p50_ns", "float64", "median of `samples_ns`", "ns"),
    Field("first_ns", "int64", "first execution after loading, without tracing", "ns"),
    Field("peak_rss_bytes", "int64", "largest resident memory of the runner's process", "B"),
    Field("load", "float64", "load of the machine before the run"),
    Field("energy_j", "float64", "energy of an execution; idle power is not subtracted", "J"),
    Field(
        "standing",
        "string",
        "verdict of the lab's history: steady, regressed, improved, suspicious, outlier, unjudged",
    ),
    Field("prompt_tokens", "int64", "number of prompt tokens of a language model's generation"),
    Field("generated_tokens", "int64", "number of tokens that it generated"),
    Field("first_token_ns", "float64", "median time to the first token, without tracing", "ns"),
    Field("prefill_tokens_per_s", "float64", "mean rate of prefill, without tracing"),
    Field("decode_tokens_per_s", "float64", "mean rate of decode, without tracing"),
    Field(
        "app_generations", "int64", "number of a language model's generations that its app reported"
    ),
    Field("app_prompt_tokens", "int64", "number of prompt tokens in these generations"),
    Field(
        "app_generated_tokens",
        "int64",
        "number of tokens in these generations, without the first token of each",
    ),
    Field("app_load_ns", "float64", "mean load time by the app's clock", "ns"),
    Field("app_first_token_ns", "float64", "mean time to the first token by the app's clock", "ns"),
    Field("app_total_ns", "float64", "mean time of a generation by the app's clock", "ns"),
    Field("app_prefill_tokens_per_s", "float64", "prompt tokens per second, as the app reports it"),
    Field(
        "app_decode_tokens_per_s",
        "float64",
        "tokens per second after the prompt, as the app reports it",
    ),
    Field("runner", "string", "python, native, …"),
    Field("executorch", "string", "version of ExecuTorch"),
    Field("threads", "int64", "size of the runtime's thread pool"),
    Field("job", "string", "id of the lab's job"),
    Field("labels", "pairs", "labels of the dump"),
    Field("environment", "pairs", "facts about the device, flattened: cpu.model and so on"),
    Field("marks", "texts", "conditions that could not be held or observed"),
)


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

    def batches(self) -> dict[str, Path]:
        """The finished batches, each with its file of dumps, oldest first."""
        files = sorted((self.folder / DUMPS).glob("part-*.parquet"))
        return {_batch(path): path for path in files}

    def event_files(self, batches: Collection[str] | None = None) -> list[Path]:
        """Return the files with the events of `batches`; None for all finished batches."""
        wanted = self.batches() if batches is None else batches
        return [path for path in self._event_files() if _batch(path) in wanted]

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
            finished = self.batches()
            for path in self._event_files():
                if _batch(path) not in finished:
                    path.unlink()
            try:
                yield
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def workplace(self, batch: str) -> Path:
        """A folder for the unfinished files of a batch."""
        return make_folder(self.folder / _WORK / batch)

    def commit(self, batch: str, parts: Iterable[Part], rows: list[dict[str, Any]]) -> None:
        """Make a batch part of the dataset: its files of events, then the rows of its dumps."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for part in parts:
            target = self.folder / EVENTS / part.target
            make_folder(target.parent)
            Path(part.work).replace(target)
        table = pa.Table.from_pylist(rows, schema=arrow_schema(DUMPS))
        with atomic_write(make_folder(self.folder / DUMPS) / f"part-{batch}.parquet") as file:
            pq.write_table(table, file, **writer_options(DUMPS))

    def discard(self, batch: str) -> None:
        """Remove the unfinished files of a batch."""
        shutil.rmtree(self.folder / _WORK / batch, ignore_errors=True)

    def _event_files(self) -> list[Path]:
        return sorted((self.folder / EVENTS).glob("*/*/part-*.parquet"))


def event_path(partition: tuple[str, str], batch: str, number: int) -> str:
    """The path of file `number` of a batch below `events`; partition: model and month."""
    model, month = (quote(value, safe=" ") for value in partition)
    return f"model={model}/month={month}/part-{batch}.{number}.parquet"


def _batch(path: Path) -> str:
    return path.name.removeprefix("part-").partition(".")[0]
