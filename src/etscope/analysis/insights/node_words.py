"""Nodes of a graph: the words for them in sentences, and those that are connected."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from etscope.analysis.program.source_location import lines_of, short_lines
from etscope.model.graph import Node, SourceLine, stem
from etscope.units import count

if TYPE_CHECKING:
    from etscope.analysis.graphs.run_graph import RunGraph
    from etscope.analysis.insights.leaf_times import LeafTimes
    from etscope.analysis.profile.profile import Leaf

NAMED = 4  # operators in a sentence: more do not fit a line


def operators(nodes: Iterable[Node]) -> str:
    """The operators of nodes, the most frequent first: "mean, add and 2 others"."""
    counted = Counter(stem(node.op) for node in nodes)
    names = [name for name, _ in counted.most_common()]
    return listed(names[:NAMED], len(names) - NAMED)


def listed(names: Sequence[str], others: int = 0) -> str:
    """Return names as a part of a sentence: "a, b and c". others: how many further names are left
    out.
    """
    names = [*names, f"{others:,} other{'s' if others > 1 else ''}"] if others > 0 else list(names)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def at_lines(
    nodes: Iterable[Node], run: RunGraph | None = None, time: LeafTimes | None = None
) -> str:
    """Say where nodes are written: ", at model.py:12 and 2 other lines"; "" if it is unknown. run,
    time: name the line with most time first."""
    if run is not None and time is not None:
        nodes = longest_first(run, time, list(nodes))
    lines = lines_of(nodes)
    if not lines:
        return ""
    others = len(lines) - 1
    more = f" and {count(others, 'other line')}" if others else ""
    return f", at {short_lines(lines[:1])}{more}"


def longest_first(run: RunGraph, time: LeafTimes, nodes: Sequence[Node]) -> list[Node]:
    """Sort nodes by the time of their lines, the longest first."""
    lines = {id(node): lines_of([node]) for node in nodes}
    spent: dict[tuple[SourceLine, ...], float] = defaultdict(float)
    for node in nodes:
        spent[lines[id(node)]] += time.ticks(run.members([node]))
    return sorted(nodes, key=lambda node: -spent[lines[id(node)]])


def does(number: int, noun: str, verb: str) -> str:
    """A number with its noun and what it does: "1 kernel takes", "2 kernels take"."""
    alone = "has" if verb == "have" else f"{verb}s"
    return f"{count(number, noun)} {alone if number == 1 else verb}"


def first_line(nodes: Iterable[Node]) -> str:
    """The first line where nodes are written ("model.py:12"); "" if it is unknown."""
    return short_lines(lines_of(nodes)[:1])


def places(number: int) -> str:
    """Say in how many places, if there are several: " in 3 places"."""
    return f" in {count(number, 'place')}" if number > 1 else ""


def time_of_kinds(time: LeafTimes, kinds: Mapping[str, Sequence[Leaf]]) -> Iterator[str]:
    """Say the time of each kind of leaf: "permute_copy: 0.1 ms (3.5%) in 3 places."."""
    for name, members in kinds.items():
        yield f"{name}: {time.taken(members)}{places(len(members))}."


def fewer_calls(run: RunGraph, nodes: Iterable[Node], when: str) -> Iterator[str]:
    """Say how many delegate calls there would be if these nodes were not between them; nothing if
    their number would not change.

    when: the start of the sentence ("Without them").
    """
    if merged := run.merged_calls(nodes):
        calls = len(run.calls)
        left = count(calls - merged, "delegate call")
        yield f"{when} there would be {left} instead of {calls:,}."


def connected(
    run: RunGraph, nodes: Iterable[Node], inside: Collection[int], *, only_readers: bool = False
) -> list[Node]:
    """Return the nodes that can be reached from these through nodes with an `id` in `inside`
    only.

    only_readers: follow values only to their readers, not back to their makers.
    """
    found: dict[int, Node] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if id(node) in inside and id(node) not in found:
            found[id(node)] = node
            waiting += () if only_readers else run.givers(node)
            waiting += run.readers(node)
    return list(found.values())
