"""Explain why a run takes its time, and what to do.

from etscope.capture import open_capture
from etscope.explain import explain

for method in explain(open_capture("ran")):
    for finding in method.findings:
        print(finding.sentence)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from etscope.analysis.insights.explanation_table import explanation_table
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.insights import insights
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Capture, Trace
from etscope.analysis.work.roofline import choose_calibration
from etscope.capture.profiles import chosen_profiles
from etscope.errors import MissingDataError
from etscope.formats.bytes.files import PathLike
from etscope.model.finding import Files, Finding
from etscope.model.table import Table
from etscope.support.options import takes_fields

__all__ = ["ExplainOptions", "ExplainedMethod", "explain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """Options of `explain()`.

    method: explain this method only.
    rules: names of the rules to apply; all by default.
    least_share: exclude findings with a smaller share of the method's time.
    peaks: the file of a calibration (`etscope calibrate`); by default the one that is kept for the
        machine of the run.
    source_unit: unit of the runtime's clock. unit: of the times shown; by default ms, or cycles if
        the clock counts cycles.
    """

    method: str | None = None
    rules: tuple[str, ...] = ()
    least_share: float = 0.02
    peaks: PathLike | None = None
    source_unit: str = "ns"
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainedMethod:
    """The findings of a method in one phase, the most important first."""

    facts: Facts
    findings: tuple[Finding, ...]
    least_share: float

    def table(self, files: Files | None = None) -> Table:
        """Return the findings as a table. files: the names of the run's files in commands."""
        return explanation_table(self.facts, self.findings, files or Files(), self.least_share)


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
