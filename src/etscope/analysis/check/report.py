"""The answer of a check: rows, the outcome of all, a headline, and commands that show more."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from etscope.analysis.check.compare import Outcome, Row, value_text
from etscope.analysis.check.measured import BY_NAME, SCHEMA, Measured, Part
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown

_LISTED = 4  # quantities in a headline


@dataclass(frozen=True)
class Checked(Shown):
    """A finished check. base: None for a baseline that is only written. is_stored: BASE is a
    baseline, so its files may be gone. allows_unknown: "cannot tell" is a pass."""

    base: Measured | None
    new: Measured
    rows: tuple[Row, ...] = ()
    is_stored: bool = False
    allows_unknown: bool = False

    def having(self, outcome: Outcome) -> list[Row]:
        """Return the rows of an outcome."""
        return [row for row in self.rows if row.outcome is outcome]

    @property
    def outcome(self) -> Outcome:
        """The outcome of all rows."""
        if self.having(Outcome.WORSE):
            return Outcome.WORSE
        if self.having(Outcome.CANNOT_TELL) and not self.allows_unknown:
            return Outcome.CANNOT_TELL
        compared = self.having(Outcome.OK) or self.base is None or self.allows_unknown
        return Outcome.OK if compared else Outcome.NOT_COMPARED

    @property
    def exit_code(self) -> int:
        """1 if a quantity is worse; 4 if one cannot be told, or none was compared; else 0."""
        return {Outcome.OK: 0, Outcome.WORSE: 1}.get(self.outcome, 4)

    @property
    def headline(self) -> str:
        """The outcome in one sentence: "worse: program bytes +63.6%, time +47.1%"."""
        if self.base is None:
            return f"baseline of {self.new.name}"
        worse, unknown = self.having(Outcome.WORSE), self.having(Outcome.CANNOT_TELL)
        if worse:
            return f"worse: {_listed([f'{row.title} {row.change}' for row in worse])}"
        if self.outcome is Outcome.NOT_COMPARED:
            return "nothing was compared: the sides have no quantity in common"
        if unknown:
            names = _listed([row.title for row in unknown])
            allowed = ", which is allowed" if self.allows_unknown else ""
            return f"cannot tell: {names}{allowed}"
        return f"ok: {len(self.having(Outcome.OK))} quantities compared, none is worse"

    def table(self) -> Table:
        """Return a row for each quantity; its notes say how it was compared."""
        if self.base is None:
            found = [
                (BY_NAME[one.quantity].title, one.method, value_text(one))
                for one in self.new.amounts
            ]
            columns = [Column("quantity"), Column("method"), Column("value")]
            return Table.of_rows(columns, found)
        content = [
            (
                row.title,
                *(text or None for text in row.texts),
                row.change or None,
                row.limit.text,
                row.outcome.value,
            )
            for row in self.rows
        ]
        names = ("quantity", "base", "new", "change", "threshold", "outcome")
        return Table.of_rows(
            list(map(Column, names)),
            content,
            title=f"{self.base.name} → {self.new.name}",
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        for row in self.rows:
            if row.reason:
                yield f"{row.title}: {row.outcome.value}; {row.reason}."

    def causes(self) -> Table | None:
        """Return the parts of what got worse, with their lines; None if there are none."""
        found = [(row, part) for row in self.having(Outcome.WORSE) for part in row.parts]
        if not found:
            return None
        columns = (
            Column("quantity"),
            Column("part"),
            Column("change", is_sentence=True),
            Column("module", Kind.PATH, priority=1),
            Column("source", Kind.PATH),
        )
        content = [
            (row.title, part.name, part.text, part.module, short(part)) for row, part in found
        ]
        table = Table.of_rows(columns, content, title="What made it worse")
        kept = [c for c in table.columns if any(table.values[c.name])]
        return table.select([one.name for one in kept])

    def commands(self) -> dict[str, str]:
        """Return the command that shows more of each quantity that got worse, by its title."""
        found = ((row.title, self.command(row)) for row in self.having(Outcome.WORSE))
        return {title: command for title, command in found if command is not None}

    def command(self, row: Row) -> str | None:
        """Return the command that shows more of a row; None if a file that it takes is unknown."""
        paths, files = self.new.paths, self.new.files
        program = paths.get("program") or paths.get("record")
        words: tuple[str | None, ...]
        match row.quantity.name:
            case "time" if self.base is not None and not self.is_stored:
                words = ("diff", *self.base.files, *files, "--by", "op")
            case "time":
                words = ("inspect", *files)
            case "size":
                words = ("info", program, "--size", "--by", "module")
            case "memory":
                words = ("info", paths.get("program"), "--memory")
            case "flops" | "bytes" if "dump" in paths:
                words = ("inspect", *files, "--work")
            case "flops" | "bytes":
                words = ("graph", *files)
            case "delegated":
                words = ("graph", *files, "--partition")
            case "sqnr" | "worst_sample":
                source = paths.get("record") or program
                words = ("run", source, "--debug-level", "intermediate_outputs")
            case _:
                words = ("info", program)
        known = [word for word in words if word is not None]
        return shlex.join(["etscope", *known]) if len(known) == len(words) and files else None

    def to_json(self) -> dict[str, Any]:
        """Return the document of schema `SCHEMA`, which is a baseline, too."""
        return {
            "schema": SCHEMA,
            "outcome": self.outcome.value,
            "exit_code": self.exit_code,
            "headline": self.headline,
            "base": None if self.base is None else self.base.name,
            "rows": [self._row(row) for row in self.rows],
            "new": self.new.to_json(),
        }

    def _row(self, row: Row) -> dict[str, Any]:
        found = row.comparison
        return {
            "quantity": row.quantity.name,
            "title": row.title,
            "method": row.method,
            "outcome": row.outcome.value,
            "unit": row.unit,
            "base": None if row.base is None else _plain(row.base.value),
            "new": None if row.new is None else _plain(row.new.value),
            "change": row.change_value,
            "change_text": row.change or None,
            "threshold": row.limit.value,
            "threshold_text": row.limit.text,
            "low": None if found is None else found.low,
            "high": None if found is None else found.high,
            "reason": row.reason or None,
            "parts": [asdict(part) for part in row.parts],
            "command": self.command(row) if row.outcome is Outcome.WORSE else None,
        }


def short(part: Part) -> str | None:
    """Return the line of a part without its folder: "net.py:12"."""
    return None if part.source is None else PurePath(part.source).name


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _LISTED
    return ", ".join(texts[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _plain(value: float) -> float | str:
    """Return a number for JSON, which has neither NaN nor infinities."""
    return value if math.isfinite(value) else str(value)
