"""The document that the page shows: in the report's file, with `--serve` and in TensorBoard.

Its form is `web/src/document.ts`. Every number equals the Inspector's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from etscope._version import __version__
from etscope.analysis.backend_files.file_views import file_table, for_readers
from etscope.analysis.comparison.changes import totals_of
from etscope.analysis.graphs.partition import partition
from etscope.analysis.info.etdump_info import etdump_sections
from etscope.analysis.info.etrecord_info import etrecord_sections
from etscope.analysis.info.program_info import program_sections
from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.insights import insights
from etscope.analysis.insights.rules.memory import memory_of
from etscope.analysis.memory.size import part_by_part
from etscope.formats.etrecord.reader import EDGE, RecordFile
from etscope.formats.program.ptd import external_keys
from etscope.model.event_table import LOAD_METHOD
from etscope.model.finding import Files, Finding, ranked
from etscope.model.report import Section
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind, Table
from etscope.views.page.comparison import comparison_documents, program_documents
from etscope.views.page.elements import Json, section_document, table_document
from etscope.views.page.graphs import add_changes
from etscope.views.page.parts import (
    generation_document,
    memory_documents,
    numerics_document,
    roofline_document,
)
from etscope.views.page.run import ReportRun
from etscope.views.page.store import SCHEMA
from etscope.views.page.timeline import timeline_document

_NAMED = 3  # runs in the title, so that it stays one line
_MOST_FILE_ROWS = 1_000  # of a tool's file, so that the page stays small
_ELSEWHERE = {"members", "memory", "named_data"}  # sections of files with a view of their own


def document_of(runs: Sequence[ReportRun], title: str | None = None) -> Json:
    """The `ReportDocument` of runs, as plain values for JSON. title: None for the runs' names."""
    names = [run.name for run in runs]
    if len(names) > _NAMED:
        names[_NAMED:] = [f"{len(names) - _NAMED} more"]
    totals = None  # where nothing is compared
    if len(runs) > 1:
        totals = [totals_of(run.export, run.numerics, run.saved) for run in runs]
    documents = [_run(run, f"run{number}") for number, run in enumerate(runs)]
    add_changes(documents)
    return {
        "schema": SCHEMA,
        "title": title or " · ".join(names),
        "generator": f"etscope {__version__}",
        "runs": documents,
        "comparisons": comparison_documents([run.methods for run in runs], totals),
        "programs": program_documents(runs),
    }


def _run(run: ReportRun, identifier: str) -> Json:
    return {
        "id": identifier,
        "name": run.name,
        "unit": run.scale.unit,
        "files": [asdict(file) for file in run.files],
        "notes": [*run.notes, *(note for note in _gaps(run) if note not in run.notes)],
        "insights": _insights(run),
        "summary": [section_document(section) for section in _summary(run)],
        "methods": _methods(run),
        "graphs": _graphs(run),
        "numerics": numerics_document(run),
        "numericsNote": run.numerics_note,
        "memory": memory_documents(run),
        "weights": None if run.sized is None else table_document(part_by_part(run.sized).table),
        "generation": generation_document(run),
        "roofline": roofline_document(run),
        "timeline": timeline_document(run),
        "source": run.lines.document(),  # last: all of the above add lines
    }


def _gaps(run: ReportRun) -> Iterator[str]:
    """Yield notes on unknown facts of the run, each with a fix."""
    if run.trace is not None and run.record is None:
        yield (
            "Modules, lines of Python and graphs of the model: unknown without the ETRecord. "
            "Add it to the command."
        )
    if run.trace is not None and not run.methods:
        yield (
            "Times: unknown, because the dump does not have a Method::execute event. Run the "
            "method with the event tracer on."
        )
    if run.program is None:
        yield "Memory plan: unknown without the program. Add the .pte to the command."
    elif not run.export.data and (keys := external_keys(run.program)):
        yield (
            f"Bytes of {len(keys):,} weights: unknown without their .ptd file. Add it to the "
            "command."
        )
    if run.trace is not None and run.trace.forced:
        yield "The check that the files belong together was skipped."


