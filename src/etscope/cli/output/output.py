"""From tables to the chosen output, the same way for every verb."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etscope.model.report import Report
    from etscope.model.table import Table

_COLOR = {"auto": None, "always": True, "never": False}


def write_tables(
    tables: Sequence[Table],
    columns: Sequence[str] | None,
    default: Sequence[str] | None,
    format: str | None,
    output: Path | None,
    color: str,
) -> None:
    """Write tables of the same columns to standard output or a file.

    `columns` are those that were asked for. Without them people get `default` and machines get
    all; people get the tables one below the other, machines one table.
    """
    from etscope.model.table import joined
    from etscope.views import TABLE_VIEWS, format_of, write_table
    from etscope.views.output import open_output

    path = "-" if output is None else str(output)
    chosen = format or format_of(path, TABLE_VIEWS, default="table")
    people = for_people(format, output)
    tables = select_columns(tables, columns, default if people else None)
    if not people:
        tables = [joined(tables)]
    with open_output(path, binary=TABLE_VIEWS[chosen].binary) as out:
        for position, table in enumerate(tables):
            if position:
                out.write("\n")
            write_table(table, chosen, out, color=_COLOR[color])


def select_columns(
    tables: Sequence[Table], columns: Sequence[str] | None, default: Sequence[str] | None
) -> list[Table]:
    """The tables with the columns that were asked for, or else those of `default` (None: all)."""
    shown = columns or default
    chosen = [table if shown is None else table.select(shown) for table in tables]
    # What was asked for is shown, however narrow the terminal.
    return chosen if columns is None else [_all_kept(table) for table in chosen]


def for_people(format: str | None, output: Path | None) -> bool:
    """Whether the output is for people, who get several tables, or for programs."""
    from etscope.views import TABLE_VIEWS, format_of

    path = "-" if output is None else str(output)
    return (format or format_of(path, TABLE_VIEWS, default="table")) in ("table", "md")


def write_reports(
    reports: Sequence[Report],
    schema: str,
    format: str | None,
    output: Path | None,
    color: str,
    *,
    limit: int | None = None,
    people_limit: int | None = None,
) -> None:
    """Write reports to standard output or a file; `schema` is of the JSON document.

    `limit`: at most so many rows of each section; None: all for programs, `people_limit` for
    people.
    """
    from etscope.model.report import limited
    from etscope.views import TABLE_VIEWS, format_of
    from etscope.views.output import open_output
    from etscope.views.tables import report as view

    path = "-" if output is None else str(output)
    chosen = format or format_of(path, TABLE_VIEWS, default="table")
    limit = people_limit if limit is None and chosen in ("table", "md") else limit
    if limit is not None:
        reports = [limited(report, limit) for report in reports]
    with open_output(path, binary=TABLE_VIEWS[chosen].binary) as out:
        view.write_reports(reports, schema, chosen, out, color=_COLOR[color])


def _all_kept(table: Table) -> Table:
    return replace(table, columns=tuple(replace(c, priority=0) for c in table.columns))
