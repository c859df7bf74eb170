"""Write reports: one readable table for each section, one JSON document, or one flat table.

The document::

    {"schema": "etscope.info/1",
     "reports": [{"file": "a.pte", "kind": "pte",
                  "summary": ["…"],                              of a report with one
                  "sections": {"file": {"size": 1234, …},        a section of facts
                               "methods": [{"method": …}, …]},   a section of rows
                  "notes": ["…"]}, …]}

Keys carry the unit ("first_ms"). NaN and missing values are null.
"""

from __future__ import annotations

import json
import os
import shlex
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import IO, Any, NamedTuple, TextIO, cast

from etscope.model.report import Report, filled_columns, flat_table
from etscope.model.table import Column, Kind, Table
from etscope.views import TABLE_VIEWS, write_table
from etscope.views.output import dumps, write_joined
from etscope.views.tables.cells import (
    ASCII_LINES,
    LINES,
    PASTED,
    Guides,
    cell_texts,
    explanation_lines,
    is_number,
    plain_rows,
    plain_values,
    table_texts,
    tree_prefixes,
    visible,
)
from etscope.views.tables.formats import write_folded, write_html, write_list

__all__ = ["write_reports"]


def write_reports(
    reports: Sequence[Report],
    schema: str,
    format: str,
    out: IO[Any],
    *,
    width: int | None = None,
    color: bool | None = None,
) -> None:
    """Write `reports` to an open stream in a format of `TABLE_VIEWS`.

    `schema` is the schema of the JSON document. `width` and `color` are as for `write_table`.
    """
    if format == "json":
        _write_json(reports, schema, out)
    elif TABLE_VIEWS[format].styled or format in ("md", "html"):
        _write_texts(reports, format, cast(TextIO, out), width, color)
    else:
        write_table(flat_table(reports), format, out)


def _write_texts(
    reports: Sequence[Report], format: str, out: TextIO, width: int | None, color: bool | None
) -> None:
    gap = ""
    for report in reports:
        if report.summary:
            out.write(gap)
            if format == "md":
                write_list(report.summary, out)
            elif format == "html":
                write_html(Table.of({Column("summary"): report.summary}), out)
            else:
                write_sentences(report.summary, out, width=width)
            gap = "\n"
        for section in report.sections:
            out.write(gap)
            table = section.table
            table = turned(table) if section.is_facts else table.select(filled_columns(table))
            if report.summary and format == "md":
                write_folded(table, out)
            else:
                write_table(table, format, out, width=width, color=color)
            gap = "\n"


def turned(table: Table) -> Table:
    """Turn a one-row table into one with a row for each known fact, as text."""
    texts = [
        (column.label, cell_texts(column, table.values[column.name])[0]) for column in table.columns
    ]
    known = [(label, text) for label, text in texts if text]
    columns = (Column("fact"), Column("value"))
    return Table.of_rows(columns, known, title=table.title, notes=table.notes)


def _write_json(reports: Sequence[Report], schema: str, out: IO[Any]) -> None:
    out.write(f'{{\n"schema": {json.dumps(schema)},\n"reports": [')
    for position, report in enumerate(reports):
        out.write(",\n{\n" if position else "\n{\n")
        for key, value in report.about.items():
            out.write(f"{json.dumps(key)}: {dumps(value)},\n")
        if report.summary:
            out.write(f'"summary": {dumps(list(report.summary))},\n')
        out.write('"sections": {')
        for number, section in enumerate(report.sections):
            out.write(",\n" if number else "\n")
            keys = [column.key for column in section.table.columns]
            rows = [dumps(dict(zip(keys, row, strict=True))) for row in plain_rows(section.table)]
            content = "[" + ",".join(f"\n{row}" for row in rows) + "\n]" if rows else "[]"
            content = rows[0] if section.is_facts else content
            out.write(f"{json.dumps(section.name)}: {content}")
        notes = [note for section in report.sections for note in section.table.notes]
        out.write(f'\n}},\n"notes": {dumps(notes)}\n}}')
    out.write("\n]\n}\n")


# -- Column layout: the columns left out, the width of each other one, and the texts to cut.
#
# Numbers are never cut. Texts are cut first, down to a width at which they are still useful; then
# columns are left out, from the highest `Column.priority` number down.

