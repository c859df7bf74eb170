"""What runs outside of delegates, and what delegates do not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etscope.analysis.delegates.xnnpack import takes
from etscope.analysis.graphs.node_table import short_tensor
from etscope.analysis.graphs.run_graph import OF_TORCH, Kernel, RunGraph, function_of, spec_of
from etscope.analysis.insights import thresholds
from etscope.analysis.insights.added_transposes import sizes, transposes_at
from etscope.analysis.insights.facts import RECORD_NEEDED, Facts, Level
from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.insights.node_words import at_lines, first_line, operators, places
from etscope.analysis.insights.partitioner_reasons import (
    kind_of_refusal,
    reasons,
    refusals_of,
    ways_in,
)
from etscope.analysis.insights.rule import rule
from etscope.analysis.insights.slow_products import slow_products
from etscope.analysis.insights.thresholds import COARSE_STEP_NS, ISLANDS_SHARE, REST_SHARE
from etscope.analysis.profile.profile import Leaf
from etscope.model.finding import Explanation, Finding, Remedy, Severity, Sureness
from etscope.model.graph import Node, stem
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
    slow = slow_products(facts) if Level.FULL in facts.level else None
    if slow is not None:
        evidence += slow.evidence
        remedies += slow.remedies
    taken = facts.time.with_share(facts.time.ticks(kernels))
    yield facts.finding(
        "not-delegated",
        f"Nothing is delegated: kernels of the runtime take {taken}.{types}",
        kernels,
        Explanation(Sureness.MEASURED, tuple(evidence), remedies=tuple(remedies)),
        "kind:kernel",
    )


_NAMED = 4  # kernels among the evidence


@dataclass(frozen=True, eq=False)
class Island:
    """Connected kernels outside of delegates."""

    kernels: tuple[Kernel, ...]

    @property
    def nodes(self) -> list[Node]:
        return [kernel.node for kernel in self.kernels]


def _islands(facts: Facts, run: RunGraph) -> list[Island]:
    """Find the islands, without the kernels that another rule reports in more detail."""
    left = {
        key: kernel
        for key, kernel in run.kernels.items()
        if run.calls and facts.is_free(kernel.node) and _may_be_inside(kernel.node)
    }
    found, seen = [], set[int]()
    for key, kernel in left.items():
        if key in seen:
            continue
        part, waiting = list[Kernel](), [kernel]
        while waiting:
            one = waiting.pop()
            if id(one.node) not in seen:
                seen.add(id(one.node))
                part.append(one)
                around = (*run.givers(one.node), *run.readers(one.node))
                waiting += [left[id(node)] for node in around if id(node) in left]
        found.append(Island(tuple(part)))
    return found


_NAMESPACES = frozenset({"aten", "dim_order_ops", "quantized_decomposed", "torchao"})


def _may_be_inside(node: Node) -> bool:
    """Return whether a backend could take an operator. What gives a number is the runtime's, and an
    own operator ("llama.custom_sdpa") is outside of delegates on purpose."""
    parts = node.op.split(".")
    is_own = len(parts) > 2 and parts[0] not in _NAMESPACES
    return not is_own and spec_of(node) is not None


@rule("Operators outside of delegates")
def outside_delegates(facts: Facts) -> Iterator[Finding]:
    """Operators outside of delegates, in a method that has some: islands, with the reasons of the
    partitioner."""
    run = facts.run_graph if Level.FULL in facts.level else None
    if run is not None:
        yield from _of_graph(facts, run)
    elif facts.has_delegates:
        yield from _all(facts)


def _of_graph(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    groups: dict[tuple[frozenset[str], frozenset[str]], list[Island]] = {}
    for island in _islands(facts, run):
        names = frozenset(kernel.op for kernel in island.kernels)
        why = frozenset(
            kind_of_refusal(one) for node in island.nodes for one in refusals_of(run, node)
        )
        groups.setdefault((names, why), []).append(island)
    for alike in groups.values():
        facts.claim(node for island in alike for node in island.nodes)
        yield _islands_finding(facts, run, alike)


def _all(facts: Facts) -> Iterator[Finding]:
    """Find all operators outside of delegates together, from times alone."""
    time = facts.time
    members = facts.free(one for one in time.members if one[1].kind == "kernel")
    ticks = time.ticks(members)
    if not members or time.share(ticks) < ISLANDS_SHARE:
        return
    kinds: dict[str, list[Leaf]] = {}
    for one in members:
        kinds.setdefault(one[1].kernel_name, []).append(one)
    worst, its = max(kinds.items(), key=lambda item: time.ticks(item[1]))
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
            tuple(
                f"{name}: {time.with_share(time.ticks(kinds[name]))}{places(len(kinds[name]))}."
                for name in sorted(kinds, key=lambda name: -time.ticks(kinds[name]))[:_NAMED]
            ),
            remedies=(RECORD_NEEDED,),
        ),
        "kind:kernel",
    )


def _islands_finding(facts: Facts, run: RunGraph, alike: Sequence[Island]) -> Finding:
    nodes = [node for island in alike for node in island.nodes]
    kernels = run.members(nodes)
    at_borders = _border_transposes(run, nodes)
    members = [*kernels, *at_borders]
    taken = facts.time.with_share(facts.time.ticks(members))
    evidence = list(reasons(run, nodes))
    evidence += _functions(nodes)
    evidence += _crossing(run, nodes)
    if at_borders:
        take = "take" if len(at_borders) > 1 else "takes"
        evidence.append(
            f"{count(len(at_borders), 'transpose')} at the borders {take} "
            f"{facts.time.text(facts.time.ticks(at_borders))} of it: XNNPACK keeps images with the "
            "channels last, and the runtime's kernels do not."
        )
    evidence.append(_merging(run, nodes))
    told = any(refusals_of(run, node) for node in nodes)
    verb = "runs" if len({stem(node.op) for node in nodes}) == 1 else "run"
    return facts.finding(
        "outside-delegates",
        f"{operators(nodes)} {verb} outside of delegates: {taken}{places(len(alike))}"
        f"{at_lines(nodes)}.",
        members,
        Explanation(
            Sureness.MEASURED if told else Sureness.LIKELY,
            tuple(evidence),
            remedies=tuple(ways_in(run, nodes)),
        ),
    )


# -- evidence


def _merging(run: RunGraph, nodes: Sequence[Node]) -> str:
    """Say how many delegate calls there would be, if nodes were inside of them; else with the
    kernels around them that other findings are about."""
    calls = len(run.calls)
    if merged := run.merged_calls(nodes):
        return f"Inside of delegates, {calls:,} delegate calls would be {calls - merged:,}."
    around: dict[int, Node] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if id(node) not in around and id(node) in run.kernels:
            around[id(node)] = node
            waiting += [*run.givers(node), *run.readers(node)]
    if merged := run.merged_calls(around.values()):
        inside = set(map(id, nodes))
        others = operators(node for key, node in around.items() if key not in inside)
        return (
            f"Inside of delegates with {others} beside it, {calls:,} delegate calls would be "
            f"{calls - merged:,}."
        )
    return f"The {count(calls, 'delegate call')} would stay as many without it."


def _functions(nodes: Sequence[Node]) -> Iterator[str]:
    """Say if nodes are parts of a function of torch that is decomposed into many operators."""
    names = {function_of(node) for node in nodes}
    if len(names) == 1 and names <= {*OF_TORCH, "rms_norm"}:
        yield f"torch decomposes {names.pop()} so."


def _crossing(run: RunGraph, nodes: Sequence[Node]) -> Iterator[str]:
    """The values that go between the nodes and delegates."""
    values = {name: size for _, _, name, size in _values(run, nodes)}
    if values:
        size = format_bytes(sum(values.values()))
        verb = "go" if len(values) > 1 else "goes"
        yield f"{count(len(values), 'value')} of {size} {verb} between them and delegates."


def _values(run: RunGraph, nodes: Sequence[Node]) -> Iterator[tuple[bool, int | None, str, int]]:
    """The values between nodes and calls: whether it goes into the call, its instruction, the
    type of the value with its name in front, and its bytes."""
    inside = set(map(id, nodes))
    for node in nodes:
        for giver in run.givers(node):
            call = run.partition.call_of.get(id(giver))
            for value in giver.outputs if call is not None else ():
                if value.tensor is not None and value.name in node.inputs and call is not None:
                    size = value.tensor.nbytes or 0
                    yield False, call.instruction, f"{value.name} {value.tensor}", size
        for reader in run.readers(node):
            call = run.partition.call_of.get(id(reader))
            for value in node.outputs if call is not None and id(reader) not in inside else ():
                if value.tensor is not None and value.name in reader.inputs and call is not None:
                    size = value.tensor.nbytes or 0
                    yield True, call.instruction, f"{value.name} {value.tensor}", size


def _border_transposes(run: RunGraph, nodes: Sequence[Node]) -> list[Leaf]:
    """The transposes that XNNPACK added for values that go between its calls and the nodes."""
    entering, leaving = set[tuple[int, str]](), set[tuple[int, str]]()
    for enters, number, name, _ in _values(run, nodes):
        if number is not None:
            (entering if enters else leaving).add((number, sizes(name)))
    return transposes_at(run, entering, leaving)


_TAKEN = frozenset({"float32", "float16", "int8", "uint8"})
_WIDER_FLOATS = frozenset({"bfloat16", "float64"})
_SAID = ("dtype", "precision")  # words in the reasons of a partitioner


def _untaken(facts: Facts, run: RunGraph) -> dict[str, list[Kernel]]:
    """The kernels that were not delegated for their type, by that type."""
    types: dict[str, list[Kernel]] = {}
    for kernel in run.kernels.values() if run.has_xnnpack else ():
        dtype = _untaken_type(run, kernel) if facts.is_free(kernel.node) else None
        if dtype is not None:
            types.setdefault(dtype, []).append(kernel)
    return types


def _untaken_type(run: RunGraph, kernel: Kernel) -> str | None:
    """The type for which a node was not taken; None if that is not the reason."""
    node = kernel.node
    refusals = run.partition.refusals.get(id(node), ())
    if refusals:
        told = [one.reason or "" for one in refusals]
        if not any(word in reason for reason in told for word in _SAID):
            return None
    elif run.partition.partitionings is not None or not takes(node.op):
        return None
    read = [value.tensor for giver in run.givers(node) for value in giver.outputs[:1]]
    specs = [spec for spec in (*(one.tensor for one in node.outputs[:1]), *read) if spec]
    types = [spec.dtype for spec in specs if spec.dtype not in _TAKEN]
    return max(types, key=lambda dtype: (dtype in _WIDER_FLOATS, types.count(dtype)), default=None)


@rule("A type that the backend does not take")
def untaken_types(facts: Facts) -> Iterator[Finding]:
    """Operators that a backend takes, but not of the type that their tensors have."""
    run = facts.run_graph
    if run is None:
        return
    for dtype, kernels in _untaken(facts, run).items():
        nodes = [kernel.node for kernel in kernels]
        facts.claim(nodes)
        members = run.members(nodes)
        taken = facts.time.with_share(facts.time.ticks(members))
        evidence = [
            "XNNPACK takes float32, float16 and quantised int8; it has the operators, but not of "
            f"{dtype}.",
        ]
        told = sum(1 for node in nodes if run.partition.refusals.get(id(node)))
        if told:
            evidence.append(f"The partitioner refused {count(told, 'node')} for the type.")
        specs = [value.tensor for node in nodes[:1] for value in node.outputs[:1] if value.tensor]
        if specs:
            evidence.append(f"The first makes {short_tensor(specs[0])}.")
        if merged := run.merged_calls(nodes):
            calls = len(run.calls)
            evidence.append(f"Taken, {calls:,} delegate calls would be {calls - merged:,}.")
        verb = "run" if len(nodes) > 1 else "runs"
        yield facts.finding(
            "untaken-types",
            f"{operators(nodes)} on {dtype} {verb} outside of delegates: {taken}"
            f"{places(len(nodes))}{at_lines(nodes)}.",
            members,
            Explanation(
                Sureness.MEASURED if told else Sureness.LIKELY,
                tuple(evidence),
                remedies=tuple(_cast_remedies(dtype, first_line(nodes))),
            ),
        )


def _cast_remedies(dtype: str, line: str) -> Iterator[Remedy]:
    there = f" at {line}" if line else ""
    if dtype in _WIDER_FLOATS:
        yield Remedy(
            f"Compute in float32{there}: `model.float()`, and no `.double()` or `dtype=` on the "
            "way.",
            "dtype",
            {"dtype": "float32"},
        )
    else:
        yield Remedy(
            f"Compute in float32 what floats are made of{there}; or hand in masks and positions as "
            "inputs, or keep them as buffers, where they do not depend on the inputs."
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
    yield facts.finding(
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
        severity=Severity.UNKNOWN,
    )
