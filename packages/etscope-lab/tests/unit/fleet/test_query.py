"""SQL on a dataset: what it answers, how it refuses, and that nothing else can be reached."""

from __future__ import annotations

import json
import math
import resource
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from etscope.analysis.statistics.compare_samples import compare_all, compare_samples
from etscope.errors import FormatError, MissingFileError, RuntimeFailure, UsageError
from etscope.model.table import Kind
from etscope_lab.fleet import Dataset, collect, query
from etscope_lab.fleet._dataset import DUMP_FIELDS, EVENT_FIELDS, PARTITIONS
from lab_support.dumps import saved_run


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("query")
    saved_run(folder / "runs" / "a", device="pixel")
    collect([folder / "runs"], folder / "it's a dataset", labels={"model": "it's"})
    return folder / "it's a dataset"


def ask(dataset: Path, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
    return list(query(str(dataset), sql, parameters, timeout=None).rows())


def test_the_views(dataset: Path, tmp_path: Path) -> None:
    columns = {row[0] for row in ask(dataset, "describe events")}
    assert columns == {field.name for field in EVENT_FIELDS} | set(PARTITIONS)
    assert {r[0] for r in ask(dataset, "describe dumps")} == {f.name for f in DUMP_FIELDS}
    assert ask(dataset, "select distinct model from events") == [("it's",)]
    assert ask(dataset, "from dumps select device") == [("pixel",)]
    Dataset.make(tmp_path / "empty")
    assert ask(tmp_path / "empty", "select op, start_ns, month from events") == []
    assert ask(tmp_path / "empty", "select labels['a'], count(*) from dumps group by 1") == []


def test_units_and_kinds(dataset: Path) -> None:
    table = query(
        str(dataset),
        "select 1.5 as mean_ms, 2 as total_ns, 0.25 as share, 3 as file_bytes, count(*) as runs, "
        "7 as instruction_id, 0.5 as ratio, true as fine, [1, 2] as several, 'a' as op, "
        "timestamp '2026-01-02 03:04:05' as at, null as nothing, 1.5::decimal(4, 2) as money, "
        "'nan'::double as lost, 170141183460469231731687303715884105727 as huge "
        "from range(3)",
    )
    kinds = {column.name: (column.kind, column.unit) for column in table.columns}
    assert kinds["mean_ms"] == (Kind.DURATION, "ms")
    assert kinds["total_ns"] == (Kind.DURATION, "ns")
    assert kinds["share"] == (Kind.SHARE, None)
    assert kinds["file_bytes"] == (Kind.BYTES, None)
    assert kinds["runs"] == (Kind.COUNT, None)
    assert kinds["instruction_id"] == (Kind.INT, None)
    assert kinds["several"] == (Kind.LIST, None)
    assert kinds["fine"] == (Kind.BOOL, None)
    (row,) = table.rows()
    assert row[:2] == (1.5, 2) and row[10] == "2026-01-02T03:04:05" and row[12] == 1.5
    assert math.isnan(row[13]) and row[14] == 2**127 - 1
    assert query(str(dataset), "select 1 as a, 2 as a").names == ("a", "a_")


def test_parameters_and_limit(dataset: Path) -> None:
    assert ask(dataset, "select $a + 1, $b", a=1, b="it's") == [(2, "it's")]
    with pytest.raises(UsageError, match="without a value: \\$a"):
        ask(dataset, "select $a")
    with pytest.raises(UsageError, match="no parameter \\$b"):
        ask(dataset, "select 1", b=1)
    assert ask(dataset, "select count(*) from dumps where device = $d", d="' or 1=1 --") == [(0,)]
    table = query(str(dataset), "select * from range(10)", limit=4)
    assert (len(table), table.notes) == (4, ("There are more rows than these 4.",))
    assert query(str(dataset), "select * from range(4)", limit=4).notes == ()


def test_compare_is_the_engine(dataset: Path) -> None:
    draw = np.random.default_rng(0).lognormal
    before, after = (1e6 * draw(0, 0.02, 50)).tolist(), (1.1e6 * draw(0, 0.02, 50)).tolist()
    [(found,)] = ask(dataset, "select to_json(compare($a, $b))::varchar", a=before, b=after)
    expected = compare_samples(before, after)
    plain = json.loads(found)
    assert plain.pop("verdict") == expected.verdict.value == "regressed"
    assert plain == {name: getattr(expected, name) for name in plain}
    asked = "select compare($a, $b, min_effect := 0.2, step := 1000).verdict"
    assert ask(dataset, asked, a=before, b=after) == [("no difference",)]
    # A family: what one side lacks is not in it.
    [(verdicts, p)] = ask(
        dataset,
        "select list_transform(c, lambda x: x.verdict), list_transform(c, lambda x: x.p) "
        "from (select compare_all([[$a], [$a], [$a]], [[$b], NULL, [$a]]) as c)",
        a=before,
        b=after,
    )
    assert verdicts == ["regressed", None, "no difference"]
    family = compare_all([before, before], [after, before])
    assert p == pytest.approx([family[0].p, None, family[1].p])
    assert ask(dataset, "select compare_all(NULL, NULL)") == [(None,)]


def test_errors_say_what_is_wrong_and_where(dataset: Path) -> None:
    for sql, words in {
        "select compare([1, 2], [3, -4])": "^samples must be times: finite and not negative$",
        "select compare([1], [2], confidence := 2)": "^a confidence of 2 is not",
        "select compare_all([[[1]]], [])": "^compare_all takes lists of equal length$",
        "selec 1": 'near "selec"',
        "select opp from events": 'Referenced column "opp"',
        "select * from event": "Did you mean",
        "select 'a'::int": "Could not convert",
    }.items():
        with pytest.raises(UsageError, match=words):
            ask(dataset, sql)


REFUSED = [
    "select * from read_csv('/etc/passwd')",
    "select * from '/etc/passwd'",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('/proc/self/environ')",
    "select * from glob('/etc/*')",
    "select * from read_json('http://127.0.0.1:9/x')",
    "select * from sniff_csv('/etc/passwd')",
    "select * from parquet_metadata('{outside}/secret.parquet')",
    "select * from read_parquet('{inside}/events/../../secret.parquet')",
    "select * from read_text('{inside}/etscope-dataset.json')",
    "select * from query('copy (select 1) to ''{outside}/new.csv''')",
    "select * from enable_logging('QueryLog', storage := 'file', storage_path := '{outside}/new')",
    "select * from enable_profiling(save_location := '{outside}/new.json')",
    "copy (select 1) to '{outside}/new.csv'",
    "copy (select 1) to '{inside}/events/new.csv'",
    "copy events to '{inside}/dumps/part-1.parquet'",
    "explain analyze copy (select 1) to '{inside}/events/new.csv'",
    "attach '{outside}/new.db'",
    "attach '{inside}/events/new.db'",
    "export database '{inside}/events/new'",
    "import database '{outside}'",
    "install httpfs",
    "load httpfs",
    "load '{outside}/new.duckdb_extension'",
    "set enable_external_access = true",
    "set threads = 1",
    "reset lock_configuration",
    "pragma enable_profiling",
    "pragma enable_external_access = true",
    "call enable_logging()",
    "create table t (x int)",
    "create secret (type s3)",
    "create or replace view events as select 1",
    "insert into events select * from events",
    "delete from dumps",
    "drop view events",
    "prepare p as select 1",
    "checkpoint",
    "begin",
    "use memory",
    "select 1; select 2",
    "select 1; copy (select 1) to '{inside}/events/new.csv'",
    "pivot dumps on device",
    "select secret from frame",
    "",
    "-- nothing",
]


def test_nothing_else_can_be_reached(dataset: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"secret": [1]})  # DuckDB would find it by its name
    outside = dataset.parent
    duckdb.sql(f"copy (select 1) to '{outside}/secret.parquet'")
    before = sorted(path for path in outside.rglob("*"))
    places = {"inside": str(dataset).replace("'", "''"), "outside": str(outside)}
    for sql in REFUSED:
        with pytest.raises(UsageError):
            ask(dataset, sql.format(**places))
        assert sorted(path for path in outside.rglob("*")) == before, sql
    assert len(frame) == 1


