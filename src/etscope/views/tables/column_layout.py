"""How the columns of a table fit a width: which are left out, how wide each is, what is cut.

Numbers are never cut. Texts give way first, down to a width at which they still say something;
then columns are left out, those of the highest `Column.priority` number first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

GAP = 2  # spaces between columns
_LEAST = 6  # no text is cut below this


class Extent(NamedTuple):
    """What a column wants of the width. `position` is its place in the table.

    `cells` is the width of its widest value, `label` of its head on one line and `word` of the
    head's widest word. A column with `comfort` is a text, which may be cut: columns are left out
    rather than cut it below that. Texts of a lower `turn` grow to their full width first.
    """

    position: int
    priority: int
    cells: int
    label: int
    word: int
    comfort: int | None = None
    turn: int = 0

    @property
    def natural(self) -> int:
        return max(self.cells, self.label)

    @property
    def least(self) -> int:
        """Its width in the narrowest table that still shows it."""
        whole = max(self.cells, self.word)
        return whole if self.comfort is None else min(whole, max(self.comfort, self.word))


class Fit(NamedTuple):
    """Positions of the columns that are shown, with the width of each, and of those left out."""

    widths: dict[int, int]
    left_out: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.widths.values()) + GAP * max(0, len(self.widths) - 1)


def fit(extents: Sequence[Extent], available: int | None) -> Fit:
    """Lay the columns out in `available` cells (None: no limit)."""
    widths = {extent.position: extent.natural for extent in extents}
    everything = Fit(widths, ())
    if available is None or everything.total <= available:
        return everything
    shown = _shown(extents, available)
    widths = _widened(shown, available - GAP * (len(shown) - 1))
    return Fit(widths, tuple(e.position for e in extents if e.position not in widths))


def _shown(extents: Sequence[Extent], available: int) -> list[Extent]:
    room = available + GAP - sum(extent.least + GAP for extent in extents)
    out: list[Extent] = []
    for extent in sorted(extents, key=lambda e: (-e.priority, -e.position)):
        if room < 0 and extent.priority > 0:
            out.append(extent)
            room += extent.least + GAP
    for extent in reversed(out):  # a small one may fit where a large one did not
        if extent.least + GAP <= room:
            out.remove(extent)
            room -= extent.least + GAP
    return [extent for extent in extents if extent not in out]


def _widened(shown: Sequence[Extent], available: int) -> dict[int, int]:
    """Widths that use `available` up: texts share it first; if all heads of numbers then fit
    on one line, they are."""
    widths = {extent.position: extent.least for extent in shown}
    texts = [extent for extent in shown if extent.comfort is not None]
    if sum(widths.values()) > available:  # what must be shown does not fit: texts give way further
        widths.update((extent.position, min(extent.least, _LEAST)) for extent in texts)
    room = available - sum(widths.values())
    for turn in sorted({extent.turn for extent in texts}):
        room = _grow([extent for extent in texts if extent.turn == turn], widths, room)
    numbers = [extent for extent in shown if extent.comfort is None]
    if sum(extent.natural - widths[extent.position] for extent in numbers) <= room:
        widths.update((extent.position, extent.natural) for extent in numbers)
    return widths


def _grow(texts: list[Extent], widths: dict[int, int], room: int) -> int:
    """Give `room` to `texts`, the narrowest first, so that the longest are cut; what is left."""
    while room > 0:
        growing = [extent for extent in texts if widths[extent.position] < extent.natural]
        if not growing:
            break
        widths[min(growing, key=lambda e: widths[e.position]).position] += 1
        room -= 1
    return room


def cell_width(text: str) -> int:
    """Columns that a printable text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


@lru_cache(maxsize=4096)
def _char_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut_middle(text: str, width: int, mark: str) -> str:
    """`text` in `width` cells, its middle replaced by `mark` (one cell) if it is longer."""
    if cell_width(text) <= width:
        return text
    head = _head(text, width // 2)
    return head + mark + _tail(text, width - 1 - cell_width(head))


def cut_start(text: str, width: int, mark: str) -> str:
    """`text` in `width` cells, its start replaced by `mark`: whole parts of a path if it can."""
    if cell_width(text) <= width:
        return text
    tail = _tail(text, width - 1)
    # The parts of "encoder.layer.0" are between dots, those of "model.py:34" are not.
    part = tail.find("." if "/" not in text and ":" not in text else "/")
    return mark + (tail[part:] if 0 < part <= len(tail) // 2 else tail)


def _head(text: str, width: int) -> str:
    if text.isascii():
        return text[: max(0, width)]
    for end, char in enumerate(text):
        width -= _char_width(char)
        if width < 0:
            return text[:end]
    return text


def _tail(text: str, width: int) -> str:
    return _head(text[::-1], width)[::-1]
