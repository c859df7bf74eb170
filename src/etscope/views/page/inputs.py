"""What a report is made of: files opened, and what was found out about them elsewhere."""

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
    """A file that a report is made of. role: "dump", "record", "program" or "debug buffer".
    sha256: of its bytes, None where it was not computed."""

    role: str
    name: str
    bytes: int
    sha256: str | None = None


@dataclass(frozen=True)
class ReportInput:
    """One run of a report: a dump with all that explains it, or a record or program alone.

    name: for people. trace: None without a dump; record, program: what is known without one.
    scale: from the dump's ticks to the report's times. convert: the user's, for events inside
    delegates. sections: what the summary says first, of the run's
    environment. notes: sentences that a reader must know. numerics: the diagnosis of the run's
    values; numerics_note: why there is none, or what they leave out. views: the graphs, where they
    are at hand, with the errors of `numerics`.
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
