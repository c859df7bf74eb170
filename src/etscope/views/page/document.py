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
from etscope.analysis.comparison.beside import facts_of
from etscope.analysis.comparison.programs import Side
from etscope.analysis.delegates.backend_files import PlacedFile
from etscope.analysis.delegates.imported_tables import file_table, for_readers
from etscope.analysis.delegates.imported_timeline import FileSpans, file_spans
from etscope.analysis.explain.explain import explain
from etscope.analysis.explain.facts import Facts
from etscope.analysis.findings.findings import Known, findings_of, findings_of_program
from etscope.analysis.graphs.partition import Partition, partition
from etscope.analysis.graphs.views import EXECUTED, GraphView, ViewNode, graph_views, with_errors
from etscope.analysis.info.etdump_info import etdump_sections
from etscope.analysis.info.etrecord_info import etrecord_sections
from etscope.analysis.info.program_info import program_sections
from etscope.analysis.matching.run_nodes import program_nodes
from etscope.analysis.memory import MemoryPlan, memory_plans
from etscope.analysis.memory_owners import program_memory
from etscope.analysis.numerics.rows import WRONG, Numerics, NumericsRow, described
from etscope.analysis.numerics.value_report import LOCAL, TOTAL, value_sections
from etscope.analysis.numerics.values import ValueComparison
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.profile_table import grouped_table
from etscope.analysis.profile.scale import Scale, TimeConverter
from etscope.analysis.profile.timeline import (
    RunSpans,
    few_runs,
    loading_runs,
    run_spans,
    span_levels,
)
from etscope.analysis.profile.trace import Trace
from etscope.analysis.size import part_by_part
from etscope.analysis.work.limits import ProfileLimits, profile_limits
from etscope.errors import MissingDataError
from etscope.formats.calibration import Calibration
from etscope.formats.etrecord.reader import EDGE, RecordFile, RecordView
from etscope.formats.program.ptd import ExternalData, external_keys
from etscope.formats.program.pte import Program, read_pte
from etscope.model.event_table import EXECUTE, LOAD_METHOD, EventKey
from etscope.model.finding import Files, Finding
from etscope.model.graph import Graph
from etscope.model.report import Section
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind, Table
from etscope.units import TimeScale
from etscope.views.output import finite
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
from etscope.views.page.roofline import roofline_document
from etscope.views.page.work import work_measures

SCHEMA = "etscope.report/1"
_NAMED = 3  # runs that are named in the title

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

    @property
    def own_record(self) -> RecordView | None:
        return self.record if self.trace is None else self.trace.record

    @property
    def own_program(self) -> Program | None:
        """The program of the run: the one that was given, or that its record stores."""
        if self.trace is not None:
            return self.trace.recorded_program
        if self.program is not None or self.record is None:
            return self.program
        stored = self.record.program_view()
        return None if stored is None else read_pte(stored)

    def graph_views(self, program: Program | None) -> tuple[GraphView, ...]:
        if self.views is not None:
            return tuple(self.views)
        record = self.own_record
        if record is None and program is None:
            return ()
        try:
            views = graph_views(record, self.trace, program)
            return views if self.numerics is None else with_errors(views, self.numerics)
        except MissingDataError:  # a record without graphs and without a program
            return ()

    def gaps(self, program: Program | None, *, has_times: bool) -> list[str]:
        """Notes on what is not known of the run. program: its own; has_times: of its methods."""
        notes = []
        if self.trace is not None and self.own_record is None:
            notes.append(
                "No ETRecord was given: modules, lines of Python and graphs of the model are not "
                "known."
            )
        if self.trace is not None and not has_times:
            notes.append(
                "The dump holds no Method::execute event: there are no times. Run the method with "
                "the event tracer on."
            )
        if program is None:
            notes.append("No program was given: its memory plan is not known.")
        elif not self.data and (keys := external_keys(program)):
            notes.append(
                f"The bytes of {len(keys):,} weights are not known: they are in a .ptd file, which "
                "was not given (--data)."
            )
        if self.trace is not None and self.trace.forced:
            notes.append("Whether the files belong together was not checked.")
        return [note for note in notes if note not in self.notes]


