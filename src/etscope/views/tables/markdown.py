"""A GitHub table. Names from files stay text: no markup, no HTML, no mention, no issue link."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TextIO

from etscope.model.table import Kind, Table
from etscope.views.tables.cell_values import is_number
from etscope.views.tables.text_cells import Guides, table_texts, tree_prefixes, visible

# A cell's leading spaces are dropped, so the guides are indented by spaces that are not.
_GUIDES = Guides(last="└ ", more="├ ", through="│ ", blank="&emsp;")
_HTML = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))  # "&" first
_MARKUP = re.compile(r"[\\`*\[\]~|$]|(?<!\w)_|_(?!\w)")  # inside a word "_" is a letter
# "#12" and "@name" become links on GitHub, even escaped; an empty comment between ends that.
_REFERENCE = re.compile(r"([#@])(?=\w)")


def write(table: Table, out: TextIO) -> None:
    """Title, table with aligned columns, and notes."""
    if table.title:
        out.write(f"**{_escaped(table.title)}**\n\n")
    out.write(_line([_escaped(column.label) for column in table.columns]))
    out.write(_line(["---:" if is_number(c.kind) else ":---" for c in table.columns]))
    cells = [[_escaped(text) for text in texts] for texts in table_texts(table)]
    first_text = next((i for i, c in enumerate(table.columns) if c.kind is Kind.TEXT), None)
    if table.depth is not None and first_text is not None:
        prefixes = tree_prefixes(table.depth, _GUIDES)
        cells[first_text] = [a + b for a, b in zip(prefixes, cells[first_text], strict=True)]
    out.writelines(_line(row) for row in zip(*cells, strict=True))
    for note in table.notes:
        out.write(f"\n{_escaped(note)}\n")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


@lru_cache(maxsize=4096)  # the rows of a long table have few different names
def _escaped(text: str) -> str:
    text = _MARKUP.sub(r"\\\g<0>", visible(text))
    for char, entity in _HTML:
        text = text.replace(char, entity)
    return _REFERENCE.sub(r"\1<!-- -->", text)
