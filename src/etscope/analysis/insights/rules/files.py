"""Rules about missing files, and the diagnosis of the logged values."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rule import rule
from etscope.model.finding import Finding, Place, Quantity, Severity


@rule("Whether an operator is wrong")
def values(facts: Facts) -> Iterator[Finding]:
    """The diagnosis of the logged values: is an operator wrong?"""
    numerics, method = facts.numerics, facts.profile.method
    if numerics is None or numerics.method != method:
        sentence = "Whether an operator is wrong was not looked at: compare the logged values."
        command: tuple[str, ...] = ("numerics",)
        if not facts.has_values:
            sentence = "Whether an operator is wrong is not known: no values were logged."
            command = (facts.runner, "--debug-level", "intermediate_outputs", "--save", "ran")
        yield Finding("no-values", Severity.UNKNOWN, sentence, method, command=command)
        return
    row = numerics.first or numerics.stray_nan
    quantity = None
    if row is not None and row.local is not None:
        quantity = Quantity(row.local, numerics.metric.unit or numerics.metric.name)
    told = "; ".join(filter(None, (numerics.verdict, numerics.what_it_is)))
    if numerics.coverage.hidden is not None and numerics.is_fine:
        told += f"; {numerics.coverage.hidden}"
    select = None if row is None else f"id:{row.pair.instruction}"
    instruction = None if row is None else row.pair.instruction
    yield Finding(
        "values-fine" if numerics.is_fine else "values-wrong",
        Severity.FACT if numerics.is_fine else Severity.PROBLEM,
        f"{told[:1].upper()}{told[1:]}.",
        numerics.method,
        quantity,
        Place("numerics", select=select, instruction=instruction),
        ("numerics", "--sort", "error"),
    )


@rule("What the files leave unknown")
def files(facts: Facts) -> Iterator[Finding]:
    """Unknown or doubtful times and places, for want of a file or because of logged values."""
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
