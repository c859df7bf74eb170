"""The two tables of a dataset: their columns, types and version.

`events` has a row for each timed event of each run, `dumps` one for each dump. Texts are dictionary
encoded: most repeat in every run. Times of day are UTC without a zone (DuckDB needs a further
package to compute with zones). The metadata of a Parquet file holds {"schema": SCHEMA, "table": …}
as JSON under "etscope", that of a field "unit" and "about".
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from etscope.optional import require

SCHEMA = "etscope.fleet/1"
EVENTS, DUMPS = "events", "dumps"
# Hive partitions of `events`: folders, and no columns of its files.
PARTITIONS = ("model", "month")
WANTED_BY = "a dataset of dumps"

# A row group is what a reader skips by its statistics, and reads by itself on a core.
ROW_GROUP = 1 << 18
# Numbers that grow along a run take least as differences.
_DIFFERENCES = ("start_ns", "duration_ns")


class Field(NamedTuple):
    """A column. type: "text" (dictionary encoded), "string", "int32", "int64", "float64", "bool",
    "time" (microseconds, UTC), "texts" or "ints" (lists), or "pairs" (text -> text)."""

    name: str
    type: str
    about: str
    unit: str | None = None


EVENT_FIELDS = (
    Field("dump_id", "text", "SHA-256 of the dump"),
    Field(
        "recorded_at", "time", "when the runs were made; of a file without a word of it, its age"
    ),
    Field("collected_at", "time", "when the dump came into the dataset"),
    Field("device", "text", "where it ran"),
    Field("program_sha256", "text", "of the .pte, where it is known"),
    Field("method", "text", "that ran, where a record tells"),
    Field("block", "text", "the runtime's name of the run: Default (loading), Execute"),
    Field("run", "int32", "index of the run in the dump"),
    Field("iteration", "int32", "of its method in the dump, 0 for the first; none of loading"),
    Field("kind", "text", "execute, load, call, kernel, delegate, delegated, control or other"),
    Field("name", "text", "of the event as the runtime logged it; a delegate's identifier"),
    Field("op", "text", "the operator; of a delegate call its backend"),
    Field("instruction_id", "int32", "index of the instruction in the method"),
    Field("debug_handles", "ints", "of the nodes behind it"),
    Field("delegate", "text", "the backend of a delegate call and of what ran inside"),
    Field("own_clock", "bool", "its times are on a clock of the delegate's own: no ns"),
    Field("module", "text", "path of the innermost module that holds all of its nodes"),
    Field("source", "text", "file:line, and how many lines more"),
    Field("start_ns", "int64", "on the clock of the device", "ns"),
    Field("duration_ns", "int64", "end - start", "ns"),
)
DUMP_FIELDS = (
    Field("dump_id", "string", "SHA-256 of the dump"),
    Field("path", "string", "where it was found"),
    Field("bytes", "int64", "its size", "B"),
    Field("recorded_at", "time", "see events"),
    Field("collected_at", "time", "see events"),
    Field("device", "string", "where it ran"),
    Field("model", "string", "what ran, by name"),
    Field("program_sha256", "string", "of the .pte, where it is known"),
    Field("etrecord", "string", "the record that told operators and lines"),
    Field("fingerprint", "string", "of the sequence of events: equal for equal programs"),
    Field("methods", "texts", "that ran, where a record tells"),
    Field("runs", "int64", "of the dump, loading among them"),
    Field("executions", "int64", "of a method"),
    Field("warmup", "int64", "executions before them that are not in the dump"),
    Field("events", "int64", "timed ones: rows in events"),
    Field("values", "int64", "logged values; a dump with some has slower times"),
    Field("allocations", "int64", "that were logged"),
    Field("load_ns", "int64", "all loading that was logged", "ns"),
    Field("execute_ns", "int64", "all executions", "ns"),
    Field("p50_ns", "float64", "of the executions", "ns"),
    Field("runner", "string", "python, native, …"),
    Field("executorch", "string", "version"),
    Field("threads", "int64", "of the runtime's pool"),
    Field("job", "string", "of the lab"),
    Field("labels", "pairs", "as given"),
    Field("environment", "pairs", "of the device: flattened, cpu.model and so on"),
    Field("marks", "texts", "conditions that could not be held or seen"),
)


def arrow_schema(table: str) -> Any:
    """The schema of the files of a table, a `pyarrow.Schema`."""
    pa = require("pyarrow", wanted_by=WANTED_BY)
    fields = EVENT_FIELDS if table == EVENTS else DUMP_FIELDS
    about = json.dumps({"schema": SCHEMA, "table": table})
    return pa.schema(
        [pa.field(f.name, arrow_type(f.type), metadata=_metadata(f)) for f in fields],
        metadata={"etscope": about},
    )


def arrow_type(name: str) -> Any:
    """The Arrow type that a `Field.type` names."""
    pa = require("pyarrow", wanted_by=WANTED_BY)
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
        "pairs": lambda: pa.map_(pa.string(), pa.string()),
    }[name]()


def writer_options(table: str) -> dict[str, Any]:
    """Of `pyarrow.parquet.ParquetWriter`."""
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1}
    if table == EVENTS:
        plain = {*_DIFFERENCES, "own_clock"}
        texts = [f.name for f in EVENT_FIELDS if f.name not in plain]
        # A column that is a list is told by the path of its items.
        options["use_dictionary"] = [
            "debug_handles.list.element" if name == "debug_handles" else name for name in texts
        ]
        options["column_encoding"] = dict.fromkeys(_DIFFERENCES, "DELTA_BINARY_PACKED")
    return options


def _metadata(field: Field) -> dict[str, str]:
    found = {"about": field.about}
    return found if field.unit is None else {**found, "unit": field.unit}
