"""A graph as what it can be cut into: nodes in order, and what each takes from the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Piece = tuple[int, ...]
"""Positions of nodes in `Pieces`, ascending."""


@dataclass(frozen=True, slots=True)
class PieceNode:
    """A call of an operator. The elements of a tuple that it gives belong to it.

    uses: positions of the nodes whose values it takes. modules: paths of the modules that it is
    in, outermost first. source: the line of Python it comes from.
    """

    name: str
    op: str
    uses: tuple[int, ...] = ()
    modules: tuple[str, ...] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Pieces:
    """The nodes of a graph in order of execution."""

    nodes: tuple[PieceNode, ...]

    @property
    def whole(self) -> Piece:
        return tuple(range(len(self.nodes)))

    def names(self, piece: Piece) -> list[str]:
        return [self.nodes[index].name for index in piece]

    def leading_to(self, piece: Piece, outputs: Iterable[str]) -> Piece:
        """Those nodes of the piece that the named ones of it need, with these."""
        wanted, inside = set(outputs), set(piece)
        kept = {index for index in piece if self.nodes[index].name in wanted}
        for index in reversed(piece):
            if index in kept:
                kept.update(used for used in self.nodes[index].uses if used in inside)
        return tuple(sorted(kept))

    def connected(self, piece: Piece) -> list[Piece]:
        """The piece as parts that share no value, the first one first."""
        parent = {index: index for index in piece}

        def root(index: int) -> int:
            while parent[index] != index:
                parent[index] = parent[parent[index]]
                index = parent[index]
            return index

        for index in piece:
            for used in self.nodes[index].uses:
                if used in parent:
                    parent[root(index)] = root(used)
        parts: dict[int, list[int]] = {}
        for index in piece:
            parts.setdefault(root(index), []).append(index)
        return [tuple(part) for part in parts.values()]


def written(piece: Sequence[int]) -> str:
    """The piece as text: "0-4,7"."""
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in _runs(piece))


def _runs(piece: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for index in piece:
        if first is None or last is None:
            first = last = index
        elif index == last + 1:
            last = index
        else:
            yield first, last
            first = last = index
    if first is not None and last is not None:
        yield first, last
