"""The document that the page shows: in the report's file, with `--serve` and in TensorBoard.

Its form is `web/src/document.ts`. Every number equals the Inspector's. Each graph, profile and plan
is made once and shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from etscope._version import __version__
from etscope.analysis.backend_files.placement import PlacedFile
from etscope.analysis.comparison.changes import totals_of
from etscope.analysis.comparison.programs import Side
from etscope.analysis.graphs.partition import partition
from etscope.analysis.graphs.views import GraphView, graph_views, with_errors
from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.insights import insights
from etscope.analysis.insights.rules.memory import memory_of
from etscope.analysis.matching.export import Export
from etscope.analysis.memory.needs import program_memory
from etscope.analysis.memory.plan import memory_plans
from etscope.analysis.memory.size import SizedFile, part_by_part, sized_program
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.profile.scale import Scale, TimeConverter
from etscope.analysis.profile.trace import Capture, Trace, runs_of
from etscope.analysis.work.limits import profile_limits
from etscope.errors import MissingDataError
from etscope.formats.calibration import Calibration
from etscope.formats.etrecord.reader import EDGE, RecordView
from etscope.formats.program.ptd import ExternalData, external_keys
from etscope.formats.program.pte import Program
from etscope.model.finding import Files, Finding, ranked
from etscope.model.report import Section
from etscope.units import TimeScale
from etscope.views.page.comparison import (
    ComparedProgram,
    comparison_documents,
    program_documents,
)
from etscope.views.page.elements import Json, Lines, section_document, table_document
from etscope.views.page.generation import generation_document
from etscope.views.page.graphs import ShownGraph, add_changes, graph_document
from etscope.views.page.method import (
    ShownMethod,
    events_document,
    memory_documents,
    method_document,
)
from etscope.views.page.store import SCHEMA
from etscope.views.page.summary import backend_file_sections, file_sections, profile_section
from etscope.views.page.timeline import timeline_document
from etscope.views.page.values import numerics_document
from etscope.views.page.work import roofline_document, work_measures

_NAMED = 3  # runs in the title, so that it stays one line

# -- The inputs: opened files, and results about them.

NANOSECONDS = Scale(TimeScale.NS, TimeScale.MS)


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file. role: "dump", "record", "program", "external weights", "debug buffer". sha256: None
    if not computed."""

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
    it leaves out. has_values: another dump of the run, with values, is there. views:
    the graphs, if they are already known, with the errors of `numerics`. data: the .ptd files of
    the program. backend_files: files that tools of backends wrote, with their calls. calibration:
    the peaks of the run's machine.
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
    has_values: bool = False
    views: Sequence[GraphView] | None = None
    data: Sequence[ExternalData] = ()
    backend_files: Sequence[PlacedFile] = ()
    calibration: Calibration | None = None

    @cached_property
    def export(self) -> Export:
        """The program, the record and the .ptd files, without the run."""
        program = self.program if self.trace is None else self.trace.program
        return Export(program, self.own_record, tuple(self.data))

    @property
    def capture(self) -> Capture:
        """The run; without one, the files of the export."""
        return self.export if self.trace is None else self.trace

    @property
    def own_record(self) -> RecordView | None:
        return self.record if self.trace is None else self.trace.record

    @property
    def own_program(self) -> Program | None:
        """The program of the run: the one that was given, or that its record stores."""
        return self.capture.recorded_program

    def methods(self) -> Iterator[ShownMethod]:
        """Yield the methods that ran."""
        if self.trace is None:
            return
        for number, profile in enumerate(self.trace.profiles()):
            limits = profile_limits(self.trace, profile, self.scale.source, self.calibration)
            yield ShownMethod.of(number, profile, self.scale, limits)

    def graph_views(self, program: Program | None) -> tuple[GraphView, ...]:
        if self.views is not None:
            return tuple(self.views)
        record = self.own_record
        if record is None and program is None:
            return ()
        try:
            views = graph_views(self.capture)
            return views if self.numerics is None else with_errors(views, self.numerics)
        except MissingDataError:  # a record without graphs and without a program
            return ()

    def gaps(self, program: Program | None, *, has_times: bool) -> list[str]:
        """Return notes on unknown facts of the run, each with a fix.

        program: of the run. has_times: whether a method has times.
        """
        notes = []
        if self.trace is not None and self.own_record is None:
            notes.append(
                "Modules, lines of Python and graphs of the model: unknown without the ETRecord. "
                "Add it to the command."
            )
        if self.trace is not None and not has_times:
            notes.append(
                "Times: unknown, because the dump does not have a Method::execute event. Run the "
                "method with the event tracer on."
            )
        if program is None:
            notes.append("Memory plan: unknown without the program. Add the .pte to the command.")
        elif not self.data and (keys := external_keys(program)):
            notes.append(
                f"Bytes of {len(keys):,} weights: unknown without their .ptd file. Add it to the "
                "command."
            )
        if self.trace is not None and self.trace.forced:
            notes.append("The check that the files belong together was skipped.")
        return [note for note in notes if note not in self.notes]


# -- The document.


