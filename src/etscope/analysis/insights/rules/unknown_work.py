"""Operators with unknown work: no rule judges their rates."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.rule import Rule
from etscope.model.finding import Explanation, Finding, Remedy, Severity, Sureness

_SHOWN = 6  # names of operators


def _find(facts: Facts) -> Iterator[Finding]:
    members = [member for member in facts.time.members if facts.work_of(member).unknown]
    if not facts.time.ticks(members):
        return
    times: dict[str, float] = {}
    for member in members:
        for name in facts.work_of(member).unknown:
            times[name] = times.get(name, 0.0) + facts.time.ticks([member])
    names = sorted(times, key=lambda name: -times[name])
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    taken = facts.time.with_share(facts.time.ticks(members))
    yield facts.finding(
        RULE.name,
        f"The work of {len(names):,} kinds of operators is not known, which take {taken}: whether "
        "they are slow for what they do was not looked at."
        if len(names) > 1
        else f"The work of {names[0]} is not known, which takes {taken}: whether it is slow for "
        "what it does was not looked at.",
        members,
        Explanation(
            Sureness.MEASURED,
            (f"No formula gives the FLOPs of {', '.join(names[:_SHOWN])}{more}.",),
            remedies=(
                Remedy("Compare their times with a reference's: `etscope inspect --by op`."),
            ),
        ),
        severity=Severity.UNKNOWN,
    )


RULE = Rule("unknown-work", "Operators with unknown work", _find)
