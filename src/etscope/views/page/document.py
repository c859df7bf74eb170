"""The one document that the page shows: the report's HTML file, `etscope serve` and TensorBoard.

Its form is `web/src/document.ts`. Every number is the Inspector's own; what needs a graph, a
profile or a plan is made from one that is made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etscope._version import __version__
from etscope.analysis.graphs.errors import with_errors
from etscope.analysis.graphs.views import GraphView, graph_views
from etscope.analysis.memory.memory import MemoryPlan, memory_plan
from etscope.analysis.profile.blocks import Block
from etscope.analysis.profile.profile import MethodProfile, executes
from etscope.errors import MissingDataError
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.program.pte import Program, read_pte
from etscope.model.events import EventBlock
from etscope.views.page.events import events_document
from etscope.views.page.graphs import ShownGraph, graph_document
from etscope.views.page.inputs import ReportInput
from etscope.views.page.lines import Lines
from etscope.views.page.method import ShownMethod, memory_documents, method_document
from etscope.views.page.numerics import ShownNumerics
from etscope.views.page.summary import file_sections, profile_sections
from etscope.views.page.tables import Json, section_document
from etscope.views.page.timeline import timeline_document

SCHEMA = "etscope.report/1"
_NAMED = 3  # runs that are named in the title


def document_of(inputs: Sequence[ReportInput], title: str | None = None) -> Json:
    """The `ReportDocument` of one or more runs: plain values that JSON can hold. `title` is the
    names of the runs when none is given."""
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
    record, program = _explanation(found)
    profiles = [] if found.trace is None else found.trace.profiles()
    methods = [ShownMethod.of(number, profile) for number, profile in enumerate(profiles)]
    graphs = [ShownGraph(view) for view in _views(found, record, program)]
    diagnosis = found.numerics
    metric = None if diagnosis is None else diagnosis.metric
    numerics = None if diagnosis is None else ShownNumerics(diagnosis, graphs)
    plans = _plans(program)
    named = set() if record is None else set(record.graph_names)
    known = {
        shown.view.linked.name: shown.view.graph
        for shown in graphs
        if shown.view.linked.name in named
    }
    sections = [
        *found.sections,
        *profile_sections(methods, found.scale),
        *file_sections(found.trace, record, program, known, plans),
    ]
    return {
        "id": identifier,
        "name": found.name,
        "unit": found.scale.unit,
        "files": [
            {"role": file.role, "name": file.name, "bytes": file.bytes, "sha256": file.sha256}
            for file in found.files
        ],
        "notes": [*found.notes, *_notes(found, record, program, profiles)],
        "summary": [section_document(section) for section in sections],
        "methods": _methods(found, methods, graphs, lines),
        "graphs": [graph_document(shown, found.scale, lines, metric) for shown in graphs],
        "numerics": None if numerics is None else numerics.document(methods, lines),
        "numericsNote": found.numerics_note,
        "memory": memory_documents(plans, methods),
        "timeline": None
        if found.trace is None
        else timeline_document(found.trace, methods, found.scale),
        "source": lines.document(),  # last: all of the above add lines
    }


def _explanation(found: ReportInput) -> tuple[RecordView | None, Program | None]:
    """The record and the program, be they given alone, with a dump, or one in the other."""
    trace = found.trace
    record = found.record if trace is None else trace.record
    if trace is not None:
        return record, trace.recorded_program
    program = found.program
    stored = None if record is None or program is not None else record.program_view()
    return record, program if stored is None else read_pte(stored)


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


def _plans(program: Program | None) -> Mapping[str, MemoryPlan]:
    methods = () if program is None else program.methods
    return {m.name: memory_plan(program, m.name) for m in methods if program is not None}


def _methods(
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
            pairs = _blocks_of(found, shown, is_first=not documents)
            document["events"], document["eventRow"] = events_document(
                found.trace, pairs, shown, found.scale
            )
        documents.append(document)
    return documents


def _blocks_of(
    found: ReportInput, shown: ShownMethod, *, is_first: bool
) -> list[tuple[Block, EventBlock]]:
    """The blocks of a method's runs; the first method also has those that executed nothing."""
    if found.trace is None:
        return []
    runs = set(shown.profile.runs.tolist())
    return [
        (block, events)
        for block, events in zip(found.trace.blocks, found.blocks, strict=True)
        if (int(block.runs[0]) in runs if executes(block) else is_first)
    ]


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
    known: dict[str, Any] = dict.fromkeys([*found.notes])
    return [note for note in notes if note not in known]


__all__ = ["SCHEMA", "document_of"]
