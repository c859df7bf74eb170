"""Run SQL on a dataset with DuckDB: on the views `events`, `leaves`, `dumps` and `results`, and
nothing else.

The author of a query need not have access to the files of this machine, so a query can only read.
It must be a single SELECT, as DuckDB would also write in the folders that are open to it. All else
is locked: other files, the network, extensions, Python variables, settings. It runs in a process of
its own: DuckDB cannot interrupt a function, and does not count all memory of one.

Queries have two functions more than DuckDB, `compare` and `compare_all`, which give the verdicts of
`etscope.analysis.statistics.compare_samples`.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from importlib.resources import files
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from etscope.analysis.statistics.compare_samples import (
    Noise,
    Policy,
    compare_all,
    locations,
    pooled_noise,
)
from etscope.errors import (
    EtscopeError,
    FormatError,
    MissingDataError,
    RuntimeFailure,
    UsageError,
)
from etscope.model.table import Column, Kind, Table
from etscope.run.process import end_with_parent
from etscope.views.tables.cells import types_of
from etscope_lab.fleet._dataset import (
    DUMP_FIELDS,
    DUMPS,
    EVENT_FIELDS,
    EVENTS,
    PARTITIONS,
    Dataset,
    Field,
    arrow_type,
)

TIMEOUT = 300.0  # seconds
# Sorting and joining more than that spills to disk. The functions of a query and the rows of its
# answer come on top.
_MEMORY = 2 << 30
_MOST_DATA = 4 << 30
_CONFIG = {
    "memory_limit": f"{_MEMORY}B",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
RESULTS = "results"  # the dumps, and the results without a dump


_LEAVES = """
CREATE VIEW leaves AS
SELECT * REPLACE (CASE kind WHEN 'call' THEN 'kernel' ELSE kind END AS kind)
FROM events WHERE leaf
"""

# The engine's answer. `compare_all_dumps` is a function of Python (`_compare_all_dumps`), which
# has neither names nor defaults of its arguments.
_NUMBERS = ("relative", "low", "high", "p", "before", "after")
_COMPARED = f"STRUCT(verdict VARCHAR, {' DOUBLE, '.join(_NUMBERS)} DOUBLE, reason VARCHAR)"
_COMPARE = """
CREATE MACRO compare_all(before, after, steps := NULL, min_effect := 0.03, confidence := 0.99) AS
    compare_all_dumps(before, after, steps, min_effect, confidence);
CREATE MACRO compare(before, after, step := 0, min_effect := 0.03, confidence := 0.99) AS
    compare_all_dumps([[before]], [[after]], [[step, step]], min_effect, confidence)[1]
