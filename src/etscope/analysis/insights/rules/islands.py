"""Operators outside of delegates, from the graph: islands, and types that no backend takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etscope.analysis.graphs.node_table import short_tensor
from etscope.analysis.graphs.run_graph import OF_TORCH, Kernel, RunGraph, function_of, spec_of
from etscope.analysis.insights.added_transposes import sizes, transposes_at
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.node_words import (
    at_lines,
    fewer_calls,
    first_line,
    operators,
    places,
)
from etscope.analysis.insights.partitioner_reasons import (
    kind_of_refusal,
    reasons,
    refusals_of,
    ways_in,
)
from etscope.analysis.insights.rule import graph_rule
from etscope.analysis.profile.profile import Leaf
from etscope.analysis.program.xnnpack_events import takes
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import Node, stem
from etscope.units import count, format_bytes


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


def islands_outside(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Find islands of kernels outside of delegates: alike ones together."""
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


def _islands_finding(facts: Facts, run: RunGraph, alike: Sequence[Island]) -> Finding:
    nodes = [node for island in alike for node in island.nodes]
    kernels = run.members(nodes)
    at_borders = _border_transposes(run, nodes)
    members = [*kernels, *at_borders]
    taken = facts.time.taken(members)
    evidence = list(reasons(run, nodes))
    names = {function_of(node) for node in nodes}
    if len(names) == 1 and names <= {*OF_TORCH, "rms_norm"}:
        evidence.append(f"torch decomposes {names.pop()} so.")
    crossing = {name: size for _, _, name, size in _values(run, nodes)}
    if crossing:
        evidence.append(
            f"{count(len(crossing), 'value')} of {format_bytes(sum(crossing.values()))} "
            f"{'go' if len(crossing) > 1 else 'goes'} between them and delegates."
        )
    if at_borders:
        take = "take" if len(at_borders) > 1 else "takes"
        evidence.append(
            f"{count(len(at_borders), 'transpose')} at the borders {take} "
            f"{facts.time.text(facts.time.ticks(at_borders))} of it: XNNPACK keeps images with the "
            "channels last, and the runtime's kernels do not."
        )
    evidence += _merging(run, nodes)
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


def _merging(run: RunGraph, nodes: Sequence[Node]) -> list[str]:
    """Say how many delegate calls there would be, if nodes were inside of them; else with the
    kernels around them that other findings are about."""
    if said := list(fewer_calls(run, nodes, "Inside of delegates")):
        return said
    around: dict[int, Node] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if id(node) not in around and id(node) in run.kernels:
            around[id(node)] = node
            waiting += [*run.givers(node), *run.readers(node)]
    inside = set(map(id, nodes))
    others = operators(node for key, node in around.items() if key not in inside)
    together = fewer_calls(run, around.values(), f"Inside of delegates with {others} beside it")
    same = f"The {count(len(run.calls), 'delegate call')} would stay as many without it."
    return list(together) or [same]


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


_TAKEN = frozenset({"float32", "float16", "int8", "uint8"})  # by XNNPACK
_WIDER_FLOATS = frozenset({"bfloat16", "float64"})  # their values fit into float32, or nearly so
_SAID = ("dtype", "precision")  # words in the reasons of a partitioner


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


@graph_rule("A type that the backend does not take")
def untaken_types(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Operators that a backend takes, but not of the type that their tensors have."""
    types: dict[str, list[Kernel]] = {}
    for kernel in run.kernels.values() if run.has_xnnpack else ():
        found = _untaken_type(run, kernel) if facts.is_free(kernel.node) else None
        if found is not None:
            types.setdefault(found, []).append(kernel)
    for dtype, kernels in types.items():
        nodes = [kernel.node for kernel in kernels]
        facts.claim(nodes)
        members = run.members(nodes)
        taken = facts.time.taken(members)
        evidence = [
            "XNNPACK takes float32, float16 and quantized int8; it has the operators, but not of "
            f"{dtype}.",
        ]
        told = sum(1 for node in nodes if run.partition.refusals.get(id(node)))
        if told:
            evidence.append(f"The partitioner refused {count(told, 'node')} for the type.")
        specs = [value.tensor for node in nodes[:1] for value in node.outputs[:1] if value.tensor]
        if specs:
            evidence.append(f"The first makes {short_tensor(specs[0])}.")
        evidence += fewer_calls(run, nodes, "Taken")
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
