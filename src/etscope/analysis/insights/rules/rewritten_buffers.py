"""Buffers that are made anew, and written back as a whole, to change a part of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etscope.analysis.graphs.run_graph import RunGraph, bytes_of
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.node_words import operators, places
from etscope.analysis.insights.rule import Rule
from etscope.analysis.profile.profile import Leaf
from etscope.analysis.program.source_location import short_lines
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import Node, stem
from etscope.units import count, format_bytes

# Operators, by `stem`, with values that contain a buffer's values unchanged, next to others.
_KEEPING = frozenset(
    {"alias", "cat", "clone", "clone_dim_order", "index_copy", "index_put", "scatter",
     "select_scatter", "slice", "slice_scatter", "where"}
)  # fmt: skip
_MOVING = frozenset({"cat", "slice"})
_WRITE_BACK = "copy_"  # the kernel that writes a buffer when the method ends


@dataclass(frozen=True, eq=False)
class Rewriting:
    """The nodes that make a buffer's new value from its old one; the last node is the new value."""

    nodes: tuple[Node, ...]

    @property
    def value(self) -> Node:
        return self.nodes[-1]


def _written_back(run: RunGraph) -> list[Leaf]:
    return [
        member
        for member in run.members_of_run
        if member[1].kind == "kernel" and member[1].name.partition(".")[0] == _WRITE_BACK
    ]


def _rewritings(run: RunGraph) -> Iterator[Rewriting]:
    """Find the buffers that are made anew."""
    graph = run.partition.linked.graph
    names = {qualified: name for name, qualified in graph.parameters.items()}
    for value, qualified in run.partition.mutated.items():
        buffer, last = names.get(qualified), graph.by_name.get(value)
        if buffer is None or last is None:
            continue
        nodes: list[Node] = []
        waiting, is_kept = [last], False
        while waiting:  # back along what holds the buffer's values
            node = waiting.pop()
            if any(node is one for one in nodes) or stem(node.op) not in _KEEPING:
                continue
            nodes.insert(0, node)
            givers = list(run.givers(node))
            is_kept = is_kept or any(one.name == buffer for one in givers)
            waiting += [one for one in givers if one.kind == "call_function"]
        if is_kept and run.members(nodes):
            yield Rewriting(tuple(nodes))


def _find(facts: Facts) -> Iterator[Finding]:
    run = facts.run_graph
    copied = [] if run is None else _written_back(run)
    found = list(_rewritings(run)) if run is not None and copied else []
    if run is None or not found:
        return
    nodes = [node for one in found for node in one.nodes]
    members = [*run.members(nodes), *copied]
    is_new = bool(facts.free(members))
    facts.claim(nodes)
    if not is_new:  # `whole-caches` reports these in more detail
        return
    taken = facts.time.with_share(facts.time.ticks(members))
    size = format_bytes(sum(bytes_of(one.value) for one in found))
    lines = {short_lines((line,)) for _, leaf in members for line in leaf.attribution.lines[:1]}
    where = f", at {min(lines)}" if lines else ""
    many = len({stem(node.op) for node in nodes}) > 1
    yield facts.finding(
        RULE.name,
        f"Buffers of {size} are copied twice to change a part of them, which takes {taken}"
        f"{places(len(found))}{where}.",
        members,
        Explanation(
            Sureness.MEASURED,
            (
                f"{operators(nodes)} {'make' if many else 'makes'} {count(len(found), 'buffer')} "
                f"anew as a whole, and copy_ writes {'them' if len(found) > 1 else 'it'} "
                f"back{places(len(copied))}.",
            ),
            remedies=tuple(_remedies(nodes)),
        ),
    )


def _remedies(nodes: Sequence[Node]) -> Iterator[Remedy]:
    names = {stem(node.op) for node in nodes}
    if names >= _MOVING:
        yield Remedy(
            "Leave the rows where they are, and write the new one over the oldest: "
            "`buffer.index_copy_(1, position % length, new)`, with a mask by position in place of "
            "their order."
        )
    elif "where" in names:
        yield Remedy(
            "Write the changed part by its position, `buffer.index_copy_(1, position, new)`, in "
            "place of a choice for each element."
        )
    change = {"name": "reinplace"} if "index_put" in names else {}  # the pass handles it
    yield Remedy(
        "Write into the buffers in place: `ExecutorchBackendConfig(run_reinplace_pass=True)` for "
        "`to_executorch`, or an operator that updates the cache (`llama.update_cache`).",
        "pass" if change else None,
        change,
    )


RULE = Rule("rewritten-buffers", "Buffers that are copied to change a part of them", _find)