"""


def query(
    dataset: Dataset | str,
    sql: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    limit: int | None = None,
    timeout: float | None = TIMEOUT,
) -> Table:
    """Run one SELECT on the views `events`, `leaves`, `dumps` and `results` of a dataset.

    parameters: values for `$name` in the statement. limit: the largest number of rows to return;
    the table's notes say if there are more. timeout: in seconds, after which the query's process is
    killed; None runs it in this process, without limits. The end of a column's name (_ns, _us, _ms,
    _s, _bytes, share) gives its unit.

    Raises `UsageError` with DuckDB's message and
    the position in the statement, for a statement that DuckDB rejects; the errors of
    `Dataset.open`; `FormatError` for damaged files; `RuntimeFailure` when time or memory run out.
    """
    opened = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    with tempfile.TemporaryDirectory(prefix="etscope-sql-") as spill:
        asked = _Query(opened, sql, dict(parameters or {}), limit, spill)
        return asked.answer() if timeout is None else _answer_of_child(asked, timeout)


@dataclass(frozen=True)
class _Query:
    """The arguments of `query`. spill: folder for what does not fit into memory."""

    dataset: Dataset
    sql: str
    parameters: Mapping[str, Any]
    limit: int | None
    spill: str

    def answer(self) -> Table:
        import duckdb

        with (
            _connection(duckdb, self.dataset, self.spill) as connection,
            _errors(duckdb, self.dataset.folder),
        ):
            _check(connection, self.sql, self.parameters)
            connection.execute(self.sql, self.parameters)
            described = connection.description
            if self.limit is None:
                rows, more = connection.fetchall(), False
            else:
                rows = connection.fetchmany(self.limit + 1)
                rows, more = rows[: self.limit], len(rows) > self.limit
        names: list[str] = []
        for item in described:
            name = item[0]
            while name in names:  # `select a, a` has two columns of one name
                name += "_"
            names.append(name)
        columns = {name: [_plain(row[index]) for row in rows] for index, name in enumerate(names)}
        return Table(
            columns=tuple(
                _column(name, types_of(values) - {type(None)}) for name, values in columns.items()
            ),
            values=columns,
            notes=(f"There are more rows than these {self.limit}.",) if more else (),
        )


def _answer_of_child(asked: _Query, timeout: float) -> Table:
    """Answer a query in a process that is killed after `timeout` seconds."""
    # Not the folder it is started in, which Python puts first.
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import _child; _child()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=pickle.dumps(asked),
            capture_output=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeFailure(
            f"the query took longer than {timeout:g} s", hint="--timeout SECONDS"
        ) from error
    if done.returncode:  # std::bad_alloc, or the system's killer
        raise _too_much_memory(f"its process ended with {done.returncode}")
    answer: Table | EtscopeError = pickle.loads(done.stdout)  # of our own process
    if isinstance(answer, EtscopeError):
        raise answer
    return answer


def _child() -> None:
    """Answer the query on stdin, with limited memory."""
    end_with_parent()
    asked: _Query = pickle.load(sys.stdin.buffer)
    answer: Table | EtscopeError
    try:
        with suppress(ImportError):  # Windows
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA, _MOST_DATA))
        answer = asked.answer()
    except EtscopeError as error:
        answer = error
    except MemoryError:
        answer = _too_much_memory("of Python")
    pickle.dump(answer, sys.stdout.buffer)


def _too_much_memory(why: object) -> RuntimeFailure:
    return RuntimeFailure(f"the query needs too much memory: {why}")


@contextmanager
def _connection(duckdb: Any, dataset: Dataset, spill: str) -> Iterator[Any]:
    """A connection with the views, from which nothing else can be reached."""
    with closing(
        duckdb.connect(":memory:", config={**_CONFIG, "temp_directory": spill})
    ) as connection:
        folder = dataset.folder
        if any(char in str(folder) for char in "*?["):
            raise UsageError(f"a dataset's path cannot have *, ? or [: {folder}")
        fields = (*EVENT_FIELDS, *(Field(name, "text", "") for name in PARTITIONS))
        with _errors(duckdb, folder):
            batches = dataset.batches()  # once: a collect may add some meanwhile
            _view(connection, EVENTS, dataset.event_files(batches), fields)
            _view(connection, f"all_{RESULTS}", list(batches.values()), DUMP_FIELDS)
            _add_results(connection, dataset)
            connection.execute(_LEAVES)
            connection.create_function(
                "compare_all_dumps",
                _compare_all_dumps,
                ["DOUBLE[][][]", "DOUBLE[][][]", "DOUBLE[][]", "DOUBLE", "DOUBLE"],
                f"{_COMPARED}[]",
                null_handling="special",
            )
            connection.execute(_COMPARE)
            folders = ", ".join(_quoted(f"{folder / name}/") for name in (EVENTS, DUMPS))
            connection.execute(f"SET allowed_directories = [{folders}]")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
        yield connection


def _view(connection: Any, name: str, files: Sequence[Path], fields: Sequence[Field]) -> None:
    """Create a view of the files; without files, an empty one with the same columns."""
    if not files:
        schema = pa.schema([(one.name, arrow_type(one.type)) for one in fields])
        connection.register(name, schema.empty_table())
        return
    hive = ""
    if fields is not DUMP_FIELDS:
        types = ", ".join(f"'{partition}': VARCHAR" for partition in PARTITIONS)
        hive = f", hive_partitioning = true, hive_types = {{{types}}}"
    selected = ", ".join(f'"{f.name}"' for f in fields)
    listed = ", ".join(_quoted(str(path)) for path in files)
    connection.execute(
        f"CREATE VIEW {name} AS SELECT {selected} FROM read_parquet([{listed}]{hive})"
    )


def _add_results(connection: Any, dataset: Dataset) -> None:
    """Create the views `results`, with the newest standings of a lab's jobs, and `dumps`."""
    joined = f"all_{RESULTS}"
    if dataset.standings.is_file():
        joined = (
            f"(SELECT r.* REPLACE (coalesce(s.standing, r.standing) AS standing) FROM {joined} r "
            f"LEFT JOIN read_parquet({_quoted(str(dataset.standings))}) s USING (job))"
        )
    connection.execute(f"CREATE VIEW {RESULTS} AS SELECT * FROM {joined}")
    connection.execute(f"CREATE VIEW {DUMPS} AS SELECT * FROM {RESULTS} WHERE has_dump")


_Samples = Sequence[Sequence[float]]  # of each dump of a side


