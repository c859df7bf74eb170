"""Kernels that copy values without a change: a view would do, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etscope.analysis.graphs.run_graph import (
    OF_TORCH,
    Kernel,
    RunGraph,
    bytes_of,
    function_of,
    is_same_type,
    spec_of,
)
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.node_words import at_lines, listed, operators, places
from etscope.analysis.insights.rule import Rule
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import Node, stem
from etscope.units import format_bytes

_SAME, _VIEW = "same", "view"
# Operators, by `stem`, that give the values that they read, if type and shape are the same.
_MAY_KEEP = frozenset(
    {"alias", "cat", "clone", "clone_dim_order", "contiguous", "detach", "expand", "lift_fresh",
     "repeat", "slice", "squeeze", "to", "to_dim_order", "unsqueeze", "view"}
)  # fmt: skip
# These give the elements that they read in the same order, in another shape.
_RESHAPING = frozenset({"squeeze", "unsqueeze", "view"})


def _copies(facts: Facts, run: RunGraph) -> dict[str, list[Kernel]]:
    """The kernels that only copy, by what would do instead."""
    kinds: dict[str, list[Kernel]] = {}
    for kernel in run.kernels.values():
        kind = _kind(run, kernel) if facts.is_free(kernel.node) else None
        if kind is not None:
            kinds.setdefault(kind, []).append(kernel)
    return kinds


def _reorderings(facts: Facts, run: RunGraph) -> Iterator[tuple[Node, ...]]:
    """The slices of one value that are put together again, each with the cat that does so last;
    outside of delegates and inside."""
    for node in run.partition.linked.graph.operators.values():
        parts = list(run.givers(node)) if stem(node.op) == "cat" else []
        if len(parts) < 2 or any(stem(part.op) != "slice" for part in parts):
            continue
        values = {giver.name for part in parts for giver in run.givers(part)}
        nodes = (*(one for one in parts if len(list(run.readers(one))) == 1), node)
        if len(values) == 1 and all(map(facts.is_free, nodes)):
            yield nodes


def _kind(run: RunGraph, kernel: Kernel) -> str | None:
    node = kernel.node
    givers = list(run.givers(node))
    if kernel.op not in _MAY_KEEP or len(givers) != 1:
        return None
    # A node with several values has the type of the first only: do not compare these.
    if len(givers[0].outputs) != 1 or spec_of(node) is None:
        return None
    if is_same_type(node, givers[0]):
        return _SAME
    one, two = spec_of(node), spec_of(givers[0])
    if one is None or two is None or kernel.op not in _RESHAPING or one.dtype != two.dtype:
        return None
    return _VIEW


def _find(facts: Facts) -> Iterator[Finding]:
    run = facts.run_graph
    if run is None:
        return
    kinds, reordered = _copies(facts, run), list(_reorderings(facts, run))
    for kind, kernels in kinds.items():
        facts.claim(kernel.node for kernel in kernels)
        yield _finding(facts, run, kind, kernels)
    facts.claim(node for nodes in reordered for node in nodes)
    yield from _reordered(facts, run, reordered)


def _finding(facts: Facts, run: RunGraph, kind: str, kernels: Sequence[Kernel]) -> Finding:
    nodes = [kernel.node for kernel in kernels]
    members = run.members(nodes)
    taken = facts.time.with_share(facts.time.ticks(members))
    size = format_bytes(sum(map(bytes_of, nodes)))
    evidence = [f"Together they write {size} in each run."]
    names = operators(nodes)
    if kind == _SAME:
        sentence = f"Copies that change nothing ({names}) take {taken}"
        evidence.append("Each has the type, shape and layout of what it reads.")
        remedies = [
            Remedy(
                "Remove them from the graph when the program is made.",
                "pass",
                {"name": "remove_dead_copies"},
            )
        ]
        functions = {function_of(node) for node in nodes if stem(node.op) == "expand"}
        if "matmul" in functions:
            remedies.append(
                Remedy(
                    "torch adds an expand to each product of more than three dimensions: "
                    "`torch.bmm` of tensors of three dimensions has none."
                )
            )
    else:
        sentence = f"Copies that only change the shape ({names}) take {taken}"
        evidence.append("Their elements stay in order, so that a view would do.")
        remedies = [
            Remedy(
                f"Write {names}{at_lines(nodes).replace(', at', ' at', 1)} as `x.reshape(...)` or "
                "`x.view(...)`, which memory planning makes views."
            ),
        ]
        parts = {function_of(node) for node in nodes} - {stem(node.op) for node in nodes}
        if parts & OF_TORCH:
            evidence.append(f"They are parts of torch's {listed(sorted(parts & OF_TORCH))}.")
    if merged := run.merged_calls(nodes):
        calls = len(run.calls)
        evidence.append(f"Without them, {calls:,} delegate calls would be {calls - merged:,}.")
    return facts.finding(
        RULE.name,
        f"{sentence}{places(len(nodes))}{at_lines(nodes)}.",
        members,
        Explanation(Sureness.MEASURED, tuple(evidence), remedies=tuple(remedies)),
    )


def _reordered(facts: Facts, run: RunGraph, found: Sequence[tuple[Node, ...]]) -> Iterator[Finding]:
    nodes = [node for each in found for node in each]
    members = run.members(nodes)
    if not members:
        return
    members += run.rests(members)
    taken = facts.time.with_share(facts.time.ticks(members))
    evidence = [f"They only reorder the values of one tensor{places(len(found))}."]
    if merged := run.merged_calls(nodes):
        calls = len(run.calls)
        evidence.append(f"Without them, {calls:,} delegate calls would be {calls - merged:,}.")
    yield facts.finding(
        RULE.name,
        f"Slices that are put together again (slice and cat) take {taken}{places(len(found))}"
        f"{at_lines(nodes)}.",
        members,
        Explanation(
            Sureness.MEASURED,
            tuple(evidence),
            remedies=(
                Remedy(
                    "Reorder in one step: every other row first is `x.view(n // 2, 2, -1)."
                    "transpose(0, 1)`; where what reads it does not mind the order, leave it."
                ),
                Remedy("Or put the order into the weights before, once and for all."),
            ),
        ),
    )


RULE = Rule("needless-copies", "Copies where a view, or nothing, would do", _find)