# -- Write a table for a terminal: numbers right-aligned, delegated rows under their call.
#
# In a terminal the table fits the width: texts are cut, never wrapped, and the least important
# columns are left out, which a line below says. Piped output is complete, for `grep` and `less -S`.
#
# Only the standard library is used: importing a rich-text library and laying a small table out with
# it takes several times as long as everything here.


GAP = 2  # spaces between columns
_MIN_TEXT = 6  # no text is cut below this


class Extent(NamedTuple):
    """Widths that a column needs. `position` is its index in the table.

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
        """Return the column's width in the narrowest table that still shows it."""
        whole = max(self.cells, self.word)
        return whole if self.comfort is None else min(whole, max(self.comfort, self.word))


class Layout(NamedTuple):
    """Positions of the shown columns with the width of each, and positions of those left out."""

    widths: dict[int, int]
    left_out: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.widths.values()) + GAP * max(0, len(self.widths) - 1)


def lay_out(extents: Sequence[Extent], available: int | None) -> Layout:
    """Lay the columns out in `available` cells (None: no limit)."""
    everything = Layout({extent.position: extent.natural for extent in extents}, ())
    if available is None or everything.total <= available:
        return everything

    # Leave columns out until the rest fits at its least width.
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
    shown = [extent for extent in extents if extent not in out]

    # Use up the width: texts share it first, the narrowest growing first within a turn; if the
    # heads of all numbers then fit on one line, they do so.
    available -= GAP * (len(shown) - 1)
    widths = {extent.position: extent.least for extent in shown}
    texts = [extent for extent in shown if extent.comfort is not None]
    if sum(widths.values()) > available:  # the shown columns do not fit: cut texts further
        widths.update((extent.position, min(extent.least, _MIN_TEXT)) for extent in texts)
    room = available - sum(widths.values())
    for turn in sorted({extent.turn for extent in texts}):
        growing = [extent for extent in texts if extent.turn == turn]
        while room > 0:
            growing = [e for e in growing if widths[e.position] < e.natural]
            if not growing:
                break
            widths[min(growing, key=lambda e: widths[e.position]).position] += 1
            room -= 1
    numbers = [extent for extent in shown if extent.comfort is None]
    if sum(extent.natural - widths[extent.position] for extent in numbers) <= room:
        widths.update((extent.position, extent.natural) for extent in numbers)
    return Layout(widths, tuple(e.position for e in extents if e.position not in widths))


def cell_width(text: str) -> int:
    """Cells that a printable text takes on a terminal."""
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
    # "encoder.layer.0" is divided at dots, "model.py:34" is not.
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


# -- Writing.

_BOLD, _DIM, _CYAN = "\x1b[1m", "\x1b[2m", "\x1b[36m"
_MAX_TEXT = 200  # cells of a text, where the width of the output sets no limit
_BAR = 10  # cells of the bar that draws a share
# (turn to get width, least width before another column is left out for it) of the text that names
# the row, of other texts, of paths (their end is enough), and of sentences
_NAME, _TEXT, _PATH, _SENTENCE = (0, 28), (1, 14), (2, 18), (0, 24)
_LEFT_OUT_FIRST = 1000  # a priority


class _Style(NamedTuple):
    """Line characters and escape codes for one output."""

    color: bool
    rule: str
    cut: str
    bars: str  # a cell, from its first part to all of it
    guides: Guides

    @classmethod
    def of(cls, out: TextIO, color: bool | None) -> _Style:
        if color is None:
            # https://no-color.org and https://force-color.org: set to a non-empty text
            is_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
            forced = bool(os.environ.get("FORCE_COLOR"))
            color = not os.environ.get("NO_COLOR") and (forced or is_terminal)
        try:
            "─…█▏└├│".encode(getattr(out, "encoding", None) or "utf-8")
        except (UnicodeEncodeError, LookupError):
            return cls(color, "-", "~", "#", ASCII_LINES)
        return cls(color, "─", "…", "▏▎▍▌▋▊▉█", LINES)

    def paint(self, text: str, code: str) -> str:
        return f"{code}{text}\x1b[0m" if self.color and code and text else text


