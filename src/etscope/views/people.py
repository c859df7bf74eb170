"""The cells of a table as texts for people: formatted, and with nothing in them that acts.

Names come from files of others: control characters, ANSI escapes and direction overrides are
written as visible escapes ("\\x1b", "\\u202e").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from etscope.model.table import Column, Kind
from etscope.units import (
    format_bytes,
    format_count,
    format_durations,
    format_floats,
    format_share,
)
from etscope.views.values import is_number, plain_values


class Guides(NamedTuple):
    """The strokes that tie a row to the one it hangs under."""

    last: str
    more: str
    through: str
    blank: str


LINES = Guides(last="└ ", more="├ ", through="│ ", blank="  ")
ASCII_LINES = Guides(last="`- ", more="|- ", through="|  ", blank="   ")
_DEEPEST = 40  # levels drawn; a deeper row hangs beside this one


def visible(text: str) -> str:
    """`text` on one line, with an escape in the place of everything that cannot be seen."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def cell_texts(column: Column, values: Sequence[Any]) -> list[str]:
    """The values of a column formatted by its kind; no value is the empty text."""
    plain = plain_values(column, values)
    if not is_number(column.kind):
        return [_text(value) for value in plain]
    # A text among numbers ("skipped") stands as it is.
    numbers = [None if isinstance(value, (str, list)) else value for value in plain]
    if column.kind is Kind.DURATION:
        texts = format_durations(numbers, column.unit or "ns")
    else:
        texts = _NUMBER_FORMATS[column.kind](numbers)
    return [
        text if number is not None or value is None else _text(value)
        for text, number, value in zip(texts, numbers, plain, strict=True)
    ]


def tree_prefixes(depth: Sequence[int], guides: Guides) -> list[str]:
    """What stands before the text of each row so that rows of depth d hang under the d-1 above."""
    prefixes: list[str] = []
    continues: list[bool] = []  # [d]: further down, a row of depth d hangs under the same parent
    for level in reversed(depth):
        level = max(0, min(int(level), _DEEPEST))
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
