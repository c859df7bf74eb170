"""Kernels that copy values as they are: a view would do, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etscope.analysis.explain.facts import Facts
from etscope.analysis.explain.rule import Rule
from etscope.analysis.explain.rules.graph import (
    cancelling_quantization,
    float_among_quantized,
    lost_fusion,
    runtime_constants,
    whole_caches,
)
from etscope.analysis.explain.run_graph import (
    OF_TORCH,
    Kernel,
    RunGraph,
    at_lines,
    bytes_of,
    function_of,
    is_same_type,
    listed,
    operators,
    places,
    spec_of,
)
from etscope.analysis.findings.time import Member
from etscope.analysis.profile.source_location import short_lines
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import stem
from etscope.units import format_bytes

_SAME, _VIEW = "same", "view"
# Operators, by `stem`, that give the values that they read, if type and shape are the same.
_MAY_KEEP = frozenset(
    {"alias", "cat", "clone", "clone_dim_order", "contiguous", "detach", "expand", "lift_fresh",
     "repeat", "slice", "squeeze", "to", "to_dim_order", "unsqueeze", "view"}
)  # fmt: skip
# These give the elements that they read in the same order, in another shape.
_RESHAPING = frozenset({"squeeze", "unsqueeze", "view"})
_WRITE_BACK = "copy_"  # the kernel that writes a buffer when the method ends


def copies(run: RunGraph) -> dict[str, list[Kernel]]:
    """The kernels that only copy, by what would do instead."""

    def found() -> dict[str, list[Kernel]]:
        others = claimed_before(run)
        kinds: dict[str, list[Kernel]] = {}
        for kernel in run.kernels.values():
            kind = None if id(kernel.node) in others else _kind(run, kernel)
            if kind is not None:
                kinds.setdefault(kind, []).append(kernel)
        return kinds

    return run.once("copies", found)


def claimed_before(run: RunGraph) -> set[int]:
    """The nodes that findings of the rules before this one are about, by `id`."""
    rules = (lost_fusion, runtime_constants, float_among_quantized, cancelling_quantization)
    return set[int]().union(*(rule.claimed(run) for rule in rules))


def claimed(run: RunGraph) -> set[int]:
    """The nodes that findings of this rule are about, by `id`."""
    found = {id(kernel.node) for kernels in copies(run).values() for kernel in kernels}
    return found.union(id(kernel.node) for kernel in scatters(run)[0])


def _kind(run: RunGraph, kernel: Kernel) -> str | None:
    node = kernel.node
    givers = list(run.givers(node))
    if kernel.op not in _MAY_KEEP or len(givers) != 1:
        return None
    # Of a value of several, the type is that of the first: do not compare these.
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
    for kind, kernels in copies(run).items():
        yield _finding(facts, run, kind, kernels)
    yield from _write_backs(facts, run)


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


def scatters(run: RunGraph) -> tuple[list[Kernel], list[Member]]:
    """The kernels that make a buffer of the model anew to change a part of it, and those that copy
    it back as a whole at the end; none without both."""
    graph = run.partition.linked.graph
    mutated = run.partition.mutated.values()
    state = graph.state.union(
        name for name, qualified in graph.parameters.items() if qualified in mutated
    )
    found = [
        kernel
        for kernel in run.kernels.values()
        if kernel.op == "index_put" and kernel.node.inputs[:1] and kernel.node.inputs[0] in state
    ]
    copied = [
        member
        for member in run.members_of_run
        if member[1].kind == "kernel" and member[1].name.partition(".")[0] == _WRITE_BACK
    ]
    return (found, copied) if found and copied else ([], [])


def _write_backs(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Buffers that a scatter made anew, and that are copied back as a whole at the end."""
    found, copied = scatters(run)
    if not found:
        return
    nodes = [kernel.node for kernel in found]
    members = [*run.members(nodes), *copied]
    of_caches = whole_caches.copying(facts, whole_caches.copied_caches(facts))
    if {id(leaf) for _, leaf in members} <= {id(leaf) for _, leaf in of_caches}:
        return  # `whole-caches` tells more of them
    taken = facts.time.with_share(facts.time.ticks(members))
    size = format_bytes(sum(map(bytes_of, nodes)))
    lines = {short_lines((line,)) for _, leaf in members for line in leaf.attribution.lines[:1]}
    where = f", at {min(lines)}" if lines else ""
    yield facts.finding(
        RULE.name,
        f"Buffers of {size} are copied twice to change a part of them, which takes {taken}"
        f"{places(len(nodes))}{where}.",
        members,
        Explanation(
            Sureness.MEASURED,
            (
                f"index_put writes a copy of a whole buffer{places(len(nodes))}, and copy_ writes "
                f"it back{places(len(copied))}.",
            ),
            remedies=(
                Remedy(
                    "Write into the buffers in place: `ExecutorchBackendConfig("
                    "run_reinplace_pass=True)` for `to_executorch`, or an operator that updates "
                    "the cache (`llama.update_cache`)."
                ),
            ),
        ),
    )


RULE = Rule("needless-copies", "Copies where a view, or nothing, would do", _find)
