"""Time that calls take, next to the work that they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from etscope.analysis.insights.facts import Facts, Ticks, explained, needs_graph
from etscope.analysis.insights.node_words import at_lines, first_line, operators, places
from etscope.analysis.profile.profile import InstructionRows, Leaf
from etscope.analysis.program.source_location import short_lines, user_line
from etscope.model.finding import Finding, Remedy, Sureness
from etscope.model.graph import Node, TensorSpec, stem
from etscope.units import count, format_bytes, format_share

if TYPE_CHECKING:
    from etscope.analysis.graphs.run_graph import RunGraph  # of rules that a summary does not ask

_FEWEST = 8  # calls or steps: fewer can be looked at one by one
_CALLS_SHARE = 0.1  # of the method's time: fewer calls save less than that
# A call that reads and writes less, and computes less, has next to nothing to do: any processor
# does that in a fraction of what a call takes.
_NOTHING_BYTES = 512
_NOTHING_FLOPS = 512
_TIMES = 3.0  # the cost of a call: shorter ones are mostly that
_FEWEST_IDLE = 3  # calls with nothing to do, for a median that one of them does not decide
_ONE_LINE = 0.5  # of the calls: then that line is worth a remedy alone


def small_operators(facts: Facts) -> Iterator[Finding]:
    """Find calls that compute so little that making the call takes a large part of their time."""
    for kinds, noun in ((("kernel", "control"), "kernel"), (("delegate",), "delegate call")):
        groups = [group for group in facts.time.groups if group.head.kind in kinds]
        if len(groups) >= _FEWEST and (cost := _cost_of_a_call(facts, groups, noun)) is not None:
            yield from _small_calls(facts, groups, noun, *cost)


def _small_calls(
    facts: Facts, groups: Sequence[InstructionRows], noun: str, cost: float, known_by: str
) -> Iterator[Finding]:
    """Find the calls that take little more than the cost of a call, in ticks."""
    small = [
        group
        for group in groups
        if np.median(group.head.ticks) < _TIMES * cost * group.head.calls.mean()
    ]
    if len(small) < _FEWEST:
        return
    ticks: Ticks = np.sum(
        [np.minimum(group.head.ticks, cost * group.head.calls) for group in small], axis=0
    )
    # By medians: one run that was interrupted would hide it.
    if np.median(ticks) < _CALLS_SHARE * np.median(facts.profile.total):
        return
    calls = sum(float(group.head.calls.mean()) for group in small)
    members = [(group, leaf) for group in small for leaf in group.leaves]
    evidence = [
        f"{known_by}; {len(small):,} of {len(groups):,} take less than {_TIMES:g} times that, "
        f"{facts.time.taken(members)} together."
    ]
    work = None if facts.work is None else facts.work.of([group.head for group in small])
    if work is not None and not work.unknown:
        evidence.append(
            f"Together they compute {work.flops:,.0f} FLOPs and read and write "
            f"{format_bytes(work.traffic.total)}."
        )
    without, traced = (ns / 1e6 for ns in facts.untraced_ns or (0.0, 0.0))
    if traced > without:
        evidence.append(
            f"Tracing makes each call longer: a run takes {without:.4g} ms without tracing "
            f"and {traced:.4g} ms with it."
        )
    yield facts.part(
        "small-operators",
        f"{calls:,.0f} {noun}s have so little to do that making the calls takes "
        f"{facts.time.with_share(float(ticks.mean()))}.",
        ticks,
        members,
        explained(Sureness.LIKELY, evidence, _fewer_calls(facts, members, noun)),
    )


def _cost_of_a_call(
    facts: Facts, groups: Sequence[InstructionRows], noun: str
) -> tuple[float, str] | None:
    """Return the ticks of a call with next to nothing to do, and how they are known: by the
    calibration, else by the median of such calls in this run."""
    peaks, tick_ns = facts.peaks, facts.ns(1.0)
    if peaks is not None and tick_ns:
        ns = peaks.dispatch_ns if noun == "kernel" else peaks.delegate_call_ns
        if ns is not None:
            us = f"{ns / 1e3:.3g} us"
            return ns / tick_ns, (
                f"With next to nothing to do a {noun} takes {us} by the calibration"
            )
    idle = []
    for group in groups:
        work = None if facts.work is None else facts.work.of([group.head])
        calls = float(group.head.calls.mean())
        if work is None or work.unknown or work.is_bound or not calls:
            continue
        if work.flops <= _NOTHING_FLOPS * calls and work.traffic.total <= _NOTHING_BYTES * calls:
            idle.append(float(np.median(group.head.ticks)) / calls)
    if len(idle) < _FEWEST_IDLE:
        return None
    ticks = float(np.median(idle))
    each = facts.ns(ticks)
    return ticks, (
        f"{len(idle):,} {noun}s of this run that read and write at most {_NOTHING_BYTES} bytes "
        f"take {f'{ticks:,.0f} cycles' if each is None else f'{each / 1e3:.3g} us'} each "
        "(median, traced)"
    )


def _fewer_calls(facts: Facts, members: Sequence[Leaf], noun: str) -> Iterator[Remedy]:
    from etscope.analysis.insights.rules.islands import batched

    nodes = [node for _, leaf in members for node in leaf.attribution.nodes]
    if facts.run_graph is not None:
        yield from batched(facts.run_graph, nodes)
    lines = Counter(
        short_lines(leaf.attribution.lines[:1]) for _, leaf in members if leaf.attribution.lines
    )
    line, count = lines.most_common(1)[0] if lines else ("", 0)
    if count >= max(_FEWEST, _ONE_LINE * len(members)):
        yield Remedy(
            f"{line} makes {format_share(count / len(members))} of these calls: a loop, "
            "which export unrolls. Compute all steps in one operator (stack them, and use "
            "a matrix product or `torch.einsum`), or take several steps a run."
        )
    if noun == "delegate call":
        yield Remedy(
            "Lower the operators between the calls too, so that neighbours become one: "
            "`etscope graph` and docs/how-to/delegates.md show what refused these "
            "operators."
        )
    elif facts.has_delegates:
        yield Remedy(
            "Lower these operators to the backend of their neighbours, where they need no "
            "extra call: `etscope graph --partition` shows why the backend refused them."
        )
    else:
        yield Remedy(
            "Lower the model to a backend, which runs many operators in a call: "
            "`etscope export MODEL --backend xnnpack`.",
            "backend",
            {"backend": "xnnpack"},
        )


_SMALL_NS = 20e3  # an operator this long dwarfs what the backend does around it
_PIECES = frozenset({"getitem", "narrow", "select", "slice"})
_PRODUCTS = frozenset({"addmm", "convolution", "linear", "mm"})


@dataclass(frozen=True, eq=False)
class Loop:
    """The nodes of an unrolled loop. has_state: a step reads the result of the step before."""

    steps: int
    nodes: tuple[Node, ...]
    has_state: bool


def loops(run: RunGraph) -> Iterator[Loop]:
    """Find the loops that export unrolled."""
    # The nodes that may be in the steps of a loop, one in each: of one line, and alike.
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in run.partition.linked.graph.nodes:
        if node.kind != "call_function" or id(node) in run.constant:
            continue
        name, line = stem(node.op), user_line(node.stack_trace)
        givers = list(run.givers(node))
        if name in _PIECES and givers:
            found.setdefault((name, line, givers[0].name), []).append(node)
        for giver in givers if name in _PRODUCTS else ():
            found.setdefault((name, line, giver.name), []).append(node)
    seen: set[int] = set()
    for starts in sorted(found.values(), key=len, reverse=True):
        different = {(one.inputs, one.arguments) for one in starts}
        if len(different) >= _FEWEST and seen.isdisjoint(map(id, starts)):
            loop = _loop(run, starts)
            if loop is not None:
                seen.update(map(id, loop.nodes))
                yield loop


def _loop(run: RunGraph, starts: Sequence[Node]) -> Loop | None:
    """Return the loop with these nodes in its steps: what reads some of them, but not all; None if
    each step is a separate layer with other weights, one after the other."""
    bits = {id(node): 1 << number for number, node in enumerate(starts)}
    steps: dict[int, int] = {}  # that nodes read from, by `id` of the node: a bit for each
    within: dict[tuple[object, ...], list[Node]] = {}
    after: dict[tuple[object, ...], list[Node]] = {}
    for node in run.partition.linked.graph.nodes:
        read = bits.get(id(node), 0)
        for giver in run.givers(node):
            read |= steps.get(id(giver), 0)
        steps[id(node)] = read
        if node.kind == "call_function" and read:
            is_within = read.bit_count() < len(starts) or id(node) in bits
            alike = (stem(node.op), user_line(node.stack_trace))
            (within if is_within else after).setdefault(alike, []).append(node)
    # The last step of a loop with a state reads from all.
    groups = [
        [*nodes, *after.get(alike, ())[: -len(nodes) % len(starts)]]
        for alike, nodes in within.items()
        if len(nodes) >= _FEWEST - 1
    ]
    has_state = False
    for nodes in groups:
        if stem(nodes[0].op) not in _PRODUCTS:
            continue
        follow = [node for node in nodes if steps[id(node)].bit_count() > 1]
        weights = {one.name for node in follow for one in run.givers(node) if run.is_weight(one)}
        if len(weights) > len(nodes) / 2:
            return None
        has_state = has_state or bool(follow)
    return Loop(len(starts), tuple(node for nodes in groups for node in nodes), has_state)


@needs_graph
def unrolled_loops(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Find Python loops that export unrolled inside of delegates, with little work in each step.

    `small-operators` reports loops outside of delegates. A loop is recognized by what its steps
    share: each takes another piece of one value, or multiplies with the same weight, or multiplies
    one value with another weight.
    """
    groups: dict[tuple[object, ...], list[Loop]] = {}
    for loop in loops(run):
        lines = frozenset((stem(node.op), user_line(node.stack_trace)) for node in loop.nodes)
        groups.setdefault((loop.steps, lines), []).append(loop)
    for alike in groups.values():
        nodes = [node for loop in alike for node in loop.nodes]
        members = []
        for group, leaf in run.members(nodes):  # those that usually take little time
            ns = facts.ns(float(np.median(leaf.ticks)) / max(1.0, float(leaf.calls.mean())))
            if ns is None or ns < _SMALL_NS:
                members.append((group, leaf))
        inside = [one for one in members if one[1].kind == "delegated"]
        if len(inside) <= len(members) / 2 or len(inside) < 2 * _FEWEST:
            continue
        # Their part of the time of calls that is in no event, by their number, and without what
        # tracing adds for each.
        number_in = Counter(id(group) for group, _ in inside)
        events = sum(1 for _, leaf in facts.time.members if leaf.kind == "delegated")
        around: Ticks = np.zeros(len(facts.profile.runs))
        for group in facts.time.groups:
            mine = number_in[id(group)]
            rests = [leaf.ticks for leaf in group.leaves if leaf.kind == "unaccounted"]
            if mine and rests:
                of_call = sum(1 for leaf in group.leaves if leaf.kind == "delegated")
                part = np.sum(rests, axis=0) * (mine / of_call)
                tracing = facts.tracing_ticks / max(1, events) * mine
                around = around + np.maximum(0.0, part - tracing)
        ticks: Ticks = around + np.sum([leaf.ticks for _, leaf in members], axis=0)
        evidence = [
            f"They are {operators(nodes)}; on average one takes "
            f"{facts.time.text(facts.time.ticks(members) / len(members))}."
        ]
        if around.any():
            evidence.append(
                f"{facts.time.text(float(around.mean()))} of this time is in no event: the "
                "backend's own work for each operator, estimated from the number of "
                "operators in a call."
            )
        yield facts.part(
            "unrolled-loops",
            f"A loop of {alike[0].steps:,} steps, which export unrolled, runs as "
            f"{count(len(members), 'small operator')} in delegates: "
            f"{facts.time.with_share(float(ticks.mean()))}{places(len(alike))}"
            f"{at_lines(nodes)}.",
            ticks,
            members,
            explained(Sureness.LIKELY, evidence, _loop_remedies(run, alike[0])),
        )


