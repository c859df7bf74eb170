"""JSON: one document of schema "etscope.table/1", and JSON Lines: one object a row.

The document::

    {"schema": "etscope.table/1", "title": "…",
     "columns": [{"name": "avg", "title": "avg", "kind": "duration", "unit": "ms"}, …],
     "rows": [{"avg": 1.25, …}, …],
     "depth": [0, 1, …],   only if rows hang below others: a row's level
     "breaks": [25],       only if any: rows set apart from the one before
     "notes": ["…"]}

`kind` is a value of `etscope.model.table.Kind`. NaN and missing values are null, infinities the
texts "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, TextIO

from etscope.model.table import Table
from etscope.views.strict_json import dumps
from etscope.views.tables.cell_values import plain_rows

SCHEMA = "etscope.table/1"
_CHUNK = 1000  # rows written at a time


def write_json(table: Table, out: TextIO) -> None:
    """The whole table as one document, a row a line."""
    head = {
        "schema": SCHEMA,
        "title": table.title,
        "columns": [
            {"name": c.name, "title": c.title or c.name, "kind": c.kind.value, "unit": c.unit}
            for c in table.columns
        ],
    }
    tail: dict[str, Any] = {}
    if table.depth is not None:
        tail["depth"] = [int(level) for level in table.depth]
    if table.breaks:
        tail["breaks"] = sorted(table.breaks)
    tail["notes"] = list(table.notes)
    out.write("{\n" + _members(head) + ',\n"rows": [')
    separator = "\n"
    rows = _objects(table, table.names)
    while chunk := list(islice(rows, _CHUNK)):
        out.write(separator + ",\n".join(chunk))
        separator = ",\n"
    out.write("\n],\n" + _members(tail) + "\n}\n")


def write_jsonl(table: Table, out: TextIO) -> None:
    """A row a line. Keys carry the unit ("avg_ms"): there is no other place for it."""
    rows = _objects(table, tuple(column.key for column in table.columns))
    while chunk := list(islice(rows, _CHUNK)):
        out.write("\n".join(chunk) + "\n")


def _members(values: dict[str, Any]) -> str:
    return ",\n".join(f"{json.dumps(key)}: {dumps(value)}" for key, value in values.items())


def _objects(table: Table, keys: tuple[str, ...]) -> Iterator[str]:
    for row in plain_rows(table):
        yield dumps(dict(zip(keys, row, strict=True)))
