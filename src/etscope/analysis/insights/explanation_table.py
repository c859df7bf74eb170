"""The findings of `etscope explain` as a table: a row for each, and their sentences below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from etscope.analysis.insights.facts import Facts
from etscope.analysis.tables.profile_table import runs_notes
from etscope.analysis.work.limits import calibration_doubts
from etscope.model.finding import Files, Finding
from etscope.model.table import Column, Kind, Table
from etscope.units import format_share


def explanation_table(
    facts: Facts, findings: Sequence[Finding], files: Files, least_share: float
) -> Table:
    """Build the table of a method's findings, which are ranked; times are of one run.

    files: those that the next commands are given.
    """
    profile, unit = facts.profile, facts.scale.unit
    known = [
        (one, one.quantity, one.explanation)
        for one in findings
        if one.quantity is not None and one.explanation is not None
    ]
    content: dict[Column, list[Any]] = {
        Column("finding"): [one.kind for one, _, _ in known],
        Column("severity"): [one.severity.value for one, _, _ in known],
        Column("method"): [one.method for one, _, _ in known],
        Column("phase"): [profile.phase for _ in known],
        Column("time", Kind.DURATION, unit): [quantity.value for _, quantity, _ in known],
        Column("share", Kind.SHARE): [quantity.share for _, quantity, _ in known],
        Column("low", Kind.DURATION, unit): [explained.low for _, _, explained in known],
        Column("high", Kind.DURATION, unit): [explained.high for _, _, explained in known],
        Column("sureness"): [explained.sureness.value for _, _, explained in known],
    }
    average = "the average of " if len(profile.runs) > 1 else ""
    title = (
        f"{profile.title()} · {facts.time.text(facts.time.total)}, {average}{profile.runs_in_words}"
    )
    table = Table.of(content, title=title, notes=tuple(_notes(facts, findings, least_share)))
    return replace(
        table,
        findings=tuple(one.plain(files) for one in findings),
        runs=(profile.runs_as_plain,),
    )


def _notes(facts: Facts, findings: Sequence[Finding], least_share: float) -> Iterator[str]:
    if not findings:
        yield (
            f"No rule found anything that takes {format_share(least_share)} of the time or more. "
            "What takes it: etscope inspect."
        )
    elif len(facts.profile.runs) > 1:
        yield "low and high: the 95% interval of the average time, over the runs."
    yield from runs_notes(facts.profile)
    if facts.trace.record is None:
        yield "Without an ETRecord (-r), graphs, lines and refused nodes were not looked at."
    elif facts.partition is None or facts.partition.partitionings is None:
        yield (
            "The record has no reasons for refused nodes; records made by etscope export have them."
        )
    if facts.program is None:
        yield "Without a program (-p), types of tensors and layouts were not looked at."
    if facts.work is not None and facts.work.unknown_share >= least_share:
        yield (
            f"The work of operators with {format_share(facts.work.unknown_share)} of the time is "
            "not known."
        )
    if findings and facts.limits is not None:
        yield from calibration_doubts(facts.limits)