def _loop_remedies(run: RunGraph, loop: Loop) -> Iterator[Remedy]:
    from etscope.analysis.insights.rules.islands import batched

    yield from batched(run, loop.nodes)
    line = first_line(loop.nodes)
    there = f" at {line}" if line else ""
    if loop.has_state:
        yield Remedy(
            f"Compute{there} for all steps at once what does not depend on the step before, "
            "such as products with the inputs. Keep only the rest in the loop."
        )
        yield Remedy("Or take one step a run, with the state as an input and an output.")
    else:
        yield Remedy(
            f"Compute all steps{there} in one operator: stack what differs, and use `torch.bmm`, a "
            "product that broadcasts, or a convolution with groups, in place of the loop and of "
            "`torch.cat`."
        )


_FEWEST_PLACES = 16  # of a dimension with padding: less is hardly a sentence
_PADDED = 0.25  # of the places: less saves less than a quarter


def padded_inputs(facts: Facts) -> Iterator[Finding]:
    """Work on padding: the run's inputs have fewer real places than the length of the export."""
    padding = [_padding(value) for value in facts.inputs]
    lengths = [one for one in padding if one is not None]
    if not lengths:
        return
    length, real = max(lengths, key=lambda one: (lengths.count(one), one[0]))
    share = 1 - real / length
    if share < _PADDED:
        return
    agreeing = lengths.count((length, real))
    record, method = facts.trace.record, facts.profile.method
    graph = None
    if record is not None and method in record.edge_methods:
        graph = facts.trace.export.edge_nodes(method).symbols.graph
    inputs = () if graph is None else [one for one in graph.inputs if one not in graph.parameters]
    specs = [] if graph is None else [graph.by_name[name].outputs[0].tensor for name in inputs]
    is_fixed = any(spec is not None and length in spec.shape for spec in specs)
    ticks: Ticks = np.asarray(facts.profile.total * share, np.float64)
    remedy = Remedy(
        "Export with a dynamic length, and hand in the real places alone."
        if is_fixed
        else "Hand in the real places alone: the program takes other lengths.",
        paste=_dynamic(facts, specs, length) if is_fixed else "",
    )
    yield facts.part(
        "padded-inputs",
        f"{length - real:,} of {length:,} tokens are padding: the method computes all of them, "
        f"{facts.time.with_share(float(ticks.mean()))} of it for nothing.",
        ticks,
        (),
        explained(
            Sureness.LIKELY if agreeing > 1 else Sureness.POSSIBLE,
            [
                f"{count(agreeing, 'input')} of this run end{'s' if agreeing == 1 else ''} with "
                f"{length - real:,} equal places, of {length:,}.",
                "The time is their part of the places; attention takes more than that.",
            ],
            [remedy],
        ),
    )


