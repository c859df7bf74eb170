"""Unknown times inside of delegates: no events, or events on a coarse clock."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.insights import thresholds
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.insights.rule import Rule
from etscope.model.finding import Finding, Severity
from etscope.units import count


def _find(facts: Facts) -> Iterator[Finding]:
    yield from filter(None, (undivided(facts.time), coarse_clock(facts)))


def undivided(time: LeafTimes) -> Finding | None:
    """Find the delegate calls without events that divide their time."""
    members = [member for member in time.members if member[1].kind == "delegate"]
    ticks = time.ticks(members)
    if time.share(ticks) < thresholds.REST_SHARE:
        return None
    below = [row for group, _ in members for row in group.below]
    why = "log no events"
    if any(row.meaning is not None and row.meaning.is_estimate for row in below):
        why = "log estimates, which are not measured"
    elif any(row.own_clock for row in below):
        why = "log no times on the clock of the runtime"
    elif below:
        why = "log events that hold one another"
    sentence = (
        f"{count(len(members), 'delegate call')}, {time.with_share(ticks)}, "
        f"{why if len(members) > 1 else why.replace('log', 'logs', 1)}: what takes the time "
        "inside is not known."
    )
    ids = " or ".join(f"id:{group.head.instruction_id}" for group, _ in members)
    return time.finding("undivided", Severity.UNKNOWN, sentence, members, "kind:delegate", ids)


def coarse_clock(facts: Facts) -> Finding | None:
    """Find events that are so short that a clock of whole microseconds hardly measures them."""
    time = facts.time
    events = [one for one in time.members if one[1].kind == "delegated"]
    if not time.is_coarse(events):
        return None
    least = thresholds.COARSE_STEPS * thresholds.COARSE_STEP_NS
    short = [one for one in events if time.averages[id(one[1])] < least]
    # `delegate-rest` reports calls with a large rest.
    rests = facts.free(one for one in time.members if one[1].kind == "unaccounted")
    lost = len(events) * thresholds.COARSE_STEP_NS
    if time.share(time.ticks(rests)) >= thresholds.REST_SHARE:
        heads = len({id(group.head) for group, _ in rests})
        calls = f"{heads:,} delegate calls" if heads > 1 else "delegate call"
        each = f"each of {len(events):,} events" if len(events) > 1 else "its one event"
        together = f", together up to {time.text(lost)}" if len(events) > 1 else ""
        sentence = (
            f"No event explains {time.with_share(time.ticks(rests))} of the {calls}. The delegate "
            f"logs whole microseconds: {each} can be up to 1 us too short{together}."
        )
        return time.finding("coarse-clock", Severity.UNKNOWN, sentence, rests, "kind:unaccounted")
    if time.share(time.ticks(short)) < thresholds.COARSE_SHARE:
        return None
    sentence = (
        f"{count(len(short), 'event')} inside delegates, together "
        f"{time.with_share(time.ticks(short))}, are logged in whole microseconds and take less "
        "than 5 of them: their times are rough."
    )
    return time.finding("coarse-clock", Severity.UNKNOWN, sentence, short)


RULE = Rule("inside-delegates", "What is not known inside of delegates", _find)
