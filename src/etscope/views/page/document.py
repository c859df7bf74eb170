"""The document that the page shows: in the report's file, with `--serve` and in TensorBoard.

Its form is `web/src/document.ts`. Every number equals the Inspector's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope._version import __version__
from etscope.analysis.backend_files.file_views import FileSpans, file_spans, file_table, for_readers
from etscope.analysis.comparison.changes import totals_of
from etscope.analysis.generation.pace import Pace, pace_section, phase_times, traced_phase_table
from etscope.analysis.generation.traced import GROUPINGS, group_series, joined_calls, traced_calls
from etscope.analysis.graphs.executed import EXECUTED
from etscope.analysis.graphs.partition import partition
from etscope.analysis.graphs.views import ViewNode
from etscope.analysis.info.etdump_info import etdump_sections
from etscope.analysis.info.etrecord_info import etrecord_sections
from etscope.analysis.info.program_info import program_sections
from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.insights import insights
from etscope.analysis.insights.rules.memory import memory_of
from etscope.analysis.memory.needs import owner_tables, program_memory
from etscope.analysis.memory.size import part_by_part
from etscope.analysis.numerics.rows import WRONG, NumericsRow, described
from etscope.analysis.numerics.value_report import LOCAL, TOTAL, value_sections
from etscope.analysis.numerics.values import ValueComparison
from etscope.analysis.profile.profile import Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.timeline import (
    RunSpans,
    few_runs,
    loading_runs,
    run_spans,
    span_levels,
)
from etscope.analysis.tables.roofline_table import ceilings_table
from etscope.analysis.work.limits import BOUNDS
from etscope.analysis.work.roofline import OUTSIDE, PLACES, Roofline, roofline
from etscope.formats.etrecord.reader import EDGE, RecordFile
from etscope.formats.generation import GenerationPass
from etscope.formats.program.ptd import external_keys
from etscope.model.event_table import EXECUTE, LOAD_METHOD, EventKey
from etscope.model.finding import Files, Finding, ranked
from etscope.model.report import Section
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind, Table
from etscope.units import TimeScale
from etscope.views.output import finite
from etscope.views.page.comparison import comparison_documents, program_documents
from etscope.views.page.elements import Json, section_document, table_document
from etscope.views.page.graphs import ShownGraph, add_changes
from etscope.views.page.method import ShownMethod
from etscope.views.page.run import ReportRun

# -- The timeline of the page: the runs as they happened.


# Spans in the document. A span takes 30 to 50 bytes, so all take at most 1 MB.
MOST_SPANS = 20_000
# Runs on the timeline, most of them as one span: each is a track.
MOST_RUNS = 500
_CALLS = ("OPERATOR_CALL", "DELEGATE_CALL")  # the runtime's names for every call


def timeline_document(run: ReportRun) -> Json | None:
    """Return the `Timeline`: a track for each run, below it a track for each of its clocks.

    The runs that show most have all their spans. The others follow in run order while there is
    room; later runs are one span each. Every run starts at 0, so that the reader can compare
    them. Files of backends' tools have tracks below their runs. None without any run.
    """
    trace, scale = run.trace, run.scale
    if trace is None:
        return None
    shown = [_TimelineRun(one, "loading", None, 0, "loading") for one in loading_runs(trace)[:1]]
    shown += (one for method in run.methods for one in _runs_of(method))
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
        notes.append(f"{whole:,} runs are one span each: they have too many events.")
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
    left = columns.add_files(list(file_spans(run.backend_files, scale.source)), spans, tracks)
    if shortest := left + sum(found.left_out for found in spans.values()):
        notes.append(f"{shortest:,} of the shortest spans are left out.")
    return {"note": " ".join(notes) or None, **columns.document()}


def _runs_of(method: ShownMethod) -> Iterator[_TimelineRun]:
    """All runs of a method; those that are excluded from its times are marked."""
    every = method.profile.every
    reasons, counted = few_runs(every), set(method.profile.runs.tolist())
    for position, run in enumerate(every.runs.tolist()):
        why = reasons.get(position)
        words = ", ".join(filter(None, (why, "excluded" * (run not in counted))))
        name = f"{method.name} · run {run}{f' ({words})' if words else ''}"
        yield _TimelineRun(run, name, method, position, why)


@dataclass(frozen=True, slots=True)
class _TimelineRun:
    """A run of the timeline, and the position of it among its method's runs. why: the reason to
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
        total = float(self._scale(method.profile.every.total[one.position]))
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
        """Add the spans of files below the tracks of their runs; return how many of the shortest
        spans are left out."""
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


