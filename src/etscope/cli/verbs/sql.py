"""`etscope sql`: questions to a dataset of dumps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import output_options

if TYPE_CHECKING:
    from etscope.model.report import Report
    from etscope.model.table import Table

_PEOPLE_LIMIT = 100


@click.command(short_help="Ask a dataset of dumps in SQL.")
@click.argument("dataset", required=False, type=click.Path())
@click.argument("statement", metavar="[SQL]", required=False)
@click.option("--saved", metavar="NAME", help="Ask a saved query.")
@click.option("--list-saved", is_flag=True, help="List the saved queries and their parameters.")
@click.option("--show-saved", metavar="NAME", help="Print the SQL of a saved query.")
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value for $NAME. Repeatable.",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Show N rows at most. Default: all; {_PEOPLE_LIMIT} in a table for people.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time of a query.",
)
@output_options
def command(
    dataset: str | None,
    statement: str | None,
    saved: str | None,
    list_saved: bool,
    show_saved: str | None,
    parameters: tuple[str, ...],
    limit: int | None,
    timeout: float,
    format: str | None,
    output: Path | None,
    color: str,
) -> int | None:
    """Ask DATASET, which etscope collect made, in the SQL of DuckDB.

    There are two views: events, a row for each timed event of each run, and dumps, a row for each
    dump; "describe events" tells their columns. A query can read these and nothing else. Columns
    of the answer whose names end in _ns, _us, _ms, _s, _bytes or share are shown in that unit. SQL
    of - is read from standard input.

    \b
    etscope sql dataset "select op, sum(duration_ns) as total_ns from events
                         where kind = 'kernel' group by op order by 2 desc"
    etscope sql dataset --saved slowest-ops --param 'device=pixel*'
    """
    from etscope.cli.output.output import for_people, write_reports, write_tables
    from etscope.cli.output.progress import progress
    from etscope.errors import MissingDataError, UsageError
    from etscope.fleet import query
    from etscope.fleet.query import saved_query

    if show_saved is not None:
        click.echo(saved_query(show_saved).sql, nl=False)
        return None
    if list_saved:
        report = _saved_list(columns=not for_people(format, output))
        write_reports([report], "etscope.saved-queries/1", format, output, color)
        return None
    if dataset is None or (statement is None) == (saved is None):
        raise UsageError("expected a dataset, and either SQL or --saved NAME")
    if statement == "-":
        statement = sys.stdin.read()
    given = _pairs(parameters)
    if limit is None and for_people(format, output):
        limit = _PEOPLE_LIMIT
    with progress(f"asking {dataset}"):
        if saved is None:
            values = {name: _value(text) for name, text in given.items()}
            table = query(dataset, statement or "", values, limit=limit, timeout=timeout)
        else:
            known = saved_query(saved)
            values = known.values(given)
            table = query(dataset, known.sql, values, limit=limit, timeout=timeout)
            if not len(table):
                raise MissingDataError(
                    f"no row: nothing in {dataset} is what {saved} asks for",
                    hint="select model, device, labels from dumps shows what there is",
                )
    write_tables([_with_rows(table)], None, None, format, output, color)
    return None


def _with_rows(table: Table) -> Table:
    from dataclasses import replace

    return table if len(table) else replace(table, notes=("No rows.",))


def _pairs(parameters: tuple[str, ...]) -> dict[str, str]:
    from etscope.errors import UsageError

    found = {}
    for pair in parameters:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"{pair!r} is no parameter", hint="parameters are NAME=VALUE")
        found[name.strip().removeprefix("$")] = value
    return found


def _value(text: str) -> Any:
    """A number, true, false, null or "text in quotes" as JSON has them; else the text itself."""
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, (list, dict)) else value


def _saved_list(*, columns: bool) -> Report:
    from etscope.fleet import saved_queries
    from etscope.model.report import Report, rows
    from etscope.model.table import Column, Kind

    found = saved_queries().values()
    sections = [
        rows(
            "queries",
            "Saved queries",
            (Column("name"), Column("question"), Column("parameters", Kind.LIST)),
            [
                (q.name, q.question, [_parameter(p.name, p.default) for p in q.parameters])
                for q in found
            ],
        ),
        rows(
            "parameters",
            "Parameters",
            (
                Column("query"),
                Column("parameter"),
                Column("type"),
                Column("default"),
                Column("about"),
            ),
            [(q.name, p.name, p.type, p.default, p.about) for q in found for p in q.parameters],
        ),
    ]
    if columns:  # people have them in the answer, and in --show-saved
        sections.append(
            rows(
                "columns",
                "Columns",
                (Column("query"), Column("column"), Column("about")),
                [(q.name, name, about) for q in found for name, about in q.columns.items()],
            )
        )
    return Report({"kind": "saved queries"}, tuple(sections))


def _parameter(name: str, default: str | None) -> str:
    return name if default is None else f"{name}={default}"
