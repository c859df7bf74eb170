"""Inputs of a report: opened files, and results about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etscope.analysis.graphs.views import GraphView
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.profile.scale import Scale, TimeConverter
from etscope.analysis.profile.trace import Trace
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.program.pte import Program
from etscope.model.report import Section
from etscope.units import TimeScale

NANOSECONDS = Scale(TimeScale.NS, TimeScale.MS)


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file of a report. role: "dump", "record", "program" or "debug buffer". sha256: None if it
    was not computed."""

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
