"""The one document that the page shows: the report's HTML file, `etscope serve` and TensorBoard.

Its form is `web/src/document.ts`. Every number is the Inspector's own; what needs a graph, a
profile or a plan is made from one that is made once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from etscope._version import __version__
from etscope.analysis.graphs.views import EXECUTED, GraphView, ViewNode, graph_views, with_errors
from etscope.analysis.info.etdump_info import etdump_sections
from etscope.analysis.info.etrecord_info import etrecord_sections
from etscope.analysis.info.program_info import program_sections
from etscope.analysis.memory import MemoryPlan, memory_plan
from etscope.analysis.numerics.rows import Numerics, NumericsRow, described
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.profile_table import grouped_table
from etscope.analysis.profile.scale import Scale, TimeConverter
from etscope.analysis.profile.timeline import few_runs, loading_runs, run_spans
from etscope.analysis.profile.trace import Trace
from etscope.errors import MissingDataError
from etscope.formats.etrecord.reader import EDGE, RecordFile, RecordView
from etscope.formats.program.pte import Program, read_pte
from etscope.model.event_table import LOAD_METHOD
from etscope.model.graph import Graph
from etscope.model.report import Section
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind, Table
from etscope.units import TimeScale
from etscope.views.page.elements import Json, Lines, section_document, table_document
from etscope.views.page.graphs import ShownGraph, graph_document
from etscope.views.page.method import (
    ShownMethod,
    events_document,
    memory_documents,
    method_document,
)

SCHEMA = "etscope.report/1"
_NAMED = 3  # runs that are named in the title

# -- The inputs: opened files, and results about them.

NANOSECONDS = Scale(TimeScale.NS, TimeScale.MS)


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file. role: "dump", "record", "program", "debug buffer". sha256: None if not computed."""

    role: str
    name: str
    bytes: int
    sha256: str | None = None


@dataclass(frozen=True)
class ReportInput:
    """One run of a report: a dump with its files, or a record or program alone.

    name: shown in the report. trace: None without a dump; record and program are given then. scale:
    from the dump's ticks to the report's times. convert: the user's, for events inside delegates.
    sections: the first tables of the summary, on the run's environment. notes: sentences for the
    reader. numerics: the diagnosis of the run's values; numerics_note: why there is none, or what
    it leaves out. views: the graphs, if they are already known, with the errors of `numerics`.
    """

    name: str
    trace: Trace | None = None
    record: RecordView | None = None
    program: Program | None = None
    scale: Scale = NANOSECONDS
    convert: TimeConverter | None = None
    files: Sequence[FileFact] = ()
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    numerics: Numerics | None = None
    numerics_note: str | None = None
    views: Sequence[GraphView] | None = None


# -- The document.


def document_of(inputs: Sequence[ReportInput], title: str | None = None) -> Json:
    """The `ReportDocument` of runs, as plain values for JSON. title: None for the runs' names."""
    names = [found.name for found in inputs]
    if len(names) > _NAMED:
        names[_NAMED:] = [f"{len(names) - _NAMED} more"]
    return {
        "schema": SCHEMA,
        "title": title or " · ".join(names),
        "generator": f"etscope {__version__}",
        "runs": [_run(found, f"run{number}") for number, found in enumerate(inputs)],
    }


def _run(found: ReportInput, identifier: str) -> Json:
    lines = Lines()
    trace = found.trace
    if trace is not None:
        record, program = trace.record, trace.recorded_program
    else:
        record, program = found.record, found.program
        stored = None if record is None or program is not None else record.program_view()
        program = program if stored is None else read_pte(stored)
    profiles = [] if trace is None else trace.profiles()
    methods = [ShownMethod.of(number, profile) for number, profile in enumerate(profiles)]
    graphs = [ShownGraph(view) for view in _views(found, record, program)]
    numerics = found.numerics
    metric = None if numerics is None else numerics.metric
    plans = (
        {} if program is None else {m.name: memory_plan(program, m.name) for m in program.methods}
    )
    named = () if record is None else record.graph_names
    views = [shown.view for shown in graphs]
    known = {view.linked.name: view.graph for view in views if view.linked.name in named}
    edges = {
        shown.view.method: shown
        for shown in graphs
        if shown.view.linked.name == f"{EDGE}/{shown.view.method}"
    }
    sections = [
        *found.sections,
        *profile_sections(methods, found.scale),
        *file_sections(trace, record, program, known, plans),
    ]
    return {
        "id": identifier,
        "name": found.name,
        "unit": found.scale.unit,
        "files": [asdict(file) for file in found.files],
        "notes": [*found.notes, *_notes(found, record, program, profiles)],
        "summary": [section_document(section) for section in sections],
        "methods": _method_documents(found, methods, graphs, lines),
        "graphs": [
            graph_document(shown, found.scale, lines, metric, edges.get(shown.view.method))
            for shown in graphs
        ],
        "numerics": None
        if numerics is None
        else numerics_document(numerics, methods, graphs, lines),
        "numericsNote": found.numerics_note,
        "memory": memory_documents(plans, methods),
        "timeline": None if trace is None else timeline_document(trace, methods, found.scale),
        "source": lines.document(),  # last: all of the above add lines
    }


