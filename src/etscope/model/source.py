"""Python stack traces as torch writes them into a graph, read back into source lines."""

from __future__ import annotations

import re
from functools import lru_cache

from etscope.model.graph import SourceLine

_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d{1,9})(?:, in (?P<function>.*))?\s*')
_CARETS = re.compile(r"[\s~^]*")


@lru_cache(maxsize=4096)
def source_lines(stack_trace: str | None) -> tuple[SourceLine, ...]:
    """The frames of a traceback text, outermost first and innermost last.

    Reads the forms of Python's `traceback` module: with or without the line's text, of several
    lines (Python 3.13), with markers of carets or tildes, with or without a function name. Text
    that holds no frame gives no lines.
    """
    frames: list[SourceLine] = []
    texts: list[str] = []
    for line in (stack_trace or "").splitlines():
        match = _FRAME.fullmatch(line)
        if match is not None:
            _close(frames, texts)
            frames.append(
                SourceLine(match["file"], int(match["line"]), (match["function"] or "").strip())
            )
        elif frames and not _CARETS.fullmatch(line):
            texts.append(line.strip())
    _close(frames, texts)
    return tuple(frames)


def _close(frames: list[SourceLine], texts: list[str]) -> None:
    """Give the last frame the text lines that followed it."""
    if frames and texts:
        last = frames[-1]
        frames[-1] = SourceLine(last.file, last.line, last.function, " ".join(texts))
    texts.clear()
