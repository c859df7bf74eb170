"""`Table`: named columns with a kind and a unit. Analyses return tables, and views write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from etscope.errors import UsageError
from etscope.support.shown import Shown

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Column", "Kind", "Table"]

Row = TypeVar("Row")


class Kind(Enum):
    """The kind of a column's values, which decides their format."""

    TEXT = "text"
    PATH = "path"  # a file, a line, a dotted module: the end is most specific
    INT = "int"  # an identifier: no thousands separators
    COUNT = "count"
    FLOAT = "float"
    DURATION = "duration"  # in `Column.unit`
    SHARE = "share"  # a fraction of 1
    BYTES = "bytes"
    BOOL = "bool"
    LIST = "list"  # a sequence of short texts or numbers


@dataclass(frozen=True, slots=True)
class Column:
    """Head of a column. `name` is for programs (snake_case), `title` for readers.

    A narrow terminal first drops columns with the highest `priority`, and never drops 0.
    `is_sentence`: show its texts in full, and drop other columns before cutting these.
    """

    name: str
    kind: Kind = Kind.TEXT
    unit: str | None = None
    title: str | None = None
    priority: int = 0
    is_sentence: bool = False

    @property
    def label(self) -> str:
        """Title with the unit in parentheses."""
        text = self.title or self.name.replace("_", " ")
        return f"{text} ({self.unit})" if self.unit else text

    @property
    def key(self) -> str:
        """Name with the unit ("avg_ms"), for files that cannot store the unit elsewhere."""
        unit = re.sub(r"\W+", "_", self.unit or "").strip("_")
        return f"{self.name}_{unit}" if unit and not self.name.endswith(f"_{unit}") else self.name


@dataclass(frozen=True, slots=True)
class Table(Shown):
    """Columns of equal length.

    `values[name]` has a column's values; None (or NaN in a float array) is a missing value. `depth`
    indents a row under the one above (delegated ops under their call). Views draw a line above the
    rows in `breaks` (totals). `notes` are sentences below the table; `findings` come before them,
    in the form of `Finding.plain`. `phases`: the phases of a language model's calls, for programs:
    plain values by name with unit; text output has a separate table. `runs`: number of counted runs
    of each method, in the form of `MethodProfile.runs_as_plain`.
    """

    columns: tuple[Column, ...]
    values: Mapping[str, Sequence[Any]]
    title: str = ""
    notes: tuple[str, ...] = ()
    depth: Sequence[int] | None = None
    breaks: frozenset[int] = field(default_factory=frozenset)
    findings: tuple[Mapping[str, Any], ...] = ()
    phases: tuple[Mapping[str, Any], ...] = ()
    runs: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(
        cls,
        content: Mapping[Column, Sequence[Any]],
        *,
        title: str = "",
        notes: tuple[str, ...] = (),
        depth: Sequence[int] | None = None,
        breaks: frozenset[int] = frozenset(),
    ) -> Table:
        """Make a table of columns with their values."""
        values = {column.name: cells for column, cells in content.items()}
        return cls(tuple(content), values, title, notes, depth, breaks)

    @classmethod
    def of_rows(
        cls,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Any]],
        *,
        title: str = "",
        notes: tuple[str, ...] = (),
        depth: Sequence[int] | None = None,
    ) -> Table:
        """Make a table of rows, each with a value for each column."""
        content = list(rows)
        values = {column.name: [row[i] for row in content] for i, column in enumerate(columns)}
        return cls(tuple(columns), values, title, notes, depth)

    @classmethod
    def of_cells(
        cls,
        columns: Sequence[Column],
        rows: Iterable[Mapping[str, Any]],
        *,
        title: str = "",
        notes: tuple[str, ...] = (),
        depth: Sequence[int] | None = None,
        breaks: frozenset[int] = frozenset(),
    ) -> Table:
        """Make a table of rows, each with a value for each column's name."""
        content = list(rows)
        values = {column.name: [row[column.name] for row in content] for column in columns}
        return cls(tuple(columns), values, title, notes, depth, breaks)

    def __repr__(self) -> str:
        return f"<Table {self.title!r}: {len(self):,} rows, {len(self.columns)} columns>"

    def __len__(self) -> int:
        return len(self.values[self.columns[0].name]) if self.columns else 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows, values in column order."""
        return zip(*(self.values[name] for name in self.names), strict=True)

    def select(self, names: Iterable[str]) -> Table:
        """Return the table with only the named columns, in the order of `names`. A name may also be
        a title."""
        by_name = {column.name: column for column in self.columns}
        by_title = {column.title: column.name for column in self.columns if column.title}
        wanted = tuple(
            name
            if name in by_name
            else by_title.get(name, name)  # a name has precedence over a title
            for name in names
        )
        unknown = [name for name in wanted if name not in by_name]
        if unknown:
            raise UsageError(
                f"unknown column {unknown[0]!r}", hint="columns are: " + ", ".join(by_name)
            )
        return replace(self, columns=tuple(by_name[name] for name in wanted))

    def take(self, rows: Sequence[int]) -> Table:
        """The table of the given rows, in the given order."""
        position = {old: new for new, old in enumerate(rows)}
        return replace(
            self,
            values={name: [self.values[name][i] for i in rows] for name in self.names},
            depth=None if self.depth is None else [self.depth[i] for i in rows],
            breaks=frozenset(position[row] for row in self.breaks if row in position),
        )


def with_same_columns(tables: Sequence[Table]) -> list[Table]:
    """Return the tables, each with the columns of all; added columns do not have values."""
    every = {column.name: column for table in tables for column in table.columns}
    return [
        replace(
            table,
            columns=tuple(every.values()),
            values={name: table.values.get(name, [None] * len(table)) for name in every},
        )
        for table in tables
    ]


def joined(tables: Sequence[Table]) -> Table:
    """Concatenate tables with the same columns."""
    first = tables[0]
    if len(tables) == 1:
        return first
    depths = [list(table.depth or [0] * len(table)) for table in tables]
    return replace(
        first,
        values={
            name: [value for table in tables for value in table.values[name]]
            for name in first.names
        },
        title="",
        notes=tuple(dict.fromkeys(note for table in tables for note in table.notes)),
        depth=[level for depth in depths for level in depth],
        breaks=frozenset(),
        findings=tuple(finding for table in tables for finding in table.findings),
        runs=tuple(runs for table in tables for runs in table.runs),
    )


def grouped(rows: Iterable[Row], is_head: Callable[[Row], bool]) -> list[list[Row]]:
    """Group each head with the rows below it."""
    groups: list[list[Row]] = []
    for row in rows:
        if is_head(row) or not groups:
            groups.append([])
        groups[-1].append(row)
    return groups


def object_column(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    """Return one cell for each value: numpy and pandas would split lists and tensors."""
    import numpy as np

    column = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        column[position] = value
    return column
