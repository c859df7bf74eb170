"""Parquet through pyarrow: typed columns, units and kinds in the metadata of the fields.

A column's type follows its kind: identifiers, counts and bytes are int64, other numbers double,
and lists are lists of one type. Values that do not fit are text. The metadata of the schema holds
title and notes as JSON under "etscope"; that of a field "kind", "unit" and "title".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, BinaryIO

from etscope.model.table import Column, Kind, Table
from etscope.optional import require
from etscope.views.tables.cell_values import is_number, plain_values, types_of
from etscope.views.tables.text_formats import SCHEMA


def write(table: Table, out: BinaryIO) -> None:
    """Raises `MissingDependencyError` without pyarrow (the extra `parquet`)."""
    pa = require("pyarrow", wanted_by="the Parquet format")
    pq = require("pyarrow.parquet", wanted_by="the Parquet format")
    arrays = [_array(pa, column, table.values[column.name]) for column in table.columns]
    fields = [
        pa.field(column.name, array.type, metadata=_metadata(column))
        for column, array in zip(table.columns, arrays, strict=True)
    ]
    about = {"schema": SCHEMA, "title": table.title, "notes": list(table.notes)}
    schema = pa.schema(fields, metadata={"etscope": json.dumps(about)})
    # To memory first: the writer asks a stream for its position, which a pipe does not have.
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), buffer)
    out.write(buffer.getvalue())


def _metadata(column: Column) -> dict[str, str]:
    every = {"kind": column.kind.value, "unit": column.unit, "title": column.title}
    return {key: _utf8(value) for key, value in every.items() if value is not None}


def _array(pa: Any, column: Column, values: Any) -> Any:
    plain = plain_values(column, values)
    try:
        return _typed(pa, column.kind, plain)
    except UnicodeEncodeError:
        return _typed(pa, column.kind, [_storable(value) for value in plain])


def _typed(pa: Any, kind: Kind, values: list[Any]) -> Any:
    """The values in the first of the kind's types that holds them all; as text else."""
    types = _types(pa, kind)
    items = values if kind is not Kind.LIST else _items(values)
    if float in types_of(items):  # which arrow would cut to whole numbers
        types = [item for item in types if item not in (pa.int64(), pa.list_(pa.int64()))]
    for arrow_type in types:
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array(values, arrow_type)
    if kind is Kind.LIST:
        return pa.array([_texts(value) for value in values], pa.list_(pa.string()))
    return pa.array([_text(value) for value in values], pa.string())


def _types(pa: Any, kind: Kind) -> list[Any]:
    """Types by the kind alone, as far as may be: files of several runs can be read as one."""
    if kind is Kind.LIST:
        return [pa.list_(item) for item in (pa.int64(), pa.float64(), pa.string())]
    if kind is Kind.BOOL:
        return [pa.bool_()]
    if not is_number(kind):
        return [pa.string()]
    whole = kind in (Kind.INT, Kind.COUNT, Kind.BYTES)
    return [pa.int64(), pa.float64()] if whole else [pa.float64(), pa.int64()]


def _items(values: list[Any]) -> Iterator[Any]:
    return chain.from_iterable(value for value in values if isinstance(value, list))


def _storable(value: Any) -> Any:
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return _utf8(value) if isinstance(value, str) else value


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _texts(value: Any) -> list[str | None] | None:
    if value is None:
        return None
    return [_text(item) for item in (value if isinstance(value, list) else [value])]


def _utf8(text: str) -> str:
    """`text` without lone surrogates, which Arrow's strings cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()