def _padding(value: object) -> tuple[int, int] | None:
    """The length of an input of tokens or of a mask, and the number of its real places; None for
    another input, and without padding."""
    array = value if isinstance(value, np.ndarray) else np.zeros(0)
    is_mask = array.dtype.kind == "f" and bool(np.isin(array, (0, 1)).all())
    if array.ndim not in (1, 2) or not array.size or not (is_mask or array.dtype.kind in "iub"):
        return None
    length = array.shape[-1]
    differs = (array.reshape(-1, length) != array.reshape(-1, length)[:1, -1:]).any(0)
    real = int(np.flatnonzero(differs)[-1]) + 1 if differs.any() else length
    return (length, real) if length >= _FEWEST_PLACES and real < length else None


def _dynamic(facts: Facts, specs: Sequence[TensorSpec | None], length: int) -> str:
    """The command that exports with a dynamic length; "" where it is not known."""
    from etscope.analysis.insights.commands import export_command

    texts = []
    for spec in specs:
        if spec is None or not all(isinstance(size, int) for size in spec.shape):
            return ""
        sizes = (f"length=1..{size}" if size == length else str(size) for size in spec.shape)
        texts.append(f"{spec.dtype}[{','.join(sizes)}]")
    return export_command(facts, "--inputs", texts)


