"""Convert the values of a table to plain Python values, for machine-readable views."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from etscope.model.table import Column, Kind, Table

if TYPE_CHECKING:
    import numpy.typing as npt

# Kinds whose values are whole; an array makes them floats where one is missing.
_WHOLE = frozenset({Kind.INT, Kind.COUNT, Kind.BYTES})
_PLAIN = {type(None), bool, int, float, str}


def plain_rows(table: Table) -> Iterator[tuple[Any, ...]]:
    """The rows of `table` as plain values, in column order."""
    columns = (plain_values(column, table.values[column.name]) for column in table.columns)
    return zip(*columns, strict=True)


def plain_values(column: Column, values: Sequence[Any] | npt.NDArray[Any]) -> list[Any]:
    """Convert a column; whole numbers are int in a column of identifiers, counts or bytes."""
    to_list = getattr(values, "tolist", None)  # of numpy, much faster than one by one
    found = list(values) if to_list is None else to_list()
    # Long columns are mostly of one type, and finding the types is fast.
    kinds = types_of(found)
    if not kinds <= _PLAIN:
        found = [plain_value(value) for value in found]
        kinds = types_of(found)
    elif float in kinds:
        found = [None if value != value else value for value in found]  # NaN is not itself
    if float not in kinds or column.kind not in _WHOLE:
        return found
    return [
        int(value) if isinstance(value, float) and value.is_integer() else value for value in found
    ]


def types_of(values: Iterable[Any]) -> set[type]:
    """The types among `values`."""
    return set(map(type, values))


def plain_value(value: Any) -> Any:
    """Convert `value` to None, bool, int, float, str or a list of these; NaN is None."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if hasattr(value, "tolist"):  # a numpy scalar or array
        return plain_value(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain_value(item) for item in value]
    return str(value)


def without_surrogates(text: str) -> str:
    """Escape lone surrogates, which UTF-8 cannot encode: Arrow and protobuf refuse them."""
    return text.encode("utf-8", "backslashreplace").decode()


def is_number(kind: Kind) -> bool:
    """Return True for kinds of numbers, which are right-aligned and never cut."""
    return kind not in (Kind.TEXT, Kind.PATH, Kind.BOOL, Kind.LIST)
