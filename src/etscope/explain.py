"""Explain why a run takes its time, and what to do.

from etscope.capture import open_capture
from etscope.explain import explain

for method in explain(open_capture("ran")):
    for finding in method.findings:
        print(finding.sentence)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.insights import LEAST_SHARE, insights
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Capture, Trace
from etscope.analysis.tables.profile_table import runs_notes
from etscope.analysis.work.limits import calibration_doubts
from etscope.analysis.work.roofline import choose_calibration
from etscope.capture.profiles import chosen_profiles
from etscope.errors import MissingDataError
from etscope.formats.bytes.files import PathLike
from etscope.model.finding import Files, Finding
from etscope.model.table import Column, Kind, Table
from etscope.support.options import takes_fields
from etscope.support.shown import Shown
from etscope.units import format_share

__all__ = ["ExplainOptions", "ExplainedMethod", "explain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """Options of `explain()`.

    method: explain this method only.
    rules: names of the rules to apply; all by default.
    least_share: exclude findings with a smaller share of the method's time.
    peaks: the file of a calibration (`etscope calibrate`); by default the file kept for the machine
        that ran the program.
    source_unit: the unit of the runtime's clock. unit: the unit of the shown times; by default ms,
        or cycles if the clock counts cycles.
    """

    method: str | None = None
    rules: tuple[str, ...] = ()
    least_share: float = LEAST_SHARE
    peaks: PathLike | None = None
    source_unit: str = "ns"
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainedMethod(Shown):
    """The findings of a method in one phase, the most important first."""

    facts: Facts
    findings: tuple[Finding, ...]
    least_share: float

    def table(self, files: Files | None = None) -> Table:
        """Return a table with a row for each finding, and the findings' sentences below; times are
        for one run. files: the names of the run's files to show in commands.
        """
        facts, profile, unit = self.facts, self.facts.profile, self.facts.scale.unit
        known = [
            (one, one.quantity, one.explanation)
            for one in self.findings
            if one.quantity is not None and one.explanation is not None
        ]
        content: dict[Column, list[Any]] = {
            Column("finding"): [one.kind for one, _, _ in known],
            Column("severity"): [one.severity.value for one, _, _ in known],
            Column("method"): [one.method for one, _, _ in known],
            Column("phase"): [profile.phase for _ in known],
            Column("time", Kind.DURATION, unit): [
                quantity.value if quantity.unit == unit else None for _, quantity, _ in known
            ],
            Column("share", Kind.SHARE): [quantity.share for _, quantity, _ in known],
            Column("low", Kind.DURATION, unit): [explained.low for _, _, explained in known],
            Column("high", Kind.DURATION, unit): [explained.high for _, _, explained in known],
            Column("sureness"): [explained.sureness.value for _, _, explained in known],
        }
        average = "the average of " if len(profile.runs) > 1 else ""
        total = f"{facts.time.text(facts.time.total)}, {average}{profile.runs_in_words}"
        return replace(
            Table.of(content, title=f"{profile.title()} · {total}", notes=tuple(self._notes())),
            findings=tuple(one.plain(files or Files()) for one in self.findings),
            runs=(profile.runs_as_plain,),
        )

    def _notes(self) -> Iterator[str]:
        facts = self.facts
        if not self.findings:
            yield (
                f"No rule found anything that takes {format_share(self.least_share)} of the time "
                "or more. What takes it: etscope inspect."
            )
        elif len(facts.profile.runs) > 1:
            yield "low and high: the 95% interval of the average time, over the runs."
        yield from runs_notes(facts.profile)
        if facts.trace.record is None:
            yield "Without an ETRecord (-r), graphs, lines and refused nodes were not looked at."
        elif facts.partition is None or facts.partition.partitionings is None:
            yield (
                "The record has no reasons for refused nodes; records made by etscope export have "
                "them."
            )
        if facts.program is None:
            yield "Without a program (-p), types of tensors and layouts were not looked at."
        if facts.work is not None and facts.work.unknown_share >= self.least_share:
            yield (
                f"The work of operators with {format_share(facts.work.unknown_share)} of the time "
                "is not known."
            )
        if self.findings and facts.limits is not None:
            yield from calibration_doubts(facts.limits)


@takes_fields(ExplainOptions)
def explain(
    capture: Capture, *, options: ExplainOptions = ExplainOptions(), **changes: object
) -> list[ExplainedMethod]:
    """Explain each method that ran, and each phase of a language model.

    capture: a run, from `etscope.capture.open_capture`.
    options, changes: fields of `ExplainOptions`, as `method="forward"`; changes go before
        `options`.

    Raises `MissingDataError` without a dump, or if no such method ran, `UsageError` for an unknown
    rule, and the errors of `read_calibration`.
    """
    chosen = replace(options, **changes)  # type: ignore[arg-type]
    if not isinstance(capture, Trace):
        raise MissingDataError("a program alone has no times", hint="open the ETDump of a run, too")
    calibration = choose_calibration(chosen.peaks, capture.saved_run)
    scale = Scale.of(chosen.source_unit, chosen.unit)
    share = chosen.least_share
    found = []
    for profile in chosen_profiles(capture, chosen.method):
        facts = Facts(capture, profile, scale, calibration)
        findings = insights(facts, least_share=share, only=chosen.rules)
        found.append(ExplainedMethod(facts, findings, share))
    return found
