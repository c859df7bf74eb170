"""Values that are the same in each run, and are computed in each: masks, positions, weights that
are laid out or converted anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etscope.analysis.graphs.run_graph import RunGraph, bytes_of, spec_of
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.node_words import at_lines, first_line, listed, operators
from etscope.analysis.insights.rule import Rule
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import SAME_VALUE, Node, stem
from etscope.units import count, format_bytes

_WEIGHTS, _DEQUANTIZED, _VALUES = "weights", "dequantized", "values"
# Operators, by `stem`, that only put the elements of what they read in another order.
_LAYOUTS = SAME_VALUE | {"permute", "t", "transpose"}


def _find(facts: Facts) -> Iterator[Finding]:
    run = facts.run_graph
    if run is None:
        return
    groups: dict[str, list[Node]] = {}
    for node in run.partition.linked.graph.operators.values():
        if id(node) in run.constant and facts.is_free(node) and run.members([node]):
            groups.setdefault(_kind(run, node), []).append(node)
    for kind, nodes in groups.items():
        facts.claim(nodes)
        yield _finding(facts, run, kind, nodes)


def _kind(run: RunGraph, node: Node) -> str:
    """Return whether a node lays out a weight, dequantizes it, or computes a value."""
    if stem(node.op).startswith("dequantize_"):
        return _DEQUANTIZED
    while stem(node.op) in _LAYOUTS:
        giver = next(run.givers(node), None)
        if giver is None or run.is_weight(giver):
            return _VALUES if giver is None or _is_literal(run, giver) else _WEIGHTS
        node = giver
    return _VALUES


def _ends(run: RunGraph, nodes: Sequence[Node]) -> list[Node]:
    """The last nodes of constant values that start with these: others read what they make."""
    found: dict[int, Node] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if id(node) not in found and id(node) in run.constant:
            found[id(node)] = node
            waiting += run.readers(node)
    return [
        node
        for node in found.values()
        if any(id(reader) not in run.constant for reader in run.readers(node))
    ]


def _is_literal(run: RunGraph, node: Node) -> bool:
    """Return whether a placeholder is a number or tensor that the code makes, and no weight."""
    name = run.partition.linked.graph.parameters.get(node.name) or ""
    return "lifted_tensor" in name


def _finding(facts: Facts, run: RunGraph, kind: str, nodes: Sequence[Node]) -> Finding:
    members = run.members(nodes)
    taken = facts.time.with_share(facts.time.ticks(members))
    many = len(members) > 1
    inside = set(map(id, nodes))
    size = format_bytes(sum(map(bytes_of, _ends(run, nodes))))
    evidence = [
        f"{operators(nodes)} read weights and literals alone, so that their values are the same "
        "in each run.",
        f"What is read of them takes {size}.",
    ]
    outside = [node for node in nodes if id(node) in run.kernels]
    if merged := run.merged_calls(outside):
        calls = len(run.calls)
        evidence.append(f"Without them, {calls:,} delegate calls would be {calls - merged:,}.")
    if kind == _WEIGHTS:
        parameters = run.partition.linked.graph.parameters
        read = [one.name for node in nodes for one in run.givers(node) if id(one) not in inside]
        names = list(dict.fromkeys(parameters[name] for name in read if name in parameters))
        evidence.append(f"They read {listed(names[:3], len(names) - 3)}.")
        lays = "lay out or convert" if many else "lays out or converts"
        what = f"{count(len(members), 'kernel')} that {lays} weights in each run"
    elif kind == _DEQUANTIZED:
        dequantises = "dequantise" if many else "dequantises"
        what = f"{count(len(members), 'kernel')} that {dequantises} weights in each run"
    else:
        computes = "compute" if many else "computes"
        what = f"{count(len(members), 'kernel')} that {computes} the same values in each run"
    takes = "take" if many else "takes"
    return facts.finding(
        RULE.name,
        f"{what[0].upper()}{what[1:]} {takes} {taken}{at_lines(nodes)}.",
        members,
        Explanation(
            Sureness.MEASURED, tuple(evidence), remedies=tuple(_remedies(run, kind, nodes, size))
        ),
    )


def _remedies(run: RunGraph, kind: str, nodes: Sequence[Node], size: str) -> Iterator[Remedy]:
    line = first_line(nodes)
    there = f" ({line})" if line else ""
    if kind == _DEQUANTIZED:
        ops = {stem(reader.op) for node in nodes for reader in run.readers(node)}
        if "embedding" in ops:
            yield Remedy(
                "Quantise the embedding to an operator that reads the quantised rows only: "
                "`etscope export -X quantize_embeddings=8`, with the quantised kernels in the "
                "runtime."
            )
        yield Remedy(
            f"Or keep these weights in float{there}, which takes {size} of memory.",
            "pass",
            {"name": "fold_constants"},
        )
        return
    yield Remedy(
        f"Compute them once, when the program is made; it may grow by {size}.",
        "pass",
        {"name": "fold_constants"},
    )
    if kind == _WEIGHTS:
        yield Remedy(f"Or store the weights in the operator's layout, in `__init__`{there}.")
        shapes = {stem(reader.op) for node in nodes for reader in run.readers(node)}
        if shapes & {"addmm", "mm"} and not run.calls:
            yield Remedy(
                "Or lower linear layers to XNNPACK, which packs their weights when the program is "
                "loaded.",
                "backend",
                {"backend": "xnnpack"},
            )
    else:
        ends = (spec_of(node) for node in _ends(run, nodes))
        spec = next((spec for spec in ends if spec is not None), None)
        example = "" if spec is None else f", such as {spec}"
        yield Remedy(
            f"Or compute them in `__init__` and keep them with `register_buffer`{there}{example}."
        )


RULE = Rule("runtime-constants", "The same values computed in each run", _find)
