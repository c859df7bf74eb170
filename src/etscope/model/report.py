"""`Report`: tables of different shapes that together tell of one thing: a file, a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from etscope.model.table import Column, Kind, Table


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: a table, and its name for machines (the table's title is for people).

    `is_facts`: the table has one row, of which each column is a fact on its own; people get the
    facts below each other.
    """

    name: str
    table: Table
    is_facts: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Sections about one thing, which `about` tells in names: {"file": "a.pte", "kind": "pte"}."""

    about: Mapping[str, str]
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section | None:
        """The section of that name, None if the report has none."""
        return next((section for section in self.sections if section.name == name), None)


def facts(
    name: str, title: str, entries: Iterable[tuple[Column, Any]], notes: tuple[str, ...] = ()
) -> Section:
    """A section of single facts; one whose value is None is unknown or does not apply."""
    entries = list(entries)
    return Section(
        name,
        Table(
            columns=tuple(column for column, _ in entries),
            values={column.name: [value] for column, value in entries},
            title=title,
            notes=notes,
        ),
        is_facts=True,
    )


def rows(
    name: str,
    title: str,
    columns: Sequence[Column],
    content: Iterable[Sequence[Any]],
    notes: tuple[str, ...] = (),
    depth: Sequence[int] | None = None,
) -> Section:
    """A section of rows, each with a value for each of `columns`."""
    content = list(content)
    return Section(
        name,
        Table(
            columns=tuple(columns),
            values={column.name: [row[i] for row in content] for i, column in enumerate(columns)},
            title=title,
            notes=notes,
            depth=depth,
        ),
    )


def filled_columns(table: Table) -> tuple[str, ...]:
    """The names of the columns in which some row has a value other than zero; the first always."""
    return tuple(
        name
        for position, name in enumerate(table.names)
        if position == 0 or any(_is_something(value) for value in table.values[name])
    )


def limited(report: Report, rows: int) -> Report:
    """The report with at most so many rows in each section, and notes of how many more it had."""
    return replace(report, sections=tuple(_limited(s, rows) for s in report.sections))


def _limited(section: Section, rows: int) -> Section:
    more = len(section.table) - rows
    if more <= 0:
        return section
    table = section.table.take(range(rows))
    note = f"{more:,} more {'row is' if more == 1 else 'rows are'} not shown (--limit)."
    return replace(section, table=replace(table, notes=(note, *table.notes)))


def _is_something(value: Any) -> bool:
    return value is not None and value != "" and value != [] and value != 0


def flat_table(reports: Sequence[Report]) -> Table:
    """All values of all reports as one table, a value a row.

    Its columns are those of `about`, then section, row (which row of the section; none for a
    fact), name (with the unit: "first_ms") and value, which is as it is in its own table.
    """
    about = list(dict.fromkeys(key for report in reports for key in report.about))
    values: dict[str, list[Any]] = {
        name: [] for name in (*about, "section", "row", "name", "value")
    }
    for report in reports:
        for section in report.sections:
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
