"""The values of a table as plain Python values: what every machine-readable view writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from etscope.model.table import Kind, Table


def plain_rows(table: Table) -> Iterator[tuple[Any, ...]]:
    """The rows of `table` with plain values, in column order."""
    return zip(*(plain_values(table.values[name]) for name in table.names), strict=True)


def plain_values(values: Sequence[Any]) -> list[Any]:
    """`plain` of each, as a list."""
    to_list = getattr(values, "tolist", None)  # numpy's way, much faster than one by one
    return [plain(value) for value in (values if to_list is None else to_list())]


def plain(value: Any) -> Any:
    """`value` as None, bool, int, float, str or a list of these; NaN is None."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if hasattr(value, "tolist"):  # a numpy scalar or array
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


def is_number(kind: Kind) -> bool:
    """Whether the values are numbers: set right-aligned, and never cut."""
    return kind not in (Kind.TEXT, Kind.PATH, Kind.BOOL, Kind.LIST)
