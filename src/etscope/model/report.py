"""`Report`: tables of different shapes about one subject, such as a file or a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown

__all__ = ["Report", "Section", "facts", "rows"]


@dataclass(frozen=True, slots=True)
class Section(Shown):
    """A part of a report: a table, and its name for programs (the table's title is for readers).

    `is_facts`: the table has one row, and each column is a fact; readable formats write one fact on
    each line.
    """

    name: str
    table: Table
    is_facts: bool = False


@dataclass(frozen=True, slots=True)
class Report(Shown):
    """Sections about one subject, which `about` identifies: {"file": "a.pte", "kind": "pte"}.

    summary: a short version in sentences, before the sections; Markdown then folds the sections.
    """

    about: Mapping[str, str]
    sections: tuple[Section, ...]
    summary: tuple[str, ...] = ()

    def section(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)


def facts(
    name: str, title: str, entries: Iterable[tuple[Column, Any]], notes: tuple[str, ...] = ()
) -> Section:
    """Make a section of single facts; the value None is unknown or does not apply."""
    content = {column: [value] for column, value in entries}
    return Section(name, Table.of(content, title=title, notes=notes), is_facts=True)


def rows(
    name: str,
    title: str,
    columns: Sequence[Column],
    content: Iterable[Sequence[Any]],
    notes: tuple[str, ...] = (),
    depth: Sequence[int] | None = None,
) -> Section:
    """Make a section of rows, each with a value for each of `columns`."""
    return Section(name, Table.of_rows(columns, content, title=title, notes=notes, depth=depth))


def filled_columns(table: Table) -> tuple[str, ...]:
    """Return the names of the columns with a value other than zero, and always the first one."""
    return tuple(
        name
        for position, name in enumerate(table.names)
        if position == 0 or any(value not in (None, "", [], 0) for value in table.values[name])
    )


def limited(report: Report, rows: int) -> Report:
    """Limit each section to `rows` rows, with a note on the number of missing rows."""
    sections = []
    for section in report.sections:
        more = len(section.table) - rows
        if more > 0:
            table = section.table.take(range(rows))
            note = f"{more:,} more {'row is' if more == 1 else 'rows are'} not shown (--limit)."
            section = replace(section, table=replace(table, notes=(note, *table.notes)))
        sections.append(section)
    return replace(report, sections=tuple(sections))


def flat_table(reports: Sequence[Report]) -> Table:
    """Flatten reports to one table with a row for each value.

    Its columns are the keys of `about`, then section, row (number in the section; none for a fact),
    name (with the unit: "first_ms") and value, unchanged. A summary becomes the section "summary".
    """
    about = list(dict.fromkeys(key for report in reports for key in report.about))
    values: dict[str, list[Any]] = {
        name: [] for name in (*about, "section", "row", "name", "value")
    }
    for report in reports:
        summary = rows("summary", "", (Column("sentence"),), [(text,) for text in report.summary])
        for section in (summary, *report.sections):
            for number, row in enumerate(section.table.rows()):
                for column, value in zip(section.table.columns, row, strict=True):
                    for key in about:
                        values[key].append(report.about.get(key))
                    values["section"].append(section.name)
                    values["row"].append(None if section.is_facts else number)
                    values["name"].append(column.key)
                    values["value"].append(value)
    return Table(
        columns=tuple(Column(n, Kind.INT if n == "row" else Kind.TEXT) for n in values),
        values=values,
    )
