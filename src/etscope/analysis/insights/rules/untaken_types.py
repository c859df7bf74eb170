"""Operators that a backend takes, but not of the type that their tensors have."""

from __future__ import annotations

from collections.abc import Iterator

from etscope.analysis.delegates.xnnpack import takes
from etscope.analysis.graphs.node_table import short_tensor
from etscope.analysis.graphs.run_graph import Kernel, RunGraph
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.node_words import at_lines, first_line, operators, places
from etscope.analysis.insights.rule import Rule
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.units import count

_TAKEN = frozenset({"float32", "float16", "int8", "uint8"})
_FLOATS = frozenset({"bfloat16", "float64"})
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
    return max(types, key=lambda dtype: (dtype in _FLOATS, types.count(dtype)), default=None)


def _find(facts: Facts) -> Iterator[Finding]:
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
            RULE.name,
            f"{operators(nodes)} on {dtype} {verb} outside of delegates: {taken}"
            f"{places(len(nodes))}{at_lines(nodes)}.",
            members,
            Explanation(
                Sureness.MEASURED if told else Sureness.LIKELY,
                tuple(evidence),
                remedies=tuple(_remedies(dtype, first_line(nodes))),
            ),
        )


def _remedies(dtype: str, line: str) -> Iterator[Remedy]:
    there = f" at {line}" if line else ""
    if dtype in _FLOATS:
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


RULE = Rule("untaken-types", "A type that the backend does not take", _find)
