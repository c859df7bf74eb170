"""The summary of a run: times of its methods, and what its files hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from etscope.analysis.backend_files.file_views import file_table, for_readers
from etscope.analysis.backend_files.placement import PlacedFile
from etscope.analysis.info.etdump_info import etdump_sections
from etscope.analysis.info.etrecord_info import etrecord_sections
from etscope.analysis.info.program_info import program_sections
from etscope.analysis.matching.export import Export
from etscope.analysis.profile.trace import Trace
from etscope.formats.etrecord.reader import RecordFile
from etscope.model.event_table import LOAD_METHOD
from etscope.model.graph import Graph
from etscope.model.report import Section
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind, Table
from etscope.views.page.method import (
    ShownMethod,
)

_MOST_FILE_ROWS = 1_000  # of a tool's file, so that the page stays small


def backend_file_sections(placed: Sequence[PlacedFile]) -> Iterator[Section]:
    """Yield a table for each file that a backend's tool wrote."""
    for number, one in enumerate(placed):
        table = file_table(one, _MOST_FILE_ROWS)
        yield Section(f"backend_file_{number}", for_readers(table))


def file_sections(
    export: Export, trace: Trace | None, graphs: Mapping[str, Graph]
) -> Iterator[Section]:
    """Yield the contents of the files, as `etscope info` shows them, without the sections that have
    a separate view."""
    if trace is not None:
        yield from _named("dump", "ETDump", etdump_sections(trace.dump, trace.blocks))
    if isinstance(export.record, RecordFile):
        yield from _named("record", "ETRecord", etrecord_sections(export.record, graphs))
    if export.recorded_program is not None:
        yield from _named("program", "Program", program_sections(export))


_ELSEWHERE = {"members", "memory", "named_data"}


def _named(file: str, what: str, sections: Iterable[Section]) -> Iterator[Section]:
    for section in sections:
        if section.name not in _ELSEWHERE:
            is_file = section.name == "file"
            name = file if is_file else f"{file}_{section.name}"
            title = section.table.title
            title = what if is_file else f"{what}: {title[:1].lower()}{title[1:]}"
            yield replace(section, name=name, table=replace(section.table, title=title))


def profile_section(methods: Sequence[ShownMethod]) -> Section:
    """Return the time of each method."""
    profiles, scale = [shown.profile for shown in methods], methods[0].scale
    samples = [scale(profile.total) for profile in profiles]
    loads = [profile.load.get(LOAD_METHOD) for profile in profiles]
    unaccounted = [float(scale(profile.unaccounted).mean()) for profile in profiles]
    names = ("avg", "p50", "p90", "min", "max")
    found = [summarize(one, names) for one in samples]
    statistics = {name: [float(one[name]) for one in found] for name in names}

    def time(name: str, title: str | None = None) -> Column:
        return Column(name, Kind.DURATION, scale.unit, title=title)

    columns: dict[Column, Sequence[Any]] = {
        Column("method"): [shown.name for shown in methods],
        Column("runs"): [profile.runs_in_words for profile in profiles],
        time("load", "load, traced"): [
            None if load is None else float(scale(load).mean()) for load in loads
        ],
        time("first", "first recorded run"): [float(scale(p.every.total[0])) for p in profiles],
        **{time(name): values for name, values in statistics.items()},
        time("unaccounted"): unaccounted,
        Column("unaccounted_share", Kind.SHARE, title="of the average"): [
            spent / average if average else None
            for spent, average in zip(unaccounted, statistics["avg"], strict=True)
        ],
        Column("traced", Kind.BOOL, title="values were logged"): [p.traced for p in profiles],
    }
    notes = (
        "Unaccounted: time outside all instructions, which is the runtime's work between them "
        "and the cost of tracing.",
    )
    return Section("profile", Table.of(columns, title="Times of the methods", notes=notes))
