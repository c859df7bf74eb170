"""Write reports: one readable table for each section, one JSON document, or one flat table.

The document::

    {"schema": "etscope.info/1",
     "reports": [{"file": "a.pte", "kind": "pte",
                  "summary": ["…"],                              of a report with one
                  "sections": {"file": {"size": 1234, …},        a section of facts
                               "methods": [{"method": …}, …]},   a section of rows
                  "notes": ["…"]}, …]}

Keys carry the unit ("first_ms"). NaN and missing values are null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any, TextIO, cast

from etscope.model.report import Report, filled_columns, flat_table
from etscope.model.table import Column, Table
from etscope.views import TABLE_VIEWS, write_table
from etscope.views.output import dumps
from etscope.views.tables.cells import cell_texts, plain_rows
from etscope.views.tables.formats import write_folded, write_list
from etscope.views.tables.terminal import write_sentences

__all__ = ["write_reports"]


def write_reports(
    reports: Sequence[Report],
    schema: str,
    format: str,
    out: IO[Any],
    *,
    width: int | None = None,
    color: bool | None = None,
) -> None:
    """Write `reports` to an open stream in a format of `TABLE_VIEWS`.

    `schema` is the schema of the JSON document. `width` and `color` are as for `write_table`.
    """
    if format == "json":
        _write_json(reports, schema, out)
    elif TABLE_VIEWS[format].styled or format == "md":
        _write_texts(reports, format, cast(TextIO, out), width, color)
    else:
        write_table(flat_table(reports), format, out)


def _write_texts(
    reports: Sequence[Report], format: str, out: TextIO, width: int | None, color: bool | None
) -> None:
    gap = ""
    for report in reports:
        if report.summary:
            out.write(gap)
            if format == "md":
                write_list(report.summary, out)
            else:
                write_sentences(report.summary, out, width=width)
            gap = "\n"
        for section in report.sections:
            out.write(gap)
            table = section.table
            table = turned(table) if section.is_facts else table.select(filled_columns(table))
            if report.summary and format == "md":
                write_folded(table, out)
            else:
                write_table(table, format, out, width=width, color=color)
            gap = "\n"


def turned(table: Table) -> Table:
    """Turn a one-row table into one with a row for each known fact, as text."""
    texts = [
        (column.label, cell_texts(column, table.values[column.name])[0]) for column in table.columns
    ]
    known = [(label, text) for label, text in texts if text]
    columns = (Column("fact"), Column("value"))
    return Table.of_rows(columns, known, title=table.title, notes=table.notes)


def _write_json(reports: Sequence[Report], schema: str, out: IO[Any]) -> None:
    out.write(f'{{\n"schema": {json.dumps(schema)},\n"reports": [')
    for position, report in enumerate(reports):
        out.write(",\n{\n" if position else "\n{\n")
        for key, value in report.about.items():
            out.write(f"{json.dumps(key)}: {dumps(value)},\n")
        if report.summary:
            out.write(f'"summary": {dumps(list(report.summary))},\n')
        out.write('"sections": {')
        for number, section in enumerate(report.sections):
            out.write(",\n" if number else "\n")
            keys = [column.key for column in section.table.columns]
            rows = [dumps(dict(zip(keys, row, strict=True))) for row in plain_rows(section.table)]
            content = "[" + ",".join(f"\n{row}" for row in rows) + "\n]" if rows else "[]"
            content = rows[0] if section.is_facts else content
            out.write(f"{json.dumps(section.name)}: {content}")
        notes = [note for section in report.sections for note in section.table.notes]
        out.write(f'\n}},\n"notes": {dumps(notes)}\n}}')
    out.write("\n]\n}\n")
