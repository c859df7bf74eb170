"""The sections of the page's summary: how long the methods took, and what the files hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from etscope.analysis.info.etdump_info import etdump_sections
from etscope.analysis.info.etrecord_info import etrecord_sections
from etscope.analysis.info.program_info import program_sections
from etscope.analysis.memory.memory import MemoryPlan
from etscope.analysis.profile.profile import LOAD_METHOD
from etscope.analysis.profile.rollup import grouped_table
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etrecord.reader import RecordFile, RecordView
from etscope.formats.program.pte import Program
from etscope.model.graph import Graph
from etscope.model.report import Section, rows
from etscope.model.table import Column, Kind
from etscope.views.page.method import ShownMethod

_LONGEST = 15  # groups of a roll-up


def profile_sections(methods: Sequence[ShownMethod], scale: Scale) -> Iterator[Section]:
    """How long each method took, then its time by kind of instruction and by operator."""
    if methods:
        yield _methods(methods, scale)
    for shown in methods:
        for by, what in (("type", "kind of instruction"), ("op", "operator")):
            table = grouped_table(shown.profile, scale, by, limit=_LONGEST)
            suffix = "" if len(methods) == 1 else f"_{shown.name}"
            title = f"{shown.name}: time by {what}"
            yield Section(f"by_{by}{suffix}", replace(table, title=title))


def file_sections(
    trace: Trace | None,
    record: RecordView | None,
    program: Program | None,
    graphs: Mapping[str, Graph],
    plans: Mapping[str, MemoryPlan],
) -> Iterator[Section]:
    """What the files hold, as `etscope info` tells it, without what has a view of its own."""
    if trace is not None:
        yield from _named("dump", "ETDump", etdump_sections(trace.dump, trace.blocks))
    if isinstance(record, RecordFile):
        yield from _named("record", "ETRecord", etrecord_sections(record, graphs))
    if program is not None:
        yield from _named("program", "Program", program_sections(program, plans))


_ELSEWHERE = {"members", "memory", "named_data"}


def _named(file: str, what: str, sections: Iterable[Section]) -> Iterator[Section]:
    for section in sections:
        if section.name not in _ELSEWHERE:
            is_file = section.name == "file"
            name = file if is_file else f"{file}_{section.name}"
            title = what if is_file else f"{what}: {_lowered(section.table.title)}"
            yield replace(section, name=name, table=replace(section.table, title=title))


def _lowered(title: str) -> str:
    return title[:1].lower() + title[1:]


def _methods(methods: Sequence[ShownMethod], scale: Scale) -> Section:
    unit = scale.unit
    return rows(
        "profile",
        "Times of the methods",
        (
            Column("method"),
            Column("runs", Kind.COUNT),
            Column("load", Kind.DURATION, unit),
            Column("first", Kind.DURATION, unit, title="first run"),
            Column("steady", Kind.DURATION, unit, title="steady (median of the later runs)"),
            Column("avg", Kind.DURATION, unit),
            Column("p50", Kind.DURATION, unit),
            Column("p90", Kind.DURATION, unit),
            Column("min", Kind.DURATION, unit),
            Column("max", Kind.DURATION, unit),
            Column("unaccounted", Kind.DURATION, unit),
            Column("unaccounted_share", Kind.SHARE, title="of the average"),
            Column("traced", Kind.BOOL, title="values were logged"),
        ),
        [_method_row(shown, scale) for shown in methods],
        notes=(
            "Unaccounted is what no instruction accounts for: the runtime's own work between them "
            "and what tracing costs.",
        ),
    )


def _method_row(shown: ShownMethod, scale: Scale) -> Sequence[Any]:
    profile = shown.profile
    samples = scale(profile.total)
    p50, p90 = np.percentile(samples, (50, 90)).tolist()
    load = profile.load.get(LOAD_METHOD)
    unaccounted = float(scale(profile.unaccounted).mean())
    average = float(samples.mean())
    return (
        shown.name,
        len(samples),
        None if load is None else float(scale(load).mean()),
        float(samples[0]),
        float(np.median(samples[1:])) if len(samples) > 1 else None,
        average,
        p50,
        p90,
        float(samples.min()),
        float(samples.max()),
        unaccounted,
        unaccounted / average if average else None,
        profile.traced,
    )