def _insights(run: ReportRun) -> list[Json]:
    """Return the findings of the methods that ran; without a run, the findings on memory."""
    trace = run.trace
    names: dict[str, str] = {}  # by role; the first file of a role is the one to name
    for file in run.files:
        names.setdefault(file.role, file.name)
    dump, record, program, buffer = (
        names.get(role) for role in ("dump", "record", "program", "debug buffer")
    )
    files = Files(dump, record, program, buffer)  # of the commands that findings name
    told: list[tuple[int | None, Finding]] = []
    if trace is not None:
        has_values = run.has_values or trace.refers_to_tensors
        known = (run.calibration, run.numerics, has_values, run.sized)
        for shown in run.methods:
            facts = Facts(trace, shown.profile, run.scale, *known)
            told += ((shown.index, one) for one in insights(facts, Level.ALL))
    for method in () if run.methods else run.plans:
        parts = [part for file in run.sized or () for part in file.parts]
        told += ((None, one) for one in ranked([*memory_of(method, run.export, parts)]))
    return [{"explanation": None, **one.plain(files), "methodIndex": index} for index, one in told]


def _methods(run: ReportRun) -> list[Json]:
    documents: list[Json] = []
    for shown in run.methods:
        document = shown.document(run.lines)
        document["links"]["nodes"] = {
            graph.view.key: graph.rows(shown.rows)
            for graph in run.graphs
            if graph.view.method in (shown.profile.method, None)
            or graph.view.profile is shown.profile
        }
        if run.trace is not None:
            document["events"], document["eventRow"] = shown.events(run.trace, run.convert)
        documents.append(document)
    return documents


def _graphs(run: ReportRun) -> list[Json]:
    """Return the graphs, each linked to the edge graph of its method, with the partitioners'
    reasons and the work of its nodes."""
    edges = {
        shown.view.method: shown
        for shown in run.graphs
        if shown.view.linked.name == f"{EDGE}/{shown.view.method}"
    }
    reasons = None if run.record is None else run.record.partition
    documents = []
    for shown in run.graphs:
        method = shown.view.method
        edge_graph = edges.get(method)
        has_reasons = reasons is not None and method in reasons
        chosen = None
        if method is not None and shown is edge_graph and has_reasons:
            chosen = partition(run.capture, method)
        ran = next((one for one in run.methods if one.profile is shown.view.profile), None)
        documents.append(shown.document(run.lines, edge_graph, chosen, ran))
    return documents


# -- The summary: times of the methods, and the contents of the files.


def _summary(run: ReportRun) -> Iterator[Section]:
    """Yield the sections. The contents of files are as `etscope info` shows them, without those
    that have a separate view."""
    yield from run.sections
    if run.methods:
        yield _profile_section(run)
    for number, one in enumerate(run.backend_files):
        table = file_table(one, _MOST_FILE_ROWS)
        yield Section(f"backend_file_{number}", for_readers(table))
    if run.trace is not None:
        sections = etdump_sections(run.trace.dump, run.trace.blocks)
        yield from _named("dump", "ETDump", sections)
    if isinstance(run.record, RecordFile):
        views = [shown.view for shown in run.graphs]
        named = run.record.graph_names
        graphs = {view.linked.name: view.graph for view in views if view.linked.name in named}
        yield from _named("record", "ETRecord", etrecord_sections(run.record, graphs))
    if run.program is not None:
        yield from _named("program", "Program", program_sections(run.export))


def _named(file: str, what: str, sections: Iterable[Section]) -> Iterator[Section]:
    for section in sections:
        if section.name not in _ELSEWHERE:
            is_file = section.name == "file"
            name = file if is_file else f"{file}_{section.name}"
            title = section.table.title
            title = what if is_file else f"{what}: {title[:1].lower()}{title[1:]}"
            yield replace(section, name=name, table=replace(section.table, title=title))


def _profile_section(run: ReportRun) -> Section:
    """Return the time of each method."""
    profiles, scale = [shown.profile for shown in run.methods], run.scale
    samples = [scale(profile.total) for profile in profiles]
    loads = [profile.load.get(LOAD_METHOD) for profile in profiles]
    unaccounted = [float(scale(profile.unaccounted).mean()) for profile in profiles]
    names = ("avg", "p50", "p90", "min", "max")
    found = [summarize(one, names) for one in samples]
    statistics = {name: [float(one[name]) for one in found] for name in names}

    def time(name: str, title: str | None = None) -> Column:
        return Column(name, Kind.DURATION, scale.unit, title=title)

    columns: dict[Column, Sequence[Any]] = {
        Column("method"): [shown.name for shown in run.methods],
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
