"""Convert the cells of a table to plain Python values, or to readable texts that are safe to print.

Names may come from untrusted files: in texts, control characters, ANSI escapes and direction
overrides are written as visible escapes ("\\x1b", "\\u202e").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from etscope.model.table import Column, Kind, Table
from etscope.units import (
    duration_decimals,
    format_bytes,
    format_count,
    format_durations,
    format_floats,
    format_share,
)

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["is_number", "plain_rows", "table_texts", "types_of", "visible", "without_surrogates"]


# Kinds with whole numbers; an array makes them floats if one is missing.
_WHOLE = frozenset({Kind.INT, Kind.COUNT, Kind.BYTES})
_PLAIN = {type(None), bool, int, float, str}


PASTED = "    "  # before a line of `explanation_lines` that is to be pasted
_SITES_SHOWN = 3  # of a finding, so that they stay a line or two; JSON has all


def explanation_lines(finding: Mapping[str, Any]) -> list[str]:
    """Return the texts below the sentence of a finding of `etscope explain`: its evidence, the
    operators with most of its time, what to do; [] for another finding."""
    explained = finding.get("explanation")
    if explained is None:
        return []
    unit = (finding.get("quantity") or {}).get("unit", "")
    sites = []
    for site in explained["sites"][:_SITES_SHOWN]:
        time = site["time"]
        texts = (
            site["name"],
            None if site["instruction"] is None else f"instruction {site['instruction']}",
            site["module"],
            site["line"],
            None if time is None else f"{format_durations([time], unit)[0]} {unit}",
        )
        sites.append(", ".join(text for text in texts if text))
    if len(explained["sites"]) > _SITES_SHOWN:
        sites.append("…")
    lines = [str(text) for text in explained["evidence"]]
    if sites:
        lines.append(f"Where: {'; '.join(sites)}")
    for remedy in explained["remedies"]:
        pasted = (f"{PASTED}{one}" for one in remedy["paste"].splitlines())
        lines += [f"To do: {remedy['text']}", *pasted]
    return lines


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


# -- Readable texts


class Guides(NamedTuple):
    """The characters that connect a row to its parent."""

    last: str
    more: str
    through: str
    blank: str


LINES = Guides(last="└ ", more="├ ", through="│ ", blank="  ")
ASCII_LINES = Guides(last="`- ", more="|- ", through="|  ", blank="   ")
_MAX_DEPTH = 40  # levels drawn; deeper rows are drawn at this level


def visible(text: str) -> str:
    """Return `text` on one line, with all characters that are not printable as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def table_texts(table: Table) -> list[list[str]]:
    """Format the cells of each column; all times of one unit have equally many decimals."""
    columns = [(c, plain_values(c, table.values[c.name])) for c in table.columns]
    durations: dict[str, list[Any]] = {}
    for column, values in columns:
        if column.kind is Kind.DURATION:
            durations.setdefault(column.unit or "ns", []).extend(_numbers(values))
    decimals = {unit: duration_decimals(values, unit) for unit, values in durations.items()}
    return [_texts(column, values, decimals.get(column.unit or "ns")) for column, values in columns]


def cell_texts(column: Column, values: Sequence[Any] | npt.NDArray[Any]) -> list[str]:
    """Format the values of one column by its kind; a missing value is the empty text."""
    return _texts(column, plain_values(column, values), None)


def _texts(column: Column, plain: list[Any], decimals: int | None) -> list[str]:
    if not is_number(column.kind):
        return [_text(value) for value in plain]
    numbers = _numbers(plain)
    if column.kind is Kind.DURATION:
        texts = format_durations(numbers, column.unit or "ns", decimals)
    else:
        texts = _NUMBER_FORMATS[column.kind](numbers)
    return [
        text if number is not None or value is None else _text(value)
        for text, number, value in zip(texts, numbers, plain, strict=True)
    ]


def _numbers(plain: list[Any]) -> list[Any]:
    """Replace texts among numbers ("skipped") by None: they are not formatted."""
    return [None if isinstance(value, (str, list)) else value for value in plain]


def tree_prefixes(depth: Sequence[int], guides: Guides) -> list[str]:
    """The prefix of each row that draws it under its parent, the row of depth d-1 above."""
    prefixes: list[str] = []
    continues: list[bool] = []  # [d]: a later row of depth d has the same parent
    for level in reversed(depth):
        level = max(0, min(int(level), _MAX_DEPTH))
        continues += [False] * (level + 1 - len(continues))
        bars = [guides.through if continues[d] else guides.blank for d in range(1, level)]
        stroke = (guides.more if continues[level] else guides.last) if level else ""
        prefixes.append("".join(bars) + stroke)
        continues[level:] = [True]
    return prefixes[::-1]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_text, value)) if isinstance(value, list) else visible(str(value))


_NUMBER_FORMATS: dict[Kind, Callable[[Sequence[Any]], list[str]]] = {
    Kind.INT: lambda values: [_text(value) for value in values],
    Kind.COUNT: lambda values: [format_count(value) for value in values],
    Kind.BYTES: lambda values: [format_bytes(value) for value in values],
    Kind.SHARE: lambda values: [format_share(value) for value in values],
    Kind.FLOAT: format_floats,
}