# -- The document.


def document_of(inputs: Sequence[ReportInput], title: str | None = None) -> Json:
    """The `ReportDocument` of runs, as plain values for JSON. title: None for the runs' names."""
    names = [found.name for found in inputs]
    if len(names) > _NAMED:
        names[_NAMED:] = [f"{len(names) - _NAMED} more"]
    methods = [
        [
            ShownMethod.of(number, profile)
            for number, profile in enumerate(found.trace.profiles() if found.trace else ())
        ]
        for found in inputs
    ]
    programs = [found.own_program for found in inputs]
    graphs = [
        [ShownGraph(view) for view in found.graph_views(program)]
        for found, program in zip(inputs, programs, strict=True)
    ]
    plans = [{} if program is None else memory_plans(program) for program in programs]
    facts = None  # where nothing is compared
    if len(inputs) > 1:
        saved = [None if found.trace is None else found.trace.saved_run for found in inputs]
        facts = [
            facts_of(program, planned, found.numerics, noted)
            for found, program, planned, noted in zip(inputs, programs, plans, saved, strict=True)
        ]
    runs = [
        _run(found, f"run{number}", shown, graphs[number], program, planned)
        for number, (found, shown, program, planned) in enumerate(
            zip(inputs, methods, programs, plans, strict=True)
        )
    ]
    add_changes(runs)
    return {
        "schema": SCHEMA,
        "title": title or " · ".join(names),
        "generator": f"etscope {__version__}",
        "runs": runs,
        "comparisons": comparison_documents(methods, [found.scale for found in inputs], facts),
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
    program: Program | None,
    plans: Mapping[str, MemoryPlan],
) -> Json:
    lines = Lines()
    trace, record = found.trace, found.own_record
    numerics = found.numerics
    run_nodes = {
        name: (program_nodes(program, name, record) if trace is None else trace.run_nodes(name))
        for name in plans
        if program is not None
    }
    known = Known(
        program=program,
        nodes_of=None if record is None else run_nodes.__getitem__,
        plans=plans,
        numerics=numerics,
        has_values=found.has_values or (trace is not None and trace.refers_to_tensors),
        saved=None if trace is None else trace.saved_run,
        data=found.data,
    )
    saved_memory = None if known.saved is None else known.saved.memory
    memory = None
    if program is not None:
        measured = None if saved_memory is None else saved_memory.measured
        memory = program_memory(program, found.data, record, measured, plans)
    named = () if record is None else record.graph_names
    views = [shown.view for shown in graphs]
    recorded = {view.linked.name: view.graph for view in views if view.linked.name in named}
    sections = [
        *found.sections,
        *profile_sections(methods, found.scale),
        *backend_file_sections(found.backend_files),
        *file_sections(trace, record, program, recorded, plans),
    ]
    return {
        "id": identifier,
        "name": found.name,
        "unit": found.scale.unit,
        "files": [asdict(file) for file in found.files],
        "notes": [*found.notes, *found.gaps(program, has_times=bool(methods))],
        "findings": findings_documents(found, methods, known),
        "explanations": _explanation_documents(found, methods),
        "summary": [section_document(section) for section in sections],
        "methods": _method_documents(found, methods, graphs, lines),
        "graphs": _graph_documents(found, methods, graphs, program, lines),
        "numerics": numerics and numerics_document(numerics, methods, graphs, lines),
        "numericsNote": found.numerics_note,
        "memory": memory_documents(plans, methods, run_nodes, memory),
        "weights": None if program is None else table_document(part_by_part(known.files).table),
        "generation": generation_document(trace, methods, found.scale),
        "roofline": roofline_document(trace, methods, found.scale, found.calibration),
        "timeline": None
        if trace is None
        else timeline_document(trace, methods, found.scale, found.backend_files),
        "source": lines.document(),  # last: all of the above add lines
    }