class _Cells(NamedTuple):
    """A column before layout. `prefixes` (tree guides) are before the texts and are never cut."""

    column: Column
    texts: list[str]
    prefixes: Sequence[str] | None = None

    def extent(self, position: int) -> Extent:
        label = visible(self.column.label)
        widths = list(map(cell_width, self.texts))
        if self.prefixes is not None:
            widths = [a + len(b) for a, b in zip(widths, self.prefixes, strict=True)]
            turn, comfort = _NAME
        else:
            turn, comfort = _PATH if self.column.kind is Kind.PATH else _TEXT
            if self.column.is_sentence:
                turn, comfort = _SENTENCE
        is_empty = not any(self.texts)
        return Extent(
            position,
            priority=_LEFT_OUT_FIRST if is_empty and self.column.priority else self.column.priority,
            cells=max(widths, default=0),
            label=cell_width(label),
            word=max(map(cell_width, label.split()), default=0),
            comfort=None if is_number(self.column.kind) else comfort,
            turn=turn,
        )

    def strip(self, width: int, style: _Style) -> _Strip:
        """The cells in `width`: numbers to the right, texts to the left and cut."""
        kind = self.column.kind
        numbers = is_number(kind)
        code = _DIM if kind in (Kind.INT, Kind.PATH) else ""
        cut = cut_start if kind is Kind.PATH else cut_middle
        prefixes = self.prefixes or [""] * len(self.texts)
        padded: list[str] = []
        for prefix, text in zip(prefixes, self.texts, strict=True):
            if not numbers:
                text = cut(text, width - len(prefix), style.cut)
            space = " " * (width - len(prefix) - cell_width(text))
            text = style.paint(prefix, _DIM) + style.paint(text, code)
            padded.append(space + text if numbers else text + space)

        # The label, on as many lines as its words need.
        lines = [""]
        for word in visible(self.column.label).split():
            longer = f"{lines[-1]} {word}".strip()
            if cell_width(longer) <= width or not lines[-1]:
                lines[-1] = longer
            else:
                lines.append(word)
        lines = [cut_middle(line, width, style.cut) for line in lines]
        head = [
            " " * (width - cell_width(line)) + line if numbers else line.ljust(width)
            for line in lines
        ]
        return _Strip(head, padded, width)


class _Strip(NamedTuple):
    """A column after layout: the lines of its head and its cells, all padded to `width`."""

    head: list[str]
    cells: list[str]
    width: int


def write_terminal(
    table: Table, out: TextIO, *, width: int | None = None, color: bool | None = None
) -> None:
    """Write `table` to `out`.

    `width` is the number of columns to fit; None: $COLUMNS, the width of the terminal, or no limit
    where `out` is not a terminal. `color` None: on a terminal unless NO_COLOR is set, anywhere
    with FORCE_COLOR.
    """
    width = _output_width(out) if width is None else width
    write_joined(out, (f"{line}\n" for line in _lines(table, width, _Style.of(out, color))))


def write_sentences(sentences: Sequence[str], out: TextIO, *, width: int | None = None) -> None:
    """Write sentences, each on new lines that fit `width` as `write` does."""
    width = _output_width(out) if width is None else width
    write_joined(out, (f"{line}\n" for text in sentences for line in _wrapped(text, width)))


