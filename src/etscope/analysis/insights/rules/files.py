"""Unknown or doubtful times and places, for want of a file or because of logged values."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rule import Rule
from etscope.model.finding import Finding, Severity


def _find(facts: Facts) -> Iterator[Finding]:
    if facts.trace.record is None:
        yield Finding(
            "no-record",
            Severity.UNKNOWN,
            "Modules and lines of Python are not known: no ETRecord was given.",
            facts.profile.method,
            command=("inspect", "-r", "ETRECORD"),
        )
    if facts.profile.traced:
        yield Finding(
            "traced",
            Severity.PROBLEM,
            "Values were logged in these runs: their times hold the cost of that.",
            facts.profile.method,
            command=(facts.runner,),
        )


RULE = Rule("files", "What the files leave unknown", _find)
