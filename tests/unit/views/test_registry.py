"""The registries of views: what is in them works, and formats are found by name."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from etscope.errors import MissingDependencyError, UsageError
from etscope.views import (
    TABLE_VIEWS,
    TIMELINE_VIEWS,
    format_of,
    save_table,
    save_timeline,
    write_table,
    write_timeline,
)
from tests.support.views import shapes


@pytest.mark.parametrize(
    ("path", "of_tables", "of_timelines"),
    [
        ("a.json", "json", "chrome"),
        ("a.json.gz", "json", "chrome"),
        ("-", "table", "perfetto"),
        ("dir.csv/a.JSONL", "jsonl", None),
        (Path("a.csv.gz"), "csv", None),
        ("a.txt", "table", None),
        ("a.speedscope.json", "json", "speedscope"),
        ("a.pftrace", None, "perfetto"),
    ],
)
def test_the_format_of_a_suffix(
    path: str | Path, of_tables: str | None, of_timelines: str | None
) -> None:
    if of_tables is not None:
        assert format_of(path, TABLE_VIEWS, default="table") == of_tables
    if of_timelines is not None:
        assert format_of(path, TIMELINE_VIEWS, default="perfetto") == of_timelines


def test_an_unknown_suffix_and_an_unknown_format_say_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"\.csv \(csv\)"):
        format_of("a.xlsx", TABLE_VIEWS, default="table")
    with pytest.raises(UsageError, match="formats are: table, json"):
        write_table(shapes.empty(), "xml", io.StringIO())
    with pytest.raises(UsageError, match="formats are: perfetto, chrome"):
        write_timeline(shapes.cycles(), "xml", io.StringIO())


def test_a_format_may_differ_from_the_suffix_and_gz_compresses(tmp_path: Path) -> None:
    save_table(shapes.empty(), tmp_path / "a.log", "json")
    assert json.loads((tmp_path / "a.log").read_text())["title"] == "nothing"
    save_timeline(shapes.timeline(), tmp_path / "a.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))["traceEvents"]


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("parquet", "pyarrow", "parquet"), ("perfetto", "perfetto", "perfetto")],
)
def test_a_missing_package_leaves_no_file_and_names_the_extra(
    name: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # "import" of it fails now
    for module in [m for m in sys.modules if m.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(MissingDependencyError, match=rf"etscope\[{extra}\]"):
        if name == "parquet":
            save_table(shapes.events(), tmp_path / "a", name)
        else:
            save_timeline(shapes.timeline(), tmp_path / "a", name)
    assert not list(tmp_path.iterdir())
