"""Where to look for a small failing piece. What trying one means is another's matter.

A piece of which nothing can be said is never taken for a good one: its neighbours are tried, and
where those tell nothing either, the search goes on with the larger piece.
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
    """Whether a piece fails as the whole does (None: unknown), and which outputs of it."""

    bad: bool | None
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """A search in `pieces`, whose whole is known to fail. `ask` tries a piece."""

    pieces: Pieces
    ask: Callable[[Piece], Verdict]

    def found(self, strategy: str) -> list[Piece]:
        """The smallest failing pieces that were found; one, unless single nodes were looked for."""
        whole = self.pieces.whole
        if strategy == LINEAR:
            alone = [(index,) for index in whole if self._is_bad((index,))]
            return list(alone) or [self.shrunk(whole)]
        return [self.shrunk(self.descended(whole) if strategy == MODULES else whole)]

    def _is_bad(self, piece: Piece) -> bool:
        return self.ask(piece).bad is True

    # -- from the module tree

    def descended(self, piece: Piece) -> Piece:
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
        """The modules within the piece at that depth, and the stretches of nodes in none."""
        groups: dict[object, list[int]] = {}
        stretch = 0
        for index in piece:
            modules = self.pieces.nodes[index].modules
            if len(modules) > depth:
                groups.setdefault(modules[depth], []).append(index)
                stretch += 1
            else:
                groups.setdefault(stretch, []).append(index)
        return [tuple(group) for group in groups.values()]

    # -- from the order of execution

    def shrunk(self, piece: Piece) -> Piece:
        """A failing piece within a failing piece, of which no connected part that leaves out a
        node fails."""
        piece = self._first_bad_end(piece)
        piece = self._leading_to_wrong(piece)
        piece = self._last_bad_start(piece)
        return self._minimal(piece)

    def _first_bad_end(self, piece: Piece) -> Piece:
        """The shortest failing beginning of the piece."""
        good, bad = 0, len(piece)
        while bad - good > 1:
            for length in _from_the_middle(good, bad):
                verdict = self.ask(piece[:length]).bad
                if verdict is not None:
                    good, bad = (good, length) if verdict else (length, bad)
                    break
            else:
                break
        return piece[:bad]

    def _last_bad_start(self, piece: Piece) -> Piece:
        """The shortest failing end of the piece."""
        if self._is_bad(piece[-1:]):
            return piece[-1:]
        bad, good = 0, len(piece)
        while good - bad > 1:
            for start in _from_the_middle(bad, good):
                verdict = self.ask(piece[start:]).bad
                if verdict is not None:
                    bad, good = (start, good) if verdict else (bad, start)
                    break
            else:
                break
        return piece[bad:]

    def _leading_to_wrong(self, piece: Piece) -> Piece:
        """Only the nodes that a wrong output depends on, if they fail without the others."""
        for output in self.ask(piece).outputs:
            smaller = self.pieces.leading_to(piece, (output,))
            if smaller and len(smaller) < len(piece) and self._is_bad(smaller):
                return smaller
        return piece

    def _minimal(self, piece: Piece) -> Piece:
        """As delta debugging does it (Zeller and Hildebrandt, Simplifying and Isolating
        Failure-Inducing Input, 2002), with the connected parts of what would be tried."""
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
        """Chunks of the piece, then what is left without each."""
        chunks = _chunks(piece, count)
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


def _chunks(piece: Piece, count: int) -> list[Piece]:
    edges = [len(piece) * number // count for number in range(count + 1)]
    return [piece[a:b] for a, b in pairwise(edges) if a < b]


def _from_the_middle(low: int, high: int) -> Sequence[int]:
    """The numbers between, the nearest to the middle first."""
    middle = (low + high) // 2
    return sorted(range(low + 1, high), key=lambda number: abs(number - middle))
