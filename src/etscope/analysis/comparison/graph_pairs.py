"""Pair the nodes of two programs' graphs, to show the graphs side by side.

Graphs of one key are paired: executed programs, and with records the edge and exported programs.
Instructions of executed programs are paired as in `etscope diff`. Other nodes are aligned as
sequences by operator, module and results: first outside calls, then inside paired calls; the rest
may have moved into or out of a delegate. A pair in another module has moved, too. It has *changed*
if its results or arguments differ, it reads another node, or a weight that it reads has changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from etscope.analysis.comparison.align import Status
from etscope.analysis.comparison.program_weights import Weight, weight_sentence
from etscope.analysis.comparison.programs import ProgramDiff, Side
from etscope.analysis.graphs.executed import ExecutedGraph
from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.analysis.program.source_location import module_path
from etscope.model.common_subsequence import matched_anywhere, matched_in_turn

_WORD = re.compile(r"\w+")
_LONGEST_ARGUMENT = 120  # letters of one side in a sentence: a list may have thousands
_Pair = tuple[int | None, int | None]  # a node of each side, None where it is missing


@dataclass(frozen=True, slots=True)
class NodePair:
    """A node on both sides, by its number in the view, None if missing. what: its changes."""

    status: Status
    before: int | None
    after: int | None
    what: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphPair:
    """Two graphs of one key. nodes: all nodes of both sides, each once, in the order of the later
    side; removed nodes keep their place."""

    before: GraphView
    after: GraphView
    nodes: tuple[NodePair, ...]


def pair_graphs(
    diff: ProgramDiff, before: Sequence[GraphView], after: Sequence[GraphView]
) -> tuple[GraphPair, ...]:
    """Pair the views of both sides of a comparison that have the same key, in the order of `after`.
    A record's graphs are left out if the other side has no record."""
    earlier = {view.key: view for view in before}
    return tuple(
        GraphPair(earlier[view.key], view, tuple(_Pairing(diff, earlier[view.key], view).pairs()))
        for view in after
        if view.key in earlier
        and (diff.has_modules or isinstance(view.linked, ExecutedGraph))
        and isinstance(view.linked, ExecutedGraph)
        == isinstance(earlier[view.key].linked, ExecutedGraph)
    )