def _compare_all_dumps(
    before: Sequence[_Samples | None] | None,
    after: Sequence[_Samples | None] | None,
    steps: Sequence[Sequence[float]] | None,
    min_effect: float,
    confidence: float,
) -> list[dict[str, Any]] | None:
    """Compare the samples of dumps on two sides, corrected as one family. With more than one dump a
    side, these give the variation between dumps. What one side lacks has no verdict.

    before, after: [pairs, dumps, samples], each in the order of time. steps: of the clock on each
    side, [pairs, 2].
    """
    if before is None or after is None:
        return None
    if len(before) != len(after) or (steps is not None and len(steps) != len(before)):
        raise UsageError("compare_all takes lists of equal length")
    answers = compare_all(
        [np.concatenate(one) if one else () for one in before],
        [np.concatenate(one) if one else () for one in after],
        Policy(min_effect, confidence),
        noise=[_noise(one or (), other or ()) for one, other in zip(before, after, strict=True)],
        steps=None if steps is None else [(step[0], step[1]) for step in steps],
    )
    rows = []
    for answer in answers:
        is_both = min(answer.samples) > 0
        numbers = {name: getattr(answer, name) for name in _NUMBERS}
        rows.append(
            {
                "verdict": answer.verdict.value if is_both else None,
                **{name: None if x is None or isnan(x) else x for name, x in numbers.items()},
                "reason": answer.reason if is_both else None,
            }
        )
    return rows


def _noise(before: _Samples, after: _Samples) -> Noise | None:
    repeated = [locations(side).centre for side in (before, after) if len(side) > 1]
    if not repeated:
        return None
    if not all((one > 0).all() for one in repeated):
        return Noise(float("nan"), sum(map(len, repeated)))
    return replace(pooled_noise(repeated), sides=(len(before), len(after)))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _check(connection: Any, sql: str, parameters: Mapping[str, Any]) -> None:
    """Raise `UsageError` unless the text is one SELECT that takes these parameters."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UsageError(f"expected one SELECT statement, found {len(statements)}")
    kind = str(statements[0].type).rpartition(".")[2]
    if kind != "SELECT":
        raise UsageError(
            f"a dataset is read-only: expected a SELECT statement, this is {kind}",
            hint="PIVOT needs the list of its values: PIVOT … ON column IN (…)"
            if kind == "MULTI"
            else None,
        )
    wanted = set(statements[0].named_parameters)
    if missing := sorted(wanted - set(parameters)):
        raise UsageError(
            f"the query has a parameter without a value: ${missing[0]}",
            hint=f"--param {missing[0]}=VALUE",
        )
    if unknown := sorted(set(parameters) - wanted):
        raise UsageError(f"the query has no parameter ${unknown[0]}")


@contextmanager
def _errors(duckdb: Any, folder: Path) -> Iterator[None]:
    try:
        yield
    except EtscopeError:
        raise
    except duckdb.OutOfMemoryException as error:
        raise _too_much_memory(error) from error
    except duckdb.PermissionException as error:
        raise UsageError(
            f"a query can only read the views events, leaves, dumps and results: {error}"
        ) from error
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        raise UsageError(f"this query cannot be run: {error}") from error
    except duckdb.Error as error:
        _, is_ours, message = str(error).partition(f"{UsageError.__name__}: ")
        if is_ours:  # of `compare` and `compare_all`
            raise UsageError(message.strip()) from error
        if str(folder) in str(error):
            raise FormatError(f"a file of this dataset is damaged: {error}", path=folder) from error
        raise UsageError(f"this query cannot be run: {error}") from error


# -- Results.

_UNITS = frozenset({"ns", "us", "ms", "s"})
# Columns of counts, shown with thousands separators; other integers are identifiers.
_COUNTS = {"count", "n", "number", "dumps", "runs", "events", "calls", "executions", "devices"}


def _column(name: str, types: set[type]) -> Column:
    """The column of that name for values of these types; without values a text column."""
    word = name.rstrip("_").rpartition("_")[2].lower()
    stem = name.rpartition("_")[0].replace("_", " ")
    if types == {list}:
        return Column(name, Kind.LIST)
    if types == {bool}:
        return Column(name, Kind.BOOL)
    if types and types <= {int, float}:
        if word in _UNITS and stem and not stem.endswith(" per"):
            return Column(name, Kind.DURATION, word, title=stem)
        if word == "bytes":
            return Column(name, Kind.BYTES)
        if word == "share":
            return Column(name, Kind.SHARE)
        if float in types:
            return Column(name, Kind.FLOAT)
        return Column(name, Kind.COUNT if word in _COUNTS or "(" in name else Kind.INT)
    return Column(name, Kind.PATH if word in ("source", "module", "path") else Kind.TEXT)


def _plain(value: Any) -> Any:
    """Convert a value of DuckDB to a number, a text or a list of them."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return ", ".join(f"{key}={_plain(item)}" for key, item in value.items())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return str(value)


