"""Operators in float between quantised ones, and the conversions around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from etscope.analysis.graphs.run_graph import RunGraph, module_of
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.node_words import (
    at_lines,
    does,
    first_line,
    listed,
    operators,
    places,
)
from etscope.analysis.insights.partitioner_reasons import reasons, refusals_of, ways_in
from etscope.analysis.insights.rule import Rule
from etscope.formats.etrecord.partitioning import TOLD
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import Node, stem

# Operators, by `stem`, that only move values, so that they do to int8 as they do to float.
MOVING = frozenset(
    {"alias", "cat", "clone", "clone_dim_order", "contiguous", "expand", "flip", "index_select",
     "max_pool2d", "max_pool2d_with_indices", "permute", "pixel_shuffle", "pixel_unshuffle",
     "repeat", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "to_dim_order",
     "transpose", "unbind", "unsqueeze", "upsample_nearest2d", "view"}
)  # fmt: skip
_ACTIVATIONS = frozenset({"clamp", "hardtanh", "relu"})  # a part of the operator before them


@dataclass(frozen=True, eq=False)
class Stretch:
    """Connected nodes in float between quantised ones. nodes: that compute; converting: the nodes
    at their ends that quantise and dequantise; readers: the quantised operators after them."""

    nodes: tuple[Node, ...]
    converting: tuple[Node, ...]
    readers: tuple[Node, ...]


def is_quantize(node: Node) -> bool:
    """Return whether a node quantises with a scale that is fixed."""
    return _is_fixed(node, "quantize_")


def is_dequantize(node: Node) -> bool:
    """Return whether a node dequantises with a scale that is fixed."""
    return _is_fixed(node, "dequantize_")


def _is_fixed(node: Node, start: str) -> bool:
    return (
        node.kind == "call_function" and stem(node.op).startswith(start) and len(node.inputs) == 1
    )


def _stretches(facts: Facts, run: RunGraph) -> Iterator[Stretch]:
    """Find the stretches in float between quantised operators."""
    graph = run.partition.linked.graph
    calls = [node for node in graph.nodes if node.kind == "call_function"]
    if not any(map(is_quantize, calls)):
        return
    in_float = {
        id(node): node
        for node in calls
        if id(node) not in run.constant
        and not _converts(node)
        and node.op != "getitem"
        and not _is_quantised(run, node)
    }
    seen: set[int] = set()
    for node in in_float.values():
        if id(node) in seen:
            continue
        part = _connected(run, node, in_float)
        seen.update(id(one) for one in part)
        part = [one for one in part if facts.is_free(one)]
        computing = [one for one in part if stem(one.op) not in MOVING]
        before = [g for one in part for g in run.givers(one) if is_dequantize(g)]
        before = [one for one in before if id(one) not in run.constant]
        after = [r for one in part for r in run.readers(one) if is_quantize(r)]
        if computing and before and after:
            ends = {id(one): one for one in (*before, *after)}
            readers = {
                id(user): user
                for one in after
                for dequantized in run.readers(one)
                for user in run.readers(dequantized)
                if user.kind == "call_function"
            }
            yield Stretch(tuple(part), tuple(ends.values()), tuple(readers.values()))


def _converts(node: Node) -> bool:
    name = stem(node.op)
    return name.startswith(("quantize_", "dequantize_", "choose_qparams"))


def _is_quantised(run: RunGraph, node: Node) -> bool:
    """Return whether an operator reads quantised values only, and gives one: a backend computes
    such as one in int8. An activation before or after it is a part of it."""
    if _ran_in_float(run, node):
        return False
    read = list(_through(node, lambda one: _values(run, one)))
    given = list(_through(node, run.readers))
    if not read or not given:
        return False
    return all(map(is_dequantize, read)) and all(map(is_quantize, given))


def _ran_in_float(run: RunGraph, node: Node) -> bool:
    """Return whether a node is known to have computed in float: as a kernel, or inside of a
    delegate that logs its types."""
    if id(node) in run.kernels:
        return True
    inputs = [leaf.attribution.inputs for _, leaf in run.members([node])]
    return any(texts and texts[0].startswith("float") for texts in inputs)


def _values(run: RunGraph, node: Node) -> Iterator[Node]:
    for giver in run.givers(node):
        if id(giver) not in run.constant and not run.is_weight(giver):
            yield giver


def _through(node: Node, step: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """The nodes in one direction, beyond the activations that are a part of the node."""
    waiting = list(step(node))
    fused = stem(node.op) in _ACTIVATIONS
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        is_part = stem(one.op) in _ACTIVATIONS or (fused and _may_clamp(one))
        if one.kind == "call_function" and is_part:
            waiting += step(one)
        else:
            yield one


def _may_clamp(node: Node) -> bool:
    return stem(node.op) in ("add", "addmm", "convolution", "linear", "mm")


def _connected(run: RunGraph, node: Node, inside: dict[int, Node]) -> list[Node]:
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if id(one) in inside and id(one) not in found:
            found[id(one)] = one
            waiting += [*run.givers(one), *run.readers(one)]
    return list(found.values())


def _find(facts: Facts) -> Iterator[Finding]:
    run = facts.run_graph
    if run is None:
        return
    groups: dict[frozenset[str], list[Stretch]] = {}
    for one in list(_stretches(facts, run)):
        facts.claim((*one.nodes, *one.converting))
        names = frozenset(stem(node.op) for node in one.nodes if stem(node.op) not in MOVING)
        groups.setdefault(names, []).append(one)
    for alike in groups.values():
        nodes = [node for one in alike for node in one.nodes]
        converting = [node for one in alike for node in one.converting]
        members = run.members([*nodes, *converting])
        if not members:
            continue
        computing = [node for node in nodes if stem(node.op) not in MOVING]
        taken = facts.time.with_share(facts.time.ticks(members))
        conversions = run.members(converting)
        several = len({stem(node.op) for node in computing}) > 1
        evidence = [
            f"What {operators(computing)} {'read' if several else 'reads'} was int8, and what "
            f"{'they give' if several else 'it gives'} becomes int8 again.",
        ]
        if conversions:
            evidence.append(
                f"{does(len(conversions), 'conversion', 'take')} "
                f"{facts.time.text(facts.time.ticks(conversions))} of it."
            )
        outside = [node for node in computing if id(node) in run.kernels]
        if outside and run.calls:
            evidence += reasons(run, outside)
            if merged := run.merged_calls(outside):
                calls = len(run.calls)
                evidence.append(
                    f"Inside of delegates, {calls:,} delegate calls would be {calls - merged:,}."
                )
        verb = "compute" if several else "computes"
        yield facts.finding(
            RULE.name,
            f"{operators(computing)} {verb} in float among int8, with conversions {taken}"
            f"{places(len(alike))}{at_lines(computing)}.",
            members,
            Explanation(
                Sureness.LIKELY, tuple(evidence), remedies=tuple(_remedies(run, computing, alike))
            ),
        )


def _remedies(run: RunGraph, computing: list[Node], alike: list[Stretch]) -> Iterator[Remedy]:
    refused = [
        node for node in computing if any(one.answer == TOLD for one in refusals_of(run, node))
    ]
    if refused:
        yield from ways_in(run, refused)
    line = first_line(computing)
    there = f" at {line}" if line else ""
    yield Remedy(
        f"Use operators with an int8 kernel instead of {operators(computing)}{there}, or move them "
        "before the first or behind the last quantised operator."
    )
    modules = dict.fromkeys(module_of(node) for one in alike for node in one.readers)
    named = [module for module in modules if module]
    if named and len(named) == len(modules):
        select = " or ".join(f"module:{module}" for module in named)
        yield Remedy(
            f"Or keep what reads them in float as well ({listed(named[:3], len(named) - 3)}), so "
            "that nothing is converted between.",
            "keep_float",
            {"select": select},
        )


RULE = Rule("float-among-quantized", "Float between quantised operators", _find)
