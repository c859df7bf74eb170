"""Write tables as CSV, TSV, JSON, JSON Lines, GitHub Markdown, HTML and Parquet."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from html import escape
from itertools import chain, groupby
from typing import Any, BinaryIO, TextIO

from etscope.model.table import Kind, Table
from etscope.support.optional import require
from etscope.views.output import dumps, write_joined
from etscope.views.tables.cells import (
    PASTED,
    Guides,
    explanation_lines,
    is_number,
    plain_rows,
    plain_values,
    table_texts,
    tree_prefixes,
    types_of,
    visible,
    without_surrogates,
)

# -- CSV and TSV: a header of names with units ("avg_ms"), full precision; a missing value is an
# empty field and a list is JSON text. Nothing else is changed: a field may start with "=".


def write_csv(table: Table, out: TextIO) -> None:
    """Write RFC 4180, except for the line ends: LF, as text tools expect."""
    _write(table, out, ",")


def write_tsv(table: Table, out: TextIO) -> None:
    """Write CSV with tabs instead of commas."""
    _write(table, out, "\t")


def _write(table: Table, out: TextIO, delimiter: str) -> None:
    writer = csv.writer(_LineEnds(out), delimiter=delimiter, lineterminator="\r\n")
    writer.writerow([column.key for column in table.columns])
    columns: list[list[Any]] = []
    for column in table.columns:
        # csv writes None as an empty field and floats by repr, which loses nothing.
        values = plain_values(column, table.values[column.name])
        if not types_of(values).isdisjoint({bool, list}):
            values = [dumps(v) if isinstance(v, (bool, list)) else v for v in values]
        columns.append(values)
    writer.writerows(zip(*columns, strict=True))


class _LineEnds:
    """Writes lines that end with LF. csv itself writes CR LF: it quotes fields with a character of
    its line end, and readers also end a line at a CR alone."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, line: str) -> None:
        self._out.write(line[:-2] + "\n")


# -- JSON: one document of schema "etscope.table/1", and JSON Lines: one object a row.
#
# The document::
#
#     {"schema": "etscope.table/1", "title": "…",
#      "columns": [{"name": "avg", "title": "avg", "kind": "duration", "unit": "ms"}, …],
#      "rows": [{"avg": 1.25, …}, …],
#      "depth": [0, 1, …],   the level of each row, only if there are several
#      "breaks": [25],       rows with a line above them, only if there are any
#      "findings": [{"kind": "slowest-line", "sentence": "…", …}],   only of a whole profile
#      "phases": [{"phase": "decode", "method": "forward", "calls": 99, "time_ms": 63.1, …}, …],
#                            only of a language model's calls
#      "runs": [{"method": "forward", "phase": null, "counted": 13, "recorded": 20, "warmup": 1,
#                "disturbed": 6}, …],   of statistics of runs, which exclude the last two
#      "notes": ["…"]}
#
# `kind` is a value of `etscope.model.table.Kind`. NaN and missing values are null, infinities the
# texts "Infinity" and "-Infinity".

SCHEMA = "etscope.table/1"


def write_json(table: Table, out: TextIO) -> None:
    """Write the table as one document with a row on each line."""
    head = {
        "schema": SCHEMA,
        "title": table.title,
        "columns": [
            {"name": c.name, "title": c.title or c.name, "kind": c.kind.value, "unit": c.unit}
            for c in table.columns
        ],
    }
    tail: dict[str, Any] = {}
    if table.depth is not None:
        tail["depth"] = [int(level) for level in table.depth]
    if table.breaks:
        tail["breaks"] = sorted(table.breaks)
    if table.findings:
        tail["findings"] = [dict(finding) for finding in table.findings]
    if table.phases:
        tail["phases"] = [dict(phase) for phase in table.phases]
    if table.runs:
        tail["runs"] = [dict(runs) for runs in table.runs]
    tail["notes"] = list(table.notes)
    out.write("{\n" + _members(head) + ',\n"rows": [' + ("\n" if len(table) else ""))
    write_joined(out, _objects(table, table.names), ",\n")
    out.write("\n],\n" + _members(tail) + "\n}\n")