def numerics_document(run: ReportRun) -> Json | None:
    """The page's `Numerics`: a diagnosis, and the nodes of each graph that its values belong to."""
    found = run.numerics
    if found is None:
        return None
    of_method = [shown for shown in run.graphs if shown.view.method in (found.method, None)]
    reference = {shown.view.linked.name: shown for shown in of_method}.get(found.reference)
    named = {} if reference is None else reference.view.by_key
    ran = next((shown for shown in run.methods if shown.profile.method == found.method), None)
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
        "lines": [run.lines.index(row.lines[0]) if row.lines else None for row in found.rows],
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
    """Return the node of a graph for a value: the reference's, or the last one that leads to it.

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


# -- The memory plans of the program's methods.


def memory_documents(run: ReportRun) -> list[Json]:
    """The `Memory` of each method; its instructions point at the rows of the runs, if it ran."""
    if not run.plans:
        return []
    saved = run.saved
    measured = None if saved is None or saved.memory is None else saved.memory.measured
    memory = program_memory(run.export, measured)
    ran = {shown.profile.method: shown for shown in run.methods}
    return [
        {
            "method": plan.method,
            "summary": table_document(plan.summary()),
            "owners": [table_document(table) for table in owner_tables(memory, name)],
            "live": list(plan.live_bytes),
            "labels": list(plan.labels),
            "rows": [
                ran[name].row_of(number, None) if name in ran else None
                for number in range(len(plan.labels))
            ],
            "peak": plan.peak_bytes,
            "values": table_document(plan.table(run.nodes[name].attributions())),
        }
        for name, plan in run.plans.items()
    ]


# -- Rooflines: the work and time of each operator, and the ceilings of the machine.


def roofline_document(run: ReportRun) -> Json | None:
    """The page's `RooflineDoc` of a run; None if the work of none of its methods is known, or its
    clock counts cycles."""
    found: list[Roofline | None] = []
    for shown in run.methods:
        source, limits = shown.scale.source, shown.limits
        if limits is None or source is TimeScale.CYCLES:
            return None
        one = roofline(shown.profile, limits, source)
        found.append(one if one.has_work else None)
    known = [one for one in found if one is not None]
    if not known:
        return None
    ceilings = known[0].ceilings
    return {
        "places": list(PLACES),
        "bounds": list(BOUNDS),
        "methods": [
            None if one is None else _points(one, shown.rows)
            for one, shown in zip(found, run.methods, strict=True)
        ],
        "ceilings": None
        if ceilings is None
        else {
            "compute": [[dtype, rate] for dtype, rate in ceilings.compute],
            "memory": [[level.name, level.bytes_per_s / 1e9] for level in ceilings.memory],
            "table": table_document(ceilings_table(ceilings)),
        },
    }


def _points(found: Roofline, rows: Sequence[Row]) -> Json:
    """The page's `RooflinePoints`."""
    index = {id(row): number for number, row in enumerate(rows)}
    points = found.points
    limits = [point.limits for point in points]
    return {
        "name": [point.name if point.place == OUTSIDE else None for point in points],
        "rows": [[index[id(row)] for row in point.rows] for point in points],
        "place": [PLACES.index(point.place) for point in points],
        "ns": [point.ns for point in points],
        "share": [point.share for point in points],
        "flops": [None if one is None else one.flops for one in limits],
        "bytes": [None if one is None else one.moved for one in limits],
        "roof": [None if one is None else one.roof_ns for one in limits],
        "bound": [
            None if one is None or not one.bound else BOUNDS.index(one.bound) for one in limits
        ],
        "dtype": [None if one is None else one.dtype for one in limits],
        "level": [None if one is None else one.level for one in limits],
        "partial": [number for number, point in enumerate(points) if point.is_partial],
        "reason": [point.reason for point in points],
        "notes": list(found.notes),
    }


