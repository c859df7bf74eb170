"""`etscope lab sql`: query a dataset of dumps."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import COUNT, SECONDS, output_options, pairs_option
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import verb
from etscope.errors import MissingDataError, UsageError
from etscope_lab.cli.options import LabOptions, in_lab

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etscope.model.report import Report
    from etscope_lab.fleet import Dataset, SavedQuery

_TEXT_ROWS = 100


_DETAILS = """\
There are four views: events, a row for each timed event of each run; leaves, the events
that add up to the executions; dumps, a row for each dump; and results, the dumps and the results
without one: jobs that failed or were not traced, and benchmark records. "describe events" lists
their columns. A query can read these and nothing else. Columns of the result whose names end in
_ns, _us, _ms, _s, _bytes or share are shown in that unit. compare(before, after), of two lists of
times, gives the verdict of etscope diff. If SQL is -, it is read from standard input.

Without DATASET, the results of the lab are queried: its jobs that ended until now. SQL files in
the folder dashboards of the lab are saved queries, too; the page /dashboards shows them all.

The calls of a language model have the columns phase, position and tokens: "where position
between 100 and 199" chooses calls.

\b
etscope lab sql dataset "select op, sum(duration_ns) as total_ns from events
                     where kind = 'kernel' group by op order by 2 desc"
etscope lab sql dataset --saved slowest-ops --param 'device=pixel*'
"""


@verb(
    {
        "Queries": ("--saved", "--list-saved", "--show-saved", "--param"),
        "Output": ("--limit", "--format", "--output"),
    },
    details=_DETAILS,
)
@click.argument("dataset", required=False, type=click.Path())
@click.argument("statement", metavar="[SQL]", required=False)
@click.option("--saved", metavar="NAME", help="Run a saved query.")
@click.option("--list-saved", is_flag=True, help="List the saved queries and their parameters.")
@click.option("--show-saved", metavar="NAME", help="Print the SQL of a saved query.")
@pairs_option(
    "--param", "parameters", metavar="NAME=VALUE", help="Set the parameter $NAME. Repeatable."
)
@click.option(
    "--limit",
    "-n",
    type=COUNT,
    metavar="N",
    help=f"Show at most N rows. Default: {_TEXT_ROWS} in a text, else all.",
)
@click.option(
    "--timeout", type=SECONDS, default=300.0, metavar="SECONDS", help="Time limit of a query."
)
@in_lab
@output_options
def command(
    dataset: str | None,
    statement: str | None,
    saved: str | None,
    list_saved: bool,
    show_saved: str | None,
    parameters: dict[str, str],
    limit: int | None,
    timeout: float,
    where: LabOptions,
    output: OutputOptions,
) -> None:
    """Query a dataset of dumps, or the results of a lab, in SQL.

    \b
    etscope lab sql 'select state, count(*) from results group by state'
    etscope lab sql --saved results
    etscope lab sql fleet --saved slowest-ops
    """
    from etscope.cli.output.progress import progress
    from etscope_lab.config import Home
    from etscope_lab.fleet import query, saved_queries
    from etscope_lab.fleet.sql import DASHBOARDS, saved_query

    own = Home.open(where.home).folder / DASHBOARDS
    if show_saved is not None:
        click.echo(saved_query(show_saved, own).sql, nl=False)
        return
    if list_saved:
        report = _saved_queries(saved_queries(own).values(), columns=not output.is_text)
        output.write_reports([report], "etscope.saved-queries/1")
        return
    if saved is None and statement is None:
        dataset, statement = None, dataset
    if (statement is None) == (saved is None):
        raise UsageError(
            "expected either SQL or --saved NAME, after a dataset if it is not a lab's"
        )
    if statement == "-":
        statement = sys.stdin.read()
    given = {name.removeprefix("$"): value for name, value in parameters.items()}
    if limit is None and output.is_text:
        limit = _TEXT_ROWS
    if saved is None:
        sql, values = statement or "", {name: _json_scalar(text) for name, text in given.items()}
    else:
        known = saved_query(saved, own)
        sql, values = known.sql, known.values(given)
    with progress(f"querying {dataset or 'the lab'}"):
        asked = _of_lab(where) if dataset is None else dataset
        table = query(asked, sql, values, limit=limit, timeout=timeout)
    if saved is not None:
        if not len(table):
            raise MissingDataError(
                f"no row: nothing in {dataset or 'the lab'} matches the query {saved}",
                hint="select model, device, labels from results lists what there is",
            )
        details = saved_query(saved, own).details
        columns = (replace(c, priority=5 * (c.name in details)) for c in table.columns)
        table = replace(table, columns=tuple(columns))
    if not len(table):
        table = replace(table, notes=("No rows.",))
    output.write_tables([table])


def _of_lab(where: LabOptions) -> Dataset:
    """The dataset of the lab, brought up to date."""
    from etscope_lab.fleet.lab_results import lab_dataset
    from etscope_lab.lab import Lab

    if where.server is not None:
        raise UsageError(
            "the results of a server are queried on its machine",
            hint=f"or collect them: etscope lab collect --lab {where.server} -o DATASET",
        )
    with Lab.open(where.home) as lab:
        return lab_dataset(lab)


def _json_scalar(text: str) -> Any:
    """Parse a number, true, false, null or "text in quotes" as JSON; else return the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, (list, dict)) else value


def _saved_queries(found: Iterable[SavedQuery], *, columns: bool) -> Report:
    """Return the report of saved queries. columns: add the columns of their results."""
    from etscope.model.report import Report, rows
    from etscope.model.table import Column, Kind

    found = list(found)
    parameters = {
        q.name: [p.name if p.default is None else f"{p.name}={p.default}" for p in q.parameters]
        for q in found
    }
    sections = [
        rows(
            "queries",
            "Saved queries",
            (Column("name"), Column("question"), Column("parameters", Kind.LIST)),
            [(q.name, q.question or q.error, parameters[q.name]) for q in found],
        ),
        rows(
            "parameters",
            "Parameters",
            tuple(map(Column, ("query", "parameter", "type", "default", "about"))),
            [(q.name, p.name, p.type, p.default, p.about) for q in found for p in q.parameters],
        ),
    ]
    if columns:
        content = [(q.name, name, about) for q in found for name, about in q.columns.items()]
        heads = tuple(map(Column, ("query", "column", "about")))
        sections.append(rows("columns", "Columns", heads, content))
    return Report({"kind": "saved queries"}, tuple(sections))