def write_jsonl(table: Table, out: TextIO) -> None:
    """Write a row on each line. Keys include the unit ("avg_ms"), which has no other place."""
    rows = _objects(table, tuple(column.key for column in table.columns))
    write_joined(out, (f"{row}\n" for row in rows))


def _members(values: dict[str, Any]) -> str:
    return ",\n".join(f"{json.dumps(key)}: {dumps(value)}" for key, value in values.items())


def _objects(table: Table, keys: tuple[str, ...]) -> Iterator[str]:
    for row in plain_rows(table):
        yield dumps(dict(zip(keys, row, strict=True)))


# -- A GitHub table. Names from files stay text: no markup, HTML, mention or issue link.

# A cell's leading spaces are dropped, so the guides are indented by spaces that are not.
_GUIDES = Guides(last="└ ", more="├ ", through="│ ", blank="&emsp;")
_HTML = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))  # "&" first
_MARKUP = re.compile(r"[\\`*\[\]~|$]|(?<!\w)_|_(?!\w)")  # inside a word "_" is a letter
# "#12" and "@name" become links on GitHub, even escaped; an empty comment between ends that.
_REFERENCE = re.compile(r"([#@])(?=\w)")


def write_markdown(table: Table, out: TextIO) -> None:
    """Write the title, the table with aligned columns, and the notes."""
    if table.title:
        out.write(f"**{escaped(table.title)}**\n\n")
    out.write(_line([escaped(column.label) for column in table.columns]))
    out.write(_line(["---:" if is_number(c.kind) else ":---" for c in table.columns]))
    cells = _with_guides(table, [list(map(escaped, texts)) for texts in table_texts(table)])
    out.writelines(_line(row) for row in zip(*cells, strict=True))
    if table.findings:
        out.write("\n")
    for finding in table.findings:
        out.write(f"- {escaped(str(finding['sentence']))}\n")
        for is_pasted, texts in groupby(
            explanation_lines(finding), lambda text: text.startswith(PASTED)
        ):
            if is_pasted:
                out.writelines(["    ```text\n", *(f"{text}\n" for text in texts), "    ```\n"])
            else:
                out.writelines(f"  - {escaped(text)}\n" for text in texts)
    for note in table.notes:
        out.write(f"\n{escaped(note)}\n")


def _with_guides(table: Table, cells: list[list[str]]) -> list[list[str]]:
    """Return the escaped cells of each column, with the guides of the tree before the names."""
    first_text = next((i for i, c in enumerate(table.columns) if c.kind is Kind.TEXT), None)
    if table.depth is not None and first_text is not None:
        prefixes = tree_prefixes(table.depth, _GUIDES)
        cells[first_text] = [a + b for a, b in zip(prefixes, cells[first_text], strict=True)]
    return cells


def write_list(sentences: Sequence[str], out: TextIO) -> None:
    """Write sentences as a list."""
    out.writelines(f"- {escaped(sentence)}\n" for sentence in sentences)


def write_folded(table: Table, out: TextIO) -> None:
    """Write the table as a part that is folded away below its title."""
    out.write(f"<details><summary>{escaped(table.title)}</summary>\n\n")
    write_markdown(replace(table, title=""), out)
    out.write("\n</details>\n")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


@lru_cache(maxsize=4096)  # the rows of a long table have few different names
def escaped(text: str) -> str:
    """Return text for Markdown, without markup, HTML, mentions and links."""
    text = _MARKUP.sub(r"\\\g<0>", visible(text))
    for char, entity in _HTML:
        text = text.replace(char, entity)
    return _REFERENCE.sub(r"\1<!-- -->", text)


# -- A part of an HTML page, without scripts and in ASCII, so that it can be inserted anywhere.

_LONGEST = 200  # characters of a cell