# -- A language model's calls: the time of each, stacked, and the whole generation.

# Points on the chart; of more calls, neighbours are joined. A call takes about 300 bytes of the
# document, so all take 1.5 MB.
MOST_CALLS = 5_000
_MOST_GROUPS = 8  # areas of the stacked chart; the rest is one more. Fewer are easier to read.

Ints = npt.NDArray[np.int64]


def generation_document(run: ReportRun) -> Json | None:
    """Return the page's `GenerationDoc` of a run; None unless the run is a run of a language
    model.
    """
    calls = None if run.trace is None else traced_calls(run.trace)
    if calls is None:
        return None
    scale, saved = run.scale, run.saved
    profiles = [shown.profile for shown in run.methods]
    every = [profile.every for profile in profiles]  # each call is drawn
    kinds = (calls.generation, calls.phase, calls.method)
    order, first = joined_calls(kinds, MOST_CALLS)
    size = np.diff(np.append(first, len(order)))

    def mean(ticks: Ints) -> list[float]:
        found: list[float] = scale(np.add.reduceat(ticks[order], first) / size).tolist()
        return found

    def of_first(column: Ints) -> list[int]:
        found: list[int] = column[order][first].tolist()
        return found

    known = None if saved is None else saved.generation
    untraced = None if known is None else known.untraced
    joined = int(size.max()) if len(size) else 1
    return {
        "note": None
        if joined == 1
        else f"Each point is the mean of up to {joined:,} neighbouring calls of a phase: "
        f"{len(order):,} calls are too many for one point each.",
        "phases": list(calls.phases),
        "methods": [name or "method" for name in calls.methods],
        "table": table_document(traced_phase_table(phase_times(profiles), scale)),
        "pace": None if untraced is None else section_document(pace_section(Pace.of(untraced))),
        "calls": {
            "number": of_first(calls.number),
            "run": of_first(calls.run),
            "generation": of_first(calls.generation),
            "phase": of_first(calls.phase),
            "method": of_first(calls.method),
            "step": of_first(calls.step),
            "position": of_first(calls.position),
            "tokens": np.add.reduceat(calls.tokens[order], first).tolist(),
            "joined": size.tolist(),
            "token": of_first(calls.chosen),
            "start": scale(calls.start[order][first] - calls.start.min()).tolist(),
            "time": mean(calls.ticks),
        },
        "groups": {
            by: {
                "names": list(found.names),
                "times": [mean(ticks) for ticks in found.ticks],
            }
            for by in GROUPINGS
            for found in [group_series(calls, every, by, _MOST_GROUPS)]
        },
        "untraced": None if untraced is None else _untraced(untraced, scale),
    }


def _untraced(untraced: GenerationPass, scale: Scale) -> Json | None:
    """Return the calls of the pass without tracing, on the host's clock; None if the page's unit is
    not a time."""
    if scale.target is TimeScale.CYCLES:
        return None
    calls = untraced.calls
    in_unit = Scale(TimeScale.NS, scale.target)
    order, first = joined_calls((calls.run, calls.phase, calls.method), MOST_CALLS)
    size = np.diff(np.append(first, len(order)))
    last = first + size - 1
    end = (calls.start_ns + calls.execute_ns)[order][last]

    def mean(column: Ints) -> list[float]:
        values: list[float] = in_unit(np.add.reduceat(column[order], first) / size).tolist()
        return values

    return {
        "phases": list(calls.phases),
        "methods": list(calls.methods),
        "generation": calls.run[order][first].tolist(),
        "phase": calls.phase[order][first].tolist(),
        "method": calls.method[order][first].tolist(),
        "position": calls.position[order][first].tolist(),
        "tokens": np.add.reduceat(calls.tokens[order], first).tolist(),
        "joined": size.tolist(),
        "start": in_unit(calls.start_ns[order][first]).tolist(),
        "end": in_unit(end).tolist(),
        "execute": mean(calls.execute_ns),
        "sampling": mean(calls.sampling_ns),
    }


