"""A value that is dequantised and quantised again to the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from etscope.analysis.graphs.run_graph import RunGraph
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.node_words import at_lines, does, operators, places
from etscope.analysis.insights.rule import Rule
from etscope.analysis.insights.rules.float_among_quantized import (
    MOVING,
    is_dequantize,
    is_quantize,
)
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import Node, stem

_NO_SCALE = frozenset({"input", "out_dtype", "output_dtype", "input_dtype"})


@dataclass(frozen=True, eq=False)
class Pair:
    """A dequantize node and the quantize node that undoes it. moving: the nodes between them."""

    dequantize: Node
    quantize: Node
    moving: tuple[Node, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.dequantize, *self.moving, self.quantize)


def _pairs(facts: Facts, run: RunGraph) -> Iterator[Pair]:
    """Find the pairs that cancel."""
    for node in run.partition.linked.graph.operators.values():
        if not is_quantize(node) or not facts.is_free(node):
            continue
        moving: list[Node] = []
        giver = next(run.givers(node), None)
        while (
            giver is not None
            and stem(giver.op) in MOVING
            and len(list(run.givers(giver))) == 1
            and len(list(run.readers(giver))) == 1
        ):
            moving.insert(0, giver)
            giver = next(run.givers(giver), None)
        if giver is None or not is_dequantize(giver) or _numbers(giver) != _numbers(node):
            continue
        # What a backend computes in int8 by itself leaves neither kernel nor event.
        if run.members([giver, node]) and (moving or len(list(run.readers(giver))) == 1):
            yield Pair(giver, node, tuple(moving))


def _numbers(node: Node) -> list[tuple[str, str]]:
    """Scale, zero point, range and type of a node that quantises or dequantises."""
    return [(name, text) for name, text in node.arguments if name not in _NO_SCALE]


def _find(facts: Facts) -> Iterator[Finding]:
    run = facts.run_graph
    found = [] if run is None else list(_pairs(facts, run))
    if run is None or not found:
        return
    nodes = [node for pair in found for node in pair.nodes]
    facts.claim(nodes)
    moving = [node for pair in found for node in pair.moving]
    members = run.members(nodes)
    taken = facts.time.with_share(facts.time.ticks(members))
    evidence = [
        f"{does(len(found), 'quantize node', 'have')} the scale, zero point and range of the "
        "dequantize node before, so the numbers do not change.",
    ]
    if moving:
        evidence.append(f"Nothing but {operators(moving)} is between them, which computes nothing.")
    where = at_lines(moving) or at_lines(nodes)
    yield facts.finding(
        RULE.name,
        f"Values are dequantised and quantised again to the same numbers, which takes {taken}"
        f"{places(len(found))}{where}.",
        members,
        Explanation(
            Sureness.MEASURED,
            tuple(evidence),
            remedies=(
                Remedy("Leave both out, so that int8 stays int8.", "pass", {"name": "cancel_qdq"}),
            ),
        ),
    )


RULE = Rule("cancelling-quantization", "Quantised again to the same numbers", _find)
