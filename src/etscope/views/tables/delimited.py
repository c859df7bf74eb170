"""CSV and TSV: a header of names with units ("avg_ms"), full precision, no value is an empty field.

Lists are JSON text. Nothing else is changed: a field that starts with "=" stays one.
"""

from __future__ import annotations

import csv
from typing import Any, TextIO

from etscope.model.table import Table
from etscope.views.strict_json import dumps
from etscope.views.tables.cell_values import plain_values, types_of


def write_csv(table: Table, out: TextIO) -> None:
    """RFC 4180 but for the line ends, which are those of the system's text tools."""
    _write(table, out, ",")


def write_tsv(table: Table, out: TextIO) -> None:
    """As CSV, with tabs."""
    _write(table, out, "\t")


def _write(table: Table, out: TextIO, delimiter: str) -> None:
    writer = csv.writer(_LineEnds(out), delimiter=delimiter, lineterminator="\r\n")
    writer.writerow([column.key for column in table.columns])
    columns = [_fields(plain_values(c, table.values[c.name])) for c in table.columns]
    writer.writerows(zip(*columns, strict=True))


class _LineEnds:
    """Writes lines that end with LF. csv itself is told CR LF: it puts a field into quotes for the
    characters of its line end, and readers end a line at a CR alone, too."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, line: str) -> None:
        self._out.write(line[:-2] + "\n")


def _fields(values: list[Any]) -> list[Any]:
    # csv writes None as an empty field and floats by repr, which loses nothing.
    return values if types_of(values).isdisjoint({bool, list}) else list(map(_field, values))


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return dumps(value) if isinstance(value, list) else value