# -- Saved queries.
#
# They are SQL files with a head:
#
#     -- question: Which operators take the most time on each device?
#     -- chart: p50_ms, p90_ms over recorded_at by model, device
#     -- param model text = *: shell pattern of models
#     -- param before text: without "=" it must be given
#     -- column total_ms: of all runs
#     -- detail runs: not shown where the terminal is too narrow
#     SELECT …
#
# A parameter is "text", "int" or "float". A chart has a line for each column of numbers before
# "over" and each combination of the columns after "by"; without "over", a bar for each row.

_PARAM = re.compile(r"(\w+) (text|int|float)(?: = ([^:]*))?: (.+)")
_COLUMN = re.compile(r"(\w+): (.+)")
_CHART = re.compile(r"([\w, ]+?)(?: over (\w+))?(?: by ([\w, ]+))?")
_READ = {"text": str, "int": int, "float": float}
_SUFFIX = ".sql"
DASHBOARDS = "dashboards"  # in a lab's folder: saved queries of the team


@dataclass(frozen=True, slots=True)
class Parameter:
    """A `$name` of a saved query. default: a text; None when a value is required."""

    name: str
    type: str
    default: str | None
    about: str


@dataclass(frozen=True, slots=True)
class Chart:
    """The drawing of a result. values: columns of numbers. over: the column of the horizontal axis;
    None for bars. by: columns that name the lines or bars."""

    values: tuple[str, ...]
    over: str | None
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """A named query. columns: descriptions of the result's columns by name. details: columns that a
    narrow terminal does not show. error: why its file is not one; the rest is empty then.
    """

    name: str
    question: str = ""
    parameters: tuple[Parameter, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    details: frozenset[str] = frozenset()
    sql: str = ""
    chart: Chart | None = None
    error: str = ""

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The values of all parameters. Raises `UsageError` for unknown, missing and invalid
        ones."""
        names = [parameter.name for parameter in self.parameters]
        if unknown := [name for name in given if name not in names]:
            raise UsageError(
                f"{self.name} has no parameter {unknown[0]!r}",
                hint=f"parameters are: {', '.join(names) or 'none'}",
            )
        return {parameter.name: self._value(parameter, given) for parameter in self.parameters}

    def _value(self, parameter: Parameter, given: Mapping[str, str]) -> Any:
        text = given.get(parameter.name, parameter.default)
        if text is None:
            raise UsageError(
                f"{self.name} needs the parameter {parameter.name}: {parameter.about}",
                hint=f"--param {parameter.name}=VALUE",
            )
        try:
            return _READ[parameter.type](text)
        except ValueError as error:
            raise UsageError(
                f"the parameter {parameter.name} is of type {parameter.type}, not {text!r}"
            ) from error


def saved_queries(folder: Path | None = None) -> Mapping[str, SavedQuery]:
    """The saved queries by name: those of etscope, and those of the SQL files of a folder, which
    replace them. A file that is not a saved query has the error in its place."""
    found: dict[str, SavedQuery] = {}
    for place in filter(None, (files("etscope_lab.fleet") / "queries", folder)):
        for path in place.iterdir() if place.is_dir() else ():
            if path.name.endswith(_SUFFIX):
                name = path.name.removesuffix(_SUFFIX)
                try:
                    found[name] = parse_query(name, path.read_text(encoding="utf-8"))
                except (FormatError, OSError, UnicodeDecodeError) as error:
                    found[name] = SavedQuery(name, error=f"{path}: {error}")
    return dict(sorted(found.items()))


def saved_query(name: str, folder: Path | None = None) -> SavedQuery:
    """The saved query of that name. Raises `MissingDataError` when there is none, `FormatError`
    when its file is not one."""
    known = saved_queries(folder)
    if name not in known:
        raise MissingDataError(
            f"no saved query is called {name!r}", hint=f"there are: {', '.join(known)}"
        )
    if known[name].error:
        raise FormatError(f"not a saved query: {known[name].error}")
    return known[name]


def parse_query(name: str, text: str) -> SavedQuery:
    """Parse the SQL file of a saved query. Raises `FormatError` for an invalid head."""
    question, parameters, columns, details, chart = "", [], {}, set(), None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("-- "):
            break
        word, _, rest = line[3:].partition(" ")
        if word == "question:":
            question = rest
        elif word == "chart:" and (found := _CHART.fullmatch(rest)):
            values, by = (tuple(filter(None, re.split(r"[ ,]+", found[n] or ""))) for n in (1, 3))
            chart = Chart(values, found[2], by)
        elif word == "param" and (found := _PARAM.fullmatch(rest)):
            parameters.append(Parameter(found[1], found[2], found[3], found[4]))
        elif word in ("column", "detail") and (found := _COLUMN.fullmatch(rest)):
            columns[found[1]] = found[2]
            details |= {found[1]} if word == "detail" else set()
        else:
            raise FormatError(f"line {number}: invalid head line: {line:.80}")
    return SavedQuery(name, question, tuple(parameters), columns, frozenset(details), text, chart)
