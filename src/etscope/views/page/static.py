"""A run's summary as a small piece of static HTML, for notebooks, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.profile_table import DEFAULT_COLUMNS, profile_table
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.model.report import filled_columns
from etscope.model.table import Kind, Table
from etscope.views.tables.cell_values import is_number
from etscope.views.tables.text_cells import table_texts, visible

_ROWS = 10  # the longest operators of each method
_LONGEST = 60  # characters of a cell


def summary_html(trace: Trace, scale: Scale) -> str:
    """The times of each method and its longest operators. All text from files is escaped."""
    name = trace.dump.path or "an ETDump in memory"
    profiles = trace.profiles()
    parts = [f"<p><b>ETDump</b> {_text(name)}: {_counted(trace, profiles)}</p>"]
    parts += [_table(profile_table(profile, scale, limit=_ROWS)) for profile in profiles]
    return f'<div class="etscope">{"".join(parts)}</div>'


def _counted(trace: Trace, profiles: Sequence[MethodProfile]) -> str:
    dump = trace.dump
    counted = f"{dump.num_runs:,} runs, {dump.num_events:,} events"
    return counted if profiles else f"{counted}; no method was executed with the tracer on"


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
    """Text as HTML shows it: nothing in it is markup, and what cannot be seen is."""
    return escape(visible(text))
