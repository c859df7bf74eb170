"""Elements of the page's document: tables, and the source lines that stack traces name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from etscope.model.graph import SourceLine, source_lines
from etscope.model.report import Section
from etscope.model.table import Column, Kind, Table
from etscope.views.output import finite
from etscope.views.tables.cells import plain_values

Json = dict[str, Any]
CHOSEN = 10  # priority of columns that are shown only if the reader chooses them


def table_document(table: Table) -> Json:
    """The `TableDoc` of a table: missing values null, infinities "Infinity" and "-Infinity"; a
    metric that is not a number is "NaN", while NaN in place of a time is a missing time."""
    document: Json = {
        "title": table.title,
        "columns": [
            {
                "name": column.name,
                "title": column.title or column.name.replace("_", " "),
                "kind": column.kind.value,
                "unit": column.unit,
                "priority": column.priority,
            }
            for column in table.columns
        ],
        "values": {
            column.name: finite(plain_values(column, table.values[column.name]))
            for column in table.columns
        },
        "notes": list(table.notes),
    }
    for column in table.columns:
        if column.kind is Kind.FLOAT:
            for row, value in enumerate(table.values[column.name]):
                if isinstance(value, float) and math.isnan(value):
                    document["values"][column.name][row] = "NaN"
    if table.depth is not None:
        document["depth"] = [int(level) for level in table.depth]
    if table.breaks:
        document["breaks"] = sorted(table.breaks)
    return document


def table_of(document: Json) -> Table:
    """Return the table of a `TableDoc`."""
    columns = [
        Column(one["name"], Kind(one["kind"]), one["unit"], one["title"], one["priority"])
        for one in document["columns"]
    ]
    depth, breaks = document.get("depth"), frozenset(document.get("breaks", ()))
    notes = tuple(document["notes"])
    return Table(tuple(columns), document["values"], document["title"], notes, depth, breaks)


def section_document(section: Section) -> Json:
    table = table_document(section.table)
    return {"name": section.name, "table": table, "facts": section.is_facts}


class Lines:
    """Collects lines of Python, each once, and gives them an index."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._index: dict[tuple[str, int], int] = {}
        self._lines: list[SourceLine] = []
        self._stacks: dict[str, list[int]] = {}

    def index(self, line: SourceLine) -> int:
        """The line's index. The first occurrence that has a text gives the text."""
        position = line.file, line.line
        if position not in self._index:
            self._files.setdefault(line.file, len(self._files))
            self._index[position] = len(self._lines)
            self._lines.append(line)
        number = self._index[position]
        if line.text and not self._lines[number].text:
            self._lines[number] = line
        return number

    def all_of(self, lines: Iterable[SourceLine]) -> list[int]:
        return [self.index(line) for line in lines]

    def stack(self, trace: str | None) -> list[int]:
        """The indices of a traceback's lines, outermost first."""
        if not trace:
            return []
        if trace not in self._stacks:
            self._stacks[trace] = self.all_of(source_lines(trace))
        return self._stacks[trace]

    def document(self) -> Json:
        """The page's `SourceDoc`."""
        return {
            "files": list(self._files),
            "lines": [
                {
                    "file": self._files[line.file],
                    "line": line.line,
                    "function": line.function,
                    "text": line.text,
                }
                for line in self._lines
            ],
        }