class _Pairing:
    """The nodes of two views, and the pairs found so far."""

    def __init__(self, diff: ProgramDiff, before: GraphView, after: GraphView) -> None:
        self._diff = diff
        self._views = before, after
        self._of_key = [
            {node.key: number for number, node in enumerate(view.nodes)} for view in self._views
        ]
        self._levels = [_levels(view) for view in self._views]
        self._partner: tuple[dict[int, int], dict[int, int]] = {}, {}
        self._moved: set[int] = set()  # on the later side
        self._instruction_changes: dict[int, tuple[str, ...]] = {}  # by node of the later side

    def pairs(self) -> Iterator[NodePair]:
        holders = [
            _Holders(side, view) for side, view in zip(self._diff.sides, self._views, strict=True)
        ]
        for change in self._diff.weights:
            weights = change.before, change.after
            i, j = (one.place(weight) for one, weight in zip(holders, weights, strict=True))
            if i is not None and j is not None:
                self._pair(i, j)
            if change.status not in ("unchanged", "moved"):
                for one, weight in zip(holders, weights, strict=True):
                    if weight is not None:
                        one.add(weight, weight_sentence(change))
        self._pair_instructions()
        self._align(None, None)
        self._pair_moved()
        for i, j in self._in_order():
            words = holders[0].words.get(i, ()), holders[1].words.get(j, ())
            changed = tuple(dict.fromkeys(chain(*words)))
            if i is None or j is None:
                yield NodePair("added" if i is None else "removed", i, j, changed)
                continue
            what = (*self._differences(i, j), *changed)
            moved = j in self._moved or self._module(0, i) != self._module(1, j)
            yield NodePair("moved" if moved else "changed" if what else "same", i, j, what)

    def _pair(self, i: int, j: int) -> None:
        if i not in self._partner[0] and j not in self._partner[1]:
            self._partner[0][i], self._partner[1][j] = j, i

    def _pair_instructions(self) -> None:
        """Pair the instructions of executed programs as in the comparison."""
        nodes = [
            {
                view.linked.number_of[id(node.node)]: number
                for number, node in enumerate(view.nodes)
                if id(node.node) in view.linked.number_of
            }
            for view in self._views
            if isinstance(view.linked, ExecutedGraph)
        ]
        if len(nodes) < 2:
            return
        for change in self._diff.instructions:
            if change.method == self._views[1].method and change.before and change.after:
                i = nodes[0].get(change.before.instruction_id)
                j = nodes[1].get(change.after.instruction_id)
                if i is None or j is None:
                    continue
                self._pair(i, j)
                self._instruction_changes[j] = change.what
                if change.status == "moved":
                    self._moved.add(j)

    def _align(self, call: str | None, other_call: str | None) -> None:
        """Align the nodes of the graphs that a call opens on each side, None for the first graphs;
        then the nodes inside their calls."""
        levels = self._levels[0].get(call, []), self._levels[1].get(other_call, [])
        left = [
            [number for number in level if number not in paired]
            for level, paired in zip(levels, self._partner, strict=True)
        ]
        tokens = [
            [self._token(side, number) for number in numbers] for side, numbers in enumerate(left)
        ]
        turns: list[Callable[[tuple[Hashable, ...]], Hashable]] = [
            lambda token: token,
            lambda token: token[:4],
            lambda token: token[:3],
            lambda token: (token[0], token[2]),
        ]
        if not self._diff.has_modules:
            turns[-1] = lambda token: token[0]
        for i, j in matched_in_turn(tokens[0], tokens[1], turns):
            self._pair(left[0][i], left[1][j])
        for i in levels[0]:
            partner = self._partner[0].get(i)
            node = self._views[0].nodes[i]
            if partner is not None and node.opens and self._views[1].nodes[partner].opens:
                self._align(node.key, self._views[1].nodes[partner].key)

    def _token(self, side: int, number: int) -> tuple[Hashable, ...]:
        """Kind and operator, module, results; and a name, which only inputs keep."""
        placed = self._views[side].nodes[number]
        node = placed.node
        what = node.op
        if node.kind == "placeholder":
            what = "weight" if node.name in placed.graph.parameters else "input"
        name = placed.graph.parameters.get(node.name, node.name)
        name = name if node.kind in ("placeholder", "get_attr", "output") else ""
        return (node.kind, what), self._module(side, number), _results(placed), placed.backend, name

    def _module(self, side: int, number: int) -> str | None:
        node = self._views[side].nodes[number].node
        return module_path(node) if self._diff.has_modules else None

    def _pair_moved(self) -> None:
        """Pair operators that are elsewhere on the other side, inside or outside a delegate."""
        left = [
            {
                number: self._token(side, number)[:3]
                for number, node in enumerate(view.nodes)
                if number not in self._partner[side] and node.node.kind == "call_function"
            }
            for side, view in enumerate(self._views)
        ]
        for i, j in matched_anywhere(left[0], left[1]):
            self._moved.add(j)
            self._pair(i, j)

    def _in_order(self) -> list[_Pair]:
        """All nodes in the later side's order; a removed node follows its former predecessor."""
        placed: list[tuple[int, int, _Pair]] = [
            (j, -1, (self._partner[1].get(j), j)) for j in range(len(self._views[1].nodes))
        ]
        behind = -1
        for i in range(len(self._views[0].nodes)):
            if i in self._partner[0]:
                behind = self._partner[0][i]
            else:
                placed.append((behind, i, (i, None)))
        return [pair for *_, pair in sorted(placed, key=lambda one: one[:2])]

    # -- differences of a pair

    def _differences(self, i: int, j: int) -> Iterator[str]:
        one, other = self._views[0].nodes[i], self._views[1].nodes[j]
        if j in self._instruction_changes:
            yield from self._instruction_changes[j]
        else:
            for position, (before, after) in enumerate(zip_longest(_results(one), _results(other))):
                if before != after:
                    yield f"result {position}: {before or 'none'} → {after or 'none'}"
            yield from self._arguments(one, other)
        modules = self._module(0, i), self._module(1, j)
        if modules[0] != modules[1]:
            yield f"module: {modules[0] or 'none'} → {modules[1] or 'none'}"
        if one.backend != other.backend:
            yield f"backend: {one.backend or 'none'} → {other.backend or 'none'}"

    def _arguments(self, one: ViewNode, other: ViewNode) -> Iterator[str]:
        for position, (before, after) in enumerate(
            zip_longest(one.node.arguments, other.node.arguments)
        ):
            name = (after or before or ("",))[0] or str(position)
            texts = [None if given is None else given[1] for given in (before, after)]
            if texts[0] == texts[1] or (
                None not in texts and self._is_same((one, other), [text or "" for text in texts])
            ):
                continue
            yield f"argument {name}: {_cut(texts[0])} → {_cut(texts[1])}"

    def _is_same(self, nodes: tuple[ViewNode, ViewNode], texts: Sequence[str]) -> bool:
        """Return True for arguments that differ only in names of partners, or of unpaired nodes."""
        words = [_WORD.findall(text) for text in texts]
        between = [_WORD.split(text) for text in texts]
        if between[0] != between[1]:
            return False
        for one, other in zip(*words, strict=True):
            places = [
                self._place(side, node, word)
                for side, (node, word) in enumerate(zip(nodes, (one, other), strict=True))
            ]
            if places == [None, None]:
                if one != other:
                    return False
            elif None in places:
                return False
            else:
                i, j = places
                partner = self._partner[0].get(i or 0)
                if partner != j and partner is not None and j in self._partner[1]:
                    return False
        return True

    def _place(self, side: int, user: ViewNode, word: str) -> int | None:
        """Return the node with the name of a word in an argument; None without one."""
        view = self._views[side]
        if word not in user.graph.by_name:
            return None
        key = view.keys.get((user.call, id(user.graph), word))
        return None if key is None else self._of_key[side][key]