def write_html(table: Table, out: TextIO) -> None:
    """Write the title, the table, the findings and the notes. Texts from files stay text."""
    styles = [f"text-align: {'right' if is_number(c.kind) else 'left'}" for c in table.columns]
    styles = [f' style="{style}; padding: 2px 8px"' for style in styles]

    def row(tag: str, cells: Iterable[str]) -> str:
        parts = zip(styles, cells, strict=True)
        return f"<tr>{''.join(f'<{tag}{style}>{cell}</{tag}>' for style, cell in parts)}</tr>\n"

    cells = _with_guides(table, [list(map(html_text, texts)) for texts in table_texts(table)])
    parts = [f"<p><b>{html_text(table.title)}</b></p>\n"] if table.title else []
    parts += ["<table><thead>", row("th", (html_text(column.label) for column in table.columns))]
    parts += ["</thead><tbody>\n", *(row("td", one) for one in zip(*cells, strict=True))]
    parts.append("</tbody></table>\n")
    for finding in table.findings:
        parts.append(f"<p>{html_text(str(finding['sentence']), None)}</p>\n<ul>")
        parts += (
            f"<li><code>{html_text(text.removeprefix(PASTED), None)}</code></li>"
            if text.startswith(PASTED)
            else f"<li>{html_text(text, None)}</li>"
            for text in explanation_lines(finding)
        )
        parts.append("</ul>\n")
    parts += (f"<p>{html_text(note, None)}</p>\n" for note in table.notes)
    out.writelines(part.encode("ascii", "xmlcharrefreplace").decode() for part in parts)


def html_text(text: str, longest: int | None = _LONGEST) -> str:
    """Return text for HTML, without markup; cut if it is longer than a cell."""
    cut = longest is not None and len(text) > longest
    return escape(visible(f"{text[:longest]}…" if cut else text))


# -- Parquet by pyarrow: typed columns, units and kinds in the metadata of the fields.
#
# A column's type follows its kind: identifiers, counts and bytes are int64, other numbers double,
# and lists are lists of one type. Values of other types are text. The metadata of the schema holds
# title and notes as JSON under "etscope"; a field's metadata has "kind", "unit" and "title".


def write_parquet(table: Table, out: BinaryIO) -> None:
    """Write the table. Raises `MissingDependencyError` without pyarrow (the extra `parquet`)."""
    pa = require("pyarrow", wanted_by="the Parquet format")
    pq = require("pyarrow.parquet", wanted_by="the Parquet format")
    arrays: list[Any] = []
    fields: list[Any] = []
    for column in table.columns:
        values = plain_values(column, table.values[column.name])
        try:
            array = _typed(pa, column.kind, values)
        except UnicodeEncodeError:
            array = _typed(pa, column.kind, [_storable(value) for value in values])
        about_column = {"kind": column.kind.value, "unit": column.unit, "title": column.title}
        metadata = {
            key: without_surrogates(value)
            for key, value in about_column.items()
            if value is not None
        }
        arrays.append(array)
        fields.append(pa.field(column.name, array.type, metadata=metadata))
    about = {"schema": SCHEMA, "title": table.title, "notes": list(table.notes)}
    schema = pa.schema(fields, metadata={"etscope": json.dumps(about)})
    # To memory first: the writer asks a stream for its position, which a pipe does not have.
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), buffer)
    out.write(buffer.getvalue())


def _typed(pa: Any, kind: Kind, values: list[Any]) -> Any:
    """The values in the first of the kind's types that holds them all, or as text."""
    # By the kind alone, as far as possible: files of several runs can then be read as one.
    items: Iterable[Any] = values
    if kind is Kind.LIST:
        types = [pa.list_(item) for item in (pa.int64(), pa.float64(), pa.string())]
        items = chain.from_iterable(value for value in values if isinstance(value, list))
    elif kind is Kind.BOOL:
        types = [pa.bool_()]
    elif not is_number(kind):
        types = [pa.string()]
    elif kind in (Kind.INT, Kind.COUNT, Kind.BYTES):
        types = [pa.int64(), pa.float64()]
    else:
        types = [pa.float64(), pa.int64()]
    if float in types_of(items):  # which arrow would cut to whole numbers
        types = [item for item in types if item not in (pa.int64(), pa.list_(pa.int64()))]
    for arrow_type in types:
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array(values, arrow_type)
    if kind is not Kind.LIST:
        return pa.array([_as_text(value) for value in values], pa.string())
    lists: list[list[str | None] | None] = []
    for value in values:
        as_list = value if isinstance(value, list) else [value]
        lists.append(None if value is None else [_as_text(item) for item in as_list])
    return pa.array(lists, pa.list_(pa.string()))


def _storable(value: Any) -> Any:
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return without_surrogates(value) if isinstance(value, str) else value


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
