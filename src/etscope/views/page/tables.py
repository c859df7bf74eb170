"""Tables for the page: `etscope.table/1` by columns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from etscope.model.report import Section
from etscope.model.table import Column, Table
from etscope.views.tables.cell_values import plain_values

Json = dict[str, Any]


def table_document(table: Table) -> Json:
    """The `TableDoc` of a table: missing values are null, infinities the texts "Infinity" and
    "-Infinity"."""
    document: Json = {
        "title": table.title,
        "columns": [column_document(column) for column in table.columns],
        "values": {
            column.name: finite(plain_values(column, table.values[column.name]))
            for column in table.columns
        },
        "notes": list(table.notes),
    }
    if table.depth is not None:
        document["depth"] = [int(level) for level in table.depth]
    if table.breaks:
        document["breaks"] = sorted(table.breaks)
    return document


def column_document(column: Column) -> Json:
    return {
        "name": column.name,
        "title": column.title or column.name.replace("_", " "),
        "kind": column.kind.value,
        "unit": column.unit,
        "priority": column.priority,
    }


def section_document(section: Section) -> Json:
    return {
        "name": section.name,
        "table": table_document(section.table),
        "facts": section.is_facts,
    }


def finite(values: Iterable[Any]) -> list[Any]:
    """Plain values as JSON can hold them: null for NaN, texts for infinities, lists too."""
    return [_finite(value) if isinstance(value, (float, list)) else value for value in values]


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return finite(value)
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