def _levels(view: GraphView) -> Mapping[str | None, list[int]]:
    """The nodes of the graphs that each call opens, None for the first graph."""
    found: dict[str | None, list[int]] = {}
    for number, node in enumerate(view.nodes):
        if node.node.kind != "rest":
            found.setdefault(node.call, []).append(number)
    return found


def _results(node: ViewNode) -> tuple[str, ...]:
    return tuple("" if value.tensor is None else str(value.tensor) for value in node.node.outputs)


def _cut(text: str | None) -> str:
    if text is None:
        return "none"
    return text if len(text) <= _LONGEST_ARGUMENT else f"{text[:_LONGEST_ARGUMENT]}…"


class _Holders:
    """The nodes of a view that hold or read weights; `words`: what changed of them, by number."""

    def __init__(self, side: Side, view: GraphView) -> None:
        self._view = view
        self._numbers: dict[int, int] = {}
        self._named: dict[str, int] = {}
        for number, node in reversed([*enumerate(view.nodes)]):
            self._numbers[id(node.node)] = number
            parameter = node.graph.parameters.get(node.node.name)
            if parameter is not None:
                self._named[parameter] = number
        method = side.methods.get(view.method or "")
        values = () if method is None else method.values
        self._values = {id(value): index for index, value in enumerate(values)}
        # The comparison read the record's graph separately: match its nodes by their name, if it is
        # unique (it is not in several branches).
        symbols = view.linked.symbols
        graph = None if symbols is None else symbols.graph
        nodes = [] if graph is None else [*graph.walk()]
        count = Counter(node.name for node in nodes)
        self._edge_nodes = {node.name: node for node in nodes if count[node.name] == 1}
        self.words: dict[int | None, list[str]] = {}

    def add(self, weight: Weight, text: str) -> None:
        """Note at the nodes that hold or read a weight what changed about it."""
        for number in {*self._readers(weight), self.place(weight)} - {None}:
            self.words.setdefault(number, []).append(text)

    def place(self, weight: Weight | None) -> int | None:
        """Return the number of the node that holds a weight."""
        view = self._view
        if weight is None or weight.tensor.method != view.method:
            return None
        if isinstance(view.linked, ExecutedGraph) and weight.tensor.value is not None:
            index = self._values.get(id(weight.tensor.value))
            node = view.by_key.get(f"const_{index}")
            return None if node is None else self._numbers.get(id(node.node))
        return None if weight.name is None else self._named.get(weight.name)

    def _readers(self, weight: Weight) -> Iterator[int]:
        linked, tensor, known = self._view.linked, weight.tensor, self._edge_nodes
        if tensor.method != self._view.method:
            return
        nodes = linked.behind(known[n.name] for n in tensor.nodes if n.name in known)
        at = None if tensor.nodes else tensor.instruction
        if isinstance(linked, ExecutedGraph) and at is not None:
            nodes = linked.ran(at)
            if tensor.inside is not None:  # XNNPACK's operators, in the order of the data
                nodes = nodes[tensor.inside : tensor.inside + 1]
                nodes = tuple(node for node in nodes if node.op.startswith("xnnpack."))
        yield from (self._numbers[id(node)] for node in nodes if id(node) in self._numbers)
