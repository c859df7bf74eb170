"""The document that the page shows: in the report's file, with `--serve` and in TensorBoard.

Its form is `web/src/document.ts`. Every number equals the Inspector's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
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
from etscope.views.page.timeline import timeline_document

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