def test_what_is_refused_would_work(dataset: Path, tmp_path: Path) -> None:
    """Within the folders that are open DuckDB itself would write: it is the kind of statement that
    is refused, and what reads elsewhere is refused by DuckDB."""
    from etscope_lab.fleet.sql import _connection

    with _connection(duckdb, Dataset.open(dataset), str(tmp_path / "spill")) as connection:
        place = str(dataset / "events" / "probe.csv").replace("'", "''")
        connection.execute(f"copy (select 1) to '{place}'")
        (dataset / "events" / "probe.csv").unlink()
        for sql in (
            f"copy (select 1) to '{tmp_path}/x.csv'",
            "select * from read_text('/etc/passwd')",
            f"attach '{tmp_path}/x.db'",
            "load httpfs",
        ):
            with pytest.raises(duckdb.PermissionException):
                connection.execute(sql)
        with pytest.raises(duckdb.Error, match="locked"):
            connection.execute("set enable_external_access = true")


def test_large_answers_spill(dataset: Path) -> None:
    """Sorting more than memory needs a folder for it: it is there, though files are locked."""
    from etscope_lab.fleet.sql import _CONFIG

    limited = {**_CONFIG, "memory_limit": "60MB", "threads": "1"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("etscope_lab.fleet.sql._CONFIG", limited)
        rows = ask(
            dataset,
            "select count(*) from (select hash(range) as h, range::varchar || repeat('x', 40) as t "
            "from range(2000000) order by h, t offset 1)",
        )
    assert rows == [(1_999_999,)]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        # DuckDB cannot interrupt one call of a function.
        ("select compare(list(range), list(range)) from range(10000000)", "longer than 1 s|memory"),
        ("select repeat('x', 4000000000)", "memory|longer than 1 s"),
        ("select repeat('x', 50000000) from range(60)", "memory|longer than 1 s"),
    ],
)
def test_a_query_gets_no_more_than_its_time_and_memory(dataset: Path, sql: str, why: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with pytest.raises(RuntimeFailure, match=why):
        query(str(dataset), sql, timeout=1)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # KiB, of the largest child
    assert peak == before or peak < 5 << 20


def test_a_query_in_its_own_process_answers_the_same(dataset: Path) -> None:
    assert [*query(str(dataset), "select 'x' from range(3)").rows()] == [("x",)] * 3
    with pytest.raises(UsageError, match=r"cannot be run.*nothing"):
        query(str(dataset), "select nothing")


def test_damaged_and_missing(dataset: Path, tmp_path: Path) -> None:
    import shutil

    with pytest.raises(MissingFileError):
        ask(tmp_path / "none", "select 1")
    with pytest.raises(FormatError, match="no etscope-dataset"):
        ask(tmp_path, "select 1")
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    (file,) = Dataset.open(copy).event_files()
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(FormatError, match="damaged"):
        ask(copy, "select sum(duration_ns) from events")
    shutil.copytree(dataset, tmp_path / "[odd]")
    with pytest.raises(UsageError, match="path cannot have"):
        ask(tmp_path / "[odd]", "select 1")
