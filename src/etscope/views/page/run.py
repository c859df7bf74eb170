"""A run of a report: its capture, and what the parts of its page share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.backend_files.placement import PlacedFile
from etscope.analysis.comparison.programs import Side
from etscope.analysis.graphs.views import GraphView, graph_views, with_errors
from etscope.analysis.matching.export import Export
from etscope.analysis.matching.run_nodes import RunNodes
from etscope.analysis.memory.plan import MemoryPlan, memory_plans
from etscope.analysis.memory.size import SizedFile, sized_program
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.profile.scale import Scale, TimeConverter
from etscope.analysis.profile.trace import Capture, Trace
from etscope.analysis.work.limits import profile_limits
from etscope.errors import MissingDataError
from etscope.formats.calibration import Calibration
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.program.pte import Program
from etscope.formats.run_json import SavedRun
from etscope.model.report import Section
from etscope.support.shown import Shown
from etscope.units import TimeScale
from etscope.views.page.elements import Lines
from etscope.views.page.graphs import ShownGraph
from etscope.views.page.method import ShownMethod

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
class ReportRun(Shown):
    """One run of a report, or a record or program alone; its results are computed once.

    name: shown in the report. scale: from the dump's ticks to the report's times. convert: the
    user's, for events inside delegates. sections: the first tables of the summary, on the run's
    environment. notes: sentences for the reader. numerics: the diagnosis of the run's values;
    numerics_note: why there is none, or what it leaves out. has_values: another dump of the run,
    with values, is there. views: the graphs, if they are already known, with the errors of
    `numerics`. backend_files: files that tools of backends wrote, with their calls. calibration:
    the peaks of the run's machine.
    """

    name: str
    capture: Capture
    scale: Scale = NANOSECONDS
    convert: TimeConverter | None = None
    files: Sequence[FileFact] = ()
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    numerics: Numerics | None = None
    numerics_note: str | None = None
    has_values: bool = False
    views: Sequence[GraphView] | None = None
    backend_files: Sequence[PlacedFile] = ()
    calibration: Calibration | None = None

    @property
    def trace(self) -> Trace | None:
        """The run's trace; None without a dump."""
        return self.capture.trace

    @property
    def export(self) -> Export:
        """The program, the record and the .ptd files, without the run."""
        return self.capture.export

    @property
    def record(self) -> RecordView | None:
        return self.capture.record

    @property
    def program(self) -> Program | None:
        """The program of the run: the given program, or the one in its record."""
        return self.capture.recorded_program

    @property
    def side(self) -> Side | None:
        """The program as one side of a comparison."""
        program, data = self.program, self.export.data
        return None if program is None else Side(self.name, program, self.record, data)

    @property
    def saved(self) -> SavedRun | None:
        return None if self.trace is None else self.trace.saved_run

    @cached_property
    def methods(self) -> tuple[ShownMethod, ...]:
        """The methods that ran."""
        trace = self.trace
        if trace is None:
            return ()
        found = []
        for number, profile in enumerate(trace.profiles()):
            limits = profile_limits(trace, profile, self.scale.source, self.calibration)
            found.append(ShownMethod(number, profile, self.scale, limits))
        return tuple(found)

    @cached_property
    def graphs(self) -> tuple[ShownGraph, ...]:
        views = self.views
        if views is None:
            try:
                no_files = self.record is None and self.program is None
                views = () if no_files else graph_views(self.capture)
                views = views if self.numerics is None else with_errors(views, self.numerics)
            except MissingDataError:  # a record without graphs and without a program
                views = ()
        return tuple(ShownGraph(view, self.scale) for view in views)

    @cached_property
    def lines(self) -> Lines:
        """The lines of Python that the parts refer to; each adds its own."""
        return Lines()

    @cached_property
    def plans(self) -> Mapping[str, MemoryPlan]:
        """The memory plan of each method of the program."""
        return memory_plans(self.export)

    @cached_property
    def nodes(self) -> Mapping[str, RunNodes]:
        """The nodes that the instructions of each method of the program run."""
        trace = self.trace
        nodes_of = self.export.edge_nodes if trace is None else trace.run_nodes
        return {name: nodes_of(name) for name in self.plans}

    @cached_property
    def sized(self) -> Sequence[SizedFile] | None:
        """The program and its .ptd files with their parts."""
        if self.program is None:
            return None
        return sized_program(self.export, None if self.record is None else self.nodes.__getitem__)