def _views(
    found: ReportInput, record: RecordView | None, program: Program | None
) -> tuple[GraphView, ...]:
    if found.views is not None:
        return tuple(found.views)
    if record is None and program is None:
        return ()
    try:
        views = graph_views(record, found.trace, program)
        return views if found.numerics is None else with_errors(views, found.numerics)
    except MissingDataError:  # a record without graphs and without a program
        return ()


def _method_documents(
    found: ReportInput, methods: Sequence[ShownMethod], graphs: Sequence[ShownGraph], lines: Lines
) -> list[Json]:
    documents: list[Json] = []
    for shown in methods:
        document = method_document(shown, found.scale, lines)
        document["links"]["nodes"] = {
            graph.view.key: graph.rows(shown.rows)
            for graph in graphs
            if graph.view.method in (shown.profile.method, None)
            or graph.view.profile is shown.profile
        }
        if found.trace is not None:
            # The first method also has the runs that executed nothing.
            runs = set(shown.profile.runs.tolist())
            blocks = [
                block
                for block in found.trace.blocks
                if (int(block.runs[0]) in runs if block.executions else not documents)
            ]
            document["events"], document["eventRow"] = events_document(
                found.trace, blocks, shown, found.scale, found.convert
            )
        documents.append(document)
    return documents


def _notes(
    found: ReportInput,
    record: RecordView | None,
    program: Program | None,
    profiles: Sequence[MethodProfile],
) -> list[str]:
    notes = []
    if found.trace is not None and record is None:
        notes.append(
            "No ETRecord was given: modules, lines of Python and graphs of the model are not known."
        )
    if found.trace is not None and not profiles:
        notes.append(
            "The dump holds no Method::execute event: there are no times. Run the method with the "
            "event tracer on."
        )
    if program is None:
        notes.append("No program was given: its memory plan is not known.")
    if found.trace is not None and found.trace.forced:
        notes.append("Whether the files belong together was not checked.")
    return [note for note in notes if note not in found.notes]


# -- The sections of the summary: how long the methods took, and what the files hold.

_LONGEST = 15  # groups of a roll-up


def profile_sections(methods: Sequence[ShownMethod], scale: Scale) -> Iterator[Section]:
    """The time of each method, then its time by kind of instruction and by operator."""
    if methods:
        yield _method_times(methods, scale)
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
    """The contents of the files, as `etscope info` tells it, without what has a view of its own."""
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
            title = section.table.title
            title = what if is_file else f"{what}: {title[:1].lower()}{title[1:]}"
            yield replace(section, name=name, table=replace(section.table, title=title))


def _method_times(methods: Sequence[ShownMethod], scale: Scale) -> Section:
    profiles = [shown.profile for shown in methods]
    samples = [scale(profile.total) for profile in profiles]
    loads = [profile.load.get(LOAD_METHOD) for profile in profiles]
    unaccounted = [float(scale(profile.unaccounted).mean()) for profile in profiles]
    names = ("avg", "p50", "p90", "min", "max")
    found = [summarize(one, names) for one in samples]
    statistics = {name: [float(one[name]) for one in found] for name in names}
    steady = [float(np.median(one[1:])) if len(one) > 1 else None for one in samples]

    def time(name: str, title: str | None = None) -> Column:
        return Column(name, Kind.DURATION, scale.unit, title=title)

    columns: dict[Column, Sequence[Any]] = {
        Column("method"): [shown.name for shown in methods],
        Column("runs", Kind.COUNT): [len(one) for one in samples],
        time("load"): [None if load is None else float(scale(load).mean()) for load in loads],
        time("first", "first run"): [float(one[0]) for one in samples],
        time("steady", "steady (median of the later runs)"): steady,
        **{time(name): values for name, values in statistics.items()},
        time("unaccounted"): unaccounted,
        Column("unaccounted_share", Kind.SHARE, title="of the average"): [
            spent / average if average else None
            for spent, average in zip(unaccounted, statistics["avg"], strict=True)
        ],
        Column("traced", Kind.BOOL, title="values were logged"): [p.traced for p in profiles],
    }
    notes = (
        "Unaccounted is what no instruction accounts for: the runtime's own work between them "
        "and what tracing costs.",
    )
    return Section("profile", Table.of(columns, title="Times of the methods", notes=notes))


# -- The diagnosis of a run's values.


