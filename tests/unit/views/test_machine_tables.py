"""Tables for programs: what is written can be read back, and nothing is lost on the way."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etscope.model.table import Column, Kind, Table
from etscope.views import TABLE_VIEWS, write_table
from tests.support.golden_files import check_golden
from tests.support.views import shapes

TABLES = ("events", "kinds", "hostile", "empty")
TEXT_FORMATS = ("json", "jsonl", "csv", "tsv", "md", "html")


def written(table: Table, name: str) -> str:
    out = io.StringIO()
    write_table(table, name, out)
    return out.getvalue()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", TEXT_FORMATS)
def test_golden(name: str, table: str) -> None:
    text = written(getattr(shapes, table)(), name)
    text = text.encode("utf-8", "backslashreplace").decode()  # as open_output writes it
    check_golden(f"{name}/{table}{TABLE_VIEWS[name].suffix}", text)


def test_json_and_jsonl_have_no_number_for_what_is_not_finite() -> None:
    values = [math.nan, math.inf, -math.inf, None, 0.1]
    table = Table((Column("x", Kind.FLOAT, "B/s"),), {"x": values})
    rows = [{"x": x} for x in (None, "Infinity", "-Infinity", None, 0.1)]
    assert json.loads(written(table, "json"))["rows"] == rows
    lines = [json.loads(line) for line in written(table, "jsonl").splitlines()]
    assert lines == [{"x_B_s": row["x"]} for row in rows]
    assert written(table, "csv").splitlines()[0] == "x_B_s"
    named = Column("avg", unit="ms"), Column("avg_ms", unit="ms"), Column("x", unit="%")
    assert [column.key for column in named] == ["avg_ms", "avg_ms", "x"]


cells = st.one_of(
    st.none(),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1),
    st.integers(),
    st.floats(allow_nan=False),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(cells, cells), max_size=5), st.sampled_from(["csv", "tsv"]))
def test_delimited_reads_back(rows: list[tuple[object, object]], name: str) -> None:
    table = Table(
        (Column("a"), Column("b")), {"a": [a for a, _ in rows], "b": [b for _, b in rows]}
    )
    lines = io.StringIO(written(table, name), newline="")
    back = list(csv.reader(lines, delimiter="," if name == "csv" else "\t"))
    expected = [["" if cell is None else str(cell) for cell in row] for row in rows]
    assert back == [["a", "b"], *expected]
    for text in ("\r", "a\rb", "\n", "a\r\nb", '"'):  # what would end a line is in quotes
        quoted = text.replace('"', '""')
        broken = Table((Column("a"), Column("b")), {"a": [None, 1], "b": [text, 2]})
        assert written(broken, "csv") == f'a,b\n,"{quoted}"\n1,2\n'


def test_full_precision() -> None:
    values = [0.1 + 0.2, 1e-300, 2**63 - 1, np.float64(1 / 3), np.float32(0.1), np.int64(-5)]
    table = Table((Column("x", Kind.FLOAT),), {"x": values})
    texts = written(table, "csv").split()[1:]
    assert [float(text) for text in texts] == [float(value) for value in values]
    assert [row["x"] for row in json.loads(written(table, "json"))["rows"]] == values


def test_numpy_columns_are_written_like_lists() -> None:
    columns = (Column("n", Kind.INT), Column("x", Kind.FLOAT), Column("b", Kind.BOOL))
    lists = {"n": [0, 1, 2], "x": [0.5, None, 1.0], "b": [True, False, True]}
    arrays = {"n": np.arange(3), "x": np.array([0.5, np.nan, 1.0]), "b": np.array(lists["b"])}
    for name in ("table", *TEXT_FORMATS):
        assert written(Table(columns, arrays), name) == written(Table(columns, lists), name)


def test_large_tables_are_written_whole() -> None:
    table = Table((Column("n", Kind.INT),), {"n": np.arange(2500)})
    assert len(json.loads(written(table, "json"))["rows"]) == 2500
    assert written(table, "jsonl").splitlines()[-1] == '{"n": 2499}'
    assert len(written(table, "csv").splitlines()) == 2501
    assert len(written(table, "table").splitlines()) == 2502


# -- Parquet


def parquet(table: Table) -> pyarrow.Table:
    out = io.BytesIO()
    write_table(table, "parquet", out)
    return pyarrow.parquet.read_table(io.BytesIO(out.getvalue()))


@pytest.mark.parametrize("table", TABLES)
def test_parquet_golden(table: str) -> None:
    arrow = parquet(getattr(shapes, table)())
    schema = arrow.schema.to_string(truncate_metadata=False)
    rows = "".join(f"{row!r}\n" for row in arrow.to_pylist())
    check_golden(f"parquet/{table}.txt", f"{schema}\n\n{rows}")


def test_parquet_types_do_not_depend_on_the_values() -> None:
    def types(values: dict[str, list[object]]) -> list[str]:
        columns = (Column("t", Kind.DURATION, "ms"), Column("n", Kind.COUNT), Column("s"))
        return [str(kind) for kind in parquet(Table(columns, values)).schema.types]

    assert types({"t": [2.0], "n": [1], "s": ["a"]}) == ["double", "int64", "string"]
    assert types({"t": [2.5], "n": [2], "s": [None]}) == ["double", "int64", "string"]
    assert types({"t": [None], "n": [None], "s": [3]}) == ["double", "int64", "string"]
    assert types({"t": [2], "n": [2.0], "s": [True]}) == ["double", "int64", "string"]


def test_parquet_cuts_no_number() -> None:
    kinds = {"n": Kind.INT, "m": Kind.INT, "t": Kind.DURATION, "f": Kind.COUNT}
    values: dict[str, list[object]] = {
        "n": [1, "x", 2],
        "m": [2**70, 1, 2],
        "t": [2**53 + 1, 1, None],
        "f": [1, 1.5, 2**53 + 1],
    }
    arrow = parquet(Table(tuple(Column(name, kind) for name, kind in kinds.items()), values))
    assert arrow["n"].to_pylist() == ["1", "x", "2"]  # as text
    assert [int(value) for value in arrow["m"].to_pylist()] == values["m"]
    assert arrow["t"].to_pylist() == values["t"]
    assert [float(value) for value in arrow["f"].to_pylist()] == [1, 1.5, float(2**53 + 1)]
    lists = {"a": [[1], [], None], "b": [[1.5], [2], [None]], "c": [["x", 1], (), "loose"]}
    arrow = parquet(Table(tuple(Column(name, Kind.LIST) for name in lists), lists))
    assert [str(kind.value_type) for kind in arrow.schema.types] == ["int64", "double", "string"]
    assert arrow["b"].to_pylist() == [[1.5], [2.0], [None]]
    assert arrow["c"].to_pylist() == [["x", "1"], [], ["loose"]]
