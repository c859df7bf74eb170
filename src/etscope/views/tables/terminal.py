"""A table for people: numbers right-aligned, delegated rows hung under their call, made to fit.

In a terminal the table keeps to its width: texts are cut, never wrapped, and the columns that
matter least are left out, which a line below says. Piped output is whole, for `grep` and `less -S`.

It needs nothing but the standard library: what a table of our own layout would take from a
rich-text library are escape codes, and to import one and lay a small table out with it takes
several times as long as all that is done here.
"""

from __future__ import annotations

import os
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, TextIO

from etscope.model.table import Column, Kind, Table
from etscope.views.tables.cell_values import is_number, plain_values
from etscope.views.tables.text_cells import (
    ASCII_LINES,
    LINES,
    Guides,
    table_texts,
    tree_prefixes,
    visible,
)

# How the columns of a table fit a width: which are left out, how wide each is, what is cut.
#
# Numbers are never cut. Texts give way first, down to a width at which they still say something;
# then columns are left out, those of the highest `Column.priority` number first.


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
    head = _head_of_column_layout(text, width // 2)
    return head + mark + _tail(text, width - 1 - cell_width(head))


def cut_start(text: str, width: int, mark: str) -> str:
    """`text` in `width` cells, its start replaced by `mark`: whole parts of a path if it can."""
    if cell_width(text) <= width:
        return text
    tail = _tail(text, width - 1)
    # The parts of "encoder.layer.0" are between dots, those of "model.py:34" are not.
    part = tail.find("." if "/" not in text and ":" not in text else "/")
    return mark + (tail[part:] if 0 < part <= len(tail) // 2 else tail)


def _head_of_column_layout(text: str, width: int) -> str:
    if text.isascii():
        return text[: max(0, width)]
    for end, char in enumerate(text):
        width -= _char_width(char)
        if width < 0:
            return text[:end]
    return text


def _tail(text: str, width: int) -> str:
    return _head_of_column_layout(text[::-1], width)[::-1]


_BOLD, _DIM, _CYAN = "\x1b[1m", "\x1b[2m", "\x1b[36m"
_LONGEST = 200  # of a text, where the width of the output sets no limit
_BAR = 10  # cells of the bar that draws a share
# (turn to get width, least width before another column is left out for it) of the text that names
# the row, of other texts, and of paths, whose end is enough
_NAME, _TEXT, _PATH = (0, 28), (1, 14), (2, 18)
_FIRST_TO_GO = 1000
_CHUNK = 1000  # lines written at a time


class _Look(NamedTuple):
    """How strokes and styles are written to one output."""

    color: bool
    rule: str
    cut: str
    bars: str  # a cell, from its first part to all of it
    guides: Guides

    def paint(self, text: str, code: str) -> str:
        return f"{code}{text}\x1b[0m" if self.color and code and text else text


class _Cells(NamedTuple):
    """A column before it is laid out. `prefixes` (tree guides) stand before the texts, uncut."""

    column: Column
    texts: list[str]
    prefixes: Sequence[str] | None = None

    def extent(self, position: int) -> Extent:
        label = visible(self.column.label)
        widths = list(map(cell_width, self.texts))
        if self.prefixes is not None:
            widths = [a + len(b) for a, b in zip(widths, self.prefixes, strict=True)]
        turn, comfort = self._claim()
        nothing = not any(self.texts)  # a column without values goes first, if any may go
        return Extent(
            position,
            priority=_FIRST_TO_GO if nothing and self.column.priority else self.column.priority,
            cells=max(widths, default=0),
            label=cell_width(label),
            word=max(map(cell_width, label.split()), default=0),
            comfort=None if is_number(self.column.kind) else comfort,
            turn=turn,
        )

    def _claim(self) -> tuple[int, int]:
        if self.prefixes is not None:
            return _NAME
        return _PATH if self.column.kind is Kind.PATH else _TEXT


class _Strip(NamedTuple):
    """A column laid out: its head's lines and its cells, all padded to `width`."""

    head: list[str]
    cells: list[str]
    width: int


def write(
    table: Table, out: TextIO, *, width: int | None = None, color: bool | None = None
) -> None:
    """Write `table` to `out`.

    `width` is the number of columns to fit; None: $COLUMNS, the width of the terminal, or no limit
    where `out` is not a terminal. `color` None: on a terminal unless NO_COLOR is set, anywhere
    with FORCE_COLOR.
    """
    width = _width_of(out) if width is None else width
    lines = _lines(table, width, _look(out, color))
    while chunk := list(islice(lines, _CHUNK)):
        out.write("".join(f"{line}\n" for line in chunk))


def _lines(table: Table, width: int | None, look: _Look) -> Iterator[str]:
    for line in _wrapped(table.title, width):
        yield look.paint(line, _BOLD)
    columns = _columns(table, look)
    extents = [cells.extent(i) for i, cells in enumerate(columns)]
    share = _share_to_draw(table, extents, width)
    room = width if share is None or width is None else width - _BAR - GAP
    layout = fit(_settled(extents, columns, fit(extents, room), look), room)
    strips = [_strip(columns[i], size, look) for i, size in layout.widths.items()]
    if share is not None:
        strips.insert(share + 1, _bars(table, share, look))
    rule = look.paint(look.rule * (sum(s.width for s in strips) + GAP * (len(strips) - 1)), _DIM)
    yield from _heads(strips, look)
    yield rule
    for number, row in enumerate(zip(*(strip.cells for strip in strips), strict=True)):
        if number in table.breaks and number:
            yield rule
        yield (" " * GAP).join(row).rstrip()
    if not len(table):
        yield look.paint("no rows", _DIM)
    for note in (*table.notes, *_left_out(table, layout, width)):
        for line in _wrapped(note, width):
            yield look.paint(line, _DIM)


def _columns(table: Table, look: _Look) -> list[_Cells]:
    """The columns as texts; the first of kind TEXT names the row and carries the tree."""
    prefixes = tree_prefixes(table.depth or [0] * len(table), look.guides)
    columns: list[_Cells] = []
    for column, texts in zip(table.columns, table_texts(table), strict=True):
        texts = [cut_middle(text, _LONGEST, look.cut) for text in texts]
        names_row = column.kind is Kind.TEXT and all(c.prefixes is None for c in columns)
        columns.append(_Cells(column, texts, prefixes if names_row else None))
    return columns


def _settled(
    extents: Sequence[Extent], columns: Sequence[_Cells], layout: Fit, look: _Look
) -> list[Extent]:
    """The extents with paths as wide as once cut to whole parts; other texts get the rest."""
    settled: list[Extent] = []
    for extent in extents:
        column = columns[extent.position]
        width = layout.widths.get(extent.position, extent.cells)
        if column.column.kind is Kind.PATH and width < extent.cells:
            cut = (cut_start(text, width, look.cut) for text in column.texts)
            extent = extent._replace(cells=max(map(cell_width, cut), default=0))
        settled.append(extent)
    return settled


def _strip(cells: _Cells, width: int, look: _Look) -> _Strip:
    """The column's cells in `width`: numbers to the right, texts to the left and cut."""
    kind = cells.column.kind
    numbers = is_number(kind)
    code = _DIM if kind in (Kind.INT, Kind.PATH) else ""
    cut = cut_start if kind is Kind.PATH else cut_middle
    prefixes = cells.prefixes or [""] * len(cells.texts)
    padded: list[str] = []
    for prefix, text in zip(prefixes, cells.texts, strict=True):
        if not numbers:
            text = cut(text, width - len(prefix), look.cut)
        space = " " * (width - len(prefix) - cell_width(text))
        text = look.paint(prefix, _DIM) + look.paint(text, code)
        padded.append(space + text if numbers else text + space)
    head = [
        " " * (width - cell_width(line)) + line if numbers else line.ljust(width)
        for line in _head(visible(cells.column.label), width, look)
    ]
    return _Strip(head, padded, width)


def _head(label: str, width: int, look: _Look) -> list[str]:
    """The label on as many lines as its words need."""
    lines = [""]
    for word in label.split():
        longer = f"{lines[-1]} {word}".strip()
        if cell_width(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return [cut_middle(line, width, look.cut) for line in lines]


def _heads(strips: Sequence[_Strip], look: _Look) -> Iterator[str]:
    height = max((len(strip.head) for strip in strips), default=0)
    blocks = [[" " * s.width] * (height - len(s.head)) + s.head for s in strips]
    for line in zip(*blocks, strict=True):
        yield look.paint((" " * GAP).join(line).rstrip(), _BOLD)


def _share_to_draw(table: Table, extents: Sequence[Extent], width: int | None) -> int | None:
    """The first share, if there is room for a bar beside it that costs no more than paths' starts.

    Output without a width is for other programs and has no bars.
    """
    shares = [i for i, column in enumerate(table.columns) if column.kind is Kind.SHARE]
    if not shares or width is None:
        return None
    layout = fit(extents, width - _BAR - GAP)
    whole = all(layout.widths.get(e.position, -1) >= e.cells or e.turn == _PATH[0] for e in extents)
    return shares[0] if whole and not layout.left_out else None


def _bars(table: Table, share: int, look: _Look) -> _Strip:
    column = table.columns[share]
    values = plain_values(column, table.values[column.name])
    sizes = [max(0.0, value) if isinstance(value, (int, float)) else 0.0 for value in values]
    largest = max(sizes, default=0.0) or 1.0
    return _Strip([" " * _BAR], [_bar(size / largest, look) for size in sizes], _BAR)


def _bar(fraction: float, look: _Look) -> str:
    whole, part = divmod(round(fraction * _BAR * len(look.bars)), len(look.bars))
    text = look.bars[-1] * whole + (look.bars[part - 1] if part else "")
    return look.paint(text, _CYAN) + " " * (_BAR - len(text))


def _left_out(table: Table, layout: Fit, width: int | None) -> list[str]:
    names = ", ".join(table.columns[i].name for i in layout.left_out)
    return [f"columns not shown at {width} wide: {names}"] if names else []


def _wrapped(text: str, width: int | None) -> list[str]:
    text = visible(text)
    return [text] if text and width is None else textwrap.wrap(text, max(width or 0, 20))


def _look(out: TextIO, color: bool | None) -> _Look:
    color = _wants_color(out) if color is None else color
    if _can_write(out, "─…█▏└├│"):
        return _Look(color, "─", "…", "▏▎▍▌▋▊▉█", LINES)
    return _Look(color, "-", "~", "#", ASCII_LINES)


def _can_write(out: TextIO, text: str) -> bool:
    try:
        text.encode(getattr(out, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _wants_color(out: TextIO) -> bool:
    # https://no-color.org and https://force-color.org: set to anything but nothing
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        out.isatty() and os.environ.get("TERM") != "dumb"
    )


def _width_of(out: TextIO) -> int | None:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    if not out.isatty():
        return None
    try:
        return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
