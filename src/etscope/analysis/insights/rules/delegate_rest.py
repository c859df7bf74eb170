"""Time of delegate calls that none of their events explains."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.rule import Rule
from etscope.analysis.insights.thresholds import COARSE_STEP_NS, REST_SHARE
from etscope.model.finding import Explanation, Finding, Remedy, Severity, Sureness
from etscope.units import format_bytes


def _find(facts: Facts) -> Iterator[Finding]:
    time = facts.time
    rests = [member for member in time.members if member[1].kind == "unaccounted"]
    ticks = time.ticks(rests)
    events = [(one, row) for one, _ in rests for row in one.below if row.kind == "delegated"]
    # The most that the rounding of events leaves in the rests.
    lost = float(len(events) * COARSE_STEP_NS) if time.is_coarse(events) else 0.0
    if time.share(ticks - lost - facts.tracing_ticks) < REST_SHARE:
        return
    calls = [group.head for group, _ in rests]
    evidence = [
        f"{len(calls):,} delegate calls with {sum(len(group.below) - 1 for group, _ in rests):,} "
        f"events inside; {time.text(ticks / len(calls))} of a call is in none of them."
    ]
    if lost:
        evidence.append(
            f"The events are logged in whole microseconds: up to {time.text(lost)} of it is what "
            "they round off."
        )
    all_work = facts.work if Level.FULL in facts.level else None
    work = None if all_work is None else all_work.of(calls)
    if work is not None and work.traffic.activations:
        evidence.append(f"{format_bytes(work.traffic.activations)} cross the borders of the calls.")
    many = len(calls) > 1
    facts.claim(leaves=rests)
    yield facts.finding(
        RULE.name,
        f"No event explains {time.with_share(ticks)} of {len(calls):,} delegate "
        f"call{'s' if many else ''}: the backend prepares {'them' if many else 'it'}, and takes in "
        "and gives out tensors.",
        rests,
        Explanation(
            Sureness.POSSIBLE,
            tuple(evidence),
            remedies=(
                Remedy(
                    "Make fewer calls: lower the operators between them, so that neighbours become "
                    "one."
                    if many
                    else "Do more in a call: a larger batch, several steps at once."
                ),
                Remedy(
                    "Keep shapes the same from run to run: a backend plans anew for sizes that "
                    "changed."
                ),
            ),
        ),
        "kind:unaccounted",
        severity=Severity.UNKNOWN,
    )


RULE = Rule("delegate-rest", "Time of delegate calls outside of their events", _find)
