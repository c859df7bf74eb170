"""Loops of Python that export unrolled, with little work a step: inside of delegates.

`small-operators` reports loops outside of delegates. A loop is recognised by what its steps share:
each takes another piece of one value, or multiplies with the same weight, or multiplies one value
with another weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from etscope.analysis.graphs.run_graph import RunGraph
from etscope.analysis.insights.facts import Facts, Ticks
from etscope.analysis.insights.node_words import at_lines, first_line, operators, places
from etscope.analysis.insights.rule import Rule
from etscope.analysis.profile.profile import Leaf
from etscope.analysis.program.source_location import user_line
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import Node, stem
from etscope.units import count

_FEWEST = 8  # steps: fewer can be looked at one by one
_SMALL_NS = 20e3  # an operator this long dwarfs what the backend does around it
_PIECES = frozenset({"getitem", "narrow", "select", "slice"})
_PRODUCTS = frozenset({"addmm", "convolution", "linear", "mm"})


@dataclass(frozen=True, eq=False)
class Loop:
    """The nodes of a loop that is written out. has_state: steps read what those before made."""

    steps: int
    nodes: tuple[Node, ...]
    has_state: bool


def loops(run: RunGraph) -> Iterator[Loop]:
    """Find the loops that are written out."""
    seen: set[int] = set()
    for starts in sorted(_starts(run), key=len, reverse=True):
        if seen.isdisjoint(map(id, starts)):
            loop = _loop(run, starts)
            if loop is not None:
                seen.update(map(id, loop.nodes))
                yield loop


def _starts(run: RunGraph) -> list[list[Node]]:
    """The nodes that may be in the steps of a loop, one in each: of one line, and alike."""
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
    return [
        nodes
        for nodes in found.values()
        if len({(one.inputs, one.arguments) for one in nodes}) >= _FEWEST
    ]


def _loop(run: RunGraph, starts: Sequence[Node]) -> Loop | None:
    """Return the loop with these nodes in its steps: what reads some of them, but not all; None if
    each step is a separate layer with other weights, one after the other."""
    graph = run.partition.linked.graph
    steps = _steps(run, starts)
    within: dict[tuple[object, ...], list[Node]] = {}
    after: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        number = steps.get(id(node), 0).bit_count()
        if node.kind != "call_function" or not number:
            continue
        is_within = number < len(starts) or any(node is one for one in starts)
        alike = (stem(node.op), user_line(node.stack_trace))
        (within if is_within else after).setdefault(alike, []).append(node)
    kept = {alike: nodes for alike, nodes in within.items() if len(nodes) >= _FEWEST - 1}
    # The last step of a loop with a state reads from all.
    groups = [
        [*nodes, *after.get(alike, ())[: -len(nodes) % len(starts)]]
        for alike, nodes in kept.items()
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


def _steps(run: RunGraph, starts: Sequence[Node]) -> Mapping[int, int]:
    """The steps that nodes read from, by `id` of the node: a bit for each."""
    bits = {id(node): 1 << number for number, node in enumerate(starts)}
    found: dict[int, int] = {}
    for node in run.partition.linked.graph.nodes:
        read = bits.get(id(node), 0)
        for giver in run.givers(node):
            read |= found.get(id(giver), 0)
        if read:
            found[id(node)] = read
    return found


def _find(facts: Facts) -> Iterator[Finding]:
    run = facts.run_graph
    if run is None:
        return
    groups: dict[tuple[object, ...], list[Loop]] = {}
    for loop in loops(run):
        lines = frozenset((stem(node.op), user_line(node.stack_trace)) for node in loop.nodes)
        groups.setdefault((loop.steps, lines), []).append(loop)
    for alike in groups.values():
        nodes = [node for loop in alike for node in loop.nodes]
        members = [one for one in run.members(nodes) if _is_small(facts, one)]
        inside = [one for one in members if one[1].kind == "delegated"]
        if len(inside) > len(members) / 2 and len(inside) >= 2 * _FEWEST:
            yield _finding(facts, alike, nodes, members)


def _is_small(facts: Facts, member: Leaf) -> bool:
    """Return whether an operator usually takes little time; True for a clock of cycles."""
    _, leaf = member
    calls = max(1.0, float(leaf.calls.mean()))
    ns = facts.ns(float(np.median(leaf.ticks)) / calls)
    return ns is None or ns < _SMALL_NS


def _finding(
    facts: Facts, alike: Sequence[Loop], nodes: Sequence[Node], members: Sequence[Leaf]
) -> Finding:
    around = _around(facts, members)
    ticks: Ticks = around + np.sum([leaf.ticks for _, leaf in members], axis=0)
    evidence = [
        f"They are {operators(nodes)}; on average one takes "
        f"{facts.time.text(facts.time.ticks(members) / len(members))}.",
    ]
    if around.any():
        evidence.append(
            f"{facts.time.text(float(around.mean()))} of it are in no event: what the "
            "backend does for each operator, by their number in a call."
        )
    return facts.part(
        RULE.name,
        f"A loop of {alike[0].steps:,} steps, which export wrote out, runs as "
        f"{count(len(members), 'small operator')} in delegates: "
        f"{facts.time.with_share(float(ticks.mean()))}{places(len(alike))}"
        f"{at_lines(nodes)}.",
        ticks,
        Explanation(
            Sureness.LIKELY,
            tuple(evidence),
            tuple(facts.sites(members)),
            tuple(_remedies(alike[0])),
        ),
    )


def _around(facts: Facts, members: Sequence[Leaf]) -> Ticks:
    """The part of operators in the time of delegate calls that is in no event, by their number,
    and without what tracing adds for each."""
    inside = Counter(id(group) for group, leaf in members if leaf.kind == "delegated")
    events = sum(1 for _, leaf in facts.time.members if leaf.kind == "delegated")
    tracing = facts.tracing_ticks / max(1, events)
    found: Ticks = np.zeros(len(facts.profile.runs))
    for group in facts.time.groups:
        mine = inside[id(group)]
        rests = [leaf.ticks for leaf in group.leaves if leaf.kind == "unaccounted"]
        if mine and rests:
            all_of_call = sum(1 for leaf in group.leaves if leaf.kind == "delegated")
            part = np.sum(rests, axis=0) * (mine / all_of_call)
            found = found + np.maximum(0.0, part - tracing * mine)
    return found


def _remedies(loop: Loop) -> Iterator[Remedy]:
    line = first_line(loop.nodes)
    there = f" at {line}" if line else ""
    if loop.has_state:
        yield Remedy(
            f"Compute{there} for all steps at once what does not depend on the step before, as "
            "the products with the inputs, and leave only the rest to the loop."
        )
        yield Remedy("Or take one step a run, with the state as an input and an output.")
    else:
        yield Remedy(
            f"Compute all steps{there} in one operator: stack what differs, and use `torch.bmm`, a "
            "product that broadcasts, or a convolution with groups, in place of the loop and of "
            "`torch.cat`."
        )


RULE = Rule("unrolled-loops", "A loop of small steps that export wrote out", _find)