FRAMEWORK_SHARE = 0.10  # of what no instruction accounts for: tracing alone costs some %


def outside_instructions(facts: Facts) -> Iterator[Finding]:
    """Time of a method that none of its instructions accounts for."""
    ticks = facts.profile.unaccounted
    average = float(ticks.mean())
    if facts.time.share(average) < FRAMEWORK_SHARE:
        return
    number = len(facts.time.groups)
    each = facts.time.text(float(np.median(ticks)) / max(1, number))
    evidence = [f"{count(number, 'instruction')} ran, with {each} between each and the next."]
    sureness = Sureness.POSSIBLE
    untraced = facts.untraced_ns
    own = facts.ns(float(np.median(ticks)))
    if untraced is not None and own is not None:
        without, traced = untraced
        evidence.append(
            f"Without tracing the median run takes {without / 1e6:.4g} ms, with it "
            f"{traced / 1e6:.4g} ms."
        )
        left = own - max(0.0, traced - without)
        if left < FRAMEWORK_SHARE * traced:
            return  # tracing accounts for it
        sureness = Sureness.LIKELY
    found = facts.part(
        "outside-instructions",
        f"No instruction accounts for {facts.time.with_share(average)}: the runtime's "
        "own work between them"
        + ("." if sureness is Sureness.LIKELY else ", and what tracing costs."),
        ticks,
        (),
        explained(
            sureness,
            evidence,
            [
                Remedy(
                    "Have fewer and larger instructions: lower the operators between delegates, "
                    "and compute in one call what a loop in Python does in many."
                ),
                Remedy(
                    "Measure without events inside: `etscope run -X profiling_level=method` shows "
                    "what tracing costs."
                ),
            ],
        ),
    )
    yield replace(found, command=("inspect", "--by", "type"))
