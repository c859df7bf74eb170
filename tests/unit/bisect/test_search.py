"""Strategies, on graphs and answers that are made up."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from etscope.model.graph import Graph, ModuleFrame, Node
from etscope.search.bisect._bisect import STRATEGIES, PieceSearch, Verdict, piece_text
from etscope.search.bisect._probe import Piece


def graph(uses: Sequence[Sequence[int]], modules: Sequence[Sequence[str]] = ()) -> Graph:
    """A graph of nodes n0, n1, ... that use the values of the nodes at these positions."""
    return Graph(
        "made up",
        tuple(
            Node(
                *(f"n{i}", "call_function", "op", "op"),
                inputs=tuple(f"n{one}" for one in used),
                modules=tuple(ModuleFrame(path, path, "Module") for path in paths),
            )
            for i, (used, paths) in enumerate(zip(uses, modules or [()] * len(uses), strict=True))
        ),
    )


def chain(count: int) -> Graph:
    return graph(
        [(i - 1,) if i else () for i in range(count)],
        [(f"m{i // 4}", f"m{i // 4}.{i // 2}") for i in range(count)],
    )


def web(seed: int, count: int) -> Graph:
    chance = random.Random(seed)
    return graph(
        [sorted({chance.randrange(i) for _ in range(2)} if i else ()) for i in range(count)]
    )


def search(nodes: Graph, wanted: set[int], unknown: float = 0.0) -> tuple[PieceSearch, list[Piece]]:
    """A piece is bad when it has all that is wanted; some answers, the same each time, are none."""
    asked: list[Piece] = []

    def ask(piece: Piece) -> Verdict:
        asked.append(piece)
        silent = random.Random(piece_text(piece)).random() < unknown
        if silent and len(piece) < len(nodes.nodes):
            return Verdict(None)
        bad = wanted <= set(piece)
        return Verdict(bad, (f"n{max(wanted)}",) if bad else ())

    return PieceSearch(nodes, ask), asked


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("node", [0, 1, 30, 62, 63])
def test_a_single_node_is_found(strategy: str, node: int) -> None:
    looking, asked = search(chain(64), {node})
    assert looking.run(strategy) == [(node,)]
    assert len(asked) <= (64 if strategy == "linear" else 30)


@pytest.mark.parametrize("seed", range(30))
def test_two_nodes_that_fail_together_are_found_with_what_connects_them(seed: int) -> None:
    pieces = web(seed, 24)
    chance = random.Random(seed)
    last = chance.randrange(1, 24)
    wanted = {last, *pieces.sources[last][:1]}
    looking, _ = search(pieces, wanted)
    assert looking.run("bisect") == [tuple(sorted(wanted))]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_unknown_is_never_taken_for_good(seed: int, strategy: str) -> None:
    """What is found fails, whatever could not be said on the way."""
    pieces = web(seed, 20)
    looking, asked = search(pieces, {seed % 20}, unknown=0.4)
    (piece,) = looking.run(strategy)
    assert looking.attempt(piece).bad is True
    assert len(piece) < 20
    assert len(asked) < 2000
    looking, _ = search(chain(5), {2}, unknown=1.0)
    assert looking.run(strategy) == [(0, 1, 2, 3, 4)]


def test_single_nodes_are_all_told() -> None:
    pieces = chain(6)
    looking = PieceSearch(pieces, lambda piece: Verdict(bool({1, 4} & set(piece))))
    assert looking.run("linear") == [(1,), (4,)]


def test_a_module_that_fails_is_entered() -> None:
    looking, asked = search(chain(16), {9, 10})
    assert looking.run("modules") == [(9, 10)]
    assert (8, 9, 10, 11) in asked


def test_parts_of_a_graph() -> None:
    pieces = graph([(), (0,), (), (2,), (1, 3)])
    assert pieces.connected((0, 1, 2, 3)) == [(0, 1), (2, 3)]
    assert pieces.connected((0, 1, 2, 3, 4)) == [(0, 1, 2, 3, 4)]
    assert pieces.leading_to((0, 1, 2, 3), ["n3"]) == (2, 3)
    assert piece_text((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
