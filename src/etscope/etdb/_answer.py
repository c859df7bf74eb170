"""What a command answers: sentences, tables and facts, in order. Views make text or JSON of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from etscope.model.report import Report, Section
from etscope.model.table import Table

Item = str | Table | Section


@dataclass
class Answer:
    """Parts of an answer. `finding`: a run stopped at what the person had said to look for.
    `ends`: the session is over. `code`: the exit code of a script that failed in a part."""

    items: list[Item] = field(default_factory=list)
    finding: bool = False
    ends: bool = False
    code: int = 0

    def say(self, *lines: str) -> Answer:
        """Add lines of text."""
        self.items.extend(lines)
        return self

    def table(self, table: Table, columns: Iterable[str] | None = None) -> Answer:
        """Add a table, with the named columns of it."""
        self.items.append(table if columns is None else table.select(columns))
        return self

    def report(self, report: Report, sections: Sequence[str] | None = None) -> Answer:
        """Add the sections of a report."""
        self.items.extend(
            section for section in report.sections if sections is None or section.name in sections
        )
        return self

    def add(self, other: Answer) -> Answer:
        """Add all of another answer."""
        self.items.extend(other.items)
        self.finding = self.finding or other.finding
        self.ends = self.ends or other.ends
        self.code = self.code or other.code
        return self
