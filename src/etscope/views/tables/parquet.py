"""Write Parquet with pyarrow: typed columns, units and kinds in the metadata of the fields.

A column's type follows its kind: identifiers, counts and bytes are int64, other numbers double,
and lists are lists of one type. Values of other types are text. The metadata of the schema holds
title and notes as JSON under "etscope"; a field's metadata has "kind", "unit" and "title".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Any, BinaryIO

from etscope.model.table import Kind, Table
from etscope.support.optional import require
from etscope.views.tables.cells import is_number, plain_values, types_of, without_surrogates
from etscope.views.tables.text_formats import SCHEMA


def write(table: Table, out: BinaryIO) -> None:
    """Write the table. Raises `MissingDependencyError` without pyarrow (the extra `parquet`)."""
    pa = require("pyarrow", wanted_by="the Parquet format")
    pq = require("pyarrow.parquet", wanted_by="the Parquet format")
    arrays: list[Any] = []
    fields: list[Any] = []
    for column in table.columns:
        values = plain_values(column, table.values[column.name])
        try:
            array = _typed(pa, column.kind, values)
        except UnicodeEncodeError:
            array = _typed(pa, column.kind, [_storable(value) for value in values])
        about_column = {"kind": column.kind.value, "unit": column.unit, "title": column.title}
        metadata = {
            key: without_surrogates(value)
            for key, value in about_column.items()
            if value is not None
        }
        arrays.append(array)
        fields.append(pa.field(column.name, array.type, metadata=metadata))
    about = {"schema": SCHEMA, "title": table.title, "notes": list(table.notes)}
    schema = pa.schema(fields, metadata={"etscope": json.dumps(about)})
    # To memory first: the writer asks a stream for its position, which a pipe does not have.
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), buffer)
    out.write(buffer.getvalue())


def _typed(pa: Any, kind: Kind, values: list[Any]) -> Any:
    """The values in the first of the kind's types that holds them all, or as text."""
    # By the kind alone, as far as possible: files of several runs can then be read as one.
    items: Iterable[Any] = values
    if kind is Kind.LIST:
        types = [pa.list_(item) for item in (pa.int64(), pa.float64(), pa.string())]
        items = chain.from_iterable(value for value in values if isinstance(value, list))
    elif kind is Kind.BOOL:
        types = [pa.bool_()]
    elif not is_number(kind):
        types = [pa.string()]
    elif kind in (Kind.INT, Kind.COUNT, Kind.BYTES):
        types = [pa.int64(), pa.float64()]
    else:
        types = [pa.float64(), pa.int64()]
    if float in types_of(items):  # which arrow would cut to whole numbers
        types = [item for item in types if item not in (pa.int64(), pa.list_(pa.int64()))]
    for arrow_type in types:
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array(values, arrow_type)
    if kind is not Kind.LIST:
        return pa.array([_text(value) for value in values], pa.string())
    lists: list[list[str | None] | None] = []
    for value in values:
        as_list = value if isinstance(value, list) else [value]
        lists.append(None if value is None else [_text(item) for item in as_list])
    return pa.array(lists, pa.list_(pa.string()))


def _storable(value: Any) -> Any:
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return without_surrogates(value) if isinstance(value, str) else value


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