def document_of(inputs: Sequence[ReportInput], title: str | None = None) -> Json:
    """The `ReportDocument` of runs, as plain values for JSON. title: None for the runs' names."""
    names = [found.name for found in inputs]
    if len(names) > _NAMED:
        names[_NAMED:] = [f"{len(names) - _NAMED} more"]
    methods = [list(found.methods()) for found in inputs]
    programs = [found.own_program for found in inputs]
    graphs = [
        [ShownGraph(view) for view in found.graph_views(program)]
        for found, program in zip(inputs, programs, strict=True)
    ]
    facts = None  # where nothing is compared
    if len(inputs) > 1:
        saved = [None if found.trace is None else found.trace.saved_run for found in inputs]
        facts = [
            totals_of(found.export, found.numerics, noted)
            for found, noted in zip(inputs, saved, strict=True)
        ]
    runs = [
        _run(found, f"run{number}", shown, graphs[number])
        for number, (found, shown) in enumerate(zip(inputs, methods, strict=True))
    ]
    add_changes(runs)
    return {
        "schema": SCHEMA,
        "title": title or " · ".join(names),
        "generator": f"etscope {__version__}",
        "runs": runs,
        "comparisons": comparison_documents(methods, facts),
        "programs": program_documents(
            [
                None
                if program is None
                else ComparedProgram(
                    Side(found.name, program, found.own_record, tuple(found.data)),
                    [graph.view for graph in shown],
                    has_run=found.trace is not None,
                )
                for found, program, shown in zip(inputs, programs, graphs, strict=True)
            ]
        ),
    }


def _run(
    found: ReportInput,
    identifier: str,
    methods: Sequence[ShownMethod],
    graphs: Sequence[ShownGraph],
) -> Json:
    lines = Lines()
    trace, record, program = found.trace, found.own_record, found.own_program
    plans = memory_plans(found.export)
    numerics = found.numerics
    run_nodes = {
        name: (found.export.edge_nodes if trace is None else trace.run_nodes)(name)
        for name in plans
    }
    memory = sized = None
    if program is not None:
        saved = None if trace is None or trace.saved_run is None else trace.saved_run.memory
        measured = None if saved is None else saved.measured
        sized = sized_program(found.export, None if record is None else run_nodes.__getitem__)
        memory = program_memory(found.export, measured)
    named = () if record is None else record.graph_names
    views = [shown.view for shown in graphs]
    recorded = {view.linked.name: view.graph for view in views if view.linked.name in named}
    sections = [
        *found.sections,
        *([profile_section(methods)] if methods else ()),
        *backend_file_sections(found.backend_files),
        *file_sections(found.export, trace, recorded),
    ]
    return {
        "id": identifier,
        "name": found.name,
        "unit": found.scale.unit,
        "files": [asdict(file) for file in found.files],
        "notes": [*found.notes, *found.gaps(program, has_times=bool(methods))],
        "insights": _insight_documents(found, methods, sized),
        "summary": [section_document(section) for section in sections],
        "methods": _method_documents(found, methods, graphs, lines),
        "graphs": _graph_documents(found, methods, graphs, program, lines),
        "numerics": numerics and numerics_document(numerics, methods, graphs, lines),
        "numericsNote": found.numerics_note,
        "memory": memory_documents(plans, methods, run_nodes, memory),
        "weights": None if sized is None else table_document(part_by_part(sized).table),
        "generation": generation_document(trace, methods, found.scale),
        "roofline": roofline_document(methods),
        "timeline": timeline_document(trace, methods, found.scale, found.backend_files),
        "source": lines.document(),  # last: all of the above add lines
    }


def _graph_documents(
    found: ReportInput,
    methods: Sequence[ShownMethod],
    graphs: Sequence[ShownGraph],
    program: Program | None,
    lines: Lines,
) -> list[Json]:
    """Return the graphs, each linked to the edge graph of its method, with the partitioners'
    reasons and the work of its nodes."""
    edges = {
        shown.view.method: shown
        for shown in graphs
        if shown.view.linked.name == f"{EDGE}/{shown.view.method}"
    }
    metric = None if found.numerics is None else found.numerics.metric
    record = found.own_record
    reasons = None if record is None else record.partition
    documents = []
    for shown in graphs:
        method = shown.view.method
        edge_graph = edges.get(method)
        has_reasons = reasons is not None and method in reasons
        chosen = None
        if method is not None and shown is edge_graph and has_reasons:
            chosen = partition(found.capture, method)
        document = graph_document(shown, found.scale, lines, metric, edge_graph, chosen)
        ran = next((one for one in methods if one.profile is shown.view.profile), None)
        document["measures"] += work_measures(shown, document, ran)
        documents.append(document)
    return documents


def _insight_documents(
    found: ReportInput, methods: Sequence[ShownMethod], sized: Sequence[SizedFile] | None
) -> list[Json]:
    """Return the findings of the methods that ran; without a run, the findings on memory."""
    trace = found.trace
    names: dict[str, str] = {}  # by role; the first file of a role is the one to name
    for file in found.files:
        names.setdefault(file.role, file.name)
    dump, record, program, buffer = (
        names.get(role) for role in ("dump", "record", "program", "debug buffer")
    )
    files = Files(dump, record, program, buffer)  # of the commands that findings name
    told: list[tuple[int | None, Finding]] = []
    if trace is not None:
        has_values = found.has_values or trace.refers_to_tensors
        known = (found.calibration, found.numerics, has_values, sized)
        for shown in methods:
            facts = Facts(trace, shown.profile, found.scale, *known)
            told += ((shown.index, one) for one in insights(facts, Level.ALL))
    for method in () if methods else memory_plans(found.export):
        parts = [part for file in sized or () for part in file.parts]
        told += ((None, one) for one in ranked([*memory_of(method, found.export, parts)]))
    return [{"explanation": None, **one.plain(files), "methodIndex": index} for index, one in told]


def _method_documents(
    found: ReportInput, methods: Sequence[ShownMethod], graphs: Sequence[ShownGraph], lines: Lines
) -> list[Json]:
    documents: list[Json] = []
    for shown in methods:
        document = method_document(shown, lines)
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
                runs_of(block, runs) if block.executions else block
                for block in found.trace.blocks
                if (not runs.isdisjoint(block.runs.tolist()) if block.executions else not documents)
            ]
            document["events"], document["eventRow"] = events_document(
                found.trace, blocks, shown, found.convert
            )
        documents.append(document)
    return documents