SCHEMA = "etscope.report/3"
_NAMED = 3  # runs in the title, so that it stays one line
_MOST_FILE_ROWS = 1_000  # of a tool's file, so that the page stays small
_ELSEWHERE = {"members", "memory", "named_data"}  # sections of files with a view for each


def document_of(runs: Sequence[ReportRun], title: str | None = None) -> Json:
    """The `ReportDocument` of runs, as plain values for JSON. title: None for the runs' names."""
    names = [run.name for run in runs]
    if len(names) > _NAMED:
        names[_NAMED:] = [f"{len(names) - _NAMED} more"]
    totals = None  # where nothing is compared
    if len(runs) > 1:
        totals = [totals_of(run.export, run.numerics, run.saved) for run in runs]
    documents = [_RunDocument(run).document(f"run{number}") for number, run in enumerate(runs)]
    add_changes(documents)
    return {
        "schema": SCHEMA,
        "title": title or " · ".join(names),
        "generator": f"etscope {__version__}",
        "runs": documents,
        "comparisons": comparison_documents([run.methods for run in runs], totals),
        "programs": program_documents(runs),
    }


@dataclass(frozen=True)
class _RunDocument:
    """The `Run` of a report's document."""

    run: ReportRun

    def document(self, identifier: str) -> Json:
        run = self.run
        return {
            "id": identifier,
            "name": run.name,
            "unit": run.scale.unit,
            "files": [asdict(file) for file in run.files],
            "notes": [*run.notes, *(note for note in self._gaps() if note not in run.notes)],
            "insights": self._insights(),
            "summary": [section_document(section) for section in self._summary()],
            "methods": self._methods(),
            "graphs": self._graphs(),
            "numerics": numerics_document(run),
            "numericsNote": run.numerics_note,
            "memory": memory_documents(run),
            "weights": None if run.sized is None else table_document(part_by_part(run.sized).table),
            "generation": generation_document(run),
            "roofline": roofline_document(run),
            "timeline": timeline_document(run),
            "source": run.lines.document(),  # last: all of the above add lines
        }

    def _gaps(self) -> Iterator[str]:
        """Yield notes on unknown facts of the run, each with a fix."""
        if self.run.trace is not None and self.run.record is None:
            yield (
                "Modules, lines of Python and graphs of the model: unknown without the ETRecord. "
                "Add it to the command."
            )
        if self.run.trace is not None and not self.run.methods:
            yield (
                "Times: unknown, because the dump does not have a Method::execute event. Run the "
                "method with the event tracer on."
            )
        if self.run.program is None:
            yield "Memory plan: unknown without the program. Add the .pte to the command."
        elif not self.run.export.data and (keys := external_keys(self.run.program)):
            yield (
                f"Bytes of {len(keys):,} weights: unknown without their .ptd file. Add it to the "
                "command."
            )
        if self.run.trace is not None and self.run.trace.forced:
            yield "The check that the files belong together was skipped."

    def _insights(self) -> list[Json]:
        """Return the findings of the methods that ran; without a run, the findings on memory."""
        trace = self.run.trace
        names: dict[str, str] = {}  # by role; the first file of a role is the one to name
        for file in self.run.files:
            names.setdefault(file.role, file.name)
        dump, record, program, buffer = (
            names.get(role) for role in ("dump", "record", "program", "debug buffer")
        )
        files = Files(dump, record, program, buffer)  # of the commands that findings name
        told: list[tuple[int | None, Finding]] = []
        if trace is not None:
            has_values = self.run.has_values or trace.refers_to_tensors
            known = (self.run.calibration, self.run.numerics, has_values, self.run.sized)
            for shown in self.run.methods:
                facts = Facts(trace, shown.profile, self.run.scale, *known)
                told += ((shown.index, one) for one in insights(facts, Level.ALL))
        for method in () if self.run.methods else self.run.plans:
            parts = [part for file in self.run.sized or () for part in file.parts]
            told += ((None, one) for one in ranked([*memory_of(method, self.run.export, parts)]))
        return [
            {"explanation": None, **one.plain(files), "methodIndex": index} for index, one in told
        ]

    def _methods(self) -> list[Json]:
        documents: list[Json] = []
        for shown in self.run.methods:
            document = shown.document(self.run.lines)
            document["links"]["nodes"] = {
                graph.view.key: graph.rows(shown.rows)
                for graph in self.run.graphs
                if graph.view.method in (shown.profile.method, None)
                or graph.view.profile is shown.profile
            }
            if self.run.trace is not None:
                document["events"], document["eventRow"] = shown.events(
                    self.run.trace, self.run.convert
                )
            documents.append(document)
        return documents

    def _graphs(self) -> list[Json]:
        """Return the graphs, each linked to the edge graph of its method, with the partitioners'
        reasons and the work of its nodes."""
        edges = {
            shown.view.method: shown
            for shown in self.run.graphs
            if shown.view.linked.name == f"{EDGE}/{shown.view.method}"
        }
        reasons = None if self.run.record is None else self.run.record.partition
        documents = []
        for shown in self.run.graphs:
            method = shown.view.method
            edge_graph = edges.get(method)
            has_reasons = reasons is not None and method in reasons
            chosen = None
            if method is not None and shown is edge_graph and has_reasons:
                chosen = partition(self.run.capture, method)
            ran = next((one for one in self.run.methods if one.profile is shown.view.profile), None)
            documents.append(shown.document(self.run.lines, edge_graph, chosen, ran))
        return documents

    def _summary(self) -> Iterator[Section]:
        """Yield the sections. The contents of files are as `etscope info` shows them, without those
        that have a separate view."""
        yield from self.run.sections
        if self.run.methods:
            yield self._profile_section()
        for number, one in enumerate(self.run.backend_files):
            table = file_table(one, _MOST_FILE_ROWS)
            yield Section(f"backend_file_{number}", for_readers(table))
        if self.run.trace is not None:
            sections = etdump_sections(self.run.trace.dump, self.run.trace.blocks)
            yield from _named("dump", "ETDump", sections)
        if isinstance(self.run.record, RecordFile):
            views = [shown.view for shown in self.run.graphs]
            named = self.run.record.graph_names
            graphs = {view.linked.name: view.graph for view in views if view.linked.name in named}
            yield from _named("record", "ETRecord", etrecord_sections(self.run.record, graphs))
        if self.run.program is not None:
            yield from _named("program", "Program", program_sections(self.run.export))

    def _profile_section(self) -> Section:
        """Return the time of each method."""
        profiles, scale = [shown.profile for shown in self.run.methods], self.run.scale
        samples = [scale(profile.total) for profile in profiles]
        loads = [profile.load.get(LOAD_METHOD) for profile in profiles]
        unaccounted = [float(scale(profile.unaccounted).mean()) for profile in profiles]
        names = ("avg", "p50", "p90", "min", "max")
        found = [summarize(one, names) for one in samples]
        statistics = {name: [float(one[name]) for one in found] for name in names}

        def time(name: str, title: str | None = None) -> Column:
            return Column(name, Kind.DURATION, scale.unit, title=title)

        columns: dict[Column, Sequence[Any]] = {
            Column("method"): [shown.name for shown in self.run.methods],
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


def _named(file: str, what: str, sections: Iterable[Section]) -> Iterator[Section]:
    for section in sections:
        if section.name not in _ELSEWHERE:
            is_file = section.name == "file"
            name = file if is_file else f"{file}_{section.name}"
            title = section.table.title
            title = what if is_file else f"{what}: {title[:1].lower()}{title[1:]}"
            yield replace(section, name=name, table=replace(section.table, title=title))
