"""Reports in every format: the same values, and golden files of a small one."""

from __future__ import annotations

import io

import pytest

from etscope.model.report import Report, facts, filled_columns, limited, rows
from etscope.model.table import Column, Kind, Table
from etscope.views import TABLE_VIEWS
from etscope.views.tables.report import write_reports
from tests.support.golden_files import check_golden


def report(file: str = "a.etdp") -> Report:
    return Report(
        {"file": file, "kind": "etdump"},
        (
            facts(
                "file",
                f"{file}: ETDump",
                (
                    (Column("size", Kind.BYTES), 4096),
                    (Column("methods", Kind.LIST), ["encode", "decode"]),
                    (Column("first", Kind.DURATION, "ms"), 0.125),
                    (Column("slimmed", Kind.BOOL), False),
                    (Column("fingerprint"), None),
                ),
            ),
            rows(
                "blocks",
                "Blocks",
                (Column("block"), Column("runs", Kind.COUNT), Column("nothing", Kind.BYTES)),
                [("Default", 1, None), ("Execute \x1b[31m", 20000, None)],
                notes=("A note.",),
                depth=[0, 1],
            ),
            rows("empty", "Empty", (Column("x"),), []),
        ),
    )


def written(*reports: Report, format: str, width: int | None = None) -> str:
    out = io.BytesIO() if TABLE_VIEWS[format].binary else io.StringIO()
    write_reports(reports, "etscope.info/1", format, out, width=width, color=False)
    content = out.getvalue()
    assert isinstance(content, str)
    return content


@pytest.mark.parametrize("format", ["table", "md", "html", "json", "csv", "jsonl"])
def test_golden(format: str) -> None:
    check_golden(
        f"report/two.{format}", written(report(), report("b.etdp"), format=format, width=80)
    )


def test_limits_tell_how_much_is_not_shown() -> None:
    section = limited(report(), 1).section("blocks")
    assert len(section.table) == 1
    assert section.table.notes == ("1 more row is not shown (--limit).", "A note.")
    assert limited(report(), 2) == report()


def test_filled_columns() -> None:
    table = Table(
        tuple(Column(name) for name in "abcdef"),
        {"a": [None], "b": [0], "c": [""], "d": [[]], "e": [False], "f": [3]},
    )
    assert filled_columns(table) == ("a", "f")