def numerics_document(
    found: Numerics, methods: Sequence[ShownMethod], graphs: Sequence[ShownGraph], lines: Lines
) -> Json:
    """The page's `Numerics`: a diagnosis, and the nodes of each graph that its values belong to."""
    of_method = [shown for shown in graphs if shown.view.method in (found.method, None)]
    reference = {shown.view.linked.name: shown for shown in of_method}.get(found.reference)
    named = {} if reference is None else reference.view.by_key
    ran = next((shown for shown in methods if shown.profile.method == found.method), None)
    rows: list[int | None] = [None] * len(found.rows)
    if ran is not None:
        for number, row in enumerate(found.rows):
            inner = ran.row_of(row.pair.instruction, row.pair.delegate_id)
            rows[number] = ran.row_of(row.pair.instruction, None) if inner is None else inner
    return {
        "method": found.method,
        "metric": found.metric.name,
        "largerIsWorse": found.metric.better == "lower",
        "fine": found.is_fine,
        "table": table_document(found.table()),
        "rows": rows,
        "lines": [lines.index(row.lines[0]) if row.lines else None for row in found.rows],
        "nodes": {
            shown.view.key: [_node_of_value(shown, row, named) for row in found.rows]
            for shown in of_method
        },
        "coverage": table_document(found.coverage.table()),
        "verdict": found.verdict,
        "named": [{"row": found.rows.index(row), "text": described(row)} for row in found.named],
        # Doubts about the inputs first.
        "notes": [*found.doubts, *(note for note in found.notes if note not in found.doubts)],
    }


def _node_of_value(
    shown: ShownGraph, row: NumericsRow, named: Mapping[str, ViewNode]
) -> int | None:
    """The node of a graph for a value: that of the reference, or the last one that leads to it.

    named: the nodes of the reference graph, by key.
    """
    reference = named.get(row.pair.node)
    linked = shown.view.linked
    behind: Iterable[int] = ()
    if reference is not None:
        same = shown.view.by_key.get(reference.key)
        if same is not None and same.node is reference.node:
            return shown.index[reference.key]
        behind = shown.indices(linked.behind((reference.node,)))
    if not behind and shown.view.key.startswith(f"{EXECUTED}/"):
        behind = shown.indices(linked.ran(row.pair.instruction))
    return max(behind, default=None)


# -- The timeline: a few runs as they happened.

MOST_SPANS = 20_000
_CALLS = ("OPERATOR_CALL", "DELEGATE_CALL")  # names of the runtime that stand around all of them


def timeline_document(trace: Trace, methods: Sequence[ShownMethod], scale: Scale) -> Json | None:
    """The `Timeline` of the runs that tell most: a track for each, below it those of its clocks.

    Every run starts at 0, so that runs are compared. None without any run.
    """
    shown: list[tuple[int, str, ShownMethod | None]] = []
    shown += [(run, "loading", None) for run in loading_runs(trace)[:1]]
    for method in methods:
        for position, why in few_runs(method.profile).items():
            run = int(method.profile.runs[position])
            shown.append((run, f"{method.name} · run {run} ({why})", method))
    if not shown:
        return None
    left_out = 0
    tracks: list[Json] = []
    names: dict[str, int] = {}
    columns: dict[str, list[Any]] = {
        name: [] for name in ("track", "start", "duration", "name", "level", "row")
    }
    for run, title, owner in shown:
        spans = run_spans(trace, run, MOST_SPANS // len(shown))
        left_out += spans.left_out
        parent = len(tracks)
        tracks.append({"name": title, "parent": None, "note": None})
        tracks += ({"name": name, "parent": parent, "note": note} for name, note in spans.tracks)
        events: list[tuple[int, list[int] | None]] = []  # name, and method and row
        for key in (event.key for event in spans.events):
            row = None if owner is None else owner.row_of_event(key)
            if owner is None or row is None:
                events.append((names.setdefault(key.name, len(names)), None))
                continue
            name = owner.rows[row].name if key.name in _CALLS else key.name  # of what it calls
            events.append((names.setdefault(name, len(names)), [owner.index, row]))
        columns["track"] += (spans.track + parent + 1).tolist()
        columns["start"] += scale(spans.start).tolist()
        columns["duration"] += scale(spans.duration).tolist()
        columns["level"] += spans.level.tolist()
        columns["name"] += [events[event][0] for event in spans.event.tolist()]
        columns["row"] += [events[event][1] for event in spans.event.tolist()]
    notes = []
    runs = sum(len(method.profile.runs) for method in methods)
    if any(len(method.profile.runs) > 3 for method in methods):
        notes.append(
            f"Of {runs:,} runs the first, the median and the slowest of each method are shown, all "
            "from their start."
        )
    if left_out:
        notes.append(f"{left_out:,} of the shortest spans are left out.")
    return {"note": " ".join(notes) or None, "tracks": tracks, "names": list(names), **columns}
