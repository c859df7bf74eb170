"""Rules about operators outside of delegates, and about what delegates do not show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from etscope.analysis.insights import thresholds
from etscope.analysis.insights.facts import RECORD_NEEDED, Facts, Level
from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.insights.node_words import places, time_of_kinds
from etscope.analysis.insights.rule import rule
from etscope.analysis.insights.thresholds import COARSE_STEP_NS, ISLANDS_SHARE, REST_SHARE
from etscope.model.finding import Explanation, Finding, Remedy, Severity, Sureness
from etscope.units import count, format_bytes


@rule("Nothing runs on a backend")
def not_delegated(facts: Facts) -> Iterator[Finding]:
    """Nothing is delegated: all operators run on the runtime's own kernels."""
    kernels = [member for member in facts.time.members if member[1].kind == "kernel"]
    if not kernels or facts.has_delegates:
        return
    types = facts.untaken_types
    evidence = [f"{len(kernels):,} kernels ran, and no delegate call."]
    remedy = Remedy(
        "Lower the model to a backend: `etscope export MODEL --backend xnnpack`.",
        "backend",
        {"backend": "xnnpack"},
    )
    if types:
        remedy = Remedy(
            "Export the model in float32 (`model.float()`), and lower it to XNNPACK.",
            "dtype",
            {"dtype": "float32"},
        )
    remedies = [remedy]
    if Level.FULL in facts.level:
        from etscope.analysis.insights.slow_products import slow_products

        slow = slow_products(facts)
        if slow is not None:
            evidence += slow.evidence
            remedies += slow.remedies
    taken = facts.time.taken(kernels)
    yield facts.finding(
        "not-delegated",
        f"Nothing is delegated: kernels of the runtime take {taken}.{types}",
        kernels,
        Explanation(Sureness.MEASURED, tuple(evidence), remedies=tuple(remedies)),
        "kind:kernel",
    )


_NAMED = 4  # kernels among the evidence: the table of the events has all


@rule("Operators outside of delegates")
def outside_delegates(facts: Facts) -> Iterator[Finding]:
    """Operators outside of delegates, in a method that has some: islands, with the reasons of the
    partitioner."""
    run = facts.run_graph if Level.FULL in facts.level else None
    if run is not None:
        from etscope.analysis.insights.rules.islands import islands_outside

        yield from islands_outside(facts, run)
    elif facts.has_delegates:
        yield from _outside_by_time(facts)


def _outside_by_time(facts: Facts) -> Iterator[Finding]:
    """Find all operators outside of delegates together, from times alone."""
    time = facts.time
    members = facts.free(one for one in time.members if one[1].kind == "kernel")
    ticks = time.ticks(members)
    if not members or time.share(ticks) < ISLANDS_SHARE:
        return
    kinds = time.by_kind(members, lambda row: row.kernel_name)
    worst, its = next(iter(kinds.items()))
    calls = sum(1 for group in time.groups if group.head.kind == "delegate")
    outside = f"outside of {count(calls, 'delegate call')}"
    if len(members) == 1:
        sentence = (
            f"One operator runs on a portable kernel, {outside}: {worst}, {time.with_share(ticks)}"
        )
    else:
        sentence = (
            f"{len(members):,} operators run on portable kernels, {outside}: "
            f"{time.with_share(ticks)}; most of it in {worst}, "
            f"{time.text(time.ticks(its))}{places(len(its))}"
        )
    yield facts.finding(
        "outside-delegates",
        f"{sentence}{time.lines(its)}.{facts.untaken_types}",
        members,
        Explanation(
            Sureness.MEASURED,
            tuple(time_of_kinds(time, kinds))[:_NAMED],
            remedies=(RECORD_NEEDED,),
        ),
        "kind:kernel",
    )


@rule("What is not known inside of delegates")
def inside_delegates(facts: Facts) -> Iterator[Finding]:
    """Unknown times inside of delegates: no events, or events on a coarse clock."""
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
            f"No event explains {time.taken(rests)} of the {calls}. The delegate "
            f"logs whole microseconds: {each} can be up to 1 us too short{together}."
        )
        return time.finding("coarse-clock", Severity.UNKNOWN, sentence, rests, "kind:unaccounted")
    if time.share(time.ticks(short)) < thresholds.COARSE_SHARE:
        return None
    sentence = (
        f"{count(len(short), 'event')} inside delegates, together "
        f"{time.taken(short)}, are logged in whole microseconds and take less "
        "than 5 of them: their times are rough."
    )
    return time.finding("coarse-clock", Severity.UNKNOWN, sentence, short)


@rule("Time of delegate calls outside of their events")
def delegate_rest(facts: Facts) -> Iterator[Finding]:
    """Time of delegate calls that none of their events explains."""
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
    found = facts.finding(
        "delegate-rest",
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
    )
    yield replace(found, severity=Severity.UNKNOWN)
