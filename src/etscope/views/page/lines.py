"""The lines of Python that the stack traces of a run name, each once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from etscope.model.graph import SourceLine, source_lines


class Lines:
    """Collects lines and gives each an index; `document` is the page's `SourceDoc`."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._index: dict[tuple[str, int], int] = {}
        self._lines: list[SourceLine] = []
        self._stacks: dict[str, list[int]] = {}

    def index(self, line: SourceLine) -> int:
        """The line's index. Of two accounts of one line the first that has its text counts."""
        place = (line.file, line.line)
        if place not in self._index:
            self._files.setdefault(line.file, len(self._files))
            self._index[place] = len(self._lines)
            self._lines.append(line)
        number = self._index[place]
        if line.text and not self._lines[number].text:
            self._lines[number] = line
        return number

    def all_of(self, lines: Iterable[SourceLine]) -> list[int]:
        return [self.index(line) for line in lines]

    def stack(self, trace: str | None) -> list[int]:
        """The indices of a traceback's lines, outermost first."""
        if not trace:
            return []
        if trace not in self._stacks:
            self._stacks[trace] = self.all_of(source_lines(trace))
        return self._stacks[trace]

    def document(self) -> dict[str, Any]:
        return {
            "files": list(self._files),
            "lines": [
                {
                    "file": self._files[line.file],
                    "line": line.line,
                    "function": line.function,
                    "text": line.text,
                }
                for line in self._lines
            ],
        }
