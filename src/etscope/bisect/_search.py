"""Choose the next piece to try, down to a small one that fails.

An unknown piece is never taken for a good one: its neighbours are tried, and where those are
unknown too, the search goes on with the larger piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from etscope.model.pieces import Piece, Pieces

BISECT, MODULES, LINEAR = "bisect", "modules", "linear"
STRATEGIES = (BISECT, MODULES, LINEAR)


class Verdict(NamedTuple):
    """bad: the piece fails as the whole model does (None: unknown). outputs: its wrong ones."""

    bad: bool | None
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PieceSearch:
    """A search in `pieces`, whose whole is known to fail. `attempt` tries a piece."""

    pieces: Pieces
    attempt: Callable[[Piece], Verdict]

    def run(self, strategy: str) -> list[Piece]:
        """The smallest failing pieces: one, or with "linear" all single nodes that fail alone."""
        whole = self.pieces.whole
        if strategy == LINEAR:
            alone = [(index,) for index in whole if self._is_bad((index,))]
            return list(alone) or [self.shrink(whole)]
        return [self.shrink(self._innermost_module(whole) if strategy == MODULES else whole)]

    def _is_bad(self, piece: Piece) -> bool:
        return self.attempt(piece).bad is True

    def _innermost_module(self, piece: Piece) -> Piece:
        """The innermost module that fails alone, within modules that do."""
        deepest = max((len(self.pieces.nodes[index].modules) for index in piece), default=0)
        for depth in range(deepest):
            children = self._children(piece, depth)
            if len(children) == 1:
                continue
            failing = next((child for child in children if self._is_bad(child)), None)
            if failing is None:
                return piece
            piece = failing
        return piece

    def _children(self, piece: Piece, depth: int) -> list[Piece]:
        """The modules of the piece at a depth, and the runs of nodes between them."""
        groups: dict[object, list[int]] = {}
        modules_before = 0
        for index in piece:
            modules = self.pieces.nodes[index].modules
            if len(modules) > depth:
                groups.setdefault(modules[depth], []).append(index)
                modules_before += 1
            else:
                groups.setdefault(modules_before, []).append(index)
        return [tuple(group) for group in groups.values()]

    def shrink(self, piece: Piece) -> Piece:
        """A failing piece within a failing piece: no connected part of it that leaves out a node
        fails."""
        # The shortest failing beginning, in order of execution.
        piece = piece[: self._boundary(0, len(piece), lambda length: piece[:length])]
        # Of that, only the nodes that a wrong output depends on.
        for output in self.attempt(piece).outputs:
            smaller = self.pieces.leading_to(piece, (output,))
            if smaller and len(smaller) < len(piece) and self._is_bad(smaller):
                piece = smaller
                break
        # The shortest failing end.
        if self._is_bad(piece[-1:]):
            return piece[-1:]
        piece = piece[self._boundary(len(piece), 0, lambda start: piece[start:]) :]
        return self._minimal(piece)

    def _boundary(self, good: int, bad: int, piece_at: Callable[[int], Piece]) -> int:
        """The position nearest to `good` found by bisection whose piece is bad; unknown positions
        are passed over."""
        while abs(bad - good) > 1:
            for position in _from_the_middle(min(good, bad), max(good, bad)):
                verdict = self.attempt(piece_at(position)).bad
                if verdict is not None:
                    good, bad = (good, position) if verdict else (position, bad)
                    break
            else:
                break
        return bad

    def _minimal(self, piece: Piece) -> Piece:
        """Delta debugging (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
        Input, 2002), with the connected parts of each candidate."""
        count = 2
        while len(piece) > 1:
            smaller = next((p for p in self._parts(piece, count) if self._is_bad(p)), None)
            if smaller is not None:
                piece, count = smaller, max(2, min(count - 1, len(smaller)))
            elif count >= len(piece):
                break
            else:
                count = min(2 * count, len(piece))
        return piece

    def _parts(self, piece: Piece, count: int) -> Iterator[Piece]:
        """Connected parts of each of `count` chunks, then of the piece without each chunk."""
        edges = [len(piece) * number // count for number in range(count + 1)]
        chunks = [piece[a:b] for a, b in pairwise(edges) if a < b]
        candidates = list(chunks)
        if count > 2:
            candidates += [
                tuple(index for index in piece if index not in chunk) for chunk in map(set, chunks)
            ]
        seen: set[Piece] = {piece}
        for candidate in candidates:
            for part in self.pieces.connected(candidate):
                if part not in seen:
                    seen.add(part)
                    yield part


def _from_the_middle(low: int, high: int) -> Sequence[int]:
    """The numbers between, the nearest to the middle first."""
    middle = (low + high) // 2
    return sorted(range(low + 1, high), key=lambda number: abs(number - middle))
