"""Parquet through pyarrow: typed columns, units and kinds in the metadata of the fields.

A column's type follows its kind where its values allow: whole numbers are int64, others double,
lists are lists of one type. The metadata of the schema holds title and notes as JSON under
"etscope"; that of a field "kind", "unit" and "title".
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, BinaryIO

from etscope.model.table import Column, Kind, Table
from etscope.optional import require
from etscope.views.json_table import SCHEMA
from etscope.views.values import is_number, plain_values


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
    """The values in the first of the kind's types that holds them all; as text else."""
    plain = [_storable(value) for value in plain_values(values)]
    for arrow_type in _types(pa, column.kind, whole=not _any_float(plain)):
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array(plain, arrow_type)
    return pa.array([value if value is None else _text(value) for value in plain], pa.string())


def _types(pa: Any, kind: Kind, *, whole: bool) -> list[Any]:
    numbers = [pa.int64(), pa.float64()] if whole else [pa.float64()]
    if kind is Kind.LIST:
        return [pa.list_(item) for item in (*numbers, pa.string())]
    if kind is Kind.BOOL:
        return [pa.bool_()]
    if kind in (Kind.FLOAT, Kind.SHARE):
        return [pa.float64()]
    return numbers if is_number(kind) else [pa.string()]


def _any_float(values: list[Any]) -> bool:
    return any(
        _any_float(value) if isinstance(value, list) else isinstance(value, float)
        for value in values
    )


def _storable(value: Any) -> Any:
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return _utf8(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _utf8(text: str) -> str:
    """`text` without lone surrogates, which Arrow's strings cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()
