"""Rules about operators outside of delegates, changes of layout, and what delegates do not show,
from times alone; with a graph, `islands` and `copies` have more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from etscope.analysis.insights.facts import RECORD_NEEDED, Facts, Level, explained
from etscope.analysis.insights.leaf_times import COARSE_STEP_NS, LeafTimes, quoted
from etscope.analysis.insights.node_words import places, time_of_kinds
from etscope.analysis.profile.profile import Row
from etscope.analysis.program.xnnpack_events import event_kind
from etscope.model.finding import Finding, Remedy, Severity, Sureness
from etscope.units import count, format_bytes

ISLANDS_SHARE = 0.05  # of the operators outside of delegates: less is not worth a line
LAYOUT_SHARE = 0.05  # of changes of layout and type: a few % are normal with any delegate
REST_SHARE = 0.10  # of what a delegate's events leave over: packing and threads cost some %
COARSE_STEPS = 5  # of the clock: an event of fewer is known to a fifth at best
COARSE_SHARE = 0.10  # of the time in such events and in the rest that they leave


def not_delegated(facts: Facts) -> Iterator[Finding]:
    """Nothing is delegated: all operators run on the runtime's own kernels."""
    kernels = [member for member in facts.time.members if member[1].kind == "kernel"]
    if not kernels or facts.has_delegates:
        return
    types = facts.untaken_types
    evidence = [f"{len(kernels):,} kernels ran, and no delegate call."]
    lower = "Lower the model to a backend: `etscope export MODEL --backend xnnpack`."
    convert = "Export the model in float32 (`model.float()`), and lower it to XNNPACK."
    remedies = [
        Remedy(convert, "dtype", {"dtype": "float32"})
        if types
        else Remedy(lower, "backend", {"backend": "xnnpack"})
    ]
    if Level.FULL in facts.level:
        from etscope.analysis.insights.rules.kernels import slow_products

        slow = slow_products(facts)
        evidence += () if slow is None else slow.evidence
        remedies += () if slow is None else slow.remedies
    taken = facts.time.taken(kernels)
    yield facts.finding(
        "not-delegated",
        f"Nothing is delegated: kernels of the runtime take {taken}.{types}",
        kernels,
        explained(Sureness.MEASURED, evidence, remedies),
        "kind:kernel",
    )


_NAMED = 4  # kernels among the evidence: the table of the events has all


def outside_delegates(facts: Facts) -> Iterator[Finding]:
    """Operators outside of delegates (islands), in a method that has delegates, with the reasons of
    the partitioner."""
    run = facts.run_graph if Level.FULL in facts.level else None
    if run is not None:
        from etscope.analysis.insights.rules.islands import islands_outside

        yield from islands_outside(facts, run)
    if run is not None or not facts.has_delegates:
        return
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
        explained(Sureness.MEASURED, list(time_of_kinds(time, kinds))[:_NAMED], [RECORD_NEEDED]),
        "kind:kernel",
    )


def layout_conversions(facts: Facts) -> Iterator[Finding]:
    """Changes of layout at run time: channels first to last, and transposes that cancel."""
    run = facts.run_graph if Level.FULL in facts.level else None
    if run is not None:
        from etscope.analysis.insights.rules.copies import changes_of_layout

        yield from changes_of_layout(facts, run)
        return
    time = facts.time

    def kind_of(row: Row) -> str:
        """The name of an operator up to its overload, or to the types that XNNPACK names."""
        is_event = row.kind == "delegated"
        return event_kind(row.name) if is_event else row.name.partition(".")[0]

    def is_layout(row: Row) -> bool:
        if row.kind == "kernel":
            return row.name.rpartition("::")[2].startswith(_LAYOUT_KERNELS)
        return row.kind == "delegated" and kind_of(row) in _LAYOUT_DELEGATED

    members = [one for one in facts.free(time.members) if is_layout(one[1])]
    ticks = time.ticks(members)
    if time.share(ticks) < LAYOUT_SHARE:
        return
    kinds = time.by_kind(members, kind_of)
    listed = list(kinds)
    longest = max(members, key=lambda one: time.averages[id(one[1])])
    sentence = f"Changes of layout and type ({', '.join(listed[:4])}) take {time.with_share(ticks)}"
    if len(members) > 1:
        sentence += (
            f" in {len(members):,} places, the most in {longest[1].name} of instruction "
            f"{longest[0].head.instruction_id}, {time.text(time.ticks([longest]))}"
        )
    yield facts.finding(
        "layout-conversions",
        f"{sentence}{time.lines([longest])}.",
        members,
        explained(Sureness.MEASURED, time_of_kinds(time, kinds), [RECORD_NEEDED]),
        " or ".join(f"name:{quoted(name)}*" for name in listed),
        by=("op", listed[0]),
    )


# What moves or converts values without computing any: kernels by the start of their names, and the
# names that XNNPACK gives such operators.
_LAYOUT_KERNELS = (
    "permute_copy", "transpose_copy", "t_copy", "clone", "_clone_dim_order", "_to_copy",
    "_to_dim_order_copy", "_conj_physical", "expand_copy", "copy_", "contiguous",
    "quantize_", "dequantize_", "choose_qparams",
)  # fmt: skip
_LAYOUT_DELEGATED = ("Transpose", "Convert", "Copy")


def inside_delegates(facts: Facts) -> Iterator[Finding]:
    """Unknown times inside of delegates: no events, or events on a coarse clock."""
    yield from filter(None, (undivided(facts.time), coarse_clock(facts)))


def undivided(time: LeafTimes) -> Finding | None:
    """Find the delegate calls without events that divide their time."""
    members = [member for member in time.members if member[1].kind == "delegate"]
    ticks = time.ticks(members)
    if time.share(ticks) < REST_SHARE:
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
    least = COARSE_STEPS * COARSE_STEP_NS
    short = [one for one in events if time.averages[id(one[1])] < least]
    # `delegate-rest` reports calls with a large rest.
    rests = facts.free(one for one in time.members if one[1].kind == "unaccounted")
    lost = len(events) * COARSE_STEP_NS
    if time.share(time.ticks(rests)) >= REST_SHARE:
        heads = len({id(group.head) for group, _ in rests})
        calls = f"{heads:,} delegate calls" if heads > 1 else "delegate call"
        each = f"each of {len(events):,} events" if len(events) > 1 else "its one event"
        together = f", together up to {time.text(lost)}" if len(events) > 1 else ""
        sentence = (
            f"No event explains {time.taken(rests)} of the {calls}. The delegate "
            f"logs whole microseconds: {each} can be up to 1 us too short{together}."
        )
        return time.finding("coarse-clock", Severity.UNKNOWN, sentence, rests, "kind:unaccounted")
    if time.share(time.ticks(short)) < COARSE_SHARE:
        return None
    sentence = (
        f"{count(len(short), 'event')} inside delegates, together "
        f"{time.taken(short)}, are logged in whole microseconds and take less "
        "than 5 of them: their times are rough."
    )
    return time.finding("coarse-clock", Severity.UNKNOWN, sentence, short)


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
            "The events are logged in whole microseconds: rounding may lose up to "
            f"{time.text(lost)} of this time."
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
        f"call{'s' if many else ''}: the backend prepares {'them' if many else 'it'}, and "
        "receives and returns tensors.",
        rests,
        explained(
            Sureness.POSSIBLE,
            evidence,
            [
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
            ],
        ),
        "kind:unaccounted",
    )
    yield replace(found, severity=Severity.UNKNOWN)
