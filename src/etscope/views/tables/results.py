"""The HTML that a notebook shows for a result: static, with all text from files escaped."""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from etscope.analysis.matching.export import Export
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.errors import EtscopeError
from etscope.formats.program.pte import Program
from etscope.model.report import Report, Section, filled_columns
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import field_texts
from etscope.units import TimeScale, count
from etscope.views.tables.formats import write_html
from etscope.views.tables.report import turned

__all__ = ["html_of"]

_ROWS = 30  # of a table
_PRIORITY = 3  # of columns: a wide terminal has no others

# The function that returns the report or its sections, by class.
_REPORTS = {
    "BundledFile": "info.program_info:bundled_sections",
    "ETDump": "info.etdump_info:etdump_sections",
    "Export": "info.program_info:program_sections",
    "ExternalData": "info.program_info:external_sections",
    "ProgramDiff": "comparison.program_report:program_diff_report",
    "RecordFile": "info.etrecord_info:etrecord_sections",
}


def html_of(result: Any, scale: Scale | None = None) -> str | None:
    """Return the HTML of a result: of its tables, else of its fields; None if it has neither.

    Each table has at most 30 rows. scale: of a trace's times; by default its clock counts
    nanoseconds.
    """
    scale = scale or Scale(TimeScale.NS, TimeScale.MS)
    out = io.StringIO()
    for table in _tables_of(result, scale):
        filled = set(filled_columns(table))
        names = [c.name for c in table.columns if c.name in filled and c.priority <= _PRIORITY]
        more = len(table) - _ROWS
        if more > 0:
            note = f"{count(more, 'row')} not shown."
            table = replace(table.take(range(_ROWS)), notes=(note, *table.notes))
        write_html(table.select(names), out)
    return f'<div class="etscope">\n{out.getvalue()}</div>' if out.getvalue() else None


def _tables_of(result: Any, scale: Scale) -> Iterator[Table]:
    """Yield the tables of a result: its own, or a command's about it."""
    from etscope.analysis.tables.profile_table import profile_table

    if isinstance(result, Program):
        result = Export(result)
    elif isinstance(getattr(type(result), "trace", None), property):  # of a run
        with suppress(EtscopeError):  # nothing was traced
            result = result.trace or result
    report = _REPORTS.get(type(result).__name__)
    if isinstance(result, Table):
        yield result
    elif isinstance(result, Section):
        yield turned(result.table) if result.is_facts else result.table
    elif isinstance(result, MethodProfile):
        yield profile_table(result, scale, limit=_ROWS)
    elif isinstance(result, Trace):
        dump = result.dump
        counts = f"{count(dump.num_runs, 'run')}, {count(dump.num_events, 'event')}"
        profiles = result.profiles()
        counts += "" if profiles else "; no method was executed with the tracer on"
        yield Table.of(
            {Column("ETDump", Kind.PATH): [dump.path or "in memory"], Column("content"): [counts]}
        )
        for profile in profiles:
            yield from _tables_of(profile, scale)
    elif isinstance(result, tuple):
        for section in result:
            yield from _tables_of(section, scale)
    elif isinstance(result, Report):
        if result.summary:
            yield Table.of({Column("summary"): result.summary})
        yield from _tables_of(result.sections, scale)
    elif report is not None:
        module, _, function = report.partition(":")
        found = importlib.import_module(f"etscope.analysis.{module}")
        yield from _tables_of(getattr(found, function)(result), scale)
    elif callable(getattr(result, "table", None)):
        yield result.table()
    elif callable(getattr(result, "report", None)):
        yield from _tables_of(result.report(), scale)
    else:
        known = list(field_texts(result))
        if known:
            title = type(result).__name__
            yield Table.of_rows((Column("field"), Column("value")), known, title=title)
