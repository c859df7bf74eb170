"""Answers as text for a person, and as JSON for a program."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from etscope.errors import EtscopeError
from etscope.etdb._answer import Answer, Item
from etscope.model.report import Section, filled_columns
from etscope.model.table import Table
from etscope.views import write_table
from etscope.views.tables.cell_values import plain_rows
from etscope.views.tables.report import turned
from etscope.views.tables.text_cells import visible

PLAIN_WIDTH = 100  # where no terminal tells
_FOLDED = 4


def write_answer(
    answer: Answer,
    out: TextIO,
    *,
    width: int | None = None,
    color: bool | None = None,
    fold: int | None = None,
) -> None:
    """Write an answer for people. Nothing in it can move the cursor or change a terminal. fold:
    the width that lines of text are folded to, between words."""
    before: Item | None = None
    for item in answer.items:
        if before is not None and not (isinstance(before, str) and isinstance(item, str)):
            out.write("\n")
        if isinstance(item, str):
            lines = [visible(line) for line in item.split("\n")]
            out.writelines(f"{part}\n" for line in lines for part in folded(line, fold))
        else:
            write_table(_shaped(item), "table", out, width=width or PLAIN_WIDTH, color=color)
        before = item


def folded(line: str, width: int | None) -> list[str]:
    """A line in parts that a terminal need not break; what is below another is further inside."""
    if width is None or len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip()) + _FOLDED
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * min(indent, width // 2),
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def error_text(error: EtscopeError) -> str:
    """An error as text, one line or several. Messages and hints hold names from files."""
    return "\n".join(visible(line) for line in f"error: {error}".split("\n"))


def text_of(answer: Answer, width: int = PLAIN_WIDTH) -> str:
    """An answer as plain text."""
    out = io.StringIO()
    write_answer(answer, out, width=width, color=False)
    return out.getvalue()


def json_of(answer: Answer) -> list[dict[str, Any]]:
    """An answer as plain values: {"text": …}, {"facts": {…}} or {"table": title, "rows": […]}."""
    return [_object(item) for item in answer.items]


def _shaped(item: Table | Section) -> Table:
    if isinstance(item, Section):
        table = item.table
        return turned(table) if item.is_facts else table.select(filled_columns(table))
    return item


def _object(item: Item) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    table = item.table if isinstance(item, Section) else item
    keys: Sequence[str] = [column.key for column in table.columns]
    rows = [dict(zip(keys, row, strict=True)) for row in plain_rows(table)]
    if isinstance(item, Section) and item.is_facts:
        return {"facts": rows[0] if rows else {}, "title": table.title}
    return {"table": table.title, "rows": rows, "notes": list(table.notes)}