def _lines(table: Table, width: int | None, style: _Style) -> Iterator[str]:
    for line in _wrapped(table.title, width):
        yield style.paint(line, _BOLD)

    # The columns as texts; the first of kind TEXT names the row and carries the tree.
    prefixes = tree_prefixes(table.depth or [0] * len(table), style.guides)
    columns: list[_Cells] = []
    for column, texts in zip(table.columns, table_texts(table), strict=True):
        texts = [cut_middle(text, _MAX_TEXT, style.cut) for text in texts]
        names_row = column.kind is Kind.TEXT and all(c.prefixes is None for c in columns)
        columns.append(_Cells(column, texts, prefixes if names_row else None))

    extents = [cells.extent(i) for i, cells in enumerate(columns)]
    share = _share_to_draw(table, extents, width)
    room = width if share is None or width is None else width - _BAR - GAP
    layout = lay_out(extents, room)
    # Paths are cut to whole parts: what that leaves free goes to other texts.
    for i, cells in enumerate(columns):
        path_width = layout.widths.get(i, extents[i].cells)
        if cells.column.kind is Kind.PATH and path_width < extents[i].cells:
            cut = (cut_start(text, path_width, style.cut) for text in cells.texts)
            extents[i] = extents[i]._replace(cells=max(map(cell_width, cut), default=0))
    layout = lay_out(extents, room)

    strips = [columns[i].strip(size, style) for i, size in layout.widths.items()]
    if share is not None:
        strips.insert(share + 1, _share_bars(table, share, style))
    rule = style.paint(style.rule * (sum(s.width for s in strips) + GAP * (len(strips) - 1)), _DIM)
    height = max((len(strip.head) for strip in strips), default=0)
    heads = [[" " * s.width] * (height - len(s.head)) + s.head for s in strips]
    for row in zip(*heads, strict=True):
        yield style.paint((" " * GAP).join(row).rstrip(), _BOLD)
    yield rule
    for number, row in enumerate(zip(*(strip.cells for strip in strips), strict=True)):
        if number in table.breaks and number:
            yield rule
        yield (" " * GAP).join(row).rstrip()
    if not len(table):
        yield style.paint("no rows", _DIM)
    yield from _finding_lines(table, width, style)
    notes = list(table.notes)
    if layout.left_out:
        names = ", ".join(table.columns[i].name for i in layout.left_out)
        notes.append(f"columns not shown at {width} wide: {names}")
    for note in notes:
        for line in _wrapped(note, width):
            yield style.paint(line, _DIM)


def _finding_lines(table: Table, width: int | None, style: _Style) -> Iterator[str]:
    """Yield the findings one after the other, each with the command that shows more."""
    if not table.findings:
        return
    yield ""
    yield style.paint("What matters", _BOLD)
    for number, finding in enumerate(table.findings, 1):
        mark = f"{number:>2}. "
        room = None if width is None else width - len(mark)
        for position, line in enumerate(_wrapped(str(finding["sentence"]), room)):
            yield (" " * len(mark) if position else mark) + line
        for text in explanation_lines(finding):
            if text.startswith(PASTED):  # whole: it is to be copied
                yield " " * len(mark) + visible(text)
                continue
            for position, line in enumerate(_wrapped(text, None if room is None else room - 2)):
                yield " " * len(mark) + ("  " if position else "") + line
        for line in _command_lines(str(finding.get("next") or ""), room):
            yield style.paint(" " * len(mark) + line, _DIM)
    if table.notes:
        yield ""


def _command_lines(command: str, width: int | None) -> list[str]:
    """A command in lines that a shell takes as one, broken between words only."""
    words = [shlex.quote(visible(word)) for word in shlex.split(command)]
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width is not None and cell_width(longer) > width - len(" \\"):
            lines[-1] += " \\"
            lines.append(word)
        else:
            lines[-1:] = [longer]
    return lines


def _share_to_draw(table: Table, extents: Sequence[Extent], width: int | None) -> int | None:
    """Return the first share, if a bar next to it fits without cutting more than starts of paths.

    Output without a width is for other programs and has no bars.
    """
    shares = [i for i, column in enumerate(table.columns) if column.kind is Kind.SHARE]
    if not shares or width is None:
        return None
    layout = lay_out(extents, width - _BAR - GAP)
    whole = all(layout.widths.get(e.position, -1) >= e.cells or e.turn == _PATH[0] for e in extents)
    return shares[0] if whole and not layout.left_out else None


def _share_bars(table: Table, share: int, style: _Style) -> _Strip:
    column = table.columns[share]
    values = plain_values(column, table.values[column.name])
    sizes = [max(0.0, value) if isinstance(value, (int, float)) else 0.0 for value in values]
    largest = max(sizes, default=0.0) or 1.0
    bars: list[str] = []
    for size in sizes:
        whole, part = divmod(round(size / largest * _BAR * len(style.bars)), len(style.bars))
        text = style.bars[-1] * whole + (style.bars[part - 1] if part else "")
        bars.append(style.paint(text, _CYAN) + " " * (_BAR - len(text)))
    return _Strip([" " * _BAR], bars, _BAR)


def _wrapped(text: str, width: int | None) -> list[str]:
    text = visible(text)
    if text and width is None:
        return [text]
    return textwrap.wrap(text, max(width or 0, 20), break_on_hyphens=False)


def _output_width(out: TextIO) -> int | None:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    if not out.isatty():
        return None
    try:
        return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