def _graph_documents(
    found: ReportInput,
    methods: Sequence[ShownMethod],
    graphs: Sequence[ShownGraph],
    program: Program | None,
    lines: Lines,
) -> list[Json]:
    """Return the graphs, each with the edge graph of its method, who took which nodes, and the work
    of these."""
    edges = {
        shown.view.method: shown
        for shown in graphs
        if shown.view.linked.name == f"{EDGE}/{shown.view.method}"
    }
    metric = None if found.numerics is None else found.numerics.metric
    ran = {id(shown.profile): shown for shown in methods}
    documents = []
    for shown in graphs:
        document = graph_document(
            shown,
            found.scale,
            lines,
            metric,
            edges.get(shown.view.method),
            _partition(shown, found.own_record, program),
        )
        profile = shown.view.profile
        rows = ran[id(profile)].rows if id(profile) in ran else ()
        document["measures"] += work_measures(shown, document, _limits(found, profile), rows)
        documents.append(document)
    return documents


def _limits(found: ReportInput, profile: MethodProfile | None) -> ProfileLimits | None:
    """The work and the limits of a profile's rows, as far as they are known."""
    if found.trace is None or profile is None:
        return None
    return profile_limits(found.trace, profile, found.scale.source, found.calibration)


def _partition(
    shown: ShownGraph, record: RecordView | None, program: Program | None
) -> Partition | None:
    """The partition of an edge graph's method; None where the record does not have the reasons."""
    method = shown.view.method
    is_told = record is not None and record.partition is not None and method in record.partition
    if record is None or method is None or not is_told:
        return None
    return (
        partition(record, method, program) if shown.view.linked.name == f"{EDGE}/{method}" else None
    )


def findings_documents(
    found: ReportInput,
    methods: Sequence[ShownMethod],
    known: Known,
) -> list[Json]:
    """The findings of a run, as `etscope inspect` has them; of what did not run, its memory."""
    files = _file_names(found)
    told: list[tuple[int | None, Finding]] = []
    for shown in methods:
        told += ((shown.index, one) for one in findings_of(shown.profile, found.scale, known))
    for method in () if methods else known.plans or ():
        told += ((None, one) for one in findings_of_program(method, known))
    return [{**one.plain(files), "methodIndex": index} for index, one in told]


def _explanation_documents(found: ReportInput, methods: Sequence[ShownMethod]) -> list[Json]:
    """The findings of rules, as `etscope explain` has them."""
    files = _file_names(found)
    return [
        {**one.plain(files), "methodIndex": shown.index}
        for shown in methods
        if found.trace is not None
        for one in explain(Facts(found.trace, shown.profile, found.scale, found.calibration))
    ]


def _file_names(found: ReportInput) -> Files:
    """The files, as the next commands are given them."""
    return Files(
        *(
            next((file.name for file in found.files if file.role == role), None)
            for role in ("dump", "record", "program", "debug buffer")
        )
    )


def _method_documents(
    found: ReportInput, methods: Sequence[ShownMethod], graphs: Sequence[ShownGraph], lines: Lines
) -> list[Json]:
    documents: list[Json] = []
    for shown in methods:
        limits = _limits(found, shown.profile)
        document = method_document(shown, found.scale, lines, limits)
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
                found.trace, blocks, shown, found.scale, found.convert, limits
            )
        documents.append(document)
    return documents


# -- The sections of the summary: how long the methods took, and what the files hold.

_LONGEST = 15  # groups of a roll-up


_MOST_FILE_ROWS = 1_000


def backend_file_sections(placed: Sequence[PlacedFile]) -> Iterator[Section]:
    """Yield a table for each file that a backend's tool wrote."""
    for number, one in enumerate(placed):
        table = file_table(one, _MOST_FILE_ROWS)
        yield Section(f"backend_file_{number}", for_readers(table))


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
        "values": [
            {
                "row": number,
                "shown": LOCAL if row.verdict == WRONG or row.values.total is None else TOTAL,
                "local": value_document(row.values.local),
                "total": None if row.values.total is None else value_document(row.values.total),
            }
            for number, row in enumerate(found.rows)
            if row.values is not None
        ],
        "coverage": table_document(found.coverage.table()),
        # The summary shows the notes up to this one.
        "verdict": found.what_it_is or found.verdict,
        "named": [{"row": found.rows.index(row), "text": described(row)} for row in found.named],
        # Doubts about the inputs first.
        "notes": [*found.doubts, *(note for note in found.notes if note not in found.doubts)],
    }


def value_document(compared: ValueComparison) -> Json:
    """The page's `ValueDoc`: tables of a compared value, and the numbers that are drawn."""
    histogram, channels, quantized = compared.histogram, compared.channels, compared.quantized
    return {
        "sections": [
            section_document(section)
            for section in value_sections(compared, "")
            if section.name != "histogram"
        ],
        "histogram": None
        if histogram is None
        else {
            "low": histogram.low,
            "high": histogram.high,
            "reference": list(histogram.reference),
            "device": list(histogram.device),
            "clippedShare": histogram.clipped_share,
        },
        "channels": None
        if channels is None
        else {
            "axis": channels.axis,
            "count": channels.count,
            "perEntry": channels.per_entry,
            "rms": finite(list(channels.profile)),
        },
        "range": None if quantized is None else [quantized.low, quantized.high],
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


# -- The timeline: the runs as they happened.

MOST_SPANS = 20_000
# Runs on the timeline, most of them as one span: each is a track.
MOST_RUNS = 500
_CALLS = ("OPERATOR_CALL", "DELEGATE_CALL")  # names of the runtime that stand around all of them


def timeline_document(
    trace: Trace,
    methods: Sequence[ShownMethod],
    scale: Scale,
    files: Sequence[PlacedFile] = (),
) -> Json | None:
    """The `Timeline`: a track for each run, below it those of its clocks.

    The runs that tell most have all their spans, and so have the others in run order as long as
    there is room; of those after them only the whole is shown. Every run starts at 0, so that runs
    are compared. Files of backends' tools have tracks below the runs that they are of. None without
    any run.
    """
    shown = [_TimelineRun(run, "loading", None, 0, "loading") for run in loading_runs(trace)[:1]]
    for method in methods:
        reasons = few_runs(method.profile)
        shown += (
            _TimelineRun(
                run, f"{method.name} · run {run}{f' ({why})' if why else ''}", method, position, why
            )
            for position, run in enumerate(method.profile.runs.tolist())
            for why in [reasons.get(position)]
        )
    if not shown:
        return None
    notes = []
    counts = np.bincount(trace.events.run, minlength=1)
    first = [one for one in shown if one.why]
    limit = MOST_SPANS // len(first)
    room = MOST_SPANS - sum(min(int(counts[one.run]), limit) for one in first)
    others = [one for one in shown if not one.why]
    size = np.cumsum([int(counts[one.run]) for one in others])
    detailed = {id(one) for one in [*first, *others[: int(np.searchsorted(size, room, "right"))]]}
    listed = {id(one) for one in [*first, *others[: max(MOST_RUNS - len(first), 0)]]}
    left_out = len(shown) - len(listed)
    shown = [one for one in shown if id(one) in listed]
    whole = sum(id(one) not in detailed for one in shown)
    if whole:
        notes.append(f"Of {whole:,} runs only the whole is shown, for the number of their events.")
    if left_out:
        notes.append(f"{left_out:,} later runs are left out.")

    columns = _TimelineColumns(scale)
    runs = [one.run for one in shown if id(one) in detailed]
    spans = dict(zip(runs, run_spans(trace, runs, limit), strict=True))
    tracks: dict[int, int] = {}  # by run
    for one in shown:
        if id(one) in detailed:
            tracks[one.run] = columns.add(one, spans[one.run])
        elif one.method is not None:
            columns.add_whole(one, one.method)
    left = columns.add_files(list(file_spans(files, scale.source)), spans, tracks)
    if shortest := left + sum(found.left_out for found in spans.values()):
        notes.append(f"{shortest:,} of the shortest spans are left out.")
    return {"note": " ".join(notes) or None, **columns.document()}


@dataclass(frozen=True, slots=True)
class _TimelineRun:
    """A run of the timeline, and the position of it in its method's profile. why: the reason to
    show all of it, None for one run among others."""

    run: int
    title: str
    method: ShownMethod | None
    position: int
    why: str | None


class _TimelineColumns:
    """Collects the tracks and spans of a `Timeline`."""

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._tracks: list[Json] = []
        self._runs: dict[int, int] = {}  # by the number of their track
        self._names: dict[str, int] = {}
        names = ("track", "start", "duration", "name", "level", "row")
        self._columns: dict[str, list[Any]] = {name: [] for name in names}

    def document(self) -> Json:
        runs = [self._runs.get(number) for number in range(len(self._tracks))]
        names = list(self._names)
        return {"tracks": self._tracks, "runs": runs, "names": names, **self._columns}

    def add_whole(self, one: _TimelineRun, method: ShownMethod) -> None:
        """Add a run of a method as one span."""
        total = float(self._scale(method.profile.total[one.position]))
        name = self._names.setdefault(EXECUTE, len(self._names))
        row = [method.index, len(method.rows) - 1]
        self._runs[len(self._tracks)] = one.run
        self._extend(
            track=[len(self._tracks)],
            start=[0.0],
            duration=[total],
            name=[name],
            level=[0],
            row=[row],
        )
        self._tracks.append({"name": one.title, "parent": None, "note": None})

    def add(self, one: _TimelineRun, spans: RunSpans) -> int:
        """Add the spans of a run; return its track."""
        parent = len(self._tracks)
        self._runs[parent] = one.run
        self._tracks.append({"name": one.title, "parent": None, "note": None})
        self._tracks += (
            {"name": name, "parent": parent, "note": note} for name, note in spans.tracks
        )
        used, place = np.unique(spans.event, return_inverse=True)
        events = [self._event(spans.events[number].key, one.method) for number in used.tolist()]
        self._extend(
            track=(spans.track + parent + 1).tolist(),
            start=self._scale(spans.start).tolist(),
            duration=self._scale(spans.duration).tolist(),
            level=spans.level.tolist(),
            name=[events[event][0] for event in place.tolist()],
            row=[events[event][1] for event in place.tolist()],
        )
        return parent

    def add_files(
        self, files: Sequence[FileSpans], runs: Mapping[int, RunSpans], tracks: Mapping[int, int]
    ) -> int:
        """Add the spans of files below the tracks of their runs; return the number of the shortest
        ones, left out for their number."""
        left = 0
        for spans in files:
            counts = np.bincount(spans.run, minlength=1)
            own = [run for run in tracks if run < len(counts) and counts[run]]
            for run in own:
                kept = spans.of_run(run, MOST_SPANS // (len(files) * len(own)))
                left += int(counts[run]) - len(kept.run)
                self._add_file(kept, tracks[run], runs[run].origin)
        return left

    def _add_file(self, spans: FileSpans, parent: int, origin: int) -> None:
        imported = spans.imported
        order = np.lexsort((-spans.end, spans.start, imported.lane))
        lane, start, end = imported.lane[order], spans.start[order], spans.end[order]
        used, track = np.unique(lane, return_inverse=True)
        self._extend(
            track=(track + len(self._tracks)).tolist(),
            start=self._scale(start - origin).tolist(),
            duration=self._scale(end - start).tolist(),
            level=span_levels(track, start, end).tolist(),
            name=[
                self._names.setdefault(imported.names[number], len(self._names))
                for number in imported.name[order].tolist()
            ],
            row=[None] * len(order),
        )
        self._tracks += (
            {
                "name": f"{spans.title} · {imported.lanes[number]}",
                "parent": parent,
                "note": spans.note,
            }
            for number in used.tolist()
        )

    def _event(self, key: EventKey, method: ShownMethod | None) -> tuple[int, list[int] | None]:
        """The name of an event's spans, and the method and row that they belong to."""
        row = None if method is None else method.row_of_event(key)
        if method is None or row is None:
            return self._names.setdefault(key.name, len(self._names)), None
        is_told = key.name in _CALLS or key.role == "delegated"
        name = method.rows[row].name if is_told else key.name  # of what it calls
        return self._names.setdefault(name, len(self._names)), [method.index, row]

    def _extend(self, **columns: Sequence[Any]) -> None:
        for name, values in columns.items():
            self._columns[name] += values
